//! Samples in-neighbors of the halo nodes that minibatches can reach.
//!
//! A partition has the features of halo nodes but not their in-edges. With sampled in-neighbors it can expand them:
//! each has up to a few in-neighbors, drawn uniformly, and the partition has the features of these. They are drawn
//! again at each repartition. In expectation, minibatches have the neighbors of the whole graph; within a super-epoch,
//! a halo node has the same few in-neighbors.
//!
//! In a graph with types, a halo node has in-neighbors in each relation to its type.

#[cfg(test)]
mod tests;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::MappedChunks;

use crate::{
    InNeighbors, ListScratch, NeighborSample, NodeSet, Pieces,
    in_neighbors::List,
    node_set::GrowingSet,
    partition::Owned,
    policy::{CHOSEN_HALO_LISTS, HALO_DRAWS, HALO_NEIGHBORS_MIN},
    shape::RelationEnds,
    view::{EdgeData, Given, GraphHaloLists, HaloEdges, HaloLists, HaloPiece, HaloSizes},
};

/// The chosen number of in-neighbors of a halo node in each relation: [`HALO_DRAWS`] times `per_draw`, the most that a minibatch draws at once
/// (none is all), or as many as fit in their share of `memory` if all nodes are halo nodes, and at least [`HALO_NEIGHBORS_MIN`].
pub fn halo_neighbors_auto(per_draw: Option<u32>, relations: &[HaloSizes], memory: u64) -> u32 {
    let wanted = wanted(per_draw);
    let fits = |per_node| fits(per_node, relations, memory);
    if fits(wanted) {
        return wanted;
    }
    let (mut fitting, mut too_many) = (HALO_NEIGHBORS_MIN, wanted);
    while too_many - fitting > 1 {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    fitting
}

/// Whether as many in-neighbors of each halo node as are wanted fit; see [`halo_neighbors_auto`].
pub fn halo_neighbors_fit(per_draw: Option<u32>, relations: &[HaloSizes], memory: u64) -> bool {
    fits(wanted(per_draw), relations, memory)
}

fn wanted(per_draw: Option<u32>) -> u32 {
    per_draw.map_or(u32::MAX, |draws| draws.saturating_mul(HALO_DRAWS)).max(HALO_NEIGHBORS_MIN)
}

fn fits(per_node: u32, relations: &[HaloSizes], memory: u64) -> bool {
    let bytes = relations.iter().map(|sizes| sizes.drawing_bytes_max(sizes.nodes, per_node));
    bytes.fold(0, u64::saturating_add) <= CHOSEN_HALO_LISTS.bytes(memory)
}

/// Which in-neighbors are drawn, in all relations of a graph.
#[derive(Debug)]
pub(crate) struct HaloNeighbors<'a> {
    /// Number of nodes of each type.
    pub nodes: Vec<u64>,
    pub relations: Vec<HaloRelation<'a>>,
    /// How many edges away from seeds nodes are expanded.
    pub hops: usize,
    /// The maximum number of bytes of the lists, and of the sets of nodes that are needed to find them.
    pub memory: u64,
    pub threads: usize,
}

/// Which in-neighbors are drawn in a relation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HaloRelation<'a> {
    /// The types that it joins.
    pub ends: RelationEnds,
    pub chunks: &'a MappedChunks,
    pub sizes: HaloSizes,
    /// The place of the first edge of each chunk in the store.
    pub first_edges: &'a [u64],
    /// The maximum number of in-neighbors of a node.
    pub per_node: u32,
    pub seed: u64,
}

/// The nodes that a partition owns, and its seeds: of each type.
#[derive(Debug)]
pub(crate) struct PartitionNodes {
    pub owned: Vec<Owned>,
    pub seeds: Vec<NodeSet>,
}

