//! Training: partitions in isolation, gradients exchanged, super-epochs with other partitions.
//!
//! ```text
//! for each super-epoch:
//!     assign chunks to K partitions                                    grappa_sampling::partition
//!     open a view of each
//!     for each epoch:
//!         for each step, of Q partitions:
//!             for each of them: sample, gather, forward, backward      its gradient is added to the others'
//!             exchange, divide, clip, change the parameters
//!         evaluate by exact inference                                  leaves the history of halo nodes: `history`
//! ```
//!
//! What comes out depends on K, Q and the seed. It does not depend on how many processes serve the partitions, on memory or
//! on reading; on a processor, with the same number of libtorch's threads, runs are the same to the bit.

pub mod correction;
mod estimate;
mod evaluate;
pub mod exchange;
mod features;
pub mod first_hop;
pub mod history;
pub mod inference;
pub(crate) mod labels;
mod load;
mod optimizer;
mod session;
mod split;
mod state;
pub mod trained;

use std::{collections::VecDeque, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Instant};

use grappa_formats::{ChunkId, PartitionId, aggregates::AggregateKind, assignment::Assignment};
use grappa_io::{
    machine::free_memory_bytes,
    progress::{Progress, check_stopped},
    size::ByteSize,
};
use grappa_run::{
    checkpoint::PartialEpoch,
    config::{HaloMode, TrainConfig},
    folder::ASSIGNMENTS,
    model::{ModelOptions, Precision, Task},
    scores::ScoreReport,
};
use grappa_sampling::{
    feed::{EpochOptions, Feed, FeedOptions, FeedStats, OutputDtype, PartitionBatches, Seeded},
    partition::{self, Owned, RepartitionOptions, assign},
    sample::Sampler,
    view::{Halo, PartitionView, ViewKind, ViewOptions},
};
use grappa_storage::{Store, no_features};
use tch::{Device, Kind};

pub use self::session::{Watcher, train};
use self::{
    correction::Denominator,
    exchange::{Exchange, InProcess, Weights},
    history::KeptHistory,
    inference::Degrees,
    labels::NodeLabels,
    load::{Loaded, Loader},
    optimizer::Optimizer,
    split::Splits,
    state::HistoryFrom,
};
use crate::{
    Error, Result,
    nn::{Input, Model, Pass, Scaling, losses},
    random::key_of,
};

/// Trains a model on a store.
pub struct Trainer {
    store: Arc<Store>,
    config: TrainConfig,
    device: Device,
    scratch: PathBuf,
    labels: NodeLabels,
    degrees: Degrees,
    splits: Splits,
    sampler: Arc<Sampler>,
    /// The kind of pre-aggregated features that the first layer takes.
    aggregates: Option<AggregateKind>,
    model: Model,
    optimizer: Optimizer,
    denominator: Denominator,
    exchange: Box<dyn Exchange>,
    loader: Loader,
    /// What the last exact inference left for halo nodes.
    history: Option<KeptHistory>,
    /// The parameters that it was made with.
    history_from: Option<HistoryFrom>,
    /// The epoch under way, if one is.
    partial: Option<PartialEpoch>,
    /// What went wrong that training survives.
    warnings: Vec<String>,
    parts: Vec<Seeded>,
    super_epoch: Option<u64>,
    generation: u64,
    feed: Option<Feed>,
    step: u64,
}

/// What an epoch was like.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpochStats {
    /// Mean loss of its seeds.
    pub loss: f64,
    /// Share of its seeds whose class was predicted while they were trained on; none for sets of labels.
    pub train_accuracy: Option<f64>,
    /// Mean coverage of its seeds.
    pub coverage: f64,
    /// Optimizer steps.
    pub steps: u64,
    /// Seeds.
    pub seeds: u64,
    /// Edges that were sampled.
    pub sampled_edges: u64,
    /// Bytes that partitions gave to the exchange.
    pub bytes_sent: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
    /// Wall time, and what of it went where.
    pub time: Times,
}

/// Wall times of the stages of an epoch, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// All of it.
    pub total: f64,
    /// Waiting for samples.
    pub sample: f64,
    /// Waiting for the disk.
    pub read: f64,
    /// Waiting for features to be put together.
    pub assemble: f64,
    /// From features to losses.
    pub forward: f64,
    /// From losses to gradients.
    pub backward: f64,
    /// From gradients to parameters.
    pub exchange: f64,
}

