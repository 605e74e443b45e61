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
//! All neighbors are used and nothing is sampled. So the result is that of the model on the whole graph, and does not depend on
//! partitions, memory or the number of threads. Evaluations may draw the in-neighbors of each layer instead
//! ([`NeededOptions::samples`]). [`Needed`] has the nodes that each layer computes: those that the wanted results
//! depend on. States are in memory as f32 if they fit. Else they are rounded ([`Inference::rounded_states`]), and in memory or in
//! scratch files. Memory then holds one tile and one block of rows at a time. The same holds for the historical embeddings of halo nodes ([`HistoricalRows`]), which take the same passes.

mod columns;
mod degrees;
mod first_inputs;
mod keeper;
mod needed;
mod states;

use std::{ops::Range, path::Path, sync::Arc};

use grappa_engine::aggregate::{
    Aggregation, Budget, NodeRows, OwnRows, Reduce, ScaledRows, SelectedRows, StateRows, read_each, read_each_ahead,
};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::{Progress, check_stopped};
use grappa_sampling::{InNeighbors, NodeSet};
use grappa_storage::{MappedChunks, Store};
use tch::{Device, Kind, Tensor};

use self::{
    columns::FirstColumns,
    first_inputs::{Kept, UpdateInputs},
    keeper::Keeper,
    states::{EncodedStates, StatesPlace, outputs_share},
};
pub use self::{
    degrees::Degrees,
    first_inputs::FirstInputs,
    needed::{Needed, NeededOptions, check_sets},
};
use super::historical::{HistoricalNodes, HistoricalRows};
use crate::{
    Result,
    nn::{Aggregate, Model},
    shim,
};

