//! Where a run stands, beside its tensors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, early_stopping::EarlyStopping, journal::StageSeconds, learning_rate::LearningRate};

/// Where a run stands: with the tensors of its checkpoint, all it takes to go on as if nothing had happened. Random numbers
/// are functions of the seed, the epoch and the step, so there is no generator to be kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Stands for the options that must not change ([`TrainConfig::digest`](crate::config::TrainConfig::digest)).
    pub config_digest: u64,
    /// Stands for the store that is trained on.
    pub store_digest: u64,
    /// Values in a row of features.
    pub inputs: u64,
    /// Number of classes or labels.
    pub outputs: u64,
    /// Epochs that are finished.
    pub epoch: u64,
    /// Optimizer steps that are finished.
    pub step: u64,
    /// The generation of the assignment of chunks to partitions.
    pub generation: u64,
    /// The super-epoch, counted from 0.
    pub super_epoch: u64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Where the learning rate is.
    pub learning_rate: LearningRate,
    /// How long there was no better evaluation.
    pub early_stopping: EarlyStopping,
    /// Wall time that the run has taken, of all its processes together, in seconds.
    pub seconds: f64,
    /// What else the loop counts, by name.
    pub counters: BTreeMap<String, u64>,
    /// What else the loop averages, by name.
    pub averages: BTreeMap<String, f64>,
    /// The epoch after the finished ones, as far as it was trained. None at the end of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialEpoch>,
}

/// An epoch that is not finished: how many steps are done, and the sums of what its record tells.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Steps that are done.
    pub steps: u64,
    /// Whether these are all steps, and only the evaluation is missing.
    pub is_trained: bool,
    /// Seeds of these steps.
    pub seeds: u64,
    /// Sum of the seeds' losses.
    pub loss: f64,
    /// Sum of the seeds' coverage.
    pub coverage: f64,
    /// Seeds whose class was predicted.
    pub right: i64,
    /// Edges that were sampled.
    pub sampled_edges: u64,
    /// Bytes that partitions gave to the exchange.
    pub bytes_sent: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
    /// Wall time, in seconds.
    pub seconds: f64,
    /// What of it went where.
    pub seconds_by_stage: StageSeconds,
}

/// The evaluation with the highest validation score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Epochs that were finished then.
    pub epoch: u64,
    /// Optimizer steps that were finished then.
    pub step: u64,
    /// The score on the nodes to validate on.
    pub val: f64,
    /// The score on the nodes to test on, if there are any.
    pub test: Option<f64>,
}

impl RunState {
    /// Checks that a store is what the run was trained on, as far as its model is concerned.
    ///
    /// # Errors
    /// If numbers of features or classes disagree.
    pub fn check_store(&self, inputs: u64, outputs: u64) -> Result<()> {
        let disagree = |what: &str, store: u64, run: u64, or: &str| {
            Err(Error::Options(format!(
                "the store has {store} {what}, and the run's model was trained with {run}: give the store that it was \
                 trained on{or}, or start a new run"
            )))
        };
        if inputs != self.inputs {
            let or = ", one whose features `grappa-store add-features` computed with the same options";
            return disagree("features a node", inputs, self.inputs, or);
        }
        if outputs != self.outputs {
            return disagree("classes", outputs, self.outputs, "");
        }
        Ok(())
    }
}