/// What an exact evaluation says.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Of the nodes that were trained on.
    pub train: ScoreReport,
    /// Of the nodes to validate on.
    pub val: ScoreReport,
    /// Of the nodes to test on.
    pub test: ScoreReport,
    /// Wall time.
    pub seconds: f64,
}

impl Evaluation {
    /// What of two evaluations is better has more of: accuracy on the nodes to validate on; of sets of labels, micro F1.
    pub fn score(&self) -> Option<f64> {
        match self.val.confusion {
            Some(_) => self.val.accuracy,
            None => self.val.micro_f1.or(self.val.accuracy),
        }
    }
}

/// What an epoch has, of which some steps may be done.
#[derive(Debug, Clone, Copy)]
struct Whole {
    steps: u64,
    seeds_per_step: f64,
}

/// Gradients of a step, as far as they are added up.
#[derive(Debug, Default)]
struct Step {
    number: Option<u64>,
    weights: Weights,
    /// Seeds of a step of this epoch, on average.
    seeds: f64,
}

impl Trainer {
    /// A new model for a store, whose first layer takes the pre-aggregated features of a kind if one is given, as
    /// [`first_hop::choose`] does.
    ///
    /// # Errors
    /// If the store has no labels, features or nodes to train on, or options don't fit it.
    pub fn new(
        store: Arc<Store>,
        config: TrainConfig,
        aggregates: Option<AggregateKind>,
        device: Device,
        scratch: PathBuf,
    ) -> Result<Self> {
        config.check()?;
        let labels = NodeLabels::open(&store)?;
        let manifest = store.manifest();
        let Some(features) = &manifest.features else {
            return Err(no_features(store.path()).into());
        };
        let model = config.model_options(features.dim as usize, labels.spec().classes as usize);
        check_memory(&model)?;
        let splits = Splits::open(&store)?;
        let size = estimate::check(&store, &config, &model, splits.train().len(), aggregates.is_some())?;
        let model = Model::new(model, config.seed, device)?;
        let optimizer = Optimizer::new(&config, &model.parameters().flat_values());
        Ok(Self {
            degrees: Degrees::open(&store)?,
            sampler: Arc::new(config.sampler(aggregates.is_some())?),
            exchange: Box::new(InProcess),
            loader: Loader::new(device),
            denominator: Denominator::default(),
            history: None,
            history_from: None,
            partial: None,
            warnings: size.into_iter().collect(),
            parts: Vec::new(),
            super_epoch: None,
            generation: store.generation(),
            feed: None,
            step: 0,
            store,
            config,
            device,
            scratch,
            labels,
            splits,
            aggregates,
            model,
            optimizer,
        })
    }

    /// The model, as far as it was trained.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the store is called.
    fn store_name(&self) -> String {
        let stem = self.store.path().file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Optimizer steps that were taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The generation of the assignment of chunks to partitions.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Trains for an epoch, with learning rates by step: `rate(step, steps)`. An epoch that was begun is continued. It stays
    /// the epoch under way until [`Trainer::end_epoch`]: the evaluation may belong to it.
    ///
    /// # Errors
    /// If files can't be read, memory is too small, or a loss is no number. If progress says to stop: then the step under way
    /// was finished, and a checkpoint of now continues with the next one.
    pub fn epoch(&mut self, epoch: u64, rate: &dyn Fn(u64, u64) -> f64, progress: &dyn Progress) -> Result<EpochStats> {
        let mut partial = self.partial.unwrap_or_default();
        if !partial.is_trained {
            let trained = self.rest_of(epoch, &mut partial, rate, progress);
            self.partial = Some(partial);
            trained?;
        }
        Ok(self.stats(&partial))
    }

    /// The epoch under way is finished.
    pub fn end_epoch(&mut self) {
        self.partial = None;
    }

    /// How many steps of the epoch under way are done, if one is under way.
    pub fn steps_of_epoch(&self) -> Option<u64> {
        self.partial.map(|partial| partial.steps)
    }

    /// What went wrong since the last call, and was survived.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn rest_of(
        &mut self,
        epoch: u64,
        partial: &mut PartialEpoch,
        rate: &dyn Fn(u64, u64) -> f64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let begin = Instant::now();
        check_stopped(progress)?;
        self.partition(epoch / self.config.repartition_every, progress)?;
        let batches = PartitionBatches::new(
            self.parts.clone(),
            EpochOptions {
                sampler: self.sampler.clone(),
                batch: self.config.batch(),
                concurrent: self.config.concurrent() as usize,
                seed: self.config.seed,
                epoch,
                shuffle: true,
            },
        );
        let whole = Whole {
            steps: batches.steps(),
            seeds_per_step: batches.seeds_per_step(),
        };
        let batches = Arc::new(batches.from_step(partial.steps));
        let mut feed = match self.feed.take() {
            Some(feed) => feed,
            None => self.open_feed(&batches)?,
        };
        progress.steps("training", whole.steps);
        progress.advance(partial.steps, 0);
        let before = feed.stats();
        let result = self.steps_of(epoch, whole, &batches, &mut feed, partial, rate, progress);
        add_feed(partial, &before, &feed.stats());
        self.feed = Some(feed);
        partial.seconds += begin.elapsed().as_secs_f64();
        result?;
        partial.is_trained = true;
        Ok(())
    }

