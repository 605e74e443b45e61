//! Loads batches from the feed onto the device of the model.
//!
//! On a processor nothing is copied: tensors are views of the feed's buffer. For a GPU, the feed's buffers are registered with it.
//! A separate stream copies the tensors of the next batch while the model computes on the current one. The computing stream waits
//! for the copy; the loading thread does not.
//!
//! A GPU is fast: the processor takes longer to start the kernels of a step than the GPU to compute them, and about as long to load the
//! next batch. So a thread of its own loads ([`Loading::in_background`]). On a processor that thread would take a core from the products:
//! with two cores, steps took 3 % longer.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
};

use grappa_io::workers;
use grappa_sampling::{
    feed::{self, Batch, BatchPlace, PartitionBatches, RegisterMemory},
    sample::{Minibatch, coverage_of_types},
};
use tch::{Device, Tensor};

use super::correction;
use crate::train::{
    data::training_data::TrainingData, feature_tensors::FeatureTensors, inference::historical::HistoricalRows,
    links::PairTensors, options::resolved_config::ResolvedConfig,
};
use crate::{
    Result,
    nn::{Aggregate, Block, HistoricalEmbeddings, Input, Model, Names, Scaling},
    runtime::send,
    shim::cuda::{CudaMemory, Done, SideStream},
};

/// Bytes of an edge in a batch: in the minibatch, in the block and in its transposed lists.
const BYTES_OF_EDGE: usize = 20;
/// Bytes of a node in a batch at most: its number, name and degree, and its offsets and factors in each block.
const BYTES_OF_NODE: usize = 64;

/// Copies batches to a device, where it has memory of its own.
#[derive(Debug)]
pub(crate) struct DeviceCopy {
    device: Device,
    /// The stream for copies, beside the computing one.
    stream: Option<SideStream>,
}

/// What it takes to load batches. It is apart from the trainer, so that a thread can load while the trainer computes.
pub(crate) struct Loading {
    pub config: Arc<ResolvedConfig>,
    pub data: Arc<TrainingData>,
    pub device_copy: Arc<DeviceCopy>,
    pub historical: Option<Arc<HistoricalRows>>,
    /// The aggregation of each layer, the first one first.
    pub aggregates: Vec<Aggregate>,
}

/// A batch, with its tensors on a device.
pub(crate) struct Loaded {
    /// The end of the copy; none if nothing is copied. Declared before the batch, so that it is dropped first: that waits
    /// until the device has read the batch's memory, which the feed then fills again.
    done: Option<Done>,
    pub batch: Arc<Batch>,
    /// The minibatches of all partitions of the step.
    pub parts: Vec<BatchPlace>,
    pub tensors: Tensors,
    /// Coverage of each seed; of links, the mean over all ends for each edge.
    pub coverage: Vec<f32>,
    /// Loss weight of each seed or edge.
    pub factors: Vec<f32>,
    /// For dropout on a processor; none without.
    pub names: Option<Names>,
}

/// What the outputs of a batch are compared with.
pub(crate) enum TruthTensors {
    /// Labels of the seeds.
    Labels(Tensor),
    /// Pairs of seeds.
    Pairs(PairTensors),
}

/// The tensors of a batch on the device.
pub(crate) struct Tensors {
    pub model: ModelTensors,
    pub historical: Vec<Option<HistoricalEmbeddings>>,
    pub truth: TruthTensors,
    /// [`Loaded::factors`] on the device.
    pub factors: Tensor,
}

/// The part of a batch that every forward pass takes, on the device.
pub(crate) struct ModelTensors {
    /// Features of the nodes, and their aggregates if the first layer takes them.
    pub rows: FeatureTensors,
    /// In-degrees of the nodes in the whole graph, if the model takes them.
    degrees: Option<Tensor>,
    /// [`ModelTensors::rows`], combined or normalized as the first layer does before it uses parameters, if several passes use them.
    first: Option<FirstRows>,
    /// By hop, and by relation.
    pub blocks: Vec<Vec<Block>>,
}

/// The input of the first layer after what it does before it uses parameters.
enum FirstRows {
    /// Features and aggregates.
    Combined(Tensor),
    /// The normalized features of each type.
    Normalized(Vec<Tensor>),
}

