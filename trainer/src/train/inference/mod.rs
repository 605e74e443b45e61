//! Exact inference: one layer after the other over the graph, in memory or out of core.
//!
//! ```text
//! states = features
//! for each layer:
//!     for each tile of the nodes whose states the next layer needs:
//!         aggregate the messages of all in-neighbours                  grappa_engine::aggregate
//!         update the states of the tile; those of the last layer are logits
//! ```
//!
//! All neighbours are used and nothing is sampled. So the result is that of the model on the whole graph, and does not depend on
//! partitions, memory or the number of threads. [`Needed`] has the nodes that each layer computes: those that the wanted results
//! depend on. States are in memory if they fit, and else in scratch files. Memory then holds one tile and one block of rows at a
//! time. The same holds for the historical embeddings of halo nodes ([`HistoricalRows`]).

mod degrees;
mod needed;

use std::{borrow::Cow, ops::Range, path::Path, sync::Arc};

use grappa_engine::aggregate::{
    Aggregation, Beside, Budget, Drawn, NodeRows, NodeSet, OwnRows, Reduce, ScaledRows, SelectedRows, StateRows,
    aggregate, read_each,
};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::{Progress, check_stopped};
use grappa_storage::Store;
use tch::{Device, Kind, Tensor, no_grad};

pub use self::{degrees::Degrees, needed::Needed};
use super::historical::{HistoricalRows, KEPT_AS, Keep, as_kept};
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
    /// Its features.
    pub features: &'a dyn NodeRows,
    /// Pre-aggregated features for the first layer, if the model takes them. Their type limits their precision.
    pub first_hop: Option<&'a dyn NodeRows>,
    /// Memory and threads.
    pub budget: Budget,
    /// Memory in bytes for historical embeddings, besides the budget. Those that do not fit are in scratch files.
    pub kept_memory: u64,
    /// Folder for scratch files.
    pub scratch: &'a Path,
    /// The device of the model.
    pub device: Device,
}

/// Receives the results of a range of positions among the wanted nodes, `[positions, values]`.
pub type OnRows<'a> = dyn FnMut(Range<u64>, &Tensor) -> Result<()> + 'a;

