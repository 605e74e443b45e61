//! The nodes that a partition owns: ranges of node ids, numbered with local ids.
//!
//! Finding the local id of a node costs a lookup of its chunk and one in an array of C entries. There are at most as many
//! runs as owned chunks.

#[cfg(test)]
mod tests;

use std::ops::Range;

use grappa_formats::{ChunkId, NodeId, PartitionId, assignment::Assignment, chunks::ChunkMap};
use grappa_io::{Error, Result};
use grappa_storage::{Graph, Store};
use roaring::RoaringTreemap;

use super::seeds::{Runs, SeedNodes};

/// The index of a node among the nodes that a partition owns, in ascending order of node ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u64);

/// Marks a chunk that is not owned, in place of the first local id of the chunk.
const NOT_OWNED: u64 = u64::MAX;

/// The chunks and nodes that a partition owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    partition: PartitionId,
    chunks: ChunkMap,
    base: Vec<ChunkId>,
    variable: Vec<ChunkId>,
    /// The index of a node here is its local id.
    runs: Runs,
    /// The local id of the first node of each chunk of the store, or [`NOT_OWNED`].
    chunk_locals: Vec<u64>,
}

impl Owned {
    /// The chunks and nodes of `store` that `partition` owns under `assignment`. Nobody owns chunks that a slice lacks.
    ///
    /// # Panics
    /// If the assignment has a different number of chunks than the store, or no such partition.
    pub fn new(assignment: &Assignment, store: &Store, partition: PartitionId) -> Self {
        Self::among(assignment, store.chunks(), |chunk| store.is_present(chunk), partition)
    }

    /// [`Owned::new`], of all partitions.
    ///
    /// # Panics
    /// If the assignment has a different number of chunks than the store.
    pub fn all(assignment: &Assignment, store: &Store) -> Vec<Self> {
        let partitions = (0..assignment.partitions()).map(PartitionId);
        partitions.map(|partition| Self::new(assignment, store, partition)).collect()
    }

    /// The positions of the nodes that `partition` owns in a graph with types. The assignment has the chunks of all types.
    ///
    /// # Panics
    /// As [`Owned::new`].
    pub fn of_graph(assignment: &Assignment, graph: &Graph, partition: PartitionId) -> Self {
        let present = graph
            .node_types()
            .iter()
            .flat_map(|store| (0..store.chunks().chunks()).map(|chunk| store.is_present(ChunkId(chunk))));
        let present: Vec<bool> = present.collect();
        Self::among(assignment, graph.positions().chunks(), |chunk| present[chunk.0 as usize], partition)
    }

    /// The nodes of these chunks that `partition` owns, as far as they are present.
    ///
    /// # Panics
    /// As [`Owned::new`].
    fn among(
        assignment: &Assignment,
        chunks: &ChunkMap,
        is_present: impl Fn(ChunkId) -> bool,
        partition: PartitionId,
    ) -> Self {
        assert_eq!(assignment.chunks(), chunks.chunks(), "the assignment does not match the chunks of the store");
        assert!(
            partition.0 < assignment.partitions(),
            "partition {partition} does not exist: the assignment has {}",
            assignment.partitions()
        );
        let mut owned = Self {
            partition,
            chunks: chunks.clone(),
            base: Vec::new(),
            variable: Vec::new(),
            runs: Runs::default(),
            chunk_locals: vec![NOT_OWNED; chunks.chunks() as usize],
        };
        for chunk in (0..chunks.chunks()).map(ChunkId).filter(|&chunk| is_present(chunk)) {
            let owners = assignment.owners(chunk);
            if owners.base == Some(partition) {
                owned.base.push(chunk);
            } else if owners.variable == Some(partition) {
                owned.variable.push(chunk);
            } else {
                continue;
            }
            owned.chunk_locals[chunk.0 as usize] = owned.runs.nodes;
            owned.runs.push(chunks.range(chunk));
        }
        owned
    }

    /// The owned nodes of some consecutive chunks, which are the chunks of `map`.
    pub(crate) fn part(&self, chunks: Range<u32>, map: &ChunkMap) -> Self {
        let among = |listed: &[ChunkId]| -> Vec<ChunkId> {
            let of_part = listed.iter().filter(|chunk| chunks.contains(&chunk.0));
            of_part.map(|chunk| ChunkId(chunk.0 - chunks.start)).collect()
        };
        let mut part = Self {
            partition: self.partition,
            chunks: map.clone(),
            base: among(&self.base),
            variable: among(&self.variable),
            runs: Runs::default(),
            chunk_locals: vec![NOT_OWNED; map.chunks() as usize],
        };
        for chunk in (0..map.chunks()).map(ChunkId).filter(|chunk| self.owns(ChunkId(chunks.start + chunk.0))) {
            part.chunk_locals[chunk.0 as usize] = part.runs.nodes;
            part.runs.push(map.range(chunk));
        }
        part
    }