/// Nodes whose states are updated at once.
const UPDATE_NODES: u64 = 1 << 15;

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
    /// Memory and threads.
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
        let memory = self.budget.memory;
        let (mut hidden, mut kept_in_file, mut most) = (StatesPlace::default(), 0, 0);
        for layer in 0..needed.layers() {
            // As `run_layers` creates them.
            let mut free = memory.saturating_sub(hidden.memory);
            let is_known = layer == 0 && self.first_hop.is_some();
            let reduction = model.reduction(layer);
            let (inputs, width) = (needed.inputs(layer).len(), reduction.source_width());
            let has_messages = !is_known && transforms(model, layer);
            let in_memory = match layer {
                0 => features.in_memory().is_some(),
                _ => hidden.memory > 0 && hidden.dtype == FeatureDtype::F32,
            };
            let share = outputs_share(is_known || (in_memory && !has_messages), inputs, width, free);
            let mut place = |rows: u64, width: usize, share: u64| {
                let place = StatesPlace::of(rows, width, free / share, self.rounded_states);
                free -= place.memory;
                place
            };
            let messages = match has_messages {
                true => place(inputs, width, 2),
                false => StatesPlace::default(),
            };
            let out = match layer + 1 == needed.layers() {
                true => StatesPlace::default(),
                false => place(needed.outputs(layer).len(), model.width(layer + 1), share),
            };
            let kept = match (layer, self.first_inputs) {
                (0, Some(first_inputs)) if has_fixed_inputs(model, layer) && features.file_bytes() > 0 => {
                    let widths = [self.features.width(), reduction.result_width()];
                    first_inputs.file_bytes(needed.outputs(layer).len(), widths)
                }
                _ => 0,
            };
            kept_in_file += kept;
            let copy = match layer == 0 && !is_known {
                true => self.copy_bytes(features, needed, model),
                false => 0,
            };
            most = most.max(kept_in_file + copy + hidden.file + messages.file + out.file);
            hidden = out;
        }
        most
    }

    /// Bytes of a copy of those features that the first layer needs; 0 if it is faster to read them where they are. In files, the rows of
    /// other nodes are read with them.
    fn copy_bytes(&self, features: &dyn NodeRows, needed: &Needed, model: &Model) -> u64 {
        // They are read once as states, and once for each part of the outputs that memory holds with their edges.
        let outputs = StateRows::bytes_of(
            needed.outputs(0).len(),
            model.reduction(0).state_width(),
            FeatureDtype::F32,
        );
        let passes = 1 + outputs.div_ceil(self.budget.memory.max(1));
        StateRows::copy_bytes(self.scratch, features, needed.inputs(0).len(), passes)
    }

    fn run_layers(
        &self,
        model: &Model,
        needed: &Needed,
        degrees: &Degrees,
        progress: &dyn Progress,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<()> {
        let layers = needed.layers();
        assert!(layers <= model.options().layers, "{layers} layers of fewer");
        let all = NodeSet::all(self.store.manifest().nodes);
        let normalized = model.normalized(self.features);
        let features = normalized.as_ref().map_or(self.features, |rows| rows);
        let mut hidden: Option<StateRows> = None;
        for layer in 0..layers {
            let is_last = layer + 1 == layers;
            let mut free = self.budget.memory - hidden.as_ref().map_or(0, StateRows::memory).min(self.budget.memory);
            let known = self.first_hop.filter(|_| layer == 0);
            let kept_inputs = self.first_inputs.filter(|_| has_fixed_inputs(model, layer));
            let ready = kept_inputs.and_then(FirstInputs::get);
            let copy = match layer == 0 && known.is_none() && ready.is_none() {
                true if self.copy_bytes(features, needed, model) > 0 => {
                    let (inputs, threads) = (needed.inputs(0), self.budget.threads);
                    Some(StateRows::copied(self.scratch, features, inputs, threads, progress)?)
                }
                _ => None,
            };
            let (features, features_of) = match &copy {
                Some(copy) => (copy as &dyn NodeRows, needed.inputs(0)),
                None => (features, &all),
            };
            let pass = LayerPass {
                inference: self,
                lists: needed.lists(self.chunks, layer),
                model,
                layer,
                rows: hidden.as_ref().map_or(features, |states| states),
                rows_of: if layer == 0 { features_of } else { needed.inputs(layer) },
                inputs: needed.inputs(layer),
                outputs: needed.outputs(layer),
                degrees,
                progress,
            };
            let reduction = model.reduction(layer);
            let aggregates = known.is_none() && ready.is_none();
            let has_messages = aggregates && transforms(model, layer);
            let share = {
                let in_memory = !has_messages && pass.rows.in_memory().is_some();
                let (inputs, width) = (pass.inputs.len(), reduction.source_width());
                outputs_share(!aggregates || in_memory, inputs, width, free)
            };
            let mut create = |rows, width, share| -> Result<StateRows> {
                let StatesPlace { dtype, .. } = StatesPlace::of(rows, width, free / share, self.rounded_states);
                let states = StateRows::create(self.scratch, rows, width, dtype, &mut (free / share))?;
                free -= states.memory();
                Ok(states)
            };
            let messages = match has_messages {
                true => Some(create(pass.inputs.len(), reduction.source_width(), 2)?),
                false => None,
            };
            let mut out = match is_last {
                true => None,
                false => Some(create(pass.outputs.len(), model.width(layer + 1), share)?),
            };
            if let Some(keeper) = &mut results.kept {
                keeper.begin(layer, reduction.result_width())?;
            }
            let widths = [pass.rows.width(), reduction.result_width()];
            let mut inputs = kept_inputs
                .filter(|_| ready.is_none())
                .and_then(|kept| kept.begin(pass.outputs.len(), widths, features.file_bytes() > 0));
            let mut take = |positions: Range<u64>, aggregates: Vec<f32>, own: Option<EncodedStates<'_>>| {
                if let Some(keeper) = &mut results.kept {
                    let state_width = aggregates.len() / (positions.end - positions.start).max(1) as usize;
                    keeper.take(&pass, positions.clone(), &aggregates, state_width)?;
                }
                match results.of_updates(&mut out) {
                    Some(mut on_new) => pass.update(positions, aggregates, own, &mut inputs, &mut on_new),
                    None => Ok(()),
                }
            };
            let budget = Budget {
                memory: free,
                ..self.budget
            };
            match (ready, known) {
                (Some(ready), _) => {
                    if let Some(mut on_new) = results.of_updates(&mut out) {
                        pass.update_again(ready, &mut on_new)?;
                    }
                }
                (None, Some(first_hop)) => pass.known(first_hop, &mut take)?,
                (None, None) => pass.aggregated(messages, budget, &mut take)?,
            }
            if let (Some(kept), Some(inputs)) = (kept_inputs, inputs) {
                kept.set(inputs);
            }
            if let Some(keeper) = &mut results.kept {
                keeper.end(layer)?;
            }
            hidden = out;
        }
        Ok(())
    }
}

