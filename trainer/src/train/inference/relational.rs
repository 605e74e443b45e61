//! Exact inference of models for graphs with types: one layer after another, and in a layer one type and one relation after another.
//!
//! ```text
//! states[type] = features of the type, after its linear layer
//! for each layer, for each type whose states the next layer needs:
//!     for each relation into the type:
//!         reduced[relation] = the messages of all in-neighbors, aggregated     grappa_engine::aggregate
//!     states[type] = update(states[type], reduced)
//! ```
//!
//! Messages, aggregates and states are in memory if they fit, and else in scratch files.

use std::{ops::Range, path::Path, sync::Arc};

use grappa_engine::aggregate::{
    Aggregation, Budget, NodeRows, OwnRows, Reduce, SelectedRows, StateRows, StoredRows, read_each,
};
use grappa_formats::manifest::FeatureDtype;
use grappa_io::{
    ledger::MemoryShare,
    progress::{Progress, check_stopped},
};
use grappa_sampling::NodeSet;
use grappa_storage::{Graph, MappedChunks, aggregates::Aggregates};
use tch::{Device, Kind, Tensor};

use super::{needed::Needed, pass::DeferredError, states::StatesPlace, step_size, task::OnRows};
use crate::{
    Result,
    nn::{Model, TypeStep},
    shim,
    train::{
        embeddings::{NodeTables, input_rows},
        tensors::host_values,
    },
};

/// The rows of one kind that a layer makes for a type.
const TYPE_ROWS: MemoryShare = MemoryShare::one(
    "rows of a type in a layer",
    4,
    "messages and aggregates of a relation, and the states that a layer makes, are in memory if each takes at most 1/4 of what is left; \
     chosen, not measured",
);

/// The inputs of an exact inference of a model for graphs with types.
pub struct RelationalInference<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The adjacency lists of each relation.
    pub lists: &'a [Arc<MappedChunks>],
    /// The learnable embeddings of nodes, if there are any.
    pub(crate) embeddings: Option<&'a NodeTables>,
    /// Pre-aggregated features of each relation for the first layer, if the model takes them.
    pub first_hop: Option<Vec<Aggregates>>,
    /// Memory and threads. The tensors that are computed at once take up to an eighth more.
    pub budget: Budget,
    /// Folder for scratch files.
    pub scratch: &'a Path,
    /// The type of states that memory does not hold as f32.
    pub rounded_states: FeatureDtype,
    /// The device of the model.
    pub device: Device,
}

/// The rows of the nodes of a type at the input of a layer.
#[derive(Clone, Copy)]
struct TypeRows<'a> {
    rows: &'a dyn NodeRows,
    /// The nodes that have rows, in the order of rows.
    nodes: &'a NodeSet,
}

/// One layer of one type.
struct Pass<'a> {
    inference: &'a RelationalInference<'a>,
    needed: &'a Needed,
    layer: usize,
    step: TypeStep<'a>,
    own: TypeRows<'a>,
    outputs: &'a NodeSet,
    progress: &'a dyn Progress,
}

