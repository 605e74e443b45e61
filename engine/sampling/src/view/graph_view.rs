//! A view of a graph with types: a view of each relation.

use std::sync::Arc;

use grappa_io::{Result, progress::Progress};
use grappa_storage::{Graph, Positions};

use super::{
    edge_filter::EdgeData,
    files::MappedMemory,
    halo::Halo,
    halo_lists::GraphHaloLists,
    kind::ViewKind,
    opened::{PartitionView, ViewOptions},
};
use crate::{
    partition::Owned,
    shape::{GraphShape, RelationEnds},
};

/// The part of a graph that a partition samples from. Its nodes have [positions](Positions) among the nodes of all types.
#[derive(Debug)]
pub struct GraphView {
    owned: Owned,
    positions: Positions,
    shape: GraphShape,
    /// The view of each relation.
    views: Vec<PartitionView>,
}

/// What a sampler reads: the shape of a graph, and a view of each relation.
#[derive(Debug, Clone)]
pub(crate) struct GraphLists<'a> {
    pub shape: &'a GraphShape,
    pub views: Vec<&'a PartitionView>,
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
            let edge_data = options.edge_data.available_in(graph.relation(number));
            let options = ViewOptions {
                sources: (source != destination).then(|| of_types[source].clone()),
                source_times: if edge_data.times { graph.node_times(source)?.cloned() } else { None },
                edge_data,
                mapped_bytes_max: options.mapped_bytes_max.map(share),
                halo_lists: None,
                ..options.clone()
            };
            PartitionView::open_with(store, of_types[destination].clone(), &options, mapped, None, progress)
        });
        let views = relations.collect::<Result<_>>()?;
        Ok(Self { owned, positions: graph.positions().clone(), shape: shape_of(graph), views })
    }

    /// Gives the halo nodes of each relation their lists.
    pub(crate) fn set_halo_lists(&mut self, lists: &GraphHaloLists) {
        self.views.iter_mut().zip(&lists.relations).for_each(|(view, lists)| view.set_halo_lists(lists.clone()));
    }

    /// The exact number of bytes that the adjacency lists of these nodes take in memory.
    pub fn bytes_in_memory(graph: &Graph, owned: &Owned, halo: Halo, edge_data: EdgeData) -> u64 {
        let of_types = owned_of_types(graph, owned);
        let relations = graph.relations().iter().zip(&graph.manifest().relations).enumerate();
        let bytes = relations.map(|(number, (store, entry))| {
            let [source, destination] = [entry.source, entry.destination].map(|end| &of_types[end as usize]);
            let edge_data = edge_data.available_in(graph.relation(number));
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
        self.views.iter()
    }

    /// The relations, as samplers read them.
    pub(crate) fn lists(&self) -> GraphLists<'_> {
        GraphLists { shape: &self.shape, views: self.views.iter().collect() }
    }
}

/// The shape of a graph.
pub fn shape_of(graph: &Graph) -> GraphShape {
    let relations = graph.manifest().relations.iter();
    GraphShape {
        nodes: graph.node_types().iter().map(|store| store.manifest().nodes).collect(),
        relations: relations
            .map(|entry| RelationEnds { source: entry.source as usize, destination: entry.destination as usize })
            .collect(),
    }
}

/// The nodes of each type at `owned` positions.
pub(crate) fn owned_of_types(graph: &Graph, owned: &Owned) -> Vec<Owned> {
    let types = graph.node_types().iter().enumerate();
    types.map(|(node_type, store)| owned.part(graph.positions().chunks_of(node_type), store.chunks())).collect()
}
