//! A view of a graph with types: a view of each relation.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Result, progress::Progress};
use grappa_storage::{Graph, Positions};

use super::{
    edge_filter::EdgeData,
    files::MappedMemory,
    halo::Halo,
    kind::ViewKind,
    opened::{PartitionView, ViewOptions},
};
use crate::partition::Owned;

/// The part of a graph that a partition samples from. Its nodes have [positions](Positions) among the nodes of all types.
#[derive(Debug)]
pub struct GraphView {
    owned: Owned,
    positions: Positions,
    relations: Vec<RelationView>,
}

/// The adjacency lists of a relation, and the types that it joins.
#[derive(Debug)]
struct RelationView {
    source: usize,
    destination: usize,
    view: PartitionView,
}

/// A relation, with the types that it joins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelationOfTypes<'a> {
    pub source: usize,
    pub destination: usize,
    pub view: &'a PartitionView,
}

/// The seeds of a node type, and the number of its nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeedsOfType<'a> {
    pub seeds: &'a [NodeId],
    pub nodes: u64,
}

impl GraphView {
    /// Opens the adjacency lists of all relations into nodes at `owned` positions. Mapped lists share the limit of `options` by their
    /// edges. Relations have the weights and ids of `options`, as far as they have weights, or weights or features.
    ///
    /// # Errors
    /// As [`PartitionView::open`], and [`Error::Stopped`](grappa_io::Error::Stopped) if `progress` asks to stop.
    pub(crate) fn open(
        graph: &Graph,
        owned: Owned,
        options: &ViewOptions,
        mapped: &Arc<MappedMemory>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let of_types = owned_of_types(graph, &owned);
        // An edge more, so that an empty relation has a share.
        let edges = |relation: usize| 1 + u128::from(graph.relations()[relation].manifest().edges);
        let all_edges: u128 = (0..graph.relations().len()).map(edges).sum();
        let relations = graph.relations().iter().zip(&graph.manifest().relations).enumerate();
        let relations = relations.map(|(number, (store, entry))| {
            let [source, destination] = [entry.source, entry.destination].map(|end| end as usize);
            let share = |bytes: u64| (u128::from(bytes) * edges(number) / all_edges) as u64;
            let options = ViewOptions {
                sources: (source != destination).then(|| of_types[source].clone()),
                edge_data: EdgeData {
                    weights: options.edge_data.weights && store.manifest().weighted,
                    ids: options.edge_data.ids && store.has_edge_data(),
                },
                mapped_bytes_max: options.mapped_bytes_max.map(share),
                ..options.clone()
            };
            let view =
                PartitionView::open_with(store, of_types[destination].clone(), &options, mapped, None, progress)?;
            Ok(RelationView { source, destination, view })
        });
        let relations = relations.collect::<Result<_>>()?;
        Ok(Self { owned, positions: graph.positions().clone(), relations })
    }

    /// The exact number of bytes that the adjacency lists of these nodes take in memory.
    pub(crate) fn bytes_in_memory(graph: &Graph, owned: &Owned, halo: Halo, edge_data: EdgeData) -> u64 {
        let of_types = owned_of_types(graph, owned);
        let relations = graph.relations().iter().zip(&graph.manifest().relations);
        let bytes = relations.map(|(store, entry)| {
            let [source, destination] = [entry.source, entry.destination].map(|end| &of_types[end as usize]);
            let edge_data = EdgeData {
                weights: edge_data.weights && store.manifest().weighted,
                ids: edge_data.ids && store.has_edge_data(),
            };
            PartitionView::relation_bytes(store, destination, source, halo, edge_data)
        });
        bytes.sum()
    }

    /// The positions that the partition owns.
    pub fn owned(&self) -> &Owned {
        &self.owned
    }

    /// The positions of the nodes of all types.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Number of nodes of all types.
    pub fn nodes(&self) -> u64 {
        self.positions.chunks().nodes()
    }

    /// Where the adjacency lists are: [`ViewKind::Memory`] or [`ViewKind::Mapped`].
    pub fn kind(&self) -> ViewKind {
        self.views().next().map_or(ViewKind::Memory, PartitionView::kind)
    }

    /// The views of the relations.
    pub(crate) fn views(&self) -> impl Iterator<Item = &PartitionView> {
        self.relations.iter().map(|relation| &relation.view)
    }

    /// The relations, as samplers read them.
    pub(crate) fn relations(&self) -> Vec<RelationOfTypes<'_>> {
        let relations = self.relations.iter();
        relations
            .map(|&RelationView { source, destination, ref view }| RelationOfTypes { source, destination, view })
            .collect()
    }

    /// The seeds of each type, as samplers read them.
    pub(crate) fn seeds<'a>(&self, seeds: &'a [Vec<NodeId>]) -> Vec<SeedsOfType<'a>> {
        let of_types = seeds.iter().enumerate().map(|(node_type, seeds)| {
            let range = self.positions.range(node_type);
            SeedsOfType { seeds, nodes: range.end - range.start }
        });
        of_types.collect()
    }
}

/// The nodes of each type at `owned` positions.
fn owned_of_types(graph: &Graph, owned: &Owned) -> Vec<Owned> {
    let types = graph.node_types().iter().enumerate();
    types.map(|(node_type, store)| owned.part(graph.positions().chunks_of(node_type), store.chunks())).collect()
}
