//! Loads batches from the feed onto the device of the model.
//!
//! On a processor nothing is copied: tensors are views of the feed's buffer. For a GPU, the feed's buffers are registered with it.
//! A separate stream copies the tensors of the next batch while the model computes on the current one. The computing stream waits
//! for the copy; the loading thread does not.

use std::sync::Arc;

use grappa_sampling::feed::{Batch, BatchPlace, PartitionBatches, RegisterMemory};
use tch::{Device, Tensor};

use super::{
    Trainer,
    correction::{self, coverage},
    features,
};
use crate::{
    Result,
    nn::{Aggregate, Block, HistoricalEmbeddings, Input, Model, Names},
    runtime::send,
    shim::cuda::{CudaMemory, Done, SideStream},
};

/// Bytes of an edge in a batch: in the minibatch, in the block and in its transposed lists.
const BYTES_OF_EDGE: usize = 20;
/// Bytes of a node in a batch at most: its number, name and degree, and its offsets and factors in each block.
const BYTES_OF_NODE: usize = 64;

/// Copies batches to a device, where it has memory of its own.
#[derive(Debug)]
pub(super) struct DeviceCopy {
    device: Device,
    /// The stream for copies, beside the computing one.
    stream: Option<SideStream>,
}

/// A batch, with its tensors on a device.
pub(super) struct Loaded {
    pub batch: Arc<Batch>,
    /// Its minibatches: those of all partitions of the step.
    pub parts: Vec<BatchPlace>,
    pub tensors: Tensors,
    /// Coverage of each seed.
    pub coverage: Vec<f32>,
    /// Loss weight of each seed.
    pub factors: Vec<f32>,
    /// For dropout on a processor; none without.
    pub names: Option<Names>,
    /// The end of the copy; none if there is nothing to wait for.
    done: Option<Done>,
}

/// The tensors of a batch on the device.
pub(super) struct Tensors {
    pub model: ModelTensors,
    pub historical: Vec<Option<HistoricalEmbeddings>>,
    /// Labels of the seeds.
    pub labels: Tensor,
    /// [`Loaded::factors`] on the device.
    pub factors: Tensor,
}

/// The part of a batch that every forward pass takes, on the device.
pub(super) struct ModelTensors {
    /// Features of the nodes, `[nodes, dim]`, then their aggregates if the first layer takes them.
    pub rows: Vec<Tensor>,
    /// In-degrees of the nodes in the whole graph, if the model takes them.
    degrees: Option<Tensor>,
    /// [`ModelTensors::rows`], combined or normalized as the first layer does before it uses parameters, if several passes use them.
    first: Option<Tensor>,
    pub blocks: Vec<Block>,
}

impl ModelTensors {
    /// The input of the first layer.
    pub fn input(&self) -> Input<'_> {
        match (&self.rows[..], &self.first) {
            ([_, _], Some(combined)) => Input::Combined(combined),
            ([own, neighbors], None) => Input::Aggregated {
                own,
                neighbors,
                degrees: self.degrees.as_ref(),
            },
            (_, Some(normalized)) => Input::NormalizedFeatures(normalized),
            (rows, None) => Input::Features(&rows[0]),
        }
    }

    /// Prepares the input for more passes.
    fn prepare(&mut self, model: &Model) {
        self.first = match &self.rows[..] {
            [own, neighbors] => model.combined(own, neighbors, self.degrees.as_ref()),
            rows => Some(model.normalized_features(&rows[0])),
        };
    }
}

impl DeviceCopy {
    pub fn new(device: Device) -> Self {
        let stream = match device {
            Device::Cuda(index) => SideStream::of_cuda(index),
            _ => None,
        };
        Self { device, stream }
    }

    /// Number of batches to load ahead of the one that is computed on.
    pub fn ahead(&self) -> usize {
        usize::from(self.stream.is_some())
    }

    /// Registers the feed's buffers with the device, if it is a GPU.
    pub fn memory(&self) -> Option<Arc<dyn RegisterMemory>> {
        match self.device {
            Device::Cuda(index) => Some(Arc::new(CudaMemory::of_cuda(index)?)),
            _ => None,
        }
    }
}