    /// Takes the steps of an epoch that `batches` are for.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another thing, and there is one caller"
    )]
    fn steps_of(
        &mut self,
        epoch: u64,
        whole: Whole,
        batches: &Arc<PartitionBatches>,
        feed: &mut Feed,
        partial: &mut PartialEpoch,
        rate: &dyn Fn(u64, u64) -> f64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut step = Step::default();
        // What the batches of the step under way add to the epoch: it counts when the step is finished.
        let mut sums = PartialEpoch::default();
        // One batch may wait for another to be computed with: on its way to the device, or for its history.
        let ahead = self.loader.ahead();
        let waiting = usize::from(ahead == 0 && self.history.is_some() && !feed.is_resident());
        let mut source = feed.epoch(batches);
        let (mut arrived, mut loaded) = (VecDeque::new(), VecDeque::new());
        loop {
            while loaded.len() <= ahead {
                while arrived.len() <= waiting
                    && let Some(batch) = source.next()
                {
                    let batch = batch?;
                    if waiting > 0 {
                        self.read_history_ahead(batch.minibatch());
                    }
                    arrived.push_back(batch);
                }
                let Some(batch) = arrived.pop_front() else { break };
                let begin = Instant::now();
                let place = batches.places()[batch.index() as usize];
                loaded.push_back(self.load(batch, place)?);
                partial.seconds_by_stage.forward += begin.elapsed().as_secs_f64();
            }
            let now = loaded.pop_front();
            let next = now.as_ref().map(|now| now.place.step);
            if let Some(number) = step.number.filter(|&number| next != Some(number)) {
                self.finish(&mut step, rate(number, whole.steps), partial)?;
                add_step(partial, number, std::mem::take(&mut sums));
                progress.advance(1, 0);
                // The last step is as good as an epoch.
                if next.is_some() {
                    check_stopped(progress)?;
                }
            }
            let Some(now) = now else { break };
            (step.number, step.seeds) = (next, whole.seeds_per_step);
            let (edges, seeds) = (now.batch.minibatch().edges(), now.batch.minibatch().seeds);
            let part = self.contribute(epoch, now, &mut step, partial)?;
            sums.loss += part.loss;
            sums.coverage += part.coverage;
            sums.right += part.right;
            sums.seeds += seeds as u64;
            sums.sampled_edges += edges as u64;
            progress.advance(0, edges as u64);
        }
        Ok(())
    }

    /// What an epoch was like, as far as it was trained.
    fn stats(&self, partial: &PartialEpoch) -> EpochStats {
        let seeds = partial.seeds.max(1) as f64;
        let time = partial.seconds_by_stage;
        EpochStats {
            loss: partial.loss / seeds,
            train_accuracy: (self.labels.task() == Task::MultiClass).then_some(partial.right as f64 / seeds),
            coverage: partial.coverage / seeds,
            steps: partial.steps,
            seeds: partial.seeds,
            sampled_edges: partial.sampled_edges,
            bytes_sent: partial.bytes_sent,
            bytes_read: partial.bytes_read,
            time: Times {
                total: partial.seconds,
                sample: time.sample,
                read: time.read,
                assemble: time.assemble,
                forward: time.forward,
                backward: time.backward,
                exchange: time.exchange,
            },
        }
    }

    /// Adds the gradient of a batch to that of its step.
    fn contribute(&self, epoch: u64, mut batch: Loaded, step: &mut Step, partial: &mut PartialEpoch) -> Result<Part> {
        let begin = Instant::now();
        batch.arrive();
        let (place, tensors) = (batch.place, &batch.tensors);
        let input = match &tensors.rows[..] {
            [own, neighbours] => Input::Aggregated {
                own,
                neighbours,
                degrees: tensors.degrees.as_ref(),
            },
            rows => Input::Features(&rows[0]),
        };
        let pass = Pass {
            training: Some(key_of([self.config.seed, epoch, place.partition.0.into(), place.batch])),
            scaling: Scaling::HorvitzThompson,
        };
        let logits = self.model.forward(&tensors.blocks, input, &tensors.history, pass);
        let labels = &tensors.labels;
        let losses = losses(self.labels.task(), &logits, labels);
        let loss = losses.sum(Kind::Double).double_value(&[]);
        if !loss.is_finite() {
            let remedy = match self.not_finite(&batch) {
                Some(node) => format!(
                    "the features of {node}, or their aggregate over its in-neighbours, are not finite numbers; ingest without \
                     --allow-nan names all of these"
                ),
                None => "try a smaller --lr, or --clip 1".to_owned(),
            };
            return Err(Error::Options(format!(
                "the loss is no longer a number in step {} of epoch {}, after {} steps in all: {remedy}; the last checkpoint is as \
                 it was",
                place.step + 1,
                epoch + 1,
                self.step
            )));
        }
        partial.seconds_by_stage.forward += begin.elapsed().as_secs_f64();

        let begin = Instant::now();
        let weighted = losses * &tensors.factors;
        weighted.sum(Kind::Float).backward();
        partial.seconds_by_stage.backward += begin.elapsed().as_secs_f64();

        step.weights.factors += batch.factors.iter().map(|&factor| f64::from(factor)).sum::<f64>();
        step.weights.seeds += batch.factors.len() as f64;
        partial.bytes_sent += 4 * self.model.parameters().count() as u64 + Weights::BYTES;
        let right = match self.labels.task() {
            Task::MultiClass => logits
                .argmax(1, false)
                .eq_tensor(labels)
                .sum(Kind::Int64)
                .int64_value(&[]),
            Task::MultiLabel => 0,
        };
        Ok(Part {
            loss,
            coverage: batch.coverage.iter().map(|&c| f64::from(c)).sum(),
            right,
        })
    }

    /// What errors call the first node of a batch whose features are not finite, if there is one.
    fn not_finite(&self, batch: &Loaded) -> Option<String> {
        batch.tensors.rows.iter().find_map(|rows| {
            let wrong = rows.isfinite().all_dim(1, false).logical_not().nonzero();
            let place = (wrong.size()[0] > 0).then(|| wrong.int64_value(&[0, 0]) as usize)?;
            Some(self.store.ids().name(batch.batch.minibatch().nodes[place]))
        })
    }

    /// Exchanges the gradient of a step, and changes the parameters by it.
    fn finish(&mut self, step: &mut Step, rate: f64, partial: &mut PartialEpoch) -> Result<()> {
        let begin = Instant::now();
        let parameters = self.model.parameters();
        let mut gradient = parameters.flat_gradient();
        let weights = self.exchange.sum(&mut gradient, step.weights)?;
        gradient *= 1.0 / self.denominator.of_step(self.config.correction, weights, step.seeds);
        if self.config.clip > 0.0 {
            let norm = gradient.norm().double_value(&[]);
            if norm > self.config.clip {
                gradient *= self.config.clip / norm;
            }
        }
        self.optimizer.step(&parameters.flat_values(), &gradient, rate);
        parameters.zero_gradient();
        *step = Step::default();
        self.step += 1;
        partial.seconds_by_stage.exchange += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Makes the partitions of a super-epoch, if they are not there.
    fn partition(&mut self, super_epoch: u64, progress: &dyn Progress) -> Result<()> {
        if self.super_epoch == Some(super_epoch) {
            return Ok(());
        }
        let assignment = self.assignment(super_epoch)?;
        let halo = match self.config.halo {
            HaloMode::Features => Halo::Features,
            HaloMode::Stop | HaloMode::History | HaloMode::Aggregates => Halo::Stop,
            HaloMode::None => Halo::None,
        };
        if self.history.is_none() && self.super_epoch.is_none() {
            self.refresh_history(progress)?;
        }
        // The views of the last super-epoch go before those of the next come.
        self.parts.clear();
        let owned: Vec<Owned> = (0..assignment.partitions())
            .map(|partition| Owned::of(&assignment, self.store.chunks(), PartitionId(partition)))
            .collect();
        let options = ViewOptions {
            halo,
            weights: false,
            kind: ViewKind::Auto,
            memory: self.config.memory.0,
            threads: self.config.threads(),
            engine: self.config.read_engine.into(),
        };
        let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options)?;
        let seeded = |view: Arc<PartitionView>| Seeded {
            seeds: view.owned().seeds(self.splits.train()).into(),
            view,
        };
        self.parts = views.into_iter().map(seeded).collect();
        self.generation = assignment.generation();
        self.super_epoch = Some(super_epoch);
        Ok(())
    }

    /// The assignment of a super-epoch: a function of the configuration and the store. Unless there is one partition, it is
    /// kept in the run's folder, for whoever wants to know which partition saw what. The store is not written to, so that it
    /// may be read-only, and other runs may use it.
    fn assignment(&mut self, super_epoch: u64) -> Result<Assignment> {
        if self.config.partitions == 1 {
            return Ok(Assignment::whole(self.store.chunks().chunks()));
        }
        let options = RepartitionOptions {
            partitions: self.config.partitions,
            schedule: self.config.schedule,
            seed: self.config.seed,
            super_epoch: Some(super_epoch),
        };
        let assignment = assign(self.store.path(), self.store.manifest(), &options, super_epoch + 1)?;
        match partition::keep(&self.scratch.join(ASSIGNMENTS), &assignment).map_err(Error::from) {
            Err(error) if error.is_disk_full() => self.warnings.push(format!(
                "the assignment of chunks to partitions is not kept: {error}; training goes on"
            )),
            kept => kept?,
        }
        Ok(assignment)
    }

    fn open_feed(&self, batches: &Arc<PartitionBatches>) -> Result<Feed> {
        let views: u64 = self.parts.iter().map(|part| part.view.bytes()).sum();
        let chunks: Vec<ChunkId> = self.store.present_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.config.memory.0.saturating_sub(views),
            rows_bytes: views,
            mapped_bytes: self.parts.iter().map(|part| part.view.mapped_bytes()).sum(),
            threads: self.config.threads(),
            lookahead: self.config.lookahead.value().map(NonZeroUsize::get),
            engine: self.config.read_engine.into(),
            aggregates: self.aggregates,
            register: self.loader.memory(),
            output: match self.config.precision {
                Precision::F32 => OutputDtype::F32,
                Precision::Bf16 => OutputDtype::Bf16,
            },
            ..FeedOptions::default()
        };
        Ok(Feed::open(&self.store, &chunks, &**batches, &options)?)
    }

    /// Of the features of all nodes, as they are stored.
    fn feature_bytes(&self) -> u64 {
        let manifest = self.store.manifest();
        let stride = manifest.features.as_ref().map_or(0, |spec| u64::from(spec.row_stride));
        manifest.nodes.saturating_mul(stride)
    }
}