impl Inference<'_> {
    /// Passes the logits of all nodes to `on_logits`, range after range in the order of nodes. Returns the historical embeddings that
    /// `keep` asks for.
    ///
    /// # Errors
    /// If files cannot be read, scratch files cannot be written, or memory is too small. Also the errors of `on_logits`.
    pub fn run(
        &self,
        model: &Model,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut OnRows<'_>,
    ) -> Result<Option<HistoricalRows>> {
        let needed = Needed::all(self.store, model.options().layers);
        self.run_needed(model, &needed, keep, progress, on_logits)
    }

    /// Passes the results of the wanted nodes to `on_rows`, range after range: their states after the layers that `needed` is for.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If the model has fewer layers, or something is kept and a layer does not compute all nodes. With [`Keep::Neighbours`], if the
    /// model does not support it ([`Model::has_neighbours`]), or if there are no pre-aggregated features.
    pub fn run_needed(
        &self,
        model: &Model,
        needed: &Needed,
        keep: Keep,
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<Option<HistoricalRows>> {
        let layers = needed.layers();
        assert!(layers <= model.options().layers, "{layers} layers of fewer");
        assert!(
            keep == Keep::Nothing || needed.wanted().is_all(),
            "what is kept is of all nodes"
        );
        let degrees = Degrees::open(self.store)?;
        let all = NodeSet::all(self.store.manifest().nodes);
        let mut kept_memory = self.kept_memory;
        let mut kept = self.begin_historical(model, &degrees, keep, &mut kept_memory, progress)?;
        let mut hidden: Option<StateRows> = None;
        for layer in 0..layers {
            let is_last = layer + 1 == layers;
            let mut free = self.budget.memory - hidden.as_ref().map_or(0, StateRows::memory).min(self.budget.memory);
            let pass = LayerPass {
                inference: self,
                model,
                layer,
                rows: hidden.as_ref().map_or(self.features, |states| states),
                rows_of: if layer == 0 { &all } else { needed.inputs(layer) },
                inputs: needed.inputs(layer),
                outputs: needed.outputs(layer),
                degrees: &degrees,
                progress,
            };
            let mut create = |rows, width| -> Result<StateRows> {
                let states = StateRows::create(self.scratch, rows, width, FeatureDtype::F32, &mut (free / 2))?;
                free -= states.memory();
                Ok(states)
            };
            let known = self.first_hop.filter(|_| layer == 0);
            let reduction = model.reduction(layer);
            let messages = match known.is_none() && pass.transforms() {
                true => Some(create(pass.inputs.len(), reduction.source_width())?),
                false => None,
            };
            let mut out = match is_last {
                true => None,
                false => Some(create(pass.outputs.len(), model.width(layer + 1))?),
            };
            let width = reduction.result_width();
            let keeps = keep != Keep::Nothing && layer > 0 && !is_last;
            let keeps = keeps.then(|| StateRows::create(self.scratch, all.len(), width, KEPT_AS, &mut kept_memory));
            let mut keeps = keeps.transpose()?;
            let mut take = |positions: Range<u64>, aggregates: Vec<f32>| {
                if let Some(keeps) = &mut keeps {
                    let state = aggregates.len() / (positions.end - positions.start).max(1) as usize;
                    let aggregates = firsts(&aggregates, state, width);
                    self.keep(&pass, &kept, positions.clone(), &aggregates, keeps)?;
                }
                pass.update(positions, aggregates, &mut |positions, new| match &mut out {
                    Some(out) => Ok(out.write(positions.start, &values(new))?),
                    None => on_rows(positions, new),
                })
            };
            let budget = Budget {
                memory: free,
                ..self.budget
            };
            match known {
                Some(first_hop) => pass.known(first_hop, &mut take)?,
                None => pass.aggregated(messages, budget, &mut take)?,
            }
            if let Some(keeps) = keeps {
                let drawn = self.drawn(keeps, layers - 2 - layer, keep, &mut kept_memory, progress)?;
                kept.layers.push(drawn);
            }
            hidden = out;
        }
        Ok((keep != Keep::Nothing).then_some(kept))
    }

    /// Saves the inputs of neighbours, which are known before the first layer.
    fn begin_historical(
        &self,
        model: &Model,
        degrees: &Degrees,
        keep: Keep,
        kept_memory: &mut u64,
        progress: &dyn Progress,
    ) -> Result<HistoricalRows> {
        let mut kept = HistoricalRows::default();
        let layers = model.options().layers;
        if let (Keep::Neighbours { .. }, 3..) = (keep, layers) {
            assert!(model.has_neighbours(), "the model supports neighbours");
            let first_hop = self.first_hop.expect("aggregates of features");
            let rows = Beside(self.features, first_hop);
            let first = self.drawn_once(&Beside(&rows, degrees), keep, kept_memory, progress)?;
            kept.inputs = self.drawn(first, layers - 3, keep, kept_memory, progress)?;
        }
        Ok(kept)
    }

    /// Saves the aggregates of a range of nodes at a layer, or their differences to the contributions of neighbours.
    fn keep(
        &self,
        pass: &LayerPass<'_>,
        kept: &HistoricalRows,
        nodes: Range<u64>,
        aggregates: &[f32],
        out: &mut StateRows,
    ) -> Result<()> {
        if kept.inputs.is_empty() {
            return Ok(out.write(nodes.start, aggregates)?);
        }
        for first in nodes.clone().step_by(UPDATE_NODES as usize) {
            check_stopped(pass.progress)?;
            let range = first..(first + UPDATE_NODES).min(nodes.end);
            let count = (range.end - range.start) as usize;
            let read = |rows: &StateRows| {
                let mut values = vec![0.0; count * rows.width()];
                rows.read(range.clone(), &mut values)?;
                let rows = Tensor::from_slice(&values).view([count as i64, rows.width() as i64]);
                Ok(rows.to_device(self.device))
            };
            let degrees = as_kept(&pass.degrees.of_each(range.clone().map(NodeId))?).to_device(self.device);
            let neighbour = kept.neighbour(pass.layer, degrees, read)?;
            let shares = values(&no_grad(|| pass.model.neighbour_share(pass.layer, &neighbour)));
            let at = (first - nodes.start) as usize * out.width();
            let aggregates = &aggregates[at..at + shares.len()];
            let differences: Vec<f32> = aggregates.iter().zip(&shares).map(|(all, share)| all - share).collect();
            out.write(first, &differences)?;
        }
        Ok(())
    }

    /// `rows` of all nodes. With [`Keep::Neighbours`] also the rows of their neighbours, of the neighbours of these, and so on,
    /// `times` times.
    fn drawn(
        &self,
        rows: StateRows,
        times: usize,
        keep: Keep,
        kept_memory: &mut u64,
        progress: &dyn Progress,
    ) -> Result<Vec<StateRows>> {
        let mut all = vec![rows];
        if let Keep::Neighbours { .. } = keep {
            for last in 0..times {
                all.push(self.drawn_once(&all[last], keep, kept_memory, progress)?);
            }
        }
        Ok(all)
    }

    /// For each node, the row of its neighbour.
    fn drawn_once(
        &self,
        rows: &dyn NodeRows,
        keep: Keep,
        kept_memory: &mut u64,
        progress: &dyn Progress,
    ) -> Result<StateRows> {
        let Keep::Neighbours { seed } = keep else {
            unreachable!("neighbours are kept")
        };
        let width = rows.width();
        let nodes = self.store.manifest().nodes;
        let mut out = StateRows::create(self.scratch, nodes, width, KEPT_AS, kept_memory)?;
        let sink = &mut |nodes: Range<u64>, states: &mut Vec<f32>| out.write(nodes.start, states);
        aggregate(self.store, rows, &Drawn { width, seed }, 0, self.budget, progress, sink)?;
        Ok(out)
    }
}

