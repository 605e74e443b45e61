//! The inputs of an inference.

use std::{ops::Range, path::Path, sync::Arc};

use grappa_engine::aggregate::{Budget, NodeRows};
use grappa_formats::manifest::FeatureDtype;
use grappa_storage::{MappedChunks, Store};
use tch::{Device, Tensor};

use super::{first_inputs::FirstInputs, step_size};
use crate::Result;

/// The inputs of exact inference.
pub struct Inference<'a> {
    /// The graph.
    pub store: &'a Store,
    /// Its chunks.
    pub chunks: &'a Arc<MappedChunks>,
    /// Its features.
    pub features: &'a dyn NodeRows,
    /// The sums of the weights of each node's in-edges, if the model is GCN and takes weights.
    pub weight_sums: Option<&'a Arc<[f32]>>,
    /// Pre-aggregated features for the first layer, if the model takes them. Their type limits their precision.
    pub first_hop: Option<&'a dyn NodeRows>,
    /// Space for the inputs of the first layer, if more inferences of the same nodes follow.
    pub first_inputs: Option<&'a FirstInputs>,
    /// Memory and threads. The tensors that are computed at once take up to an eighth more.
    pub budget: Budget,
    /// Memory in bytes for historical embeddings, besides the budget. Those that do not fit are in scratch files.
    pub kept_memory: u64,
    /// Folder for scratch files.
    pub scratch: &'a Path,
    /// The type of states that memory does not hold as f32.
    pub rounded_states: FeatureDtype,
    /// The device of the model.
    pub device: Device,
}

/// Receives the results of a range of positions among the wanted nodes, `[positions, values]`.
pub type OnRows<'a> = dyn FnMut(Range<u64>, &Tensor) -> Result<()> + 'a;

impl Inference<'_> {
    /// The number of nodes that are computed at once, with rows of at most `width` values.
    pub(super) fn step_nodes(&self, width: usize) -> u64 {
        step_size::step_nodes(width, self.budget.memory)
    }
}
