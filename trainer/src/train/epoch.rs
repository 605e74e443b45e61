//! The loop over the steps of an epoch.
//!
//! The feed delivers one batch per step: the minibatches of all partitions of the step, joined. The loop keeps three queues short:
//!
//! ```text
//! feed -> arrived -> loaded -> compute
//!
//! arrived   the feed has delivered the batch; the system reads its historical embeddings ahead, if there are any
//! loaded    its tensors are on the device, or are being copied there
//! compute   forward and backward; exchange of the gradient and update of the parameters
//! ```
//!
//! An epoch can stop after any step. [`PartialEpoch`] then has the number of finished steps and the sums of their metrics.
//! Minibatches are functions of their number, so a resumed epoch takes the remaining steps and reaches the same result.
//!
//! With `--full-graph`, an epoch can be one step, whose batch is the same in all epochs. It is kept then.

use std::{collections::VecDeque, sync::Arc};

use grappa_io::progress::{Progress, check_stopped};
use grappa_run::{checkpoint::PartialEpoch, model::Task, stages::Stage};
use grappa_sampling::feed::{Feed, FeedStats, PartitionBatches};

use super::{
    Trainer,
    exchange::{LossWeights, exchanged_bytes},
    load::Loaded,
    step::BatchSums,
};
use crate::Result;

/// Metrics of an epoch.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpochStats {
    /// Mean loss of its seeds.
    pub loss: f64,
    /// Fraction of its seeds whose class was predicted right while they were trained on; none for multi-label tasks.
    pub train_accuracy: Option<f64>,
    /// Mean coverage of its seeds.
    pub coverage: f64,
    /// Optimizer steps.
    pub steps: u64,
    /// Seeds.
    pub seeds: u64,
    /// Sampled edges.
    pub sampled_edges: u64,
    /// Bytes of gradients and loss weights that were summed over all partitions.
    pub gradient_bytes: u64,
    /// Bytes that each process sent for that.
    pub bytes_sent: u64,
    /// Bytes about halo nodes that partitions got before the epoch.
    pub halo_bytes: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
}

/// Maps a step of an epoch, and its number of steps, to a learning rate.
type RateOfStep<'a> = &'a dyn Fn(u64, u64) -> f64;

/// The time of an epoch with fewer steps says little about that of a step: the first ones open files and fill buffers.
const MEASURED_STEPS: u64 = 50;

/// A batch that all epochs have is kept if it takes at most 1/REPEATED_SHARE of the memory.
const REPEATED_SHARE: u64 = 8;

impl Trainer {
    /// Trains an epoch with the learning rate `rate(step, steps)` at each step, or continues the epoch in progress. The epoch
    /// stays in progress until [`Trainer::end_epoch`], because its evaluation may follow.
    ///
    /// # Errors
    /// If files cannot be read, memory is too small, or a loss is not finite. Also if progress says to stop: then the step in
    /// progress is finished, and a checkpoint made now continues with the next step.
    pub fn epoch(&mut self, epoch: u64, rate: RateOfStep<'_>, progress: &dyn Progress) -> Result<EpochStats> {
        let mut partial = self.partial.unwrap_or_default();
        if !partial.is_trained {
            let (is_begun, before) = (partial.steps > 0, self.clock.seconds());
            let trained = self.remaining_steps(epoch, &mut partial, rate, progress);
            if trained.is_ok() && !is_begun && partial.steps >= MEASURED_STEPS {
                let took = self.clock.seconds() - before;
                self.took(took[Stage::Forward] + took[Stage::Backward]);
            }
            self.partial = Some(partial);
            trained?;
            self.partial = Some(self.total(partial)?);
        }
        Ok(self.stats(&self.partial.unwrap_or_default()))
    }

    /// Ends the epoch in progress.
    pub fn end_epoch(&mut self) {
        self.partial = None;
    }

    /// Finished steps of the epoch in progress, if there is one.
    pub fn steps_of_epoch(&self) -> Option<u64> {
        self.partial.map(|partial| partial.steps)
    }

