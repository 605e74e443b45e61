//! The state of a run, without its tensors.

use std::{collections::BTreeMap, path::Path};

use grappa_formats::{
    manifest::{EdgeOptions, SelfLoops},
    schema::Schema,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    config::{RateOptions, TrainConfig},
    early_stopping::EarlyStopping,
    learning_rate::LearningRate,
    model::{EdgeInput, ModelGraph, ModelOptions, Task, TimeEncoding},
    scores::ModelScores,
    stages::StageSeconds,
};

// Names of counters.
const PARTITIONS: &str = "partitions";
const CONCURRENT: &str = "concurrent";
/// 1 if nodes have sets of labels, 2 if they have numbers.
const MULTI_LABEL: &str = "multi_label";
/// The digest of the weights of classes, if the run has any.
pub const CLASS_WEIGHTS: &str = "class_weights";
/// The digest of the pairs that the user lists for links, if there are any.
pub const LINK_LISTS: &str = "link_lists";
/// The digest of the file with the names of features and classes in the store, if it has names.
const SCHEMA: &str = "schema";
/// 1 if the run has names of classes that the user gave.
const CLASS_NAMES: &str = "class_names";
/// 1 if the model takes the weights of edges.
const EDGE_WEIGHTS: &str = "edge_weights";
/// Features of an edge, if the model takes them.
const EDGE_FEATURES: &str = "edge_features";
// Changes that ingest made to the edges.
const UNDIRECTED: &str = "edges_undirected";
const DEDUP: &str = "edges_dedup";
/// The position in SELF_LOOPS_VALUES.
const SELF_LOOPS: &str = "edges_self_loops";
const SELF_LOOPS_VALUES: [SelfLoops; 3] = [SelfLoops::Keep, SelfLoops::Drop, SelfLoops::Add];