impl RelationalInference<'_> {
    /// Passes the results of the wanted nodes to `on_rows`, range after range: their states after the layers that `needed` is for. Results
    /// of several types follow each other, in the order of the model's output types.
    ///
    /// # Errors
    /// If files cannot be read, scratch files cannot be written, or memory is too small. Also the errors of `on_rows`.
    pub fn run(&self, model: &Model, needed: &Needed, progress: &dyn Progress, on_rows: &mut OnRows<'_>) -> Result<()> {
        let stores = self.graph.node_types();
        let everyone: Vec<NodeSet> = stores.iter().map(|store| NodeSet::all(store.manifest().nodes)).collect();
        let features = stores.iter().enumerate().map(|(number, store)| input_rows(store, self.embeddings, number));
        let features = features.collect::<grappa_io::Result<Vec<_>>>()?;
        let first_hop = self.first_hop.as_ref().map(|_| self.first_hop_rows()).transpose()?;
        let types = 0..stores.len();
        let mut states: Vec<Option<StateRows>> = types.clone().map(|_| None).collect();
        if !model.takes_features() {
            for node_type in types.clone() {
                let nodes = needed.inputs_of(0, node_type);
                let rows = TypeRows { rows: &*features[node_type], nodes: &everyone[node_type] };
                let width = model.type_width(0, node_type);
                let mut made = self.space(nodes.len(), width, &states)?;
                self.each_step(nodes.len(), rows.rows.width().max(width), progress, |positions| {
                    let new = model.first_states(node_type, &self.read(rows, nodes, positions.clone())?);
                    Ok(made.write(positions.start, &host_values(&new))?)
                })?;
                states[node_type] = Some(made);
            }
        }
        for layer in 0..needed.layers() {
            let inputs: Vec<TypeRows<'_>> = types
                .clone()
                .map(|node_type| match &states[node_type] {
                    Some(rows) => TypeRows { rows, nodes: needed.inputs_of(layer, node_type) },
                    None => TypeRows { rows: &*features[node_type], nodes: &everyone[node_type] },
                })
                .collect();
            let is_last = layer + 1 == needed.layers();
            let mut made: Vec<Option<StateRows>> = types.clone().map(|_| None).collect();
            for node_type in types.clone() {
                let outputs = needed.inputs_of(layer + 1, node_type);
                let Some(step) = model.type_step(layer, node_type).filter(|_| !outputs.is_empty()) else { continue };
                let own = inputs[node_type];
                let pass = Pass { inference: self, needed, layer, step, own, outputs, progress };
                let known = first_hop.as_deref().filter(|_| layer == 0);
                let reduced = pass.reduced(&inputs, known, &states)?;
                if is_last {
                    let firsts = needed.first_results();
                    let (_, first) = *firsts.iter().find(|(number, _)| *number == node_type).expect("an output type");
                    pass.update(&reduced, model.width_after(layer), &mut |positions, new| {
                        on_rows(first + positions.start..first + positions.end, new)
                    })?;
                } else {
                    let width = model.width_after(layer);
                    let mut rows = self.space(outputs.len(), width, states.iter().chain(&made))?;
                    pass.update(&reduced, width, &mut |positions, new| {
                        Ok(rows.write(positions.start, &host_values(new))?)
                    })?;
                    made[node_type] = Some(rows);
                }
            }
            drop(inputs);
            states = made;
        }
        Ok(())
    }

    /// Bytes of the scratch files that [`RelationalInference::run`] has at a time, at most.
    pub fn scratch_bytes(&self, model: &Model, needed: &Needed) -> u64 {
        let types = 0..self.graph.node_types().len();
        let layer_bytes = |layer: usize| -> u64 {
            let of_type = |node_type: usize| {
                let outputs = needed.inputs_of(layer + 1, node_type).len();
                let Some(step) = model.type_step(layer, node_type) else { return 0 };
                let of_relation = |&relation: &usize| {
                    let source = self.graph.manifest().relations[relation].source as usize;
                    let width = model.type_width(layer, source);
                    let messages = match step.sends_states() {
                        true => 0,
                        false => {
                            self.file_bytes(needed.inputs_of(layer, source).len(), step.reduction(width).source_width())
                        }
                    };
                    messages + self.file_bytes(outputs, step.kept_width(width))
                };
                let made = self.file_bytes(outputs, model.width_after(layer));
                made + step.relations().iter().map(of_relation).sum::<u64>()
            };
            let inputs = types.clone().map(|node_type| {
                self.file_bytes(needed.inputs_of(layer, node_type).len(), model.type_width(layer, node_type))
            });
            types.clone().map(of_type).sum::<u64>() + inputs.sum::<u64>()
        };
        (0..needed.layers()).map(layer_bytes).max().unwrap_or(0)
    }

    /// Bytes of a file with these rows; 0 if they are in memory.
    fn file_bytes(&self, rows: u64, width: usize) -> u64 {
        StatesPlace::for_rows(rows, width, TYPE_ROWS.bytes(self.budget.memory), self.rounded_states).file
    }

    fn first_hop_rows(&self) -> Result<Vec<StoredRows<'_>>> {
        let opened = self.first_hop.as_ref().expect("the first layer takes them");
        let kinds = opened.iter().map(Aggregates::kind);
        let relations = kinds.enumerate().map(|(number, kind)| {
            let aggregates = Aggregates::open(self.graph.relation(number), kind)?.expect("they were there before");
            Ok(StoredRows::of_aggregates(&self.graph.relations()[number], aggregates))
        });
        relations.collect()
    }

    /// Space for rows beside those that are in memory already.
    fn space<'s>(
        &self,
        rows: u64,
        width: usize,
        beside: impl IntoIterator<Item = &'s Option<StateRows>>,
    ) -> Result<StateRows> {
        let used: u64 = beside.into_iter().flatten().map(StateRows::memory).sum();
        let room = TYPE_ROWS.bytes(self.budget.memory.saturating_sub(used));
        StatesPlace::for_rows(rows, width, room, self.rounded_states).create(self.scratch, rows, width)
    }

    /// Calls `each` with ranges of `count` positions, each as long as rows of `width` values allow.
    fn each_step(
        &self,
        count: u64,
        width: usize,
        progress: &dyn Progress,
        mut each: impl FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let step = step_size::step_nodes(width.max(1), self.budget.memory);
        for first in (0..count).step_by(step as usize) {
            check_stopped(progress)?;
            each(first..(first + step).min(count))?;
        }
        Ok(())
    }

    /// The rows of the nodes at a range of positions in a set, on the device.
    fn read(&self, from: TypeRows<'_>, set: &NodeSet, positions: Range<u64>) -> Result<Tensor> {
        let mut nodes = Vec::new();
        set.nodes_at(positions, &mut nodes);
        let places: Vec<u64> = nodes.iter().map(|&node| from.nodes.position(node)).collect();
        let mut tensor = Tensor::empty([places.len() as i64, from.rows.width() as i64], (Kind::Float, Device::Cpu));
        read_each(from.rows, &places, shim::values_mut(&mut tensor), self.budget.threads)?;
        Ok(tensor.to_device(self.device))
    }
}

