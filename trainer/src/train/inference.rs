//! Exact inference: each layer over the whole graph, one after the other, out of core.
//!
//! ```text
//! rows = features
//! for each layer:
//!     aggregate the rows of all in-neighbours, tile after tile       grappa_engine::aggregate
//!     update each tile; its rows go to a scratch file, or are logits
//! ```
//!
//! No neighbour is left out and nothing is sampled, so the result is that of the model on the whole graph, whatever the
//! partitions, the memory and the number of threads. Memory holds a tile and a block of rows at a time; scratch files hold
//! the rows of two layers, and, if they are to be kept, the aggregates of the deeper ones.

use std::{borrow::Cow, ops::Range, path::Path};

use grappa_engine::{
    aggregate::{Budget, NodeRows, Reduce, ScaledRows, ScratchRows, aggregate},
    progress::Progress,
    store::{Chunk, Store},
};
use grappa_formats::NodeId;
use tch::{Device, Kind, Tensor};

use crate::{
    Result,
    nn::{Aggregate, Model},
};

/// Nodes that are updated at a time.
const UPDATE_NODES: u64 = 1 << 14;

/// What inference works with.
pub struct Inference<'a> {
    /// The graph.
    pub store: &'a Store,
    /// Its features.
    pub features: &'a dyn NodeRows,
    /// The first layer's aggregates, if they are known; as exact as the type that they are stored in.
    pub first_hop: Option<&'a dyn NodeRows>,
    /// Memory and threads.
    pub budget: Budget,
    /// Where scratch files go.
    pub scratch: &'a Path,
    /// Where the model is.
    pub device: Device,
}

/// The aggregates of the layers after the first, of all nodes: what a halo node is given whose in-edges are out of reach.
#[derive(Debug)]
pub struct KeptAggregates {
    /// Of layer 1, 2, ...
    layers: Vec<ScratchRows>,
}

impl KeptAggregates {
    /// The aggregates of some nodes at a layer, `[nodes, width]`; none of layer 0.
    pub fn rows(&self, layer: usize, nodes: &[NodeId]) -> Result<Tensor> {
        let rows = &self.layers[layer - 1];
        let width = rows.width();
        let mut values = vec![0.0; nodes.len() * width];
        for (node, row) in nodes.iter().zip(values.chunks_exact_mut(width)) {
            rows.read(node.0..node.0 + 1, row)?;
        }
        Ok(Tensor::from_slice(&values).view([nodes.len() as i64, width as i64]))
    }
}

impl Inference<'_> {
    /// Shows the logits of all nodes, `[nodes, outputs]`, range after range in the order of nodes. If `keep` is set, returns
    /// the aggregates of the layers after the first.
    ///
    /// # Errors
    /// If files can't be read, scratch files not be written, memory is too small; or what `on_logits` returns.
    pub fn run(
        &self,
        model: &Model,
        keep: bool,
        progress: &dyn Progress,
        on_logits: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<KeptAggregates>> {
        self.run_layers(model, model.options().layers, keep, progress, on_logits)
    }

    /// As [`Inference::run`], but only the first `layers` layers, and shows what the last of them makes.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If the model has fewer.
    pub fn run_layers(
        &self,
        model: &Model,
        layers: usize,
        keep: bool,
        progress: &dyn Progress,
        on_rows: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<KeptAggregates>> {
        assert!(layers <= model.options().layers, "{layers} layers of fewer");
        let nodes = self.store.manifest().nodes;
        let degrees = Degrees::open(self.store)?;
        let mut kept = Vec::new();
        let mut hidden: Option<ScratchRows> = None;
        for layer in 0..layers {
            let rows: &dyn NodeRows = hidden.as_ref().map_or(self.features, |rows| rows);
            let is_last = layer + 1 == layers;
            let out = match is_last {
                false => Some(ScratchRows::create(self.scratch, nodes, model.width(layer + 1))?),
                true => None,
            };
            let reduction = model.reduction(layer);
            let width = reduction.result_width();
            let keeps = (keep && layer > 0).then(|| ScratchRows::create(self.scratch, nodes, width));
            let keeps = keeps.transpose()?;
            let update = Update {
                inference: self,
                model,
                layer,
                rows,
                degrees: &degrees,
            };
            // The engine's errors are its own; ours are kept until it has returned.
            let mut failure = None;
            let mut take = |range: Range<u64>, aggregates: &[f32]| {
                let mut work = || {
                    if let Some(keeps) = &keeps {
                        let state = aggregates.len() / (range.end - range.start).max(1) as usize;
                        keeps.write(range.start, &firsts(aggregates, state, width))?;
                    }
                    update.run(range.clone(), aggregates, &mut |range, new| match &out {
                        Some(out) => Ok(out.write(range.start, &values(new))?),
                        None => on_rows(range, new),
                    })
                };
                work().map_err(|error| {
                    failure = Some(error);
                    grappa_engine::Error::Options("stopped".into())
                })
            };
            let result = match self.first_hop.filter(|_| layer == 0) {
                Some(first_hop) => known(first_hop, nodes, &mut take),
                None => {
                    let scaled;
                    let sent;
                    let messages: &dyn NodeRows = match model.aggregate(layer) {
                        Aggregate::Gcn => {
                            scaled = ScaledRows::new(rows, self.store)?;
                            &scaled
                        }
                        Aggregate::Attention | Aggregate::WeightedMean => {
                            let messages = |rows: &Tensor| model.messages(layer, rows, None);
                            sent = self.transformed(rows, reduction.source_width(), &messages)?;
                            &sent
                        }
                        _ => rows,
                    };
                    let queries = |rows: &Tensor| model.queries(layer, rows).expect("it has a width");
                    let asks = reduction.own_width() > 0;
                    let own = asks.then(|| self.transformed(rows, reduction.own_width(), &queries));
                    let own = own.transpose()?;
                    let own = own.as_ref().map(|own| own as &dyn NodeRows);
                    let sink = &mut |range: Range<u64>, states: &mut [f32]| take(range, states);
                    aggregate(self.store, messages, own, &reduction, 0, self.budget, progress, sink)
                }
            };
            if let Some(failure) = failure {
                return Err(failure);
            }
            result?;
            kept.extend(keeps);
            hidden = out;
        }
        Ok(keep.then_some(KeptAggregates { layers: kept }))
    }

    /// Rows made of the rows of all nodes, a few at a time, in a scratch file.
    fn transformed(
        &self,
        rows: &dyn NodeRows,
        width: usize,
        transform: &dyn Fn(&Tensor) -> Tensor,
    ) -> Result<ScratchRows> {
        let nodes = self.store.manifest().nodes;
        let out = ScratchRows::create(self.scratch, nodes, width)?;
        let mut read = Vec::new();
        for first in (0..nodes).step_by(UPDATE_NODES as usize) {
            let count = UPDATE_NODES.min(nodes - first);
            read.resize(count as usize * rows.width(), 0.0);
            rows.read(first..first + count, &mut read)?;
            let rows = Tensor::from_slice(&read).view([count as i64, rows.width() as i64]);
            out.write(first, &values(&transform(&rows.to_device(self.device))))?;
        }
        Ok(out)
    }
}

/// Of rows of `state` values the first `width`.
fn firsts(rows: &[f32], state: usize, width: usize) -> Cow<'_, [f32]> {
    if state == width {
        return Cow::Borrowed(rows);
    }
    rows.chunks_exact(state)
        .flat_map(|row| &row[..width])
        .copied()
        .collect()
}

