//! The layers of an inference: what they take, where their states are, and in which order they are made.

use std::{mem, ops::Range, thread};

use grappa_engine::aggregate::{BegunAggregation, Budget, GrowingRows, NodeRows, Reduce, RowsWriter, StateRows};
use grappa_formats::manifest::FeatureDtype;
use grappa_io::{progress::Progress, workers};
use grappa_sampling::{InNeighbors, NodeSet};
use tch::Tensor;

use super::{
    columns::FirstColumns,
    first_inputs::{FirstInputs, Kept},
    keeper::Keeper,
    needed::Needed,
    pass::LayerPass,
    states::{EncodedStates, MESSAGES, StatesPlace, outputs_share},
    task::{Inference, OnRows},
};
use crate::train::data::degrees::Degrees;
use crate::{
    Result,
    nn::{Aggregate, Model, Reduction},
    train::tensors::host_values,
};

/// The layers of an inference of some nodes.
pub(super) struct Layers<'a> {
    pub inference: &'a Inference<'a>,
    pub model: &'a Model,
    pub needed: &'a Needed,
    /// The features as the model takes them.
    pub features: &'a dyn NodeRows,
}

/// The results of an inference.
pub(super) struct Results<'a, 'b, 'c> {
    /// Receives the states of the wanted nodes.
    pub states: Option<&'a mut OnRows<'b>>,
    /// Receives the aggregates of layers.
    pub kept: Option<&'a mut Keeper<'c>>,
}

/// Memory and scratch files of a layer while it runs.
#[derive(Debug, Clone, Copy)]
struct LayerSpace {
    /// Whether its aggregates are known before it runs.
    is_known: bool,
    /// Its messages, if they are not the states themselves.
    messages: Option<StatesPlace>,
    /// The states that it makes. Those of the last layer are results.
    out: StatesPlace,
    /// The memory that is left.
    budget: Budget,
}

