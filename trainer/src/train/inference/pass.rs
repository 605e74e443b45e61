//! One layer of an inference.

use std::{cell::Cell, ops::Range, sync::Arc};

use grappa_engine::aggregate::{
    Aggregation, BegunAggregation, Budget, NodeRows, OwnRows, Reduce, RowScan, ScannedColumn, ScannedPart,
    SelectedRows, SinkWithRows, StateRows, read_each, read_each_ahead,
};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::{Progress, check_stopped};
use grappa_sampling::{InNeighbors, NodeSet};
use tch::{Device, Kind, Tensor};

use super::{
    columns::FirstColumns,
    first_inputs::{Kept, UpdateInputs, UpdateRows},
    states::EncodedStates,
    task::{Inference, OnRows},
};
use crate::train::data::degrees::Degrees;
use crate::{
    Error, Result,
    nn::{Aggregate, Model, Reduction, gcn_factors},
    shim,
    train::tensors::host_values,
};

/// Receives the aggregates of a range of positions among the outputs, and their states before the layer, if these were read. Returns the
/// memory of the aggregates if it is not needed any more, and else an empty vector.
pub(super) type Take<'a> = dyn FnMut(Range<u64>, Vec<f32>, Option<EncodedStates<'_>>) -> Result<Vec<f32>> + 'a;

/// One layer of an inference.
#[derive(Clone, Copy)]
pub(super) struct LayerPass<'a> {
    pub inference: &'a Inference<'a>,
    pub lists: InNeighbors<'a>,
    pub model: &'a Model,
    pub layer: usize,
    /// The states that the layer takes, by position in `rows_of`. The first layer takes the features of all nodes.
    pub rows: &'a dyn NodeRows,
    pub rows_of: &'a NodeSet,
    /// The nodes whose states it takes.
    pub inputs: &'a NodeSet,
    /// The nodes whose states it makes.
    pub outputs: &'a NodeSet,
    pub degrees: &'a Degrees,
    pub progress: &'a dyn Progress,
}

