//! What a plan says.

use grappa_io::ledger::Ledger;
use grappa_sampling::view::ViewKind;
use serde::Serialize;

/// The estimate of a run. `grappa-store plan --train --json` prints it with these field names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainPlan {
    /// Number of partitions.
    pub partitions: u64,
    /// Number of partitions of a step.
    pub concurrent: u64,
    /// Where adjacency lists are: in memory, or in mapped files that stay in memory; in memory in turn, so that an
    /// epoch reads the graph; in mapped files that exceed the memory, where each list is a read of a page; or in mapped files for sweeps, which
    /// read them from front to back for each hop.
    pub lists: ViewKind,
    /// Whether nodes of other partitions have neighbors: with one partition, or if memory has room for sampled
    /// in-neighbors.
    pub expands_halo: bool,
    /// Steps of an epoch.
    pub steps: u64,
    /// Nodes whose features a step gathers.
    pub step_nodes: f64,
    /// Edges of all hops of a step.
    pub step_edges: f64,
    /// Making the aggregates of the first hop, once.
    pub preaggregation: StagePlan,
    /// Opening the store, once.
    pub opening: StagePlan,
    /// An epoch without evaluation.
    pub epoch: StagePlan,
    /// The refreshes of historical embeddings of an epoch, at most.
    pub history: StagePlan,
    /// An evaluation as `--evaluate auto` does it.
    pub evaluation: StagePlan,
    /// Whether that one is exact.
    pub evaluates_exactly: bool,
    /// The first sampled evaluation, which finds the nodes to compute and reads their features.
    pub first_sampled_evaluation: StagePlan,
    /// A later one, with the features that the first one left in a scratch file.
    pub sampled_evaluation: StagePlan,
    /// An exact evaluation; at the end of the run if the others are sampled.
    pub exact_evaluation: StagePlan,
    /// Disk that is held besides the store.
    pub disk: DiskPlan,
    /// Memory that is held.
    pub memory: MemoryPlan,
    /// The memory of training steps within the limit: who may take how much, and why.
    pub ledger: Ledger,
}

/// Time and transfer of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StagePlan {
    /// In total.
    pub seconds: f64,
    /// Of the disk alone.
    pub disk_seconds: f64,
    /// Of the processors and the device alone.
    pub processor_seconds: f64,
    /// Bytes read from the disk.
    pub bytes_read: f64,
    /// Bytes written.
    pub bytes_written: f64,
}

impl StagePlan {
    /// This stage, then another.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            seconds: self.seconds + next.seconds,
            disk_seconds: self.disk_seconds + next.disk_seconds,
            processor_seconds: self.processor_seconds + next.processor_seconds,
            bytes_read: self.bytes_read + next.bytes_read,
            bytes_written: self.bytes_written + next.bytes_written,
        }
    }
}

/// Disk in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskPlan {
    /// Pre-aggregated features.
    pub aggregates: f64,
    /// Scratch files of an exact evaluation, or of the sweeps of an epoch if these take more.
    pub scratch: f64,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Adjacency lists.
    pub adjacency: f64,
    /// Feature rows.
    pub features: f64,
    /// Values that a step keeps for its backward pass.
    pub step: f64,
    /// Rows and states of an exact evaluation, beyond the feature rows that it replaces.
    pub evaluation: f64,
    /// Training nodes, and the sets of nodes of an evaluation.
    pub nodes: f64,
    /// The program without an exact evaluation: all others, code and libraries.
    pub training: f64,
    /// The program with an exact evaluation: the larger of step and evaluation, the others, code and libraries.
    pub total: f64,
}