/// The aggregates of a layer.
enum Aggregates<'a> {
    /// An earlier inference left them.
    Kept(&'a Kept),
    /// They are known for all nodes.
    Known(&'a dyn NodeRows),
    /// To be made, with space for messages.
    New(Option<StateRows>, Budget),
    /// In part made.
    Begun(Box<BegunAggregation<'a, Reduction>>),
}

/// Receives the states that a layer makes.
enum Out<'a> {
    /// States of the wanted nodes are results.
    Results,
    Rows(&'a mut StateRows),
    Growing(RowsWriter<'a>),
}

impl Layers<'_> {
    /// Runs all layers.
    pub(super) fn run(
        &self,
        degrees: &Degrees,
        progress: &dyn Progress,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<()> {
        let (model, needed) = (self.model, self.needed);
        assert!(needed.layers() <= model.options().layers, "more layers than the model has");
        let all = NodeSet::all(self.inference.store.manifest().nodes);
        let mut hidden: Option<StateRows> = None;
        let mut layer = 0;
        while layer < needed.layers() {
            let space = self.space(layer, hidden.as_ref().map(StatesPlace::from).unwrap_or_default());
            let copy = match layer == 0 && !space.is_known && self.copy_bytes() > 0 {
                true => {
                    let (inputs, budget) = (needed.inputs(0), self.inference.budget);
                    let scratch = self.inference.scratch;
                    Some(StateRows::copied(scratch, self.features, inputs, budget, progress)?)
                }
                false => None,
            };
            let kept = if layer == 0 { self.kept_features(progress)? } else { None };
            let (rows, rows_of): (&dyn NodeRows, _) = match hidden.as_ref().or(kept).or(copy.as_ref()) {
                Some(rows) => (rows, needed.inputs(layer)),
                None => (self.features, &all),
            };
            let pass = LayerPass {
                inference: self.inference,
                lists: self.lists(layer),
                model,
                layer,
                rows,
                rows_of,
                inputs: needed.inputs(layer),
                outputs: needed.outputs(layer),
                degrees,
                progress,
            };
            let (made, layers) = match self.runs_with_next(layer, space) {
                true => (self.run_two(&pass, space, results)?, 2),
                false => (self.run_one(&pass, space, results)?, 1),
            };
            drop(copy);
            if let (Some(last), Some(space)) = (mem::replace(&mut hidden, made), self.inference.first_inputs) {
                space.leave_memory(last);
            }
            layer += layers;
        }
        Ok(())
    }

    /// The edges that a layer aggregates, with what it takes of them.
    fn lists(&self, layer: usize) -> InNeighbors<'_> {
        let values = self.model.options().edges.values();
        self.needed.lists(self.inference.chunks, layer, 0).with_values(values)
    }

    /// Bytes of the scratch files that there are at a time.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let (mut hidden, mut kept_in_file, mut most) = (StatesPlace::default(), 0, 0);
        for layer in 0..self.needed.layers() {
            let space = self.space(layer, hidden);
            let mut copy = 0;
            if layer == 0 {
                kept_in_file = self.kept_bytes();
                copy = if space.is_known { 0 } else { self.copy_bytes() };
            }
            let messages = space.messages.map_or(0, |messages| messages.file);
            most = most.max(kept_in_file + copy + hidden.file + messages + space.out.file);
            hidden = space.out;
        }
        most
    }

    /// Bytes of a copy of those features that the first layer needs; 0 if it is faster to read them where they are. In files, the rows of
    /// other nodes are read with them.
    fn copy_bytes(&self) -> u64 {
        let (needed, Budget { memory, .. }) = (self.needed, self.inference.budget);
        // They are read once as states, and once for each part of the outputs that memory holds with their edges.
        let width = self.model.reduction(0).state_width();
        let outputs = StateRows::bytes_of(needed.outputs(0).len(), width, FeatureDtype::F32);
        let passes = 1 + outputs.div_ceil(memory.max(1));
        StateRows::copy_bytes(self.inference.scratch, self.features, needed.inputs(0).len(), passes)
    }

    /// Bytes of a file with the inputs of the first layer's updates, for later inferences.
    fn kept_bytes(&self) -> u64 {
        match self.space_of_first_inputs() {
            Some(first_inputs) if self.features.file_bytes() > 0 => {
                let widths = [self.inference.features.width(), self.model.reduction(0).result_width()];
                first_inputs.file_bytes(self.needed.outputs(0).len(), widths)
            }
            _ => 0,
        }
    }

    /// Space for the inputs of the first layer's updates, if they do not depend on parameters.
    fn space_of_first_inputs(&self) -> Option<&FirstInputs> {
        self.inference.first_inputs.filter(|_| !self.has_first_parameters())
    }

    /// Whether the first layer uses parameters before it aggregates.
    fn has_first_parameters(&self) -> bool {
        matches!(
            self.model.aggregate(0),
            Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::ReluSum | Aggregate::WeightedMean
        )
    }

    /// The features of the first layer's inputs as the layer takes them, kept from one inference to the next, if that saves reading or
    /// computing them.
    fn kept_features(&self, progress: &dyn Progress) -> Result<Option<&StateRows>> {
        let is_worthwhile = self.has_first_parameters() && self.features.in_memory().is_none();
        match self.inference.first_inputs.filter(|_| is_worthwhile) {
            Some(space) => {
                let threads = self.inference.budget.threads;
                space.features(self.features, self.needed.inputs(0), threads, progress)
            }
            None => Ok(None),
        }
    }

    /// Memory and scratch files of a layer whose input states are at `hidden`.
    fn space(&self, layer: usize, hidden: StatesPlace) -> LayerSpace {
        let (needed, model, budget) = (self.needed, self.model, self.inference.budget);
        let mut free = budget.memory.saturating_sub(hidden.memory);
        let has_inputs = self.space_of_first_inputs().and_then(FirstInputs::get).is_some();
        let is_known = layer == 0 && (self.inference.first_hop.is_some() || has_inputs);
        let (inputs, width) = (needed.inputs(layer).len(), model.reduction(layer).source_width());
        let has_messages = !is_known && transforms(model, layer);
        let in_memory = match layer {
            0 => self.features.in_memory().is_some(),
            _ => hidden.memory > 0 && hidden.dtype == FeatureDtype::F32,
        };
        let has_rows = is_known || (in_memory && !has_messages);
        let share = outputs_share(has_rows, inputs, width, Budget { memory: free, ..budget });
        let rounded = self.inference.rounded_states;
        let messages = has_messages.then(|| StatesPlace::for_rows(inputs, width, MESSAGES.bytes(free), rounded));
        free -= messages.map_or(0, |place| place.memory);
        let out = match layer + 1 == needed.layers() {
            true => StatesPlace::default(),
            false => {
                StatesPlace::for_rows(needed.outputs(layer).len(), model.width(layer + 1), share.bytes(free), rounded)
            }
        };
        free -= out.memory;
        LayerSpace { is_known, messages, out, budget: Budget { memory: free, ..budget } }
    }

    /// Whether the next layer's aggregation begins while this layer makes states. It does if this layer takes little memory and the disk
    /// determines how long it takes.
    fn runs_with_next(&self, layer: usize, space: LayerSpace) -> bool {
        let next = layer + 1;
        if !space.is_known || space.out.file == 0 || next == self.needed.layers() {
            return false;
        }
        let (model, rows) = (self.model, self.needed.inputs(next).len());
        let takes_states = model.width(next) == model.state_width(next) && !transforms(model, next);
        let reduction = model.reduction(next);
        let budget = self.space(next, space.out).budget;
        takes_states && reduction.own_width() == 0 && budget.streams(rows, reduction.source_width())
    }

    /// Runs one layer. Returns its states, unless it is the last.
    fn run_one(
        &self,
        pass: &LayerPass<'_>,
        space: LayerSpace,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<Option<StateRows>> {
        let messages = match space.messages {
            Some(place) => {
                let width = self.model.reduction(pass.layer).source_width();
                Some(self.rows(pass.inputs.len(), width, place)?)
            }
            None => None,
        };
        let aggregates = match self.known_aggregates(pass.layer) {
            Some(known) => known,
            None => Aggregates::New(messages, space.budget),
        };
        self.run_with(pass, space, aggregates, results)
    }

    /// Runs a layer whose aggregates are known, and the next one. The first tile of the latter takes the states as they are made.
    fn run_two(
        &self,
        pass: &LayerPass<'_>,
        space: LayerSpace,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<Option<StateRows>> {
        let (inputs, layer) = (pass.outputs, pass.layer + 1);
        let width = self.model.width(layer);
        let states = &GrowingRows::new(space.out.create(self.inference.scratch, inputs.len(), width)?);
        let next = LayerPass {
            lists: self.lists(layer),
            layer,
            rows: states,
            rows_of: inputs,
            inputs,
            outputs: self.needed.outputs(layer),
            ..*pass
        };
        let next_space = self.space(layer, space.out);
        let columns = &FirstColumns::new(states, width);
        let aggregation = &next.aggregation(columns, inputs, next_space.budget);
        let reduction = &self.model.reduction(layer);
        let mut begun = aggregation.begin(reduction, pass.progress)?;
        thread::scope(|scope| {
            let first_tile = workers::spawn(scope, || begun.add_rows())?;
            let known = self.known_aggregates(pass.layer).expect("they are known");
            let made = self.make(pass, known, Out::Growing(states.writer()), results);
            let added = workers::join(first_tile);
            // Without all states, the tile ends with an error too.
            made?;
            Ok::<_, crate::Error>(added?)
        })?;
        self.run_with(&next, next_space, Aggregates::Begun(Box::new(begun)), results)
    }

    /// Runs a layer with its aggregates. Returns its states, unless it is the last.
    fn run_with(
        &self,
        pass: &LayerPass<'_>,
        space: LayerSpace,
        aggregates: Aggregates<'_>,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<Option<StateRows>> {
        if pass.layer + 1 == self.needed.layers() {
            self.make(pass, aggregates, Out::Results, results)?;
            return Ok(None);
        }
        let width = self.model.width(pass.layer + 1);
        let mut states = self.rows(pass.outputs.len(), width, space.out)?;
        self.make(pass, aggregates, Out::Rows(&mut states), results)?;
        Ok(Some(states))
    }

    /// Space for rows. Those in memory may have any values, so all must be written.
    fn rows(&self, rows: u64, width: usize, place: StatesPlace) -> Result<StateRows> {
        let space = self.inference.first_inputs.filter(|_| place.memory > 0);
        match space.and_then(|space| space.take_memory(rows, StateRows::layout_of(width, place.dtype))) {
            Some(states) => Ok(states),
            None => place.create(self.inference.scratch, rows, width),
        }
    }

    /// The aggregates of the first layer, if they are known.
    fn known_aggregates(&self, layer: usize) -> Option<Aggregates<'_>> {
        if layer > 0 {
            return None;
        }
        let kept = self.space_of_first_inputs().and_then(FirstInputs::get);
        kept.map(Aggregates::Kept).or(self.inference.first_hop.map(Aggregates::Known))
    }

    /// Makes the states of a layer.
    fn make(
        &self,
        pass: &LayerPass<'_>,
        aggregates: Aggregates<'_>,
        mut out: Out<'_>,
        results: &mut Results<'_, '_, '_>,
    ) -> Result<()> {
        let reduction = self.model.reduction(pass.layer);
        if let Some(keeper) = &mut results.kept {
            keeper.begin(pass.layer, reduction.result_width())?;
        }
        let first_inputs = self.space_of_first_inputs().filter(|_| pass.layer == 0);
        let mut inputs = first_inputs.filter(|_| !matches!(aggregates, Aggregates::Kept(_))).and_then(|space| {
            let widths = [pass.rows.width(), reduction.result_width()];
            space.begin(pass.outputs.len(), widths, pass.rows.file_bytes() > 0)
        });
        let mut take = |positions: Range<u64>, aggregates: Vec<f32>, own: Option<EncodedStates<'_>>| {
            if let Some(keeper) = &mut results.kept {
                let state_width = aggregates.len() / (positions.end - positions.start).max(1) as usize;
                keeper.take(pass, positions.clone(), &aggregates, state_width)?;
            }
            match out.receiver(self.model, pass.layer + 1, results.states.as_deref_mut()) {
                Some(mut on_new) => pass.update(positions, aggregates, own, &mut inputs, &mut on_new),
                None => Ok(aggregates),
            }
        };
        match aggregates {
            Aggregates::Kept(kept) => {
                if let Some(mut on_new) = out.receiver(self.model, pass.layer + 1, results.states.as_deref_mut()) {
                    pass.update_again(kept, &mut on_new)?;
                }
            }
            Aggregates::Known(rows) => pass.known(rows, &mut take)?,
            Aggregates::New(messages, budget) => pass.aggregated(messages, budget, &mut take)?,
            Aggregates::Begun(begun) => pass.aggregated_from(*begun, &mut take)?,
        }
        if let (Some(space), Some(inputs)) = (first_inputs, inputs) {
            space.set(inputs);
        }
        match &mut results.kept {
            Some(keeper) => keeper.end(pass.layer),
            None => Ok(()),
        }
    }
}

impl Out<'_> {
    /// Receives the new states of the layer before `next`. None if they are of no use.
    fn receiver(
        &mut self,
        model: &Model,
        next: usize,
        mut results: Option<&mut OnRows<'_>>,
    ) -> Option<impl FnMut(Range<u64>, &Tensor) -> Result<()>> {
        let is_used = !matches!(self, Self::Results) || results.is_some();
        is_used.then_some(move |positions: Range<u64>, new: &Tensor| match self {
            Self::Rows(rows) => Ok(rows.write(positions.start, &host_values(&model.input(next, new)))?),
            Self::Growing(rows) => Ok(rows.write(positions.start, &host_values(&model.input(next, new)))?),
            Self::Results => results.as_mut().map_or(Ok(()), |on_rows| on_rows(positions, new)),
        })
    }
}

/// Whether the messages of a layer are not the states themselves.
fn transforms(model: &Model, layer: usize) -> bool {
    matches!(
        model.aggregate(layer),
        Aggregate::Gcn | Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::WeightedMean
    )
}