impl LayerPass<'_> {
    /// Takes the aggregates from `first_hop`, which has rows of all nodes. The rows of the next outputs are read on another thread
    /// meanwhile.
    pub(super) fn known(&self, first_hop: &dyn NodeRows, take: &mut Take<'_>) -> Result<()> {
        let all = NodeSet::all(self.outputs.universe());
        let columns =
            [ScannedColumn { rows: first_hop, nodes: &all }, ScannedColumn { rows: self.rows, nodes: self.rows_of }];
        let Budget { memory, threads } = self.inference.budget;
        let part_nodes = self.step_nodes();
        let scan = RowScan::new(&columns, self.outputs, part_nodes, memory, threads)?;
        let layout = StateRows::layout_of(self.rows.width(), FeatureDtype::F32);
        scan.each(self.progress, |ScannedPart { positions, columns }| {
            let [aggregates, states] = columns.try_into().expect("a scan of two columns");
            let bytes = bytemuck::cast_slice(&states);
            take(positions, aggregates, Some(EncodedStates { bytes, layout })).map(drop)
        })
    }

    /// Aggregates the messages of all in-neighbors. `messages` has space for them if they are not the states themselves.
    pub(super) fn aggregated(&self, messages: Option<StateRows>, budget: Budget, take: &mut Take<'_>) -> Result<()> {
        let selected = SelectedRows { rows: self.rows, set: self.inputs };
        let (states, sources): (&dyn NodeRows, _) = match self.rows_of.len() == self.inputs.len() {
            // Features that are in memory need not be copied.
            false if messages.is_none() && self.rows.in_memory().is_some() => (self.rows, self.rows_of),
            false => (&selected, self.inputs),
            true => (self.rows, self.inputs),
        };
        let messages = messages.map(|space| self.messages(states, space)).transpose()?;
        let states = &FirstColumns::new(states, self.model.state_width(self.layer));
        let rows = messages.as_ref().map_or(states as &dyn NodeRows, |messages| messages);
        let aggregation = self.aggregation(rows, sources, budget);
        let reduction = self.model.reduction(self.layer);
        let passes_states = messages.is_none() && rows.width() == self.rows.width();
        if passes_states && reduction.own_width() == 0 {
            return self.take_tiles(take, |sink| aggregation.run_with_rows(&reduction, self.progress, sink));
        }
        let failure = DeferredError::default();
        let mut queries = |positions: Range<u64>, out: &mut [f32]| failure.caught(self.queries(positions, out));
        let own = (reduction.own_width() > 0).then_some(&mut queries as &mut OwnRows<'_>);
        let done = self.take_tiles(take, |sink| {
            aggregation.run(&reduction, 0, own, self.progress, &mut |positions, states| sink(positions, states, None))
        });
        if let (Some(messages), Some(space)) = (messages, self.inference.first_inputs) {
            space.leave_memory(messages);
        }
        failure.or(done)
    }

    /// As [`LayerPass::aggregated`], for an aggregation of the states themselves that has begun.
    pub(super) fn aggregated_from(&self, begun: BegunAggregation<'_, Reduction>, take: &mut Take<'_>) -> Result<()> {
        self.take_tiles(take, |sink| begun.finish(sink))
    }

    /// The aggregation of some rows for the outputs.
    pub(super) fn aggregation<'b>(
        &'b self,
        rows: &'b dyn NodeRows,
        sources: &'b NodeSet,
        budget: Budget,
    ) -> Aggregation<'b> {
        Aggregation {
            store: self.inference.store,
            lists: self.lists,
            sources,
            rows,
            destinations: self.outputs,
            budget,
        }
    }

    /// Passes the tiles that `run` makes to `take`.
    fn take_tiles(
        &self,
        take: &mut Take<'_>,
        run: impl FnOnce(&mut SinkWithRows<'_>) -> grappa_io::Result<()>,
    ) -> Result<()> {
        let failure = DeferredError::default();
        let layout = self.rows.layout();
        let done = run(&mut |positions, states, own| {
            let own = own.map(|bytes| EncodedStates { bytes, layout });
            *states = failure.caught(take(positions, std::mem::take(states), own))?;
            Ok(())
        });
        failure.or(done.map_err(Into::into))
    }

    /// Computes the queries of a range of outputs, a step at a time, and writes them to `out`.
    fn queries(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        let (step, width) = (self.step_nodes(), self.model.reduction(self.layer).own_width());
        let parts = out.chunks_mut(step as usize * width);
        for (first, out) in positions.clone().step_by(step as usize).zip(parts) {
            let range = first..(first + step).min(positions.end);
            let queries = match self.degrees_of(range.clone())? {
                Some(degrees) => gcn_factors(&degrees),
                None => {
                    let own = self.own(range)?;
                    self.model.queries(self.layer, &own).expect("it has a width")
                }
            };
            out.copy_from_slice(&host_values(&queries));
        }
        Ok(())
    }

    /// Computes the messages of all inputs, a step at a time.
    fn messages(&self, states: &dyn NodeRows, mut messages: StateRows) -> Result<StateRows> {
        let (count, step) = (self.inputs.len(), self.step_nodes());
        for first in (0..count).step_by(step as usize) {
            check_stopped(self.progress)?;
            let positions = first..(first + step).min(count);
            let places: Vec<u64> = positions.clone().collect();
            let rows = self.read(states, &places)?;
            let degrees = match self.model.aggregate(self.layer) {
                Aggregate::Gcn => {
                    let mut nodes = Vec::new();
                    self.inputs.nodes_at(positions, &mut nodes);
                    let degrees = self.degrees.of_each(nodes)?;
                    Some(Tensor::from_slice(&degrees).to_device(self.inference.device))
                }
                _ => None,
            };
            let new = self.model.messages(self.layer, &rows, degrees.as_ref());
            messages.write(first, &host_values(&new))?;
        }
        Ok(messages)
    }

    /// Updates a range of outputs from their aggregates, a step at a time. The inputs are added to `inputs`. Their states before
    /// the layer are read unless they are given as `own`. Returns the memory of the aggregates, as [`Take`] does.
    pub(super) fn update(
        &self,
        positions: Range<u64>,
        aggregates: Vec<f32>,
        own: Option<EncodedStates<'_>>,
        inputs: &mut Option<Kept>,
        on_new: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let count = positions.end - positions.start;
        let width = aggregates.len() / count.max(1) as usize;
        let memory = Arc::new(Rows(aggregates));
        let aggregates = shim::view_memory(memory.clone(), count as usize, width, Kind::Float);
        let step = self.step_nodes();
        let result_width = self.model.reduction(self.layer).result_width() as i64;
        for first in positions.clone().step_by(step as usize) {
            check_stopped(self.progress)?;
            let range = first..(first + step).min(positions.end);
            let degrees = self.degrees_of(range.clone())?;
            let next = range.end..(range.end + step).min(positions.end);
            let (at, length) = ((first - positions.start) as i64, (range.end - range.start) as i64);
            let rows = UpdateRows::Apart {
                own: match own {
                    Some(own) => {
                        let places = range.start - positions.start..range.end - positions.start;
                        own.decoded(places).to_device(self.inference.device)
                    }
                    None => self.own_before(range.clone(), next)?,
                },
                // The rest of a state is of no use.
                aggregated: aggregates
                    .narrow(0, at, length)
                    .narrow(1, 0, result_width)
                    .to_device(self.inference.device),
                degrees,
            };
            on_new(range.clone(), &rows.updated(self.model, self.layer))?;
            let part = UpdateInputs { positions: range, rows };
            match inputs.as_mut().map_or(Ok(()), |inputs| inputs.push(part, self.model)) {
                // Keeping them only saves time.
                Err(error) if error.is_disk_full() => *inputs = None,
                pushed => pushed?,
            }
        }
        drop(aggregates);
        Ok(Arc::try_unwrap(memory).map_or_else(|_| Vec::new(), |Rows(values)| values))
    }

    /// Updates outputs from the inputs that an earlier inference left.
    pub(super) fn update_again(&self, inputs: &Kept, on_new: &mut OnRows<'_>) -> Result<()> {
        let (step, degrees) = (self.step_nodes(), |positions| self.degrees_of(positions));
        inputs.each(self.outputs.len(), step, self.inference.device, degrees, |part| {
            check_stopped(self.progress)?;
            on_new(part.positions.clone(), &part.rows.updated(self.model, self.layer))
        })
    }

    /// The number of nodes whose messages, queries or states are computed at once: by the widest rows of the layer.
    fn step_nodes(&self) -> u64 {
        let (reduction, made) = (self.model.reduction(self.layer), self.model.made_width(self.layer));
        let widths = [self.rows.width(), reduction.state_width(), reduction.own_width(), made];
        self.inference.step_nodes(widths.into_iter().fold(1, usize::max))
    }

    /// The in-degrees of some outputs, if updates take them. In a slice, halo nodes without lists have none, as in training, unless their
    /// aggregates are known.
    fn degrees_of(&self, positions: Range<u64>) -> Result<Option<Tensor>> {
        match self.model.aggregate(self.layer) {
            Aggregate::Gcn => {
                let nodes = self.nodes(positions);
                let degrees = match self.layer == 0 && self.inference.first_hop.is_some() {
                    true => self.degrees.of_each(nodes)?,
                    false => self.degrees.of_each_list(nodes)?,
                };
                Ok(Some(Tensor::from_slice(&degrees).to_device(self.inference.device)))
            }
            _ => Ok(None),
        }
    }

    /// The outputs at some positions.
    pub(super) fn nodes(&self, positions: Range<u64>) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        self.outputs.nodes_at(positions, &mut nodes);
        nodes
    }

    /// The states of a range of outputs before this layer.
    fn own(&self, positions: Range<u64>) -> Result<Tensor> {
        self.read(self.rows, &self.places(positions))
    }

    /// The states of a range of outputs, while the states of the `next` one are read ahead.
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

/// An error of this crate in a callback of the engine, whose errors are others. It waits here until the engine has returned.
#[derive(Default)]
pub(super) struct DeferredError(Cell<Option<Error>>);

impl DeferredError {
    pub(super) fn caught<T>(&self, done: Result<T>) -> grappa_io::Result<T> {
        done.map_err(|error| {
            self.0.set(Some(error));
            grappa_io::Error::Stopped
        })
    }

    /// The error, or else the result of the engine.
    pub(super) fn or(self, done: Result<()>) -> Result<()> {
        self.0.into_inner().map_or(done, Err)
    }
}

/// Rows that a tensor is a view of.
struct Rows(Vec<f32>);

impl shim::Values for Rows {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