impl Trainer {
    /// Starts to load a batch.
    ///
    /// # Errors
    /// If a seed has no label, or historical embeddings cannot be read.
    pub(super) fn load(&self, batch: Batch, batches: &PartitionBatches) -> Result<Loaded> {
        let batch = Arc::new(batch);
        let parts = batches.places(batch.index()).to_vec();
        let coverage = coverage(batch.minibatch());
        let mut factors = Vec::with_capacity(coverage.len());
        for &part in &parts {
            // The seeds are those of the first partition, then those of the second, and so on.
            let seeds = factors.len()..factors.len() + batches.seeds_of(part);
            let of_part = correction::factors(self.config.correction, self.config.shrinkage, &coverage[seeds]);
            factors.extend(of_part);
        }
        let begin = || self.tensors(&batch, &factors);
        let (tensors, done) = match &self.device_copy.stream {
            Some(stream) => {
                let (tensors, done) = stream.begin(begin);
                (tensors?, Some(done))
            }
            None => (begin()?, None),
        };
        let has_names = self.device == Device::Cpu && self.config.has_dropout();
        Ok(Loaded {
            names: has_names.then(|| Names::of(batch.minibatch())),
            batch,
            parts,
            tensors,
            coverage,
            factors,
            done,
        })
    }

    fn tensors(&self, batch: &Arc<Batch>, factors: &[f32]) -> Result<Tensors> {
        let minibatch = batch.minibatch();
        let model = self.model_tensors(batch)?;
        if self.device != Device::Cpu {
            model.blocks.iter().for_each(Block::send);
        }
        Ok(Tensors {
            model,
            historical: match &self.historical {
                Some(kept) => self.historical_of(kept, minibatch)?,
                None => Vec::new(),
            },
            labels: send(self.labels.tensor(&minibatch.nodes[..minibatch.seeds])?, self.device),
            factors: send(Tensor::from_slice(factors), self.device),
        })
    }

    /// The tensors of a batch for a forward pass.
    ///
    /// # Errors
    /// If in-degrees are damaged.
    pub(super) fn model_tensors(&self, batch: &Arc<Batch>) -> Result<ModelTensors> {
        let minibatch = batch.minibatch();
        let needs_degrees = self.model.aggregate(0) == Aggregate::Gcn;
        let of_nodes = || minibatch.nodes.iter().map(|&node| self.degrees.of(node)).collect();
        let degrees: Option<Vec<u64>> = needs_degrees.then(of_nodes).transpose()?;
        let degree_row = degrees.as_ref().map(|degrees| {
            let degrees: Vec<f32> = degrees.iter().map(|&degree| degree as f32).collect();
            send(Tensor::from_slice(&degrees), self.device)
        });
        Ok(ModelTensors {
            rows: features::tensors(batch, self.device),
            degrees: degree_row,
            first: None,
            blocks: Block::of_minibatch(minibatch, degrees.as_deref(), self.device),
        })
    }
}

impl Loaded {
    /// The first minibatch, which has the numbers of the step.
    pub fn first(&self) -> BatchPlace {
        self.parts[0]
    }

    /// Prepares the batch for the same step of other epochs. Gives it up if it takes more than `memory_max` bytes, besides the features.
    pub fn kept(mut self, model: &Model, memory_max: u64) -> Option<Self> {
        let minibatch = self.batch.minibatch();
        let rows = &self.tensors.model.rows[0];
        let bytes = BYTES_OF_EDGE * minibatch.edges() + BYTES_OF_NODE * minibatch.nodes.len();
        if (bytes + rows.numel() * rows.kind().elt_size_in_bytes()) as u64 > memory_max {
            return None;
        }
        self.tensors.model.prepare(model);
        Some(self)
    }

    /// Makes later computations wait for the tensors.
    pub fn arrive(&mut self) {
        if let Some(done) = self.done.take() {
            done.join(&self.tensors.all());
        }
    }
}

impl Tensors {
    fn all(&self) -> Vec<&Tensor> {
        let historical = self.historical.iter().flatten();
        self.model
            .rows
            .iter()
            .chain(&self.model.degrees)
            .chain(self.model.blocks.iter().flat_map(Block::sent))
            .chain(historical.flat_map(HistoricalEmbeddings::tensors))
            .chain([&self.labels, &self.factors])
            .collect()
    }
}