/// Refuses a model that this machine can't train.
fn check_memory(model: &ModelOptions) -> Result<()> {
    /// Of a parameter: itself, its gradient, and two moments of that.
    const BYTES: u64 = 4 * size_of::<f32>() as u64;
    let needed = model.parameters_min().saturating_mul(BYTES);
    match free_memory_bytes() {
        Some(free) if needed > free => Err(Error::Options(format!(
            "the model's parameters, their gradients and the optimizer's moments take at least {}, and {} are free: use a \
             smaller --hidden, or fewer --layers",
            ByteSize(needed),
            ByteSize(free)
        ))),
        _ => Ok(()),
    }
}

/// What a batch adds to the figures of its epoch.
struct Part {
    loss: f64,
    coverage: f64,
    right: i64,
}

/// Counts a step, and what its batches came to.
fn add_step(partial: &mut PartialEpoch, number: u64, sums: PartialEpoch) {
    partial.steps = number + 1;
    partial.seeds += sums.seeds;
    partial.loss += sums.loss;
    partial.coverage += sums.coverage;
    partial.right += sums.right;
    partial.sampled_edges += sums.sampled_edges;
}

/// Adds what the feed did meanwhile.
fn add_feed(partial: &mut PartialEpoch, before: &FeedStats, after: &FeedStats) {
    partial.bytes_read += after.bytes_read - before.bytes_read;
    let seconds = &mut partial.seconds_by_stage;
    seconds.sample += after.stall.sample - before.stall.sample;
    seconds.read += after.stall.read - before.stall.read;
    seconds.assemble += after.stall.assemble - before.stall.assemble;
}