impl ModelTensors {
    /// The input of the first layer.
    pub fn input(&self) -> Input<'_> {
        let FeatureTensors { own, aggregates } = &self.rows;
        match &self.first {
            Some(FirstRows::Combined(combined)) => Input::Combined(combined),
            Some(FirstRows::Normalized(normalized)) => Input::NormalizedFeatures(normalized),
            None if aggregates.is_empty() => Input::Features(own),
            None => Input::Aggregated { own, neighbors: aggregates, degrees: self.degrees.as_ref() },
        }
    }

    /// Prepares the input for more passes.
    fn prepare(&mut self, model: &Model) {
        let FeatureTensors { own, aggregates } = &self.rows;
        self.first = match &aggregates[..] {
            [] => Some(FirstRows::Normalized(model.normalized_features(own))),
            [neighbors] => model.combined(&own[0], neighbors, self.degrees.as_ref()).map(FirstRows::Combined),
            _ => None,
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

    /// Registers the feed's buffers with the device, if it is a GPU.
    pub fn memory(&self) -> Option<Arc<dyn RegisterMemory>> {
        match self.device {
            Device::Cuda(index) => Some(Arc::new(CudaMemory::of_cuda(index)?)),
            _ => None,
        }
    }
}

impl Loading {
    /// Loads batches in a thread of its own, while `use_them` receives the loaded ones. One loaded batch waits until it is
    /// received.
    ///
    /// # Panics
    /// If the thread does, with the same message.
    pub fn in_background(
        &self,
        source: &mut feed::Epoch<'_>,
        batches: &PartitionBatches,
        use_them: impl FnOnce(&Receiver<Result<Loaded>>) -> Result<()>,
    ) -> Result<()> {
        // The next step begins before the last one has ended, so one batch is held.
        source.hold_while_waiting(1);
        let stopper = source.stopper();
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(0);
            let thread = workers::spawn(scope, move || {
                for batch in source {
                    let loaded = batch.map_err(Into::into).and_then(|batch| self.load(batch, batches));
                    let is_last = loaded.is_err();
                    // Nobody receives after a step has failed, or when the run stops.
                    if sender.send(loaded).is_err() || is_last {
                        break;
                    }
                }
            })?;
            let result = use_them(&receiver);
            // The thread ends when it finds that nobody receives, or that no batch comes.
            drop(receiver);
            stopper.stop();
            workers::join(thread);
            result
        })
    }

    /// Starts to load a batch.
    pub fn load(&self, batch: Batch, batches: &PartitionBatches) -> Result<Loaded> {
        let batch = Arc::new(batch);
        let parts = batches.places(batch.index()).to_vec();
        let by_type = coverage_of_types(&self.data.shape, batch.minibatches());
        let coverage = match self.data.links() {
            None => by_type.into_iter().nth(self.data.target).expect("the type is there"),
            Some(_) => {
                let links = &batch.minibatches()[self.data.target].links;
                let ends = match links.source_type == self.data.target {
                    true => by_type[self.data.target].clone(),
                    false => [&by_type[links.source_type][..], &by_type[self.data.target]].concat(),
                };
                let mean = ends.iter().sum::<f32>() / ends.len().max(1) as f32;
                vec![mean; links.positives.len()]
            }
        };
        let mut factors = Vec::with_capacity(coverage.len());
        for &part in &parts {
            // The seeds of the first partition come first, then the seeds of the second, and so on.
            let seeds = factors.len()..factors.len() + batches.seeds_of(part);
            let of_part = correction::factors(self.config.correction, self.config.shrinkage, &coverage[seeds]);
            factors.extend(of_part);
        }
        let (tensors, done) = match &self.device_copy.stream {
            Some(stream) => {
                let (tensors, done) = stream.begin(|| self.tensors(&batch, &factors, (&parts, batches)));
                (tensors?, Some(done))
            }
            None => (self.tensors(&batch, &factors, (&parts, batches))?, None),
        };
        let has_names = self.device() == Device::Cpu && self.config.has_dropout();
        Ok(Loaded {
            names: has_names.then(|| {
                let positions = self.data.graph.positions();
                Names::from_minibatches(batch.minibatches(), |node_type| positions.range(node_type).start)
            }),
            batch,
            parts,
            tensors,
            coverage,
            factors,
            done,
        })
    }

    fn device(&self) -> Device {
        self.device_copy.device
    }

    fn tensors(
        &self,
        batch: &Arc<Batch>,
        factors: &[f32],
        (parts, batches): (&[BatchPlace], &PartitionBatches),
    ) -> Result<Tensors> {
        let minibatch = &batch.minibatches()[self.data.target];
        let mut model = self.model_tensors(batch)?;
        let historical = match &self.historical {
            Some(kept) => kept.of_batch(minibatch, &self.data.degrees, &self.config.fanouts(), self.device())?,
            None => Vec::new(),
        };
        for (blocks, historical) in model.blocks.iter_mut().zip(&historical) {
            if historical.is_some() {
                blocks.iter_mut().for_each(Block::set_historical);
            }
        }
        if self.device() != Device::Cpu {
            // Seeds first, as the blocks are.
            for (blocks, kind) in model.blocks.iter().zip(self.aggregates.iter().rev()) {
                for (relation, block) in blocks.iter().enumerate() {
                    block.send(*kind, Scaling::HorvitzThompson, self.data.edge_features(relation));
                }
            }
        }
        Ok(Tensors {
            model,
            historical,
            truth: match self.data.links() {
                Some(_) => TruthTensors::Pairs(self.pairs(batch, parts, batches)),
                None => TruthTensors::Labels(send(
                    self.data.labels().tensor(&minibatch.nodes[..minibatch.seeds])?,
                    self.device(),
                )),
            },
            factors: send(Tensor::from_slice(factors), self.device()),
        })
    }

    /// The pairs of a batch of links.
    pub fn pairs(&self, batch: &Batch, parts: &[BatchPlace], batches: &PartitionBatches) -> PairTensors {
        let minibatch = &batch.minibatches()[self.data.target];
        let source_type = minibatch.links.source_type;
        // Outputs of the sources' type are above those of another type. Without blocks, they are of all nodes.
        let sources = &batch.minibatches()[source_type];
        let sources = match sources.blocks.is_empty() && minibatch.blocks.is_empty() {
            _ if source_type == self.data.target => 0,
            true => sources.nodes.len() as i64,
            false => sources.seeds as i64,
        };
        PairTensors::from_pairs(&minibatch.links, [0, sources], parts, batches, self.device())
    }

    /// The tensors of a batch for a forward pass.
    pub fn model_tensors(&self, batch: &Arc<Batch>) -> Result<ModelTensors> {
        let degrees = match self.aggregates[0] {
            Aggregate::Gcn => Some(self.data.degrees.of_gcn(&batch.minibatch().nodes)?),
            _ => None,
        };
        let (shape, device) = (&self.data.shape, self.device());
        let mut rows = FeatureTensors::from_batch(batch, shape.relations.len(), device);
        if let Some(ages) = &self.data.node_ages {
            ages.append_to(&mut rows.own, batch.minibatches(), device);
        }
        Ok(ModelTensors {
            rows,
            degrees: degrees.as_ref().map(|degrees| send(Tensor::from_slice(degrees), device)),
            first: None,
            blocks: Block::of_minibatches(shape, batch.minibatches(), degrees.as_deref(), &self.data.edge_ages, device),
        })
    }

    /// Asks the system to read ahead the historical embeddings of a batch.
    pub fn read_ahead(&self, batch: &Batch) {
        if let Some(kept) = &self.historical {
            kept.read_ahead_of_batch(batch.minibatch(), &self.data.degrees, self.config.layers);
        }
    }
}