/// The results of an inference.
struct Results<'a, 'b, 'c> {
    /// Receives the states of the wanted nodes.
    states: Option<&'a mut OnRows<'b>>,
    /// Receives the aggregates of layers.
    kept: Option<&'a mut Keeper<'c>>,
}

impl Results<'_, '_, '_> {
    /// Receives the new states of a layer, if they are of use. `out` has space for those of all layers but the last.
    fn of_updates(&mut self, out: &mut Option<StateRows>) -> Option<impl FnMut(Range<u64>, &Tensor) -> Result<()>> {
        let mut on_rows = self.states.as_deref_mut();
        (out.is_some() || on_rows.is_some()).then_some(move |positions: Range<u64>, new: &Tensor| {
            match (out.as_mut(), &mut on_rows) {
                (Some(out), _) => Ok(out.write(positions.start, &values(new))?),
                (None, Some(on_rows)) => on_rows(positions, new),
                (None, None) => Ok(()),
            }
        })
    }
}

/// Whether the messages of a layer are not the states themselves.
fn transforms(model: &Model, layer: usize) -> bool {
    matches!(
        model.aggregate(layer),
        Aggregate::Gcn | Aggregate::Attention | Aggregate::WeightedMean
    )
}

/// Whether the inputs of a layer's updates do not depend on parameters.
fn has_fixed_inputs(model: &Model, layer: usize) -> bool {
    let of_parameters = matches!(model.aggregate(layer), Aggregate::Attention | Aggregate::WeightedMean);
    layer == 0 && !of_parameters
}

/// Receives the aggregates of a range of positions among the outputs, and their states before the layer, if these were read.
type Take<'a> = dyn FnMut(Range<u64>, Vec<f32>, Option<EncodedStates<'_>>) -> Result<()> + 'a;

/// One layer of an inference.
struct LayerPass<'a> {
    inference: &'a Inference<'a>,
    lists: InNeighbors<'a>,
    model: &'a Model,
    layer: usize,
    /// The states that the layer takes, by position in `rows_of`. The first layer takes the features of all nodes.
    rows: &'a dyn NodeRows,
    rows_of: &'a NodeSet,
    /// The nodes whose states it takes.
    inputs: &'a NodeSet,
    /// The nodes whose states it makes.
    outputs: &'a NodeSet,
    degrees: &'a Degrees,
    progress: &'a dyn Progress,
}

