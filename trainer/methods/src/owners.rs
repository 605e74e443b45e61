//! Which partition has which nodes, and which process has which partitions.

use grappa_formats::ChunkId;
use grappa_trainer::train::FullGraphInputs;

/// The partitions of nodes, and the processes of partitions.
pub(crate) struct Owners {
    /// The partition of each node.
    pub(super) by_node: Vec<u32>,
    /// The process of each partition.
    partition_ranks: Vec<u32>,
    /// This process.
    rank: u32,
}

impl Owners {
    /// The owners that a run assigns.
    pub(crate) fn new(inputs: &FullGraphInputs<'_>) -> Self {
        let chunks = inputs.store.chunks();
        let mut by_node = vec![0; chunks.nodes() as usize];
        for chunk in (0..chunks.chunks()).map(ChunkId) {
            let range = chunks.range(chunk);
            let owner = inputs.assignment.owners(chunk).base.expect("each chunk is in a base").0;
            by_node[range.start as usize..range.end as usize].fill(owner);
        }
        let rank = inputs.group.map_or(0, |group| group.place().rank);
        Self { by_node, partition_ranks: inputs.ranks.clone(), rank }
    }

    /// One partition, of this process.
    pub(super) fn one(nodes: usize) -> Self {
        Self { by_node: vec![0; nodes], partition_ranks: vec![0], rank: 0 }
    }

    /// The process of a partition.
    pub(super) fn rank_of(&self, partition: u32) -> u32 {
        self.partition_ranks[partition as usize]
    }

    /// Whether a partition is of this process.
    pub(super) fn has(&self, partition: u32) -> bool {
        self.rank_of(partition) == self.rank
    }

    /// Number of partitions of this process.
    pub(super) fn own_partitions(&self) -> u64 {
        self.partition_ranks.iter().filter(|&&rank| rank == self.rank).count() as u64
    }

    /// The nodes of each partition, ascending.
    pub(super) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.partition_ranks.len()];
        for (node, &owner) in (0..).zip(&self.by_node) {
            members[owner as usize].push(node);
        }
        members
    }
}
