//! Exact inference: one layer after the other over the whole graph, out of core.
//!
//! ```text
//! states = features
//! for each layer:
//!     for each tile of nodes:
//!         aggregate the messages of all in-neighbours                  grappa_engine::aggregate
//!         update the states of the tile: the new ones go to a scratch file; those of the last layer are logits
//! ```
//!
//! All neighbours are used and nothing is sampled. So the result is that of the model on the whole graph, and does not depend on
//! partitions, memory or the number of threads. Memory holds one tile and one block of rows at a time. Scratch files hold the
//! states of two layers, and the historical embeddings of halo nodes ([`HistoricalFiles`]).

use std::{borrow::Cow, ops::Range, path::Path};

use grappa_engine::aggregate::{Beside, Budget, Drawn, NodeRows, Reduce, ScaledRows, ScratchRows, aggregate};
use grappa_formats::NodeId;
use grappa_io::progress::{Progress, check_stopped};
use grappa_storage::{Chunk, Store};
use tch::{Device, Kind, Tensor, no_grad};

use super::historical::{HistoricalFiles, KEPT_AS, Keep, as_kept};
use crate::{
    Result,
    nn::{Aggregate, Model},
};

/// Nodes whose states are updated at once.
const UPDATE_NODES: u64 = 1 << 14;

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
    /// Folder for scratch files.
    pub scratch: &'a Path,
    /// The device of the model.
    pub device: Device,
}