    /// Opens the partitions and the feed, and takes the steps that are not finished.
    fn remaining_steps(
        &mut self,
        epoch: u64,
        partial: &mut PartialEpoch,
        rate: RateOfStep<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.clock.enter(Stage::Load);
        check_stopped(progress)?;
        self.labels.begin_epoch();
        self.open_partitions(epoch / self.config.repartition_every, progress)?;
        self.refresh_when_due(epoch, progress)?;
        // An epoch that is continued after a stop had them before.
        let halo_bytes = std::mem::take(&mut self.halo_bytes);
        if partial.steps == 0 {
            partial.halo_bytes = halo_bytes;
        }
        let whole = self.loader.all_batches(epoch);
        let (steps, seeds_per_step) = (whole.steps(), whole.seeds_per_step());
        drop(whole);
        if self.loader.opens_feed() {
            self.make_room_for_feed();
        }
        let batches = self.loader.batches(epoch, |batches| batches.from_step(partial.steps));
        let batches = match (batches, &self.group) {
            // Ranks of one machine open their feeds together.
            (Err(error @ grappa_io::Error::Stopped), Some(group)) => {
                return Err(group.failure().unwrap_or(error.into()));
            }
            (batches, _) => batches?,
        };
        // While batches arrive, the trainer is busy with them.
        let mut feed = self.loader.take_feed();
        progress.steps("training", steps);
        progress.advance(partial.steps, 0);
        let before = feed.stats();
        let mut epoch = Epoch {
            number: epoch,
            steps,
            seeds_per_step,
            batches: &batches,
            rate: &|step| rate(step, steps),
            partial: &mut *partial,
        };
        let result = match self.repeated.take() {
            Some(batch) if epoch.partial.steps == 0 => self.step_again(&mut epoch, batch, progress),
            _ => self.steps_of(&mut epoch, &mut feed, progress),
        };
        self.add_feed(partial, &before, &feed.stats());
        self.loader.return_feed(feed);
        result
    }

    /// Takes the steps of `epoch.batches`: the loop that the [module](self) describes.
    fn steps_of(&mut self, epoch: &mut Epoch<'_>, feed: &mut Feed, progress: &dyn Progress) -> Result<()> {
        // The batch that is computed on, and `loaded_ahead` more, are loaded. To a GPU one batch goes ahead, on a stream of
        // its own.
        let loaded_ahead = self.device_copy.ahead();
        // On a processor, one batch waits before it is loaded while its historical embeddings are read. Features that are
        // all in memory leave time for no such wait.
        let read_ahead = usize::from(loaded_ahead == 0 && self.historical.is_some() && !feed.is_resident());
        let is_repeated = self.may_keep_batch() && feed.is_resident();
        let mut source = feed.epoch(epoch.batches);
        let (mut arrived, mut loaded) = (VecDeque::new(), VecDeque::new());
        loop {
            while loaded.len() <= loaded_ahead {
                self.clock.enter(Stage::Sample);
                while arrived.len() <= read_ahead
                    && let Some(batch) = source.next()
                {
                    let batch = batch?;
                    if read_ahead > 0 {
                        self.read_historical_ahead(batch.minibatch());
                    }
                    arrived.push_back(batch);
                }
                self.clock.enter(Stage::Forward);
                let Some(batch) = arrived.pop_front() else { break };
                loaded.push_back(self.load(batch, epoch.batches)?);
            }
            let Some(mut batch) = loaded.pop_front() else { break };
            self.step_of(epoch, &mut batch, progress)?;
            if is_repeated {
                self.repeated = batch.kept(&self.model, self.kept_batch_memory());
            }
        }
        self.steps_without_batch(epoch, epoch.steps, progress)
    }

    /// Whether the epochs can share one batch. With historical embeddings they cannot, because those change.
    fn may_keep_batch(&self) -> bool {
        self.config.repeats_batch() && self.refresh_plan.is_none()
    }

    /// The memory that is left for a batch that all epochs share, in bytes. It is the same whether there is such a batch now or not:
    /// a run that was resumed must evaluate as one that was not stopped.
    pub(super) fn kept_batch_memory(&self) -> u64 {
        match self.may_keep_batch() {
            true => self.config.memory.0 / REPEATED_SHARE,
            false => 0,
        }
    }

    /// Takes the one step of an epoch with the batch of the epoch before.
    fn step_again(&mut self, epoch: &mut Epoch<'_>, mut batch: Loaded, progress: &dyn Progress) -> Result<()> {
        let done = self.step_of(epoch, &mut batch, progress);
        self.repeated = Some(batch);
        done
    }