impl HaloNeighbors<'_> {
    /// Draws in-neighbors of all halo nodes that minibatches of `partitions` may expand.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or progress says to stop.
    pub(crate) fn draw(&self, partitions: &[PartitionNodes], progress: &dyn Progress) -> Result<GraphHaloLists> {
        let mut reached: Vec<Vec<NodeSet>> = partitions.iter().map(|partition| partition.seeds.clone()).collect();
        let universes = &self.nodes;
        let sets = universes.iter().map(|&nodes| NodeSet::bytes_of(nodes)).fold(0, u64::saturating_add);
        self.check_memory(sets.saturating_mul(partitions.len() as u64))?;
        let mut halo: Vec<NodeSet> = universes.iter().map(|&nodes| NodeSet::from_members(nodes, [])).collect();
        let mut lists = self.lists_of(&halo, progress)?;
        for _ in 1..self.hops {
            for (reached, PartitionNodes { owned, .. }) in reached.iter_mut().zip(partitions) {
                let mut grown = reached.clone();
                for (relation, lists) in self.relations.iter().zip(&lists) {
                    let RelationEnds { source, destination } = relation.ends;
                    let (expanded, outside) = reached[destination].split(owned[destination].runs());
                    let found = GrowingSet::from(&grown[source]);
                    InNeighbors::all(relation.chunks).add_sources(&found, &expanded, self.threads, progress)?;
                    self.add_sampled(lists, &outside, &found, progress)?;
                    grown[source] = found.finish();
                }
                *reached = grown;
                for ((halo, reached), owned) in halo.iter_mut().zip(&*reached).zip(owned) {
                    *halo = halo.union(&reached.split(owned.runs()).1);
                }
            }
            lists = self.lists_of(&halo, progress)?;
        }
        let mut given = Given { rows: vec![0; universes.len()], ..Given::default() };
        for (reached, PartitionNodes { owned, .. }) in reached.iter().zip(partitions) {
            let sources: Vec<_> = universes.iter().map(|&nodes| GrowingSet::new(nodes)).collect();
            for (relation, lists) in self.relations.iter().zip(&lists) {
                let RelationEnds { source, destination } = relation.ends;
                let (_, outside) = reached[destination].split(owned[destination].runs());
                given.listed += outside.len() + self.add_sampled(lists, &outside, &sources[source], progress)?;
            }
            for ((sources, owned), rows) in sources.into_iter().zip(owned).zip(&mut given.rows) {
                *rows += sources.finish().split(owned.runs()).1.len();
            }
        }
        Ok(GraphHaloLists { relations: lists.into_iter().map(Arc::new).collect(), given })
    }

    /// Adds the nodes in the lists of some nodes to `found`. Returns the length of all these lists.
    fn add_sampled(
        &self,
        lists: &HaloLists,
        nodes: &NodeSet,
        found: &GrowingSet,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let listed = AtomicU64::new(0);
        // Not `Pieces`, which reads the adjacency lists of the store ahead.
        let pieces: Vec<u64> = (0..nodes.len()).step_by(Pieces::NODES as usize).collect();
        workers::for_each(self.threads, &pieces, |first| {
            check_stopped(progress)?;
            let mut members = Vec::new();
            nodes.nodes_at(first..(first + Pieces::NODES).min(nodes.len()), &mut members);
            let sources = members.iter().flat_map(|&node| lists.sources(node));
            let count = sources.inspect(|source| found.add(source.0)).count();
            listed.fetch_add(count as u64, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(listed.into_inner())
    }

    fn check_memory(&self, bytes: u64) -> Result<()> {
        if bytes <= self.memory {
            return Ok(());
        }
        Err(Error::Budget {
            operation: "the sampled in-neighbors of halo nodes".into(),
            given: self.memory,
            least: bytes,
            remedy: "raise --memory, sample fewer in-neighbors, or choose another halo mode",
        })
    }

    /// The lists of each relation, for the nodes of a set of each type.
    fn lists_of(&self, nodes: &[NodeSet], progress: &dyn Progress) -> Result<Vec<HaloLists>> {
        let of_relation = |relation: &HaloRelation<'_>| &nodes[relation.ends.destination];
        let bytes = self
            .relations
            .iter()
            .map(|relation| relation.sizes.drawing_bytes_max(of_relation(relation).len(), relation.per_node));
        self.check_memory(bytes.fold(0, u64::saturating_add))?;
        let lists = self.relations.iter();
        lists.map(|relation| relation.lists_of(of_relation(relation).clone(), self.threads, progress)).collect()
    }
}

impl HaloRelation<'_> {
    /// In-neighbors of each node of a set. Those of a node depend on the node and the seed only.
    fn lists_of(&self, nodes: NodeSet, threads: usize, progress: &dyn Progress) -> Result<HaloLists> {
        let drawn: Vec<_> = (0..nodes.len().div_ceil(Pieces::NODES)).map(|_| Mutex::new(None)).collect();
        let pieces = Pieces::new(&nodes, 0..nodes.len(), self.chunks);
        workers::run(threads, |worker| {
            let (mut scratch, mut members) = (ListScratch::default(), Vec::new());
            while worker.goes_on()
                && let Some(positions) = pieces.next(&mut members)
            {
                check_stopped(progress)?;
                let piece = self.piece(&members, &mut scratch)?;
                let number = positions.start / Pieces::NODES;
                *drawn[number as usize].lock().expect("no thread panics") = Some(piece);
                self.chunks.release(&members);
            }
            Ok(())
        })?;
        let drawn = drawn.into_iter().map(|piece| piece.into_inner().expect("no thread panics"));
        let drawn: Vec<HaloPiece> = drawn.map(|piece| piece.expect("all pieces are drawn")).collect();
        Ok(HaloLists::from_pieces(nodes, drawn))
    }

    fn piece(&self, members: &[NodeId], scratch: &mut ListScratch) -> Result<HaloPiece> {
        let (mut piece, mut sources) = (HaloPiece::new(self.sizes.sources), Vec::new());
        let sample = NeighborSample { per_node: self.per_node, replace: false, seed: self.seed };
        InNeighbors::sampled(self.chunks, Some(sample)).each(members, scratch, |index, list| {
            sources.clear();
            list.decode_into(&mut sources);
            piece.push(list.degree(), &sources);
            match self.sizes.edge_data == EdgeData::default() {
                true => Ok(()),
                false => self.add_edges(members[index], &list, &mut piece.edges),
            }
        })?;
        Ok(piece)
    }

    /// Appends what is wanted of the edges in the list of a node.
    fn add_edges(&self, node: NodeId, list: &List<'_>, edges: &mut HaloEdges) -> Result<()> {
        let chunk = self.chunks.map().chunk_of(node);
        // The list is empty where a slice lacks the chunk.
        let Some((files, row)) = self.chunks.get(node) else {
            return Ok(());
        };
        let weights = files.weights().filter(|_| self.sizes.edge_data.weights);
        let Some(located_by) = files.edge_features().or(files.weights()) else {
            return Ok(());
        };
        let of_node = located_by.range(row, &files.rows())?;
        for position in list.positions() {
            let edge = of_node.start + position;
            if self.sizes.edge_data.ids {
                edges.ids.push(self.first_edges[chunk.0 as usize] + edge);
            }
            if let Some(weights) = &weights {
                let at = edges.weights.len();
                edges.weights.push(0.0);
                weights.copy(edge..edge + 1, &mut edges.weights[at..])?;
            }
        }
        Ok(())
    }
}