/// Takes the aggregates of a range of nodes.
type Take<'a> = dyn FnMut(Range<u64>, &[f32]) -> grappa_engine::Result<()> + 'a;

/// Takes aggregates that are known, a few at a time.
fn known(rows: &dyn NodeRows, nodes: u64, take: &mut Take<'_>) -> grappa_engine::Result<()> {
    let mut values = Vec::new();
    for first in (0..nodes).step_by(UPDATE_NODES as usize) {
        let range = first..(first + UPDATE_NODES).min(nodes);
        values.resize((range.end - range.start) as usize * rows.width(), 0.0);
        rows.read(range.clone(), &mut values)?;
        take(range, &values)?;
    }
    Ok(())
}

/// The dense half of a layer.
struct Update<'a> {
    inference: &'a Inference<'a>,
    model: &'a Model,
    layer: usize,
    rows: &'a dyn NodeRows,
    degrees: &'a Degrees,
}

impl Update<'_> {
    /// Updates a range of nodes, of which these are the aggregates, a few at a time.
    fn run(
        &self,
        nodes: Range<u64>,
        aggregates: &[f32],
        on_new: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let device = self.inference.device;
        let width = self.rows.width();
        let aggregate_width = aggregates.len() / (nodes.end - nodes.start).max(1) as usize;
        let mut own = Vec::new();
        for first in nodes.clone().step_by(UPDATE_NODES as usize) {
            let range = first..(first + UPDATE_NODES).min(nodes.end);
            let count = (range.end - range.start) as usize;
            own.resize(count * width, 0.0);
            self.rows.read(range.clone(), &mut own)?;
            let at = (first - nodes.start) as usize * aggregate_width;
            let matrix = |values: &[f32]| {
                Tensor::from_slice(values)
                    .view([count as i64, (values.len() / count) as i64])
                    .to_device(device)
            };
            let degrees = (self.model.aggregate(self.layer) == Aggregate::Gcn).then(|| {
                let degrees: Vec<f32> = self.degrees.range(range.clone()).collect();
                Tensor::from_slice(&degrees).to_device(device)
            });
            let aggregated = matrix(&aggregates[at..at + count * aggregate_width]);
            let new = self
                .model
                .update(self.layer, &matrix(&own), &aggregated, degrees.as_ref());
            on_new(range, &new)?;
        }
        Ok(())
    }
}

/// The in-degrees of all nodes, mapped.
pub struct Degrees {
    chunks: Vec<Chunk>,
    map: grappa_formats::chunks::ChunkMap,
}

impl Degrees {
    /// Those of a store.
    pub fn open(store: &Store) -> Result<Self> {
        let chunks = store.present_chunks().map(|chunk| store.chunk(chunk));
        Ok(Self {
            chunks: chunks.collect::<grappa_engine::Result<_>>()?,
            map: store.chunks().clone(),
        })
    }

    /// Those of successive nodes.
    fn range(&self, nodes: Range<u64>) -> impl Iterator<Item = f32> + '_ {
        nodes.map(|node| self.of(NodeId(node)) as f32)
    }

    /// That of a node.
    pub fn of(&self, node: NodeId) -> u64 {
        let chunk = self.map.chunk_of(node);
        let rows = self.chunks[chunk.0 as usize].rows();
        rows.row(node.0 - self.map.range(chunk).start).degree()
    }
}

/// The values of a tensor, row by row.
pub fn values(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor
        .to_device(Device::Cpu)
        .to_kind(Kind::Float)
        .contiguous()
        .view([-1]);
    Vec::<f32>::try_from(flat).expect("a tensor of f32 becomes a vector")
}