/// The reduced rows of a relation, by position among the outputs.
enum Reduced<'a> {
    Made(StateRows),
    Known(SelectedRows<'a>),
}

impl Reduced<'_> {
    fn rows(&self) -> &dyn NodeRows {
        match self {
            Self::Made(rows) => rows,
            Self::Known(rows) => rows,
        }
    }
}

impl<'a> Pass<'a> {
    /// The reduced rows of each relation. They are known for a first layer that takes pre-aggregated features.
    fn reduced(
        &self,
        inputs: &[TypeRows<'_>],
        known: Option<&'a [StoredRows<'a>]>,
        states: &[Option<StateRows>],
    ) -> Result<Vec<Reduced<'a>>> {
        let mut all: Vec<Reduced<'a>> = Vec::new();
        for (place, &relation) in self.step.relations().iter().enumerate() {
            if let Some(known) = known {
                all.push(Reduced::Known(SelectedRows { rows: &known[relation], set: self.outputs }));
                continue;
            }
            let made: u64 = all
                .iter()
                .map(|reduced| match reduced {
                    Reduced::Made(rows) => rows.memory(),
                    Reduced::Known(_) => 0,
                })
                .sum();
            let used = made + states.iter().flatten().map(StateRows::memory).sum::<u64>();
            all.push(Reduced::Made(self.aggregated(place, relation, inputs, used)?));
        }
        Ok(all)
    }

    /// The aggregates of a relation, beside `used` bytes of other rows in memory.
    fn aggregated(&self, place: usize, relation: usize, inputs: &[TypeRows<'_>], used: u64) -> Result<StateRows> {
        let inference = self.inference;
        let mut free = inference.budget.memory.saturating_sub(used);
        let source = inference.graph.manifest().relations[relation].source as usize;
        let (from, nodes) = (inputs[source], self.needed.inputs_of(self.layer, source));
        let width = from.rows.width();
        let reduction = self.step.reduction(width);
        let rounded = inference.rounded_states;
        let mut space = |rows: u64, width: usize| -> Result<StateRows> {
            let place = StatesPlace::for_rows(rows, width, TYPE_ROWS.bytes(free), rounded);
            free -= place.memory;
            place.create(inference.scratch, rows, width)
        };
        let messages = match self.step.sends_states() {
            true => None,
            false => {
                let mut messages = space(nodes.len(), reduction.source_width())?;
                let widest = width.max(reduction.source_width());
                inference.each_step(nodes.len(), widest, self.progress, |positions| {
                    let rows = inference.read(from, nodes, positions.clone())?;
                    Ok(messages.write(positions.start, &host_values(&self.step.messages(place, &rows)))?)
                })?;
                Some(messages)
            }
        };
        let kept = self.step.kept_width(width);
        let mut reduced = space(self.outputs.len(), kept)?;
        let selected = SelectedRows { rows: from.rows, set: nodes };
        let (rows, sources): (&dyn NodeRows, _) = match &messages {
            Some(messages) => (messages, nodes),
            // Features of all nodes that are in memory need not be copied.
            None if from.nodes.len() == nodes.len() || from.rows.in_memory().is_some() => (from.rows, from.nodes),
            None => (&selected, nodes),
        };
        let aggregation = Aggregation {
            store: &inference.graph.relations()[relation],
            lists: self.needed.lists(&inference.lists[relation], self.layer, relation),
            sources,
            rows,
            destinations: self.outputs,
            budget: Budget { memory: free, ..inference.budget },
        };
        let failure = DeferredError::default();
        let own_width = reduction.own_width();
        let mut queries =
            |positions: Range<u64>, out: &mut [f32]| failure.caught(self.queries(place, positions, own_width, out));
        let own = (own_width > 0).then_some(&mut queries as &mut OwnRows<'_>);
        let state_width = reduction.state_width();
        let done = aggregation.run(&reduction, 0, own, self.progress, &mut |positions, states| {
            let mut values = Vec::with_capacity(kept * (positions.end - positions.start) as usize);
            states.chunks_exact(state_width).for_each(|state| values.extend_from_slice(&state[..kept]));
            reduced.write(positions.start, &values)
        });
        failure.or(done.map_err(Into::into))?;
        Ok(reduced)
    }

    /// Computes the queries of a range of outputs, a step at a time, and writes them to `out`.
    fn queries(&self, place: usize, positions: Range<u64>, width: usize, out: &mut [f32]) -> Result<()> {
        let widest = width.max(self.own.rows.width());
        self.inference.each_step(positions.end - positions.start, widest, self.progress, |part| {
            let range = positions.start + part.start..positions.start + part.end;
            let own = self.inference.read(self.own, self.outputs, range)?;
            let queries = self.step.queries(place, &own).expect("it has a width");
            out[part.start as usize * width..part.end as usize * width].copy_from_slice(&host_values(&queries));
            Ok(())
        })
    }

    /// Updates the outputs, and passes their new states or results on.
    fn update(&self, reduced: &[Reduced<'_>], width: usize, on_new: &mut OnRows<'_>) -> Result<()> {
        let widths = reduced.iter().map(|reduced| reduced.rows().width()).chain([width, self.own.rows.width()]);
        let widest = widths.fold(1, usize::max);
        self.inference.each_step(self.outputs.len(), widest, self.progress, |positions| {
            let own = self.inference.read(self.own, self.outputs, positions.clone())?;
            let rows = reduced.iter().map(|reduced| {
                let from = TypeRows { rows: reduced.rows(), nodes: self.outputs };
                self.inference.read(from, self.outputs, positions.clone())
            });
            let rows = rows.collect::<Result<Vec<_>>>()?;
            on_new(positions, &self.step.update(&own, &rows))
        })
    }
}