/// The first `width` values of each row of `state` values.
fn firsts(rows: &[f32], state: usize, width: usize) -> Cow<'_, [f32]> {
    if state == width {
        return Cow::Borrowed(rows);
    }
    rows.chunks_exact(state)
        .flat_map(|row| &row[..width])
        .copied()
        .collect()
}

/// Receives the aggregates of a range of positions among the outputs.
type Take<'a> = dyn FnMut(Range<u64>, Vec<f32>) -> Result<()> + 'a;

/// One layer of an inference.
struct LayerPass<'a> {
    inference: &'a Inference<'a>,
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
    /// Whether messages are not the states themselves.
    fn transforms(&self) -> bool {
        matches!(
            self.model.aggregate(self.layer),
            Aggregate::Gcn | Aggregate::Attention | Aggregate::WeightedMean
        )
    }

    /// Takes the aggregates from `first_hop`, which has rows of all nodes.
    fn known(&self, first_hop: &dyn NodeRows, take: &mut Take<'_>) -> Result<()> {
        let width = first_hop.width();
        for first in (0..self.outputs.len()).step_by(UPDATE_NODES as usize) {
            check_stopped(self.progress)?;
            let positions = first..(first + UPDATE_NODES).min(self.outputs.len());
            let nodes: Vec<u64> = self.nodes(positions.clone()).iter().map(|node| node.0).collect();
            let mut aggregates = vec![0.0; nodes.len() * width];
            read_each(first_hop, &nodes, &mut aggregates, self.inference.budget.threads)?;
            take(positions, aggregates)?;
        }
        Ok(())
    }

    /// Aggregates the messages of all in-neighbours. `messages` has space for them if they are not the states themselves.
    fn aggregated(&self, messages: Option<StateRows>, budget: Budget, take: &mut Take<'_>) -> Result<()> {
        let selected = SelectedRows {
            rows: self.rows,
            set: self.inputs,
        };
        let states: &dyn NodeRows = if self.layer == 0 { &selected } else { self.rows };
        let messages = messages.map(|space| self.messages(states, space)).transpose()?;
        let aggregation = Aggregation {
            store: self.inference.store,
            sources: self.inputs,
            rows: messages.as_ref().map_or(states, |messages| messages),
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
        let own = (reduction.own_width() > 0).then_some(&mut queries as &mut OwnRows<'_>);
        let mut sink = |positions: Range<u64>, states: &mut Vec<f32>| caught(take(positions, std::mem::take(states)));
        let result = aggregation.run(&reduction, 0, own, self.progress, &mut sink);
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
            let rows = self.read(states, &places)?;
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

    /// Updates a range of outputs from their aggregates, [`UPDATE_NODES`] at a time.
    fn update(
        &self,
        positions: Range<u64>,
        aggregates: Vec<f32>,
        on_new: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let count = positions.end - positions.start;
        let width = aggregates.len() / count.max(1) as usize;
        let aggregates = shim::view_memory(Arc::new(Rows(aggregates)), count as usize, width, Kind::Float);
        for first in positions.clone().step_by(UPDATE_NODES as usize) {
            check_stopped(self.progress)?;
            let range = first..(first + UPDATE_NODES).min(positions.end);
            let degrees = match self.model.aggregate(self.layer) {
                Aggregate::Gcn => {
                    let degrees = self.degrees.of_each(self.nodes(range.clone()))?;
                    Some(Tensor::from_slice(&degrees).to_device(self.inference.device))
                }
                _ => None,
            };
            let (at, length) = ((first - positions.start) as i64, (range.end - range.start) as i64);
            let aggregated = aggregates.narrow(0, at, length).to_device(self.inference.device);
            let own = self.own(range.clone())?;
            on_new(
                range,
                &self.model.update(self.layer, &own, &aggregated, degrees.as_ref()),
            )?;
        }
        Ok(())
    }

    /// The outputs at some positions.
    fn nodes(&self, positions: Range<u64>) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        self.outputs.nodes_at(positions, &mut nodes);
        nodes
    }

    /// The states of a range of outputs before this layer.
    fn own(&self, positions: Range<u64>) -> Result<Tensor> {
        let places = self
            .nodes(positions)
            .into_iter()
            .map(|node| self.rows_of.position(node));
        self.read(self.rows, &places.collect::<Vec<_>>())
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
