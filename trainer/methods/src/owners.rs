//! Which partition has which nodes, and which process has which partitions.

use grappa_formats::ChunkId;
use grappa_trainer::train::FullGraphInputs;

/// The partitions of nodes, and the processes of partitions.
pub(crate) struct Owners {
    /// The partition of each node.
    pub(super) of_nodes: Vec<u32>,
    /// The process of each partition.
    of_partitions: Vec<u32>,
    /// This process.
    rank: u32,
}

impl Owners {
    /// The owners that a run assigns.
    pub(crate) fn new(inputs: &FullGraphInputs<'_>) -> Self {
        let chunks = inputs.store.chunks();
        let mut of_nodes = vec![0; chunks.nodes() as usize];
        for chunk in (0..chunks.chunks()).map(ChunkId) {
            let range = chunks.range(chunk);
            let owner = inputs.assignment.owners(chunk).base.expect("each chunk is in a base").0;
            of_nodes[range.start as usize..range.end as usize].fill(owner);
        }
        let rank = inputs.group.map_or(0, |group| group.place().rank);
        Self { of_nodes, of_partitions: inputs.ranks.clone(), rank }
    }

    /// One partition, of this process.
    pub(super) fn one(nodes: usize) -> Self {
        Self { of_nodes: vec![0; nodes], of_partitions: vec![0], rank: 0 }
    }

    /// The process of a partition.
    pub(super) fn rank_of(&self, partition: u32) -> u32 {
        self.of_partitions[partition as usize]
    }

    /// Whether a partition is of this process.
    pub(super) fn has(&self, partition: u32) -> bool {
        self.rank_of(partition) == self.rank
    }

    /// Number of partitions of this process.
    pub(super) fn own_partitions(&self) -> u64 {
        self.of_partitions.iter().filter(|&&rank| rank == self.rank).count() as u64
    }

    /// The nodes of each partition, ascending.
    pub(super) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.of_partitions.len()];
        for (node, &owner) in (0..).zip(&self.of_nodes) {
            members[owner as usize].push(node);
        }
        members
    }
}
