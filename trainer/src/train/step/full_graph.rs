//! Methods whose steps take the whole graph, in place of minibatches of partitions. Another crate implements them.

use std::sync::Arc;

use grappa_formats::{NodeId, assignment::Assignment};
use grappa_io::progress::Progress;
use grappa_run::{config::TrainConfig, model::Task};
use grappa_storage::{MappedChunks, Store};
use roaring::RoaringTreemap;
use tch::{Device, Tensor};

use crate::train::data::training_data::TrainingData;
use crate::{
    Result,
    distributed::ProcessGroup,
    nn::{Loss, Model},
};

/// A method of training. An epoch is one step, which takes all training nodes and all edges.
pub trait FullGraphMethod: Send {
    /// Refuses to divide `partitions` among `processes`.
    ///
    /// # Errors
    /// If the method trains in one process, or a process would have no partition.
    fn check_processes(&self, partitions: u32, processes: u32) -> Result<()>;

    /// Whether the graph is divided.
    fn is_open(&self) -> bool;

    /// Divides the graph. Returns a sentence about the partitions, for people. All processes must call it.
    ///
    /// # Errors
    /// If memory is too small, or files cannot be read.
    fn open(&mut self, inputs: &FullGraphInputs<'_>, progress: &dyn Progress) -> Result<String>;

    /// Adds the gradient of an epoch's step to the gradients of the parameters.
    ///
    /// # Errors
    /// If another process has left or cannot be reached.
    fn add_gradient(&mut self, step: &FullGraphStep<'_>) -> Result<FullGraphSums>;

    /// An evaluation found this loss of the validation nodes.
    fn observe(&mut self, val_loss: f64);

    /// What later epochs depend on, by name, for a checkpoint.
    fn state(&self) -> Vec<(String, Tensor)>;

    /// Continues after some `epochs` from their [state](Self::state).
    fn restore(&mut self, state: Vec<(String, Tensor)>, epochs: u64);
}

/// The options of a run, the method that they name, and the processes that train together.
pub struct TrainSetup {
    /// The options.
    pub config: TrainConfig,
    /// Computes the steps instead of Grappa's own method.
    pub method: Option<Box<dyn FullGraphMethod>>,
    /// The processes, which have [agreed](crate::train::agree_on_options) on the options. None for one process.
    pub group: Option<Arc<ProcessGroup>>,
    /// Problems of the options of the method, for the user.
    pub warnings: Vec<String>,
}

impl From<TrainConfig> for TrainSetup {
    fn from(config: TrainConfig) -> Self {
        Self { config, method: None, group: None, warnings: Vec::new() }
    }
}

/// The graph that a method divides, and the model that it trains.
pub struct FullGraphInputs<'a> {
    /// The options of the run, with a number of partitions.
    pub config: &'a TrainConfig,
    /// The store.
    pub store: &'a Store,
    /// Its adjacency lists.
    pub chunks: &'a Arc<MappedChunks>,
    /// The training nodes.
    pub train: &'a RoaringTreemap,
    /// The partition of each chunk.
    pub assignment: &'a Assignment,
    /// The process of each partition.
    pub ranks: Vec<u32>,
    /// The processes, if there are several.
    pub group: Option<&'a Arc<ProcessGroup>>,
    /// The device of tensors.
    pub device: Device,
    /// The model.
    pub model: &'a Model,
    pub(crate) data: &'a TrainingData,
}

impl FullGraphInputs<'_> {
    /// The labels of nodes, as [`Loss::losses`] takes them.
    ///
    /// # Errors
    /// If a node has no label, or labels cannot be read.
    pub fn labels(&self, nodes: &[NodeId]) -> Result<Tensor> {
        self.data.labels().tensor(nodes)
    }

    /// The in-degrees of nodes.
    ///
    /// # Errors
    /// If adjacency lists are damaged.
    pub fn degrees(&self, nodes: &[NodeId]) -> Result<Vec<u64>> {
        Ok(self.data.degrees.of_all(nodes)?)
    }
}

/// A step to compute.
#[derive(Clone, Copy)]
pub struct FullGraphStep<'a> {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The learning rate.
    pub rate: f64,
    /// The model.
    pub model: &'a Model,
    /// The loss of a node.
    pub loss: &'a Loss,
    /// What the model predicts.
    pub task: Task,
}

/// The results of a step in this process, summed over the training nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct FullGraphSums {
    /// Number of edges that it used.
    pub edges: u64,
    /// Number of training nodes.
    pub nodes: u64,
    /// Number of training nodes whose loss the gradient is of, if they were drawn from all.
    pub drawn: Option<u64>,
    /// Losses.
    pub loss: f64,
    /// Number of nodes whose class is predicted.
    pub right: f64,
    /// Bytes of features that partitions sent each other.
    pub feature_bytes: u64,
    /// Bytes of hidden states and of their gradients that partitions sent each other.
    pub activation_bytes: u64,
    /// The sum of the squared errors of states that arrived, and the sum of the squares of what was sent, if the method changes states.
    pub message_errors: Option<[f64; 2]>,
}