impl LayerPass<'_> {
    /// Takes the aggregates from `first_hop`, which has rows of all nodes.
    fn known(&self, first_hop: &dyn NodeRows, take: &mut Take<'_>) -> Result<()> {
        let width = first_hop.width();
        let range = |first: u64| first..(first + UPDATE_NODES).min(self.outputs.len());
        let nodes_at = |positions| -> Vec<u64> { self.nodes(positions).iter().map(|node| node.0).collect() };
        let mut nodes = nodes_at(range(0));
        for first in (0..self.outputs.len()).step_by(UPDATE_NODES as usize) {
            check_stopped(self.progress)?;
            let positions = range(first);
            let mut aggregates = vec![0.0; nodes.len() * width];
            read_each(first_hop, &nodes, &mut aggregates, self.inference.budget.threads)?;
            nodes = nodes_at(range(positions.end));
            read_each_ahead(first_hop, &nodes);
            read_each_ahead(self.rows, &self.places(range(positions.end)));
            take(positions, aggregates, None)?;
        }
        Ok(())
    }

    /// Aggregates the messages of all in-neighbors. `messages` has space for them if they are not the states themselves.
    fn aggregated(&self, messages: Option<StateRows>, budget: Budget, take: &mut Take<'_>) -> Result<()> {
        let selected = SelectedRows {
            rows: self.rows,
            set: self.inputs,
        };
        let (states, sources): (&dyn NodeRows, _) = match self.rows_of.len() == self.inputs.len() {
            // Features that are in memory need not be copied.
            false if messages.is_none() && self.rows.in_memory().is_some() => (self.rows, self.rows_of),
            false => (&selected, self.inputs),
            true => (self.rows, self.inputs),
        };
        let messages = messages.map(|space| self.messages(states, space)).transpose()?;
        let states = &FirstColumns::of(states, self.model.state_width(self.layer));
        let aggregation = Aggregation {
            store: self.inference.store,
            lists: self.lists,
            sources,
            rows: messages.as_ref().map_or(states as &dyn NodeRows, |messages| messages),
            destinations: self.outputs,
            budget,
        };
        // Callbacks return errors of the engine. Ours waits here until the engine has returned.
        let failure = std::cell::Cell::new(None);
        let caught = |done: Result<()>| {
            done.map_err(|error| {
                failure.set(Some(error));
                grappa_io::Error::Stopped
            })
        };
        let reduction = self.model.reduction(self.layer);
        let mut queries = |positions: Range<u64>, out: &mut [f32]| {
            caught(self.own(positions).map(|own| {
                let queries = self.model.queries(self.layer, &own).expect("it has a width");
                out.copy_from_slice(&values(&queries));
            }))
        };
        let layout = aggregation.rows.layout();
        let mut sink = |positions: Range<u64>, states: &mut Vec<f32>, own: Option<&[u8]>| {
            let own = own.map(|bytes| EncodedStates { bytes, layout });
            caught(take(positions, std::mem::take(states), own))
        };
        let passes_states = messages.is_none() && aggregation.rows.width() == self.rows.width();
        let result = if passes_states && reduction.own_width() == 0 {
            aggregation.run_with_rows(&reduction, self.progress, &mut sink)
        } else {
            let own = (reduction.own_width() > 0).then_some(&mut queries as &mut OwnRows<'_>);
            let mut sink = |positions: Range<u64>, states: &mut Vec<f32>| sink(positions, states, None);
            aggregation.run(&reduction, 0, own, self.progress, &mut sink)
        };
        match failure.take() {
            Some(failure) => Err(failure),
            None => Ok(result?),
        }
    }

    /// Computes the messages of all inputs, [`UPDATE_NODES`] at a time.
    fn messages(&self, states: &dyn NodeRows, mut messages: StateRows) -> Result<StateRows> {
        let count = self.inputs.len();
        for first in (0..count).step_by(UPDATE_NODES as usize) {
            check_stopped(self.progress)?;
            let positions = first..(first + UPDATE_NODES).min(count);
            let places: Vec<u64> = positions.clone().collect();
            let rows = self.model.state(self.layer, &self.read(states, &places)?);
            let new = match self.model.aggregate(self.layer) {
                Aggregate::Gcn => {
                    let mut nodes = Vec::new();
                    self.inputs.nodes_at(positions, &mut nodes);
                    let factor = |node| Ok(ScaledRows::factor(self.degrees.of(node)?));
                    let factors = nodes.into_iter().map(factor).collect::<Result<Vec<f32>>>()?;
                    rows * Tensor::from_slice(&factors)
                        .unsqueeze(1)
                        .to_device(self.inference.device)
                }
                _ => self.model.messages(self.layer, &rows, None),
            };
            messages.write(first, &values(&new))?;
        }
        Ok(messages)
    }

    /// Updates a range of outputs from their aggregates, [`UPDATE_NODES`] at a time. The inputs are added to `inputs`. Their states before
    /// the layer are read unless they are given as `own`.
    fn update(
        &self,
        positions: Range<u64>,
        aggregates: Vec<f32>,
        own: Option<EncodedStates<'_>>,
        inputs: &mut Option<Kept>,
        on_new: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let count = positions.end - positions.start;
        let width = aggregates.len() / count.max(1) as usize;
        let aggregates = shim::view_memory(Arc::new(Rows(aggregates)), count as usize, width, Kind::Float);
        for first in positions.clone().step_by(UPDATE_NODES as usize) {
            check_stopped(self.progress)?;
            let range = first..(first + UPDATE_NODES).min(positions.end);
            let degrees = self.degrees_of(range.clone())?;
            let next = range.end..(range.end + UPDATE_NODES).min(positions.end);
            let (at, length) = ((first - positions.start) as i64, (range.end - range.start) as i64);
            let part = UpdateInputs {
                own: match own {
                    Some(own) => {
                        let places = range.start - positions.start..range.end - positions.start;
                        own.decoded(places).to_device(self.inference.device)
                    }
                    None => self.own_before(range.clone(), next)?,
                },
                aggregated: aggregates.narrow(0, at, length).to_device(self.inference.device),
                positions: range,
                degrees,
            };
            on_new(part.positions.clone(), &self.updated(&part))?;
            match inputs.as_mut().map_or(Ok(()), |inputs| inputs.push(part)) {
                // Keeping them only saves time.
                Err(error) if error.is_disk_full() => *inputs = None,
                pushed => pushed?,
            }
        }
        Ok(())
    }

    /// Updates outputs from the inputs that an earlier inference left.
    fn update_again(&self, inputs: &Kept, on_new: &mut OnRows<'_>) -> Result<()> {
        let degrees = |positions| self.degrees_of(positions);
        inputs.each(self.outputs.len(), self.inference.device, degrees, |part| {
            check_stopped(self.progress)?;
            on_new(part.positions.clone(), &self.updated(part))
        })
    }

    /// The in-degrees of some outputs, if updates take them.
    fn degrees_of(&self, positions: Range<u64>) -> Result<Option<Tensor>> {
        match self.model.aggregate(self.layer) {
            Aggregate::Gcn => {
                let degrees = self.degrees.of_each(self.nodes(positions))?;
                Ok(Some(Tensor::from_slice(&degrees).to_device(self.inference.device)))
            }
            _ => Ok(None),
        }
    }

    /// The new states of some outputs.
    fn updated(&self, inputs: &UpdateInputs) -> Tensor {
        let UpdateInputs {
            own,
            aggregated,
            degrees,
            ..
        } = inputs;
        self.model.update(self.layer, own, aggregated, degrees.as_ref())
    }

    /// The outputs at some positions.
    fn nodes(&self, positions: Range<u64>) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        self.outputs.nodes_at(positions, &mut nodes);
        nodes
    }

    /// The states of a range of outputs before this layer.
    fn own(&self, positions: Range<u64>) -> Result<Tensor> {
        self.read(self.rows, &self.places(positions))
    }

    /// The states of a range of outputs, while those of the `next` one are read ahead.
    fn own_before(&self, positions: Range<u64>, next: Range<u64>) -> Result<Tensor> {
        let own = self.own(positions)?;
        read_each_ahead(self.rows, &self.places(next));
        Ok(own)
    }

    /// Where the states of a range of outputs before this layer are.
    fn places(&self, positions: Range<u64>) -> Vec<u64> {
        let nodes = self.nodes(positions).into_iter();
        nodes.map(|node| self.rows_of.position(node)).collect()
    }

    /// Rows at ascending positions, on the device.
    fn read(&self, rows: &dyn NodeRows, positions: &[u64]) -> Result<Tensor> {
        let shape = [positions.len() as i64, rows.width() as i64];
        let mut tensor = Tensor::empty(shape, (Kind::Float, Device::Cpu));
        let threads = self.inference.budget.threads;
        read_each(rows, positions, shim::values_mut(&mut tensor), threads)?;
        Ok(tensor.to_device(self.inference.device))
    }
}

/// Rows that a tensor is a view of.
struct Rows(Vec<f32>);

impl shim::Values for Rows {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The values of a tensor as f32, row by row.
pub fn values(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor
        .to_device(Device::Cpu)
        .to_kind(Kind::Float)
        .contiguous()
        .view([-1]);
    Vec::<f32>::try_from(flat).expect("a tensor of f32 becomes a vector")
}