    /// Takes the step of a batch.
    fn step_of(&mut self, epoch: &mut Epoch<'_>, batch: &mut Loaded, progress: &dyn Progress) -> Result<()> {
        self.steps_without_batch(epoch, batch.first().step, progress)?;
        let (step, minibatch) = (batch.first().step, batch.batch.minibatch());
        let (edges, seeds) = (minibatch.edges() as u64, minibatch.seeds as u64);
        let sums = self.add_gradient(epoch.number, batch)?;
        self.end_step(epoch, step, sums.weights, edges, progress)?;
        // The metrics of a step count when it is finished, so that a stop leaves only whole steps.
        add_step(epoch.partial, seeds, edges, sums);
        epoch.check_stopped(progress)
    }

    /// Takes part in the steps before `step` in which the partitions of this process have no batch, and others may have one.
    fn steps_without_batch(&mut self, epoch: &mut Epoch<'_>, step: u64, progress: &dyn Progress) -> Result<()> {
        while epoch.partial.steps < step {
            let without = epoch.partial.steps;
            self.end_step(epoch, without, LossWeights::default(), 0, progress)?;
            epoch.check_stopped(progress)?;
        }
        Ok(())
    }

    /// Exchanges the gradient of a step and updates the parameters.
    fn end_step(
        &mut self,
        epoch: &mut Epoch<'_>,
        step: u64,
        weights: LossWeights,
        edges: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.clock.enter(Stage::Exchange);
        let done = (epoch.number as f64 + step as f64 / epoch.steps as f64) / self.config.epochs as f64;
        let sent_bytes = self.update(weights, epoch.seeds_per_step, (epoch.rate)(step), done)?;
        epoch.partial.steps = step + 1;
        epoch.partial.gradient_bytes += exchanged_bytes(self.model.parameters().count());
        epoch.partial.bytes_sent += sent_bytes;
        progress.advance(1, edges);
        Ok(())
    }

    /// Adds what the feed read, and divides the time that the loop waited for it.
    fn add_feed(&mut self, partial: &mut PartialEpoch, before: &FeedStats, after: &FeedStats) {
        partial.bytes_read += after.bytes_read - before.bytes_read;
        // The clock was in the stage `Sample` whenever the loop waited.
        self.clock.enter(Stage::Load);
        for (stage, stall) in [
            (Stage::Read, after.stall.read - before.stall.read),
            (Stage::Assemble, after.stall.assemble - before.stall.assemble),
        ] {
            self.clock.shift(Stage::Sample, stage, stall);
        }
    }

    /// Metrics of an epoch, as far as it was trained.
    fn stats(&self, partial: &PartialEpoch) -> EpochStats {
        let seeds = partial.seeds.max(1) as f64;
        EpochStats {
            loss: partial.loss / seeds,
            train_accuracy: (self.labels.task() == Task::MultiClass).then_some(partial.right as f64 / seeds),
            coverage: partial.coverage / seeds,
            steps: partial.steps,
            seeds: partial.seeds,
            sampled_edges: partial.sampled_edges,
            gradient_bytes: partial.gradient_bytes,
            bytes_sent: partial.bytes_sent,
            halo_bytes: partial.halo_bytes,
            bytes_read: partial.bytes_read,
        }
    }
}

/// The epoch whose steps are taken.
struct Epoch<'a> {
    number: u64,
    /// Number of steps.
    steps: u64,
    /// Mean number of seeds of a step.
    seeds_per_step: f64,
    /// The batches of the steps that are not finished.
    batches: &'a Arc<PartitionBatches>,
    /// The learning rate of a step.
    rate: &'a dyn Fn(u64) -> f64,
    partial: &'a mut PartialEpoch,
}

impl Epoch<'_> {
    /// Returns early if the run should stop. After the last step the epoch is trained, which is as good a place to stop.
    fn check_stopped(&self, progress: &dyn Progress) -> Result<()> {
        match self.partial.steps < self.steps {
            true => Ok(check_stopped(progress)?),
            false => Ok(()),
        }
    }
}

/// Adds the metrics of a finished step.
fn add_step(partial: &mut PartialEpoch, seeds: u64, edges: u64, sums: BatchSums) {
    partial.seeds += seeds;
    partial.loss += sums.loss;
    partial.coverage += sums.coverage;
    partial.right += sums.right;
    partial.sampled_edges += edges;
}
