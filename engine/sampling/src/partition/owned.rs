//! The nodes that a partition owns: ranges of node ids, numbered with local ids.
//!
//! Finding the local id of a node costs a lookup of its chunk and one in an array of C entries. The opposite direction
//! is a binary search in the runs. There are at most as many runs as owned chunks. Memory: 25 bytes per chunk of the
//! store.

use std::{fmt, ops::Range};

use grappa_formats::{ChunkId, NodeId, PartitionId, assignment::Assignment, chunks::ChunkMap};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use super::seeds::SeedNodes;

/// The index of a node among the nodes that a partition owns, in ascending order of node ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u64);

impl fmt::Display for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Marks a chunk that is not owned, in place of the first local id of the chunk.
const NOT_OWNED: u64 = u64::MAX;

/// The chunks and nodes that a partition owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    partition: PartitionId,
    chunks: ChunkMap,
    base: Vec<ChunkId>,
    variable: Vec<ChunkId>,
    /// Ascending, not empty, not adjacent.
    runs: Vec<Range<u64>>,
    /// The local id of the first node of each run.
    run_locals: Vec<u64>,
    /// The local id of the first node of each chunk of the store, or [`NOT_OWNED`].
    chunk_locals: Vec<u64>,
    nodes: u64,
}

impl Owned {
    /// The chunks and nodes of `store` that `partition` owns under `assignment`. Nobody owns chunks that a slice lacks.
    ///
    /// # Panics
    /// If the assignment has a different number of chunks than the store, or no such partition.
    pub fn of(assignment: &Assignment, store: &Store, partition: PartitionId) -> Self {
        Self::among(assignment, store.chunks(), |chunk| store.is_present(chunk), partition)
    }

    /// [`Owned::of`], of all partitions.
    ///
    /// # Panics
    /// If the assignment has a different number of chunks than the store.
    pub fn all(assignment: &Assignment, store: &Store) -> Vec<Self> {
        let partitions = (0..assignment.partitions()).map(PartitionId);
        partitions
            .map(|partition| Self::of(assignment, store, partition))
            .collect()
    }