    /// All nodes of the chunks that `store` has: the only partition of a store that was not partitioned.
    pub fn whole(store: &Store) -> Self {
        Self::new(&Assignment::whole(store.chunks().chunks()), store, PartitionId(0))
    }

    /// All nodes of a graph, as one partition.
    pub fn whole_graph(graph: &Graph) -> Self {
        Self::of_graph(&Assignment::whole(graph.positions().chunks().chunks()), graph, PartitionId(0))
    }

    /// The id of the partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The chunks of its base, ascending. They contain its seeds.
    pub fn base(&self) -> &[ChunkId] {
        &self.base
    }

    /// The chunks of its variable part, ascending.
    pub fn variable(&self) -> &[ChunkId] {
        &self.variable
    }

    /// The owned chunks, base and variable part, ascending.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        (0..).map(ChunkId).zip(&self.chunk_locals).filter_map(|(chunk, &local)| (local != NOT_OWNED).then_some(chunk))
    }

    /// The division of the store's nodes into chunks.
    pub fn chunk_map(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The owned node ids as the smallest number of ranges: ascending, not empty, not adjacent.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs.ranges
    }

    /// Number of owned nodes.
    pub fn nodes(&self) -> u64 {
        self.runs.nodes
    }

    /// Whether a chunk is owned.
    ///
    /// # Panics
    /// If the chunk does not exist.
    #[inline]
    pub fn owns(&self, chunk: ChunkId) -> bool {
        self.chunk_locals[chunk.0 as usize] != NOT_OWNED
    }

    /// Whether a node is owned.
    ///
    /// # Panics
    /// If the node does not exist.
    #[inline]
    pub fn contains(&self, node: NodeId) -> bool {
        self.owns(self.chunks.chunk_of(node))
    }

    /// Fails if another partition owns this seed, of a graph with `nodes` nodes.
    ///
    /// # Errors
    /// If there is such a node, and it is not owned.
    pub(crate) fn check_seed(&self, seed: NodeId, nodes: u64) -> Result<()> {
        if seed.0 < nodes && !self.contains(seed) {
            return Err(Error::conflict(
                format!("seed {seed} is not owned by partition {}", self.partition),
                "give seeds that the partition owns",
            ));
        }
        Ok(())
    }

    /// Whether a node is in the base, and so can be a seed of this partition.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn has_seed(&self, node: NodeId) -> bool {
        self.base.binary_search(&self.chunks.chunk_of(node)).is_ok()
    }

    /// The local id of a node, if it is owned.
    ///
    /// # Panics
    /// If the node does not exist.
    #[inline]
    pub fn local(&self, node: NodeId) -> Option<LocalId> {
        let chunk = self.chunks.chunk_of(node).0 as usize;
        let first = self.chunk_locals[chunk];
        (first != NOT_OWNED).then(|| LocalId(first + (node.0 - self.chunks.starts()[chunk])))
    }

    /// The owned node of a local id.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn at(&self, local: LocalId) -> NodeId {
        assert!(local.0 < self.nodes(), "local id {} of {}", local.0, self.nodes());
        self.runs.at(local.0)
    }

    /// Number of the seeds of this partition, which [`Owned::seeds`] lists.
    pub fn seed_count(&self, split: &RoaringTreemap) -> u64 {
        let ranges = self.base.iter().map(|&chunk| self.chunks.range(chunk));
        ranges.map(|range| split.range_cardinality(range)).sum()
    }

    /// The seeds of this partition: the nodes of `split` in its base, ascending.
    pub fn seeds(&self, split: &RoaringTreemap) -> SeedNodes {
        // The exact capacity: there may be billions of seeds, and a growing vector would take up to twice their memory.
        let mut seeds = Vec::with_capacity(self.seed_count(split) as usize);
        let mut nodes = split.iter();
        let mut next = nodes.next();
        for range in self.base.iter().map(|&chunk| self.chunks.range(chunk)) {
            if next.is_some_and(|node| node < range.start) {
                nodes.advance_to(range.start);
                next = nodes.next();
            }
            while let Some(node) = next.filter(|&node| node < range.end) {
                seeds.push(NodeId(node));
                next = nodes.next();
            }
        }
        seeds.into()
    }

    /// All nodes that are owned.
    pub fn all_nodes(&self) -> SeedNodes {
        SeedNodes::ranges(self.runs.ranges.iter().cloned())
    }

    /// All nodes of its base. Each can be a seed of this partition.
    pub fn all_seeds(&self) -> SeedNodes {
        SeedNodes::ranges(self.base.iter().map(|&chunk| self.chunks.range(chunk)))
    }
}

/// The groups of `concurrent` partitions, as far as they are among `owned`. There are `count` partitions in all.
pub(crate) fn groups<'a>(
    owned: impl IntoIterator<Item = &'a Owned>,
    count: usize,
    concurrent: usize,
) -> Vec<Vec<Owned>> {
    let mut groups = vec![Vec::new(); count.div_ceil(concurrent)];
    for partition in owned {
        groups[partition.partition().0 as usize / concurrent].push(partition.clone());
    }
    groups
}
