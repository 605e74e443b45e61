//! The state of a run, without its tensors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, early_stopping::EarlyStopping, learning_rate::LearningRate, scores::ModelScores,
    stages::StageSeconds,
};

/// The state of a run. Together with the tensors of its checkpoint, it is all that a resumed run needs to compute the same as
/// an uninterrupted one. It has no random generator, because random numbers are functions of the seed, the epoch and the step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Digest of the options that must not change ([`TrainConfig::digest`](crate::config::TrainConfig::digest)).
    pub config_digest: u64,
    /// Digest of the store.
    pub store_digest: u64,
    /// Features per node.
    pub inputs: u64,
    /// Number of classes or labels.
    pub outputs: u64,
    /// Finished epochs.
    pub epoch: u64,
    /// Finished optimizer steps.
    pub step: u64,
    /// The generation of the assignment of chunks to partitions.
    pub generation: u64,
    /// The super-epoch, counted from 0.
    pub super_epoch: u64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// The scores of the best evaluation, or of the last one without validation nodes. States of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<ModelScores>,
    /// State of the learning rate schedule.
    pub learning_rate: LearningRate,
    /// State of early stopping.
    pub early_stopping: EarlyStopping,
    /// Wall time of the run in seconds, over all its processes.
    pub seconds: f64,
    /// That time by stage.
    #[serde(default)]
    pub seconds_by_stage: StageSeconds,
    /// Other counters of the training loop, by name.
    pub counters: BTreeMap<String, u64>,
    /// Other averages of the training loop, by name.
    pub averages: BTreeMap<String, f64>,
    /// The epoch in progress. None between two epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialEpoch>,
}

/// An epoch in progress: the number of finished steps, and the sums from which its metrics are computed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Finished steps.
    pub steps: u64,
    /// Whether all steps are finished, and only the evaluation is missing.
    pub is_trained: bool,
    /// Seeds of these steps.
    pub seeds: u64,
    /// Sum of the seeds' losses.
    pub loss: f64,
    /// Sum of the seeds' coverage.
    pub coverage: f64,
    /// Seeds whose class was predicted right.
    pub right: i64,
    /// Sampled edges.
    pub sampled_edges: u64,
    /// Bytes of gradients and loss weights that were summed over all partitions.
    #[serde(default)]
    pub gradient_bytes: u64,
    /// Bytes that each process sent for that.
    pub bytes_sent: u64,
    /// Bytes about halo nodes that partitions got before the epoch.
    #[serde(default)]
    pub halo_bytes: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
}

impl PartialEpoch {
    /// Adds the sums of another process, which took the same steps with other partitions.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.loss += other.loss;
        self.coverage += other.coverage;
        self.right += other.right;
        self.sampled_edges += other.sampled_edges;
        self.halo_bytes += other.halo_bytes;
        self.bytes_read += other.bytes_read;
    }

    /// The finished steps, without sums: how a process continues an epoch whose sums so far another process has.
    #[must_use]
    pub fn without_sums(&self) -> Self {
        Self {
            steps: self.steps,
            is_trained: self.is_trained,
            ..Self::default()
        }
    }
}

/// The best evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Epochs that were finished at that time.
    pub epoch: u64,
    /// Optimizer steps that were finished at that time.
    pub step: u64,
    /// The monitored number; higher is better: the score on the validation nodes, or their negative loss.
    pub val: f64,
    /// Score on the test nodes, if there are any.
    pub test: Option<f64>,
}

impl RunState {
    /// Checks that a store fits the run's model.
    ///
    /// # Errors
    /// If the number of features per node or of classes differs.
    pub fn check_store(&self, inputs: u64, outputs: u64) -> Result<()> {
        let disagree = |what: &str, store: u64, run: u64, or: &str| {
            Err(Error::Options(format!(
                "the store has {store} {what}, and the run's model was trained with {run}: use the store that it was trained \
                 on{or}, or start a new run"
            )))
        };
        if inputs != self.inputs {
            let or = ", one whose features `grappa-store add-features` computed with the same options";
            return disagree("features per node", inputs, self.inputs, or);
        }
        if outputs != self.outputs {
            return disagree("classes", outputs, self.outputs, "");
        }
        Ok(())
    }
}