impl Loaded {
    /// The first minibatch, which has the numbers of the step.
    pub fn first(&self) -> BatchPlace {
        self.parts[0]
    }

    /// Prepares the batch for the same step of other epochs. Gives it up if it takes more than `memory_max` bytes, besides the features.
    pub fn kept(mut self, model: &Model, memory_max: u64) -> Option<Self> {
        let of_type = |minibatch: &Minibatch| {
            let features: usize = minibatch.blocks.iter().map(|block| block.edge_features.len()).sum();
            size_of::<f32>() * 2 * features + BYTES_OF_EDGE * minibatch.edges() + BYTES_OF_NODE * minibatch.nodes.len()
        };
        let bytes: usize = self.batch.minibatches().iter().map(of_type).sum();
        let own = self.tensors.model.rows.own.iter();
        let features: usize = own.map(|rows| rows.numel() * rows.kind().elt_size_in_bytes()).sum();
        if (bytes + features) as u64 > memory_max {
            return None;
        }
        self.tensors.model.prepare(model);
        Some(self)
    }

    /// Makes later computations wait for the tensors.
    pub fn arrive(&self) {
        if let Some(done) = &self.done {
            done.join(&self.tensors.all());
        }
    }
}

impl TruthTensors {
    fn all(&self) -> Vec<&Tensor> {
        match self {
            Self::Labels(labels) => vec![labels],
            Self::Pairs(pairs) => pairs.all().collect(),
        }
    }
}

impl Tensors {
    fn all(&self) -> Vec<&Tensor> {
        let historical = self.historical.iter().flatten();
        self.model
            .rows
            .all()
            .chain(&self.model.degrees)
            .chain(self.model.blocks.iter().flatten().flat_map(Block::sent))
            .chain(historical.flat_map(HistoricalEmbeddings::tensors))
            .chain([&self.factors])
            .chain(self.truth.all())
            .collect()
    }
}