/// The state of a run. Together with the tensors of its checkpoint, it is all that a resumed run needs to compute the same as
/// an uninterrupted one. It has no random generator, because random numbers are functions of the seed, the epoch and the step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Digest of the options that must not change ([`digest`](crate::config::TrainConfig::digest)).
    pub config_digest: u64,
    /// Digest of the store.
    pub store_digest: u64,
    /// Features per node.
    pub inputs: u64,
    /// The node types and relations of the graph, if the model has weights for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<ModelGraph>,
    /// The unit of the times at which nodes or links are learned; none if the run does not use times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<String>,
    /// How the ages of edges or nodes are encoded, if the model takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_encoding: Option<TimeEncoding>,
    /// Number of classes, labels or targets.
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
    /// The scores of the best evaluation, or of the last one without validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<ModelScores>,
    /// State of the learning rate schedule.
    pub learning_rate: LearningRate,
    /// State of early stopping.
    pub early_stopping: EarlyStopping,
    /// Wall time of the run in seconds, over all its processes.
    pub seconds: f64,
    /// That time by stage.
    pub seconds_by_stage: StageSeconds,
    /// Other counters of the training loop, by name.
    pub counters: BTreeMap<String, u64>,
    /// Other averages of the training loop, by name.
    pub averages: BTreeMap<String, f64>,
    /// The epoch in progress. None between two epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    pub gradient_bytes: u64,
    /// Bytes that each process sent for that.
    pub bytes_sent: u64,
    /// Halo data received before the epoch, in bytes.
    pub halo_bytes: u64,
    /// Bytes of learnable embeddings that partitions received.
    #[serde(default)]
    pub row_bytes: u64,
    /// Bytes of gradients of embeddings that partitions sent to the owners of their rows.
    #[serde(default)]
    pub row_gradient_bytes: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
    /// Bytes of features that partitions sent each other.
    pub feature_bytes: u64,
    /// Bytes of hidden states and of their gradients that partitions sent each other.
    pub activation_bytes: u64,
    /// The sum of the squared errors of states that arrived, and the sum of the squares of what was sent, if a method changes states.
    pub message_errors: Option<[f64; 2]>,
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
        self.row_bytes += other.row_bytes;
        self.row_gradient_bytes += other.row_gradient_bytes;
        self.bytes_read += other.bytes_read;
        self.feature_bytes += other.feature_bytes;
        self.activation_bytes += other.activation_bytes;
        if let (Some([errors, squares]), Some(other_errors)) = (&mut self.message_errors, other.message_errors) {
            *errors += other_errors[0];
            *squares += other_errors[1];
        }
    }

    /// Mean squared error of the states that arrived, relative to the mean square of what was sent, if a method changes them.
    pub fn message_error(&self) -> Option<f64> {
        let [errors, squares] = self.message_errors?;
        Some(if squares > 0.0 { errors / squares } else { 0.0 })
    }

    /// The finished steps, without sums: how a process continues an epoch whose sums so far another process has.
    #[must_use]
    pub fn without_sums(&self) -> Self {
        Self { steps: self.steps, is_trained: self.is_trained, ..Self::default() }
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
    /// Notes the kind of predictions.
    pub fn note_task(&mut self, task: Task) {
        let number = match task {
            Task::MultiClass => 0,
            Task::MultiLabel => 1,
            Task::Regression => 2,
            Task::Links => 3,
        };
        self.counters.insert(MULTI_LABEL.to_owned(), number);
    }

    /// The kind of predictions.
    pub fn task(&self) -> Task {
        match self.counters.get(MULTI_LABEL) {
            Some(1) => Task::MultiLabel,
            Some(2) => Task::Regression,
            Some(3) => Task::Links,
            _ => Task::MultiClass,
        }
    }

    /// Notes a digest, unless it is None.
    pub fn note_digest(&mut self, name: &str, digest: Option<u64>) {
        self.counters.extend(digest.map(|digest| (name.to_owned(), digest)));
    }

    /// A digest that was noted.
    pub fn digest(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Notes the changes that ingest made to the edges of the store.
    pub fn note_edges(&mut self, options: EdgeOptions) {
        let self_loops = SELF_LOOPS_VALUES.iter().position(|&value| value == options.self_loops);
        let self_loops = self_loops.expect("all values are listed") as u64;
        let numbers =
            [(UNDIRECTED, options.undirected.into()), (DEDUP, options.dedup.into()), (SELF_LOOPS, self_loops)];
        let counters = numbers.map(|(name, number)| (name.to_owned(), number));
        self.counters.extend(counters);
    }

    /// The changes that ingest made to the edges of the store. None if the run has not begun.
    pub fn edges(&self) -> Option<EdgeOptions> {
        let [undirected, dedup, self_loops] = [UNDIRECTED, DEDUP, SELF_LOOPS].map(|name| self.counters.get(name));
        Some(EdgeOptions {
            undirected: *undirected? == 1,
            dedup: *dedup? == 1,
            self_loops: *SELF_LOOPS_VALUES.get(usize::try_from(*self_loops?).ok()?)?,
        })
    }

    /// Notes what the model takes of edges.
    pub fn note_edge_input(&mut self, input: EdgeInput) {
        let (name, number) = match input {
            EdgeInput::Nothing => return,
            EdgeInput::Weights => (EDGE_WEIGHTS, 1),
            EdgeInput::Features(features) => (EDGE_FEATURES, features as u64),
        };
        self.counters.insert(name.to_owned(), number);
    }

    /// What the model takes of edges.
    fn edge_input(&self) -> EdgeInput {
        match (self.counters.get(EDGE_WEIGHTS), self.counters.get(EDGE_FEATURES)) {
            (Some(_), _) => EdgeInput::Weights,
            (None, Some(&features)) => EdgeInput::Features(features as usize),
            (None, None) => EdgeInput::Nothing,
        }
    }

    /// The shape of the model of a run with this configuration.
    pub fn model_options(&self, config: &TrainConfig) -> ModelOptions {
        ModelOptions {
            edges: self.edge_input(),
            graph: self.graph.clone(),
            time_encoding: self.time_encoding,
            ..config.model_options(self.inputs as usize, self.outputs as usize, self.task())
        }
    }

    /// Notes the number of partitions, and of partitions per step.
    pub fn note_partitions(&mut self, [partitions, concurrent]: [u32; 2]) {
        let numbers = [(PARTITIONS, partitions), (CONCURRENT, concurrent)];
        let counters = numbers.map(|(name, number)| (name.to_owned(), number.into()));
        self.counters.extend(counters);
    }

    /// The number of partitions, and of partitions per step. The arguments if none are noted.
    pub fn partitions(&self, [partitions, concurrent]: [u32; 2]) -> [u32; 2] {
        [(PARTITIONS, partitions), (CONCURRENT, concurrent)].map(|(name, configured)| {
            let noted = self.counters.get(name).copied();
            noted.and_then(|number| number.try_into().ok()).unwrap_or(configured)
        })
    }

    /// Notes the names of features and classes in the store.
    pub fn note_schema(&mut self, schema: &Schema) {
        self.note_digest(SCHEMA, (!schema.is_empty()).then(|| schema.encode().1));
    }

    /// The digest of the file with these names. None if the store has none.
    pub fn schema_digest(&self) -> Option<u64> {
        self.digest(SCHEMA)
    }

    /// Notes whether the run has names of classes that the user gave.
    pub fn note_class_names(&mut self, has_names: bool) {
        self.counters.insert(CLASS_NAMES.to_owned(), has_names.into());
    }

    /// Whether the run has names of classes that the user gave.
    pub fn has_class_names(&self) -> bool {
        self.counters.get(CLASS_NAMES) == Some(&1)
    }

    /// Whether the run has nothing left to train with these options.
    pub fn is_over(&self, epochs: u64, early_stopping: u64) -> bool {
        self.epoch >= epochs || self.early_stopping.is_over(early_stopping)
    }

    /// Whether early stopping ended the run before its last epoch.
    pub fn ended_early(&self, epochs: u64, early_stopping: u64) -> bool {
        self.epoch < epochs && self.early_stopping.is_over(early_stopping)
    }

    /// Takes the score of an evaluation of the last finished epoch, and the test score. Returns whether it is the best one.
    pub fn observe(&mut self, rate: &RateOptions, score: f64, test: Option<f64>) -> bool {
        let is_best = self.early_stopping.observe(score);
        self.learning_rate.observe(rate, score);
        if is_best {
            self.best = Some(Best { epoch: self.epoch, step: self.step, val: score, test });
        }
        is_best
    }

    /// Checks that this state, which was read from `path`, is of the same run as `other`.
    ///
    /// # Errors
    /// If options that cannot change, or the stores, differ.
    pub fn check_same_run(&self, path: &Path, other: &Self) -> Result<()> {
        match (self.config_digest, self.store_digest) == (other.config_digest, other.store_digest) {
            true => Ok(()),
            false => Err(Error::run_file(
                path,
                "it belongs to another run than the other checkpoints: restore it from a copy of this run",
            )),
        }
    }

    /// Checks that training can go on with a store.
    ///
    /// # Errors
    /// If the number of features per node or of classes differs.
    pub fn check_store(&self, inputs: u64, outputs: u64) -> Result<()> {
        self.check_features(inputs)?;
        if outputs != self.outputs {
            return Err(disagreement("classes or targets", outputs, self.outputs, ""));
        }
        Ok(())
    }

    /// Checks that the run's model can take the features of a store.
    ///
    /// # Errors
    /// If the number of features per node differs.
    pub fn check_features(&self, inputs: u64) -> Result<()> {
        if inputs != self.inputs {
            let or = ", one whose features `grappa-store add-features` computed with the same options";
            return Err(disagreement("features per node", inputs, self.inputs, or));
        }
        Ok(())
    }
}

fn disagreement(quantity: &str, store: u64, run: u64, or: &str) -> Error {
    Error::WrongStore(format!(
        "the store has {store} {quantity}, and the run's model was trained with {run}: use the store that it was trained on{or}, or start \
         a new run"
    ))
}
