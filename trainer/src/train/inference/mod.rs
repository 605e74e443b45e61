//! Exact inference: one layer after the other over the graph, in memory or out of core.
//!
//! ```text
//! states = features
//! for each layer:
//!     for each tile of the nodes whose states the next layer needs:
//!         aggregate the messages of all in-neighbors                  grappa_engine::aggregate
//!         update the states of the tile; those of the last layer are logits
//! ```
//!
//! If the aggregates of the first layer are known, the first tile of the second one takes the states as they are made. If the last layer
//! aggregates products of states and weights ([`Model::input`]), these take the place of the states before it.
//!
//! All neighbors are used and nothing is sampled. So the result is that of the model on the whole graph, and does not depend on
//! partitions, memory or the number of threads. Evaluations may draw the in-neighbors of each layer instead
//! ([`NeededOptions::samples`]). [`Needed`] has the nodes that each layer computes: those that the wanted results
//! depend on. States are in memory as f32 if they fit. Else they are rounded ([`Inference::rounded_states`]), and in memory or in
//! scratch files. Memory then holds one tile and one block of rows at a time. The same holds for the historical embeddings of halo nodes ([`HistoricalRows`]), which take the same passes.

mod columns;
mod degrees;
mod first_inputs;
mod keeper;
mod layers;
mod needed;
mod pass;
mod states;

use std::{
    ops::{Deref, Range},
    path::Path,
    sync::Arc,
};

use grappa_engine::aggregate::{Budget, NodeRows};
use grappa_formats::manifest::FeatureDtype;
use grappa_io::progress::Progress;
use grappa_storage::{MappedChunks, Store};
use tch::{Device, Kind, Tensor};

pub(super) use self::columns::ReorderedColumns;
pub use self::{
    degrees::Degrees,
    first_inputs::FirstInputs,
    needed::{Needed, NeededOptions, check_sets},
};
use self::{
    keeper::Keeper,
    layers::{Layers, Results},
};
use super::historical::{HistoricalNodes, HistoricalRows};
use crate::{Result, nn::Model, shim};

/// Nodes whose messages, queries or states are computed at once, at most.
const STEP_NODES: u64 = 1 << 13;
/// Bytes of their widest rows, at most. The allocator returns memory of more than 32 MiB to the system each time, which clears it again.
const STEP_BYTES: u64 = 16 << 20;
/// With little memory, these rows take at most 1/STEP_SHARE of it. A computation has several tensors of that size at a time: what it reads,
/// what it makes and what it passes on.
const STEP_SHARE: u64 = 128;

/// The inputs of exact inference.
pub struct Inference<'a> {
    /// The graph.
    pub store: &'a Store,
    /// Its chunks.
    pub chunks: &'a Arc<MappedChunks>,
    /// Its features.
    pub features: &'a dyn NodeRows,
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
    /// Passes the logits of all nodes to `on_logits`, range after range in the order of nodes.
    ///
    /// # Errors
    /// If files cannot be read, scratch files cannot be written, or memory is too small. Also the errors of `on_logits`.
    pub fn run(&self, model: &Model, progress: &dyn Progress, on_logits: &mut OnRows<'_>) -> Result<()> {
        let needed = Needed::all(self.store, model.options().layers);
        self.run_needed(model, &needed, progress, on_logits)
    }

    /// Passes the results of the wanted nodes to `on_rows`, range after range: their states after the layers that `needed` is for.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If the model has fewer layers.
    pub fn run_needed(
        &self,
        model: &Model,
        needed: &Needed,
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        let degrees = Degrees::new(self.chunks.clone());
        let results = &mut Results {
            states: Some(on_rows),
            kept: None,
        };
        self.run_layers(model, needed, &degrees, progress, results)
    }

    /// The historical embeddings of some nodes. `needed` is [`HistoricalNodes::needed`]. With `on_logits`, it also has wanted nodes,
    /// whose logits are passed to it.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If neighbors are kept and the model does not support it ([`Model::has_neighbors`]), or if there are no pre-aggregated
    /// features then.
    pub fn historical(
        &self,
        model: &Model,
        nodes: &HistoricalNodes,
        needed: &Needed,
        on_logits: Option<&mut OnRows<'_>>,
        progress: &dyn Progress,
    ) -> Result<HistoricalRows> {
        let degrees = Degrees::new(self.chunks.clone());
        let mut keeper = Keeper::new(self, nodes, &degrees)?;
        if !nodes.sets().is_empty() || on_logits.is_some() {
            let results = &mut Results {
                states: on_logits,
                kept: Some(&mut keeper),
            };
            self.run_layers(model, needed, &degrees, progress, results)?;
        }
        Ok(keeper.finish())
    }

    /// Bytes of the scratch files that [`Inference::run_needed`] has at a time.
    pub fn scratch_bytes(&self, model: &Model, needed: &Needed) -> u64 {
        let normalized = model.normalized(self.features);
        let features = normalized.as_ref().map_or(self.features, |rows| rows);
        let layers = Layers {
            inference: self,
            model,
            needed,
            features,
        };
        layers.scratch_bytes()
    }

    /// The number of nodes that are computed at once, with rows of at most `width` values.
    fn step_nodes(&self, width: usize) -> u64 {
        let row_bytes = (width * size_of::<f32>()) as u64;
        let bytes = STEP_BYTES.min(self.budget.memory / STEP_SHARE);
        (bytes / row_bytes).clamp(1, STEP_NODES)
    }

    fn run_layers(
        &self,
        model: &Model,
        needed: &Needed,
        degrees: &Degrees,
        progress: &dyn Progress,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<()> {
        let normalized = model.normalized(self.features);
        let features = normalized.as_ref().map_or(self.features, |rows| rows);
        let layers = Layers {
            inference: self,
            model,
            needed,
            features,
        };
        layers.run(degrees, progress, results)
    }
}

/// The values of a tensor as f32, row by row. If they are f32 in the processor's memory already, they are not copied.
pub fn values(tensor: &Tensor) -> HostValues {
    HostValues(tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float).contiguous())
}

/// The values of a tensor in the processor's memory. Dereferences to a slice.
#[derive(Debug)]
pub struct HostValues(Tensor);

impl Deref for HostValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        shim::values(&self.0)
    }
}