impl Inference<'_> {
    /// Passes the logits of all nodes to `on_logits`, `[nodes, outputs]`, range after range in the order of nodes. Returns the
    /// historical embeddings that `keep` asks for.
    ///
    /// # Errors
    /// If files cannot be read, scratch files cannot be written, or memory is too small. Also the errors of `on_logits`.
    pub fn run(
        &self,
        model: &Model,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<HistoricalFiles>> {
        self.run_layers(model, model.options().layers, keep, progress, on_logits)
    }

    /// As [`Inference::run`], but with the first `layers` layers only. Passes the states after the last of them to `on_rows`.
    ///
    /// # Errors
    /// As [`Inference::run`].
    ///
    /// # Panics
    /// If the model has fewer layers. With [`Keep::Neighbours`], if the model does not support it
    /// ([`Model::has_neighbours`]), or if there are no pre-aggregated features.
    pub fn run_layers(
        &self,
        model: &Model,
        layers: usize,
        keep: Keep,
        progress: &dyn Progress,
        on_rows: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<HistoricalFiles>> {
        assert!(layers <= model.options().layers, "{layers} layers of fewer");
        let nodes = self.store.manifest().nodes;
        let degrees = Degrees::open(self.store)?;
        let mut kept = self.begin_historical(model, &degrees, keep, progress)?;
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
            let keeps = keep != Keep::Nothing && layer > 0 && !is_last;
            let keeps = keeps.then(|| ScratchRows::create_as(self.scratch, nodes, width, KEPT_AS));
            let keeps = keeps.transpose()?;
            let update = Update {
                inference: self,
                model,
                layer,
                rows,
                degrees: &degrees,
                progress,
            };
            // The callback returns errors of the engine. Ours waits here until the engine has returned.
            let mut failure = None;
            let mut take = |range: Range<u64>, aggregates: &[f32]| {
                let mut work = || {
                    if let Some(keeps) = &keeps {
                        let state = aggregates.len() / (range.end - range.start).max(1) as usize;
                        let aggregates = firsts(aggregates, state, width);
                        self.keep(&update, &kept, range.clone(), &aggregates, keeps)?;
                    }
                    update.run(range.clone(), aggregates, &mut |range, new| match &out {
                        Some(out) => Ok(out.write(range.start, &values(new))?),
                        None => on_rows(range, new),
                    })
                };
                work().map_err(|error| {
                    failure = Some(error);
                    grappa_io::Error::Stopped
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
                            sent = self.transformed(rows, reduction.source_width(), &messages, progress)?;
                            &sent
                        }
                        _ => rows,
                    };
                    let queries = |rows: &Tensor| model.queries(layer, rows).expect("it has a width");
                    let asks = reduction.own_width() > 0;
                    let own = asks.then(|| self.transformed(rows, reduction.own_width(), &queries, progress));
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
            if let Some(keeps) = keeps {
                let drawn = self.drawn(keeps, layers - 2 - layer, keep, progress)?;
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
        progress: &dyn Progress,
    ) -> Result<HistoricalFiles> {
        let mut kept = HistoricalFiles::default();
        let layers = model.options().layers;
        if let (Keep::Neighbours { .. }, 3..) = (keep, layers) {
            assert!(model.has_neighbours(), "the model supports neighbours");
            let first_hop = self.first_hop.expect("aggregates of features");
            let rows = Beside(self.features, first_hop);
            let first = self.drawn_once(&Beside(&rows, degrees), keep, progress)?;
            kept.inputs = self.drawn(first, layers - 3, keep, progress)?;
        }
        Ok(kept)
    }

    /// Saves the aggregates of a range of nodes at a layer, or their differences to the contributions of neighbours.
    fn keep(
        &self,
        update: &Update<'_>,
        kept: &HistoricalFiles,
        nodes: Range<u64>,
        aggregates: &[f32],
        out: &ScratchRows,
    ) -> Result<()> {
        if kept.inputs.is_empty() {
            return Ok(out.write(nodes.start, aggregates)?);
        }
        for first in nodes.clone().step_by(UPDATE_NODES as usize) {
            check_stopped(update.progress)?;
            let range = first..(first + UPDATE_NODES).min(nodes.end);
            let count = (range.end - range.start) as usize;
            let read = |rows: &ScratchRows| {
                let mut values = vec![0.0; count * rows.width()];
                rows.read(range.clone(), &mut values)?;
                let rows = Tensor::from_slice(&values).view([count as i64, rows.width() as i64]);
                Ok(rows.to_device(self.device))
            };
            let degrees = as_kept(&update.degrees.of_range(range.clone())?).to_device(self.device);
            let neighbour = kept.neighbour(update.layer, degrees, read)?;
            let shares = values(&no_grad(|| update.model.neighbour_share(update.layer, &neighbour)));
            let at = (first - nodes.start) as usize * out.width();
            let aggregates = &aggregates[at..at + shares.len()];
            let differences: Vec<f32> = aggregates.iter().zip(&shares).map(|(all, share)| all - share).collect();
            out.write(first, &differences)?;
        }
        Ok(())
    }

    /// `rows` of all nodes. With [`Keep::Neighbours`] also the rows of their neighbours, of the neighbours of these, and so on,
    /// `times` times.
    fn drawn(&self, rows: ScratchRows, times: usize, keep: Keep, progress: &dyn Progress) -> Result<Vec<ScratchRows>> {
        let mut all = vec![rows];
        if let Keep::Neighbours { .. } = keep {
            for last in 0..times {
                all.push(self.drawn_once(&all[last], keep, progress)?);
            }
        }
        Ok(all)
    }

    /// For each node, the row of its neighbour.
    fn drawn_once(&self, rows: &dyn NodeRows, keep: Keep, progress: &dyn Progress) -> Result<ScratchRows> {
        let Keep::Neighbours { seed } = keep else {
            unreachable!("neighbours are kept")
        };
        let width = rows.width();
        let out = ScratchRows::create_as(self.scratch, self.store.manifest().nodes, width, KEPT_AS)?;
        let sink = &mut |nodes: Range<u64>, states: &mut [f32]| out.write(nodes.start, states);
        aggregate(
            self.store,
            rows,
            None,
            &Drawn { width, seed },
            0,
            self.budget,
            progress,
            sink,
        )?;
        Ok(out)
    }

    /// Transforms the rows of all nodes, [`UPDATE_NODES`] at a time, into a scratch file.
    fn transformed(
        &self,
        rows: &dyn NodeRows,
        width: usize,
        transform: &dyn Fn(&Tensor) -> Tensor,
        progress: &dyn Progress,
    ) -> Result<ScratchRows> {
        let nodes = self.store.manifest().nodes;
        let out = ScratchRows::create(self.scratch, nodes, width)?;
        let mut read = Vec::new();
        for first in (0..nodes).step_by(UPDATE_NODES as usize) {
            check_stopped(progress)?;
            let count = UPDATE_NODES.min(nodes - first);
            read.resize(count as usize * rows.width(), 0.0);
            rows.read(first..first + count, &mut read)?;
            let rows = Tensor::from_slice(&read).view([count as i64, rows.width() as i64]);
            out.write(first, &values(&transform(&rows.to_device(self.device))))?;
        }
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

/// Receives the aggregates of a range of nodes.
type Take<'a> = dyn FnMut(Range<u64>, &[f32]) -> grappa_io::Result<()> + 'a;

/// Passes pre-aggregated features to `take`, [`UPDATE_NODES`] at a time.
fn known(rows: &dyn NodeRows, nodes: u64, take: &mut Take<'_>) -> grappa_io::Result<()> {
    let mut values = Vec::new();
    for first in (0..nodes).step_by(UPDATE_NODES as usize) {
        let range = first..(first + UPDATE_NODES).min(nodes);
        values.resize((range.end - range.start) as usize * rows.width(), 0.0);
        rows.read(range.clone(), &mut values)?;
        take(range, &values)?;
    }
    Ok(())
}

/// The update of a layer: its part after the aggregation.
struct Update<'a> {
    inference: &'a Inference<'a>,
    model: &'a Model,
    layer: usize,
    rows: &'a dyn NodeRows,
    degrees: &'a Degrees,
    progress: &'a dyn Progress,
}

impl Update<'_> {
    /// Updates a range of nodes from their aggregates, [`UPDATE_NODES`] at a time.
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
            check_stopped(self.progress)?;
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
            let degrees = match self.model.aggregate(self.layer) {
                Aggregate::Gcn => {
                    let degrees = self.degrees.of_range(range.clone())?;
                    Some(Tensor::from_slice(&degrees).to_device(device))
                }
                _ => None,
            };
            let aggregated = matrix(&aggregates[at..at + count * aggregate_width]);
            let new = self
                .model
                .update(self.layer, &matrix(&own), &aggregated, degrees.as_ref());
            on_new(range, &new)?;
        }
        Ok(())
    }
}

/// The in-degrees of all nodes, memory-mapped.
pub struct Degrees {
    chunks: Vec<Chunk>,
    map: grappa_formats::chunks::ChunkMap,
}

impl Degrees {
    /// Maps the in-degrees of a store.
    pub fn open(store: &Store) -> Result<Self> {
        let chunks = store.present_chunks().map(|chunk| store.chunk(chunk));
        Ok(Self {
            chunks: chunks.collect::<grappa_io::Result<_>>()?,
            map: store.chunks().clone(),
        })
    }

    /// The in-degrees of a range of nodes.
    fn of_range(&self, nodes: Range<u64>) -> grappa_io::Result<Vec<f32>> {
        nodes.map(|node| Ok(self.of(NodeId(node))? as f32)).collect()
    }

    /// The in-degree of a node.
    pub fn of(&self, node: NodeId) -> grappa_io::Result<u64> {
        let chunk = self.map.chunk_of(node);
        let rows = self.chunks[chunk.0 as usize].rows();
        rows.degree(node.0 - self.map.range(chunk).start)
    }
}

impl NodeRows for Degrees {
    fn width(&self) -> usize {
        1
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        for (out, node) in out.iter_mut().zip(nodes) {
            *out = self.of(NodeId(node))? as f32;
        }
        Ok(())
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