    fn among(
        assignment: &Assignment,
        chunks: &ChunkMap,
        is_present: impl Fn(ChunkId) -> bool,
        partition: PartitionId,
    ) -> Self {
        assert_eq!(
            assignment.chunks(),
            chunks.chunks(),
            "the assignment does not match the chunks of the store"
        );
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
            runs: Vec::new(),
            run_locals: Vec::new(),
            chunk_locals: vec![NOT_OWNED; chunks.chunks() as usize],
            nodes: 0,
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
            owned.add(chunk);
        }
        owned
    }

    /// All nodes of the chunks that `store` has: the only partition of a store that was not partitioned.
    pub fn whole(store: &Store) -> Self {
        Self::of(&Assignment::whole(store.chunks().chunks()), store, PartitionId(0))
    }

    /// Gives local ids to the nodes of the next owned chunk. Chunks are added in ascending order.
    fn add(&mut self, chunk: ChunkId) {
        let range = self.chunks.range(chunk);
        self.chunk_locals[chunk.0 as usize] = self.nodes;
        if range.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                self.runs.push(range.clone());
                self.run_locals.push(self.nodes);
            }
        }
        self.nodes += range.end - range.start;
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
        (0..)
            .map(ChunkId)
            .zip(&self.chunk_locals)
            .filter_map(|(chunk, &local)| (local != NOT_OWNED).then_some(chunk))
    }

    /// The division of the store's nodes into chunks.
    pub fn chunk_map(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The owned node ids as the smallest number of ranges: ascending, not empty, not adjacent.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Number of owned nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
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

    /// The node with a local id.
    ///
    /// # Panics
    /// If the local id does not exist.
    #[inline]
    pub fn node(&self, local: LocalId) -> NodeId {
        assert!(
            local.0 < self.nodes,
            "local id {local} is out of range: the partition owns {} nodes",
            self.nodes
        );
        let run = self.run_locals.partition_point(|&first| first <= local.0) - 1;
        NodeId(self.runs[run].start + (local.0 - self.run_locals[run]))
    }

    /// The local ids of the nodes of an owned chunk.
    ///
    /// # Panics
    /// If the chunk is not owned.
    pub fn locals_of(&self, chunk: ChunkId) -> Range<LocalId> {
        assert!(self.owns(chunk), "chunk {chunk} is not owned");
        let first = self.chunk_locals[chunk.0 as usize];
        LocalId(first)..LocalId(first + self.chunks.len(chunk))
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

    /// All nodes of its base. Each can be a seed of this partition.
    pub fn all_seeds(&self) -> SeedNodes {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let base = self.base.iter().map(|&chunk| self.chunks.range(chunk));
        for range in base.filter(|range| !range.is_empty()) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        SeedNodes::ranges(ranges)
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

#[cfg(test)]
mod tests {
    use grappa_formats::assignment::Owners;
    use proptest::prelude::*;

    use super::*;

    fn by_owners(owners: &[(u32, Option<u32>)], partitions: u32) -> Assignment {
        let owners: Vec<_> = owners
            .iter()
            .map(|&(base, variable)| Owners {
                base: PartitionId(base),
                variable: variable.map(PartitionId),
            })
            .collect();
        Assignment::from_owners(1, partitions, "sweep", &owners)
    }

    proptest! {
        #[test]
        fn local_ids_number_the_owned_nodes_in_order(
            lengths in prop::collection::vec(0..6u64, 1..20),
            picks in prop::collection::vec((0..3u32, prop::option::of(1..3u32)), 20),
        ) {
            let mut starts = vec![0];
            lengths.iter().for_each(|length| starts.push(starts[starts.len() - 1] + length));
            let map = ChunkMap::from_starts(starts).unwrap();
            // The variable part belongs to another partition: `further` partitions after the base.
            let owners: Vec<_> = picks[..lengths.len()]
                .iter()
                .map(|&(base, further)| (base, further.map(|further| (base + further) % 3)))
                .collect();
            let assignment = by_owners(&owners, 3);
            let split: RoaringTreemap = (0..map.nodes()).step_by(3).collect();
            let mut seeds_of_all = Vec::new();
            for partition in 0..3 {
                let owned = Owned::among(&assignment, &map, |_| true, PartitionId(partition));
                let owns = |chunk: ChunkId| {
                    let (base, variable) = owners[chunk.0 as usize];
                    base == partition || variable == Some(partition)
                };
                let mut next = 0;
                for node in (0..map.nodes()).map(NodeId) {
                    let expected = owns(map.chunk_of(node)).then_some(LocalId(next));
                    prop_assert_eq!(owned.local(node), expected);
                    prop_assert_eq!(owned.contains(node), expected.is_some());
                    if let Some(local) = expected {
                        prop_assert_eq!(owned.node(local), node);
                        next += 1;
                    }
                }
                prop_assert_eq!(owned.nodes(), next);
                let of_runs: Vec<_> = owned.runs().iter().cloned().flatten().collect();
                let of_locals: Vec<_> = (0..next).map(|local| owned.node(LocalId(local)).0).collect();
                prop_assert_eq!(of_runs, of_locals);
                prop_assert!(owned.runs().windows(2).all(|pair| pair[0].end < pair[1].start), "not merged");
                prop_assert!(owned.runs().iter().all(|run| !run.is_empty()));
                let all: Vec<_> = owned.chunks().collect();
                let mut both = [owned.base(), owned.variable()].concat();
                both.sort();
                prop_assert_eq!(&all, &both);
                prop_assert!(all.iter().all(|&chunk| owns(chunk)));
                for &chunk in &all {
                    let locals = owned.locals_of(chunk);
                    let locals = (locals.start.0..locals.end.0).map(LocalId);
                    let nodes: Vec<_> = locals.map(|local| owned.node(local).0).collect();
                    prop_assert_eq!(nodes, map.range(chunk).collect::<Vec<_>>());
                }
                let all: Vec<_> = owned.base().iter().flat_map(|&chunk| map.range(chunk)).map(NodeId).collect();
                prop_assert!(owned.all_seeds().iter().eq(all));
                let seeds: Vec<_> = owned.seeds(&split).iter().collect();
                prop_assert!(seeds.is_sorted());
                prop_assert_eq!(owned.seed_count(&split), seeds.len() as u64);
                prop_assert!(seeds.iter().all(|&seed| owners[map.chunk_of(seed).0 as usize].0 == partition));
                seeds_of_all.extend(seeds.iter().map(|seed| seed.0));
            }
            seeds_of_all.sort_unstable();
            prop_assert_eq!(seeds_of_all, split.iter().collect::<Vec<_>>(), "each node is a seed once");
        }
    }

    #[test]
    fn one_partition_owns_everything_under_the_same_ids() {
        let map = ChunkMap::uniform(1 << 40, 64);
        let owned = Owned::among(&Assignment::whole(64), &map, |_| true, PartitionId(0));
        assert_eq!((owned.runs().len(), owned.runs()[0].clone()), (1, 0..1 << 40));
        let last = (1 << 40) - 1;
        assert_eq!(owned.local(NodeId(last)), Some(LocalId(last)));
        assert_eq!(owned.node(LocalId(last)), NodeId(last));
    }

    #[test]
    fn nobody_owns_a_chunk_that_a_slice_lacks() {
        let map = ChunkMap::uniform(12, 4);
        let owned = Owned::among(&Assignment::whole(4), &map, |chunk| chunk.0 % 2 == 1, PartitionId(0));
        assert_eq!((owned.base(), owned.nodes()), (&[ChunkId(1), ChunkId(3)][..], 6));
        assert_eq!(
            (owned.local(NodeId(2)), owned.local(NodeId(9))),
            (None, Some(LocalId(3)))
        );
        assert!(owned.all_seeds().iter().eq([3, 4, 5, 9, 10, 11].map(NodeId)));
    }

    #[test]
    fn a_partition_may_own_nothing() {
        let map = ChunkMap::uniform(9, 3);
        let owned = Owned::among(&by_owners(&[(0, None); 3], 2), &map, |_| true, PartitionId(1));
        assert_eq!((owned.nodes(), owned.runs().len()), (0, 0));
        assert_eq!(owned.local(NodeId(4)), None);
    }
}
