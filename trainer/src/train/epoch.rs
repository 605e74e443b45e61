//! The loop over the steps of an epoch.
//!
//! The feed delivers one batch per step: the minibatches of all partitions of the step, joined:
//!
//! ```text
//! feed -> arrived -> loaded -> compute
//!
//! arrived   the feed has delivered the batch; without a GPU, the system reads its historical embeddings ahead, if there are any
//! loaded    its tensors are on the device, or are being copied there
//! compute   forward and backward; exchange of the gradient and update of the parameters
//! ```
//!
//! With a GPU, a thread loads the next batch meanwhile. And the loop begins the next step before it waits for the loss of
//! the last one, so that the GPU always has work. With several ranks, the exchange waits for the gradient, and so for the loss.
//!
//! An epoch can stop after any step. [`PartialEpoch`] then has the number of finished steps and the sums of their metrics.
//! Minibatches are functions of their number, so a resumed epoch takes the remaining steps and reaches the same result.
//!
//! With `--full-graph`, an epoch can be one step, whose batch is the same in all epochs. It is kept then.

use std::{collections::VecDeque, sync::Arc};

use grappa_formats::NodeId;
use grappa_io::{
    ledger::split_at_limit,
    progress::{Progress, check_stopped},
};
use grappa_run::{
    checkpoint::PartialEpoch,
    model::Task,
    stages::{Stage, StageClock},
};
use grappa_sampling::feed::{Batch, Feed, FeedStats, PartitionBatches};

use super::{
    embeddings::{BatchEmbeddings, RowOwners},
    exchange::{LossWeights, exchanged_bytes},
    memory::{STEPS, TrainingMemory, repeated_batch_memory},
    partitions::loaded_batch::Loaded,
    ranks::Processes,
    step::batch_step::{BatchSums, BegunStep},
    trainer::Trainer,
};
use crate::{Result, distributed::ProcessGroup};

/// Under this name a rank leaves the metrics of an unfinished epoch for rank 0 when it stops.
const UNFINISHED: &str = "unfinished";

/// Metrics of an epoch.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpochStats {
    /// Mean loss of its seeds.
    pub loss: f64,
    /// Training accuracy over the seeds of the epoch; none for multi-label tasks.
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
    /// Halo data received before the epoch, in bytes.
    pub halo_bytes: u64,
    /// Bytes of learnable embeddings that partitions received before the epoch.
    pub row_bytes: u64,
    /// Bytes of features that were read.
    pub bytes_read: u64,
    /// Bytes of features that partitions sent each other.
    pub feature_bytes: u64,
    /// Bytes of hidden states and of their gradients that partitions sent each other.
    pub activation_bytes: u64,
    /// Mean squared error of the states that arrived, relative to the mean square of what was sent, if a method changes them.
    pub message_error: Option<f64>,
}

/// Maps a step of an epoch, and its number of steps, to a learning rate.
type RateOfStep<'a> = &'a dyn Fn(u64, u64) -> f64;

/// Saves the state of a run between two steps of an epoch, so that a kill does not cost the whole epoch.
pub(super) trait Save {
    /// Whether it is time.
    fn is_due(&self, trainer: &Trainer) -> bool;

    /// Saves it. The epoch in progress has the finished steps.
    fn save(&mut self, trainer: &mut Trainer) -> Result<()>;
}

/// The next batch, loaded; none after the last one. Waiting for it is a stage of its own.
type NextBatch<'a> = &'a mut dyn FnMut(&mut StageClock) -> Option<Result<Loaded>>;

/// The time of an epoch with fewer steps says little about the time of a step: the first ones open files and fill buffers.
const MEASURED_STEPS: u64 = 50;

impl Trainer {
    /// Trains an epoch with the learning rate `rate(step, steps)` at each step, or continues the epoch in progress. The epoch
    /// stays in progress until [`Trainer::end_epoch`], because its evaluation may follow.
    ///
    /// # Errors
    /// If files cannot be read, memory is too small, or a loss is not finite. Also if progress says to stop: then the step in
    /// progress is finished, and a checkpoint made now continues with the next step.
    pub fn epoch(&mut self, epoch: u64, rate: RateOfStep<'_>, progress: &dyn Progress) -> Result<EpochStats> {
        self.saved_epoch(epoch, rate, None, progress)
    }

    /// As [`Trainer::epoch`], with `save` between steps.
    pub(super) fn saved_epoch(
        &mut self,
        epoch: u64,
        rate: RateOfStep<'_>,
        save: Option<&mut dyn Save>,
        progress: &dyn Progress,
    ) -> Result<EpochStats> {
        let mut partial = self.partial.unwrap_or_default();
        if !partial.is_trained {
            let (is_begun, before) = (partial.steps > 0, self.clock.seconds());
            let trained = self.remaining_steps(epoch, &mut partial, rate, save, progress);
            if trained.is_ok() && !is_begun && partial.steps >= MEASURED_STEPS {
                let took = self.clock.seconds() - before;
                let seconds = took[Stage::Forward] + took[Stage::Backward];
                self.evaluations.took(seconds, self.partitions.epoch_work);
            }
            self.partial = Some(partial);
            match trained {
                Err(error) if !error.is_stopped() => return Err(error),
                trained => self.learner.check_parameters(epoch).and(trained)?,
            }
            self.partial = Some(self.total(partial, progress)?);
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

    /// Where training is, for people. `epochs` are finished.
    pub(super) fn place(&self, epochs: u64) -> String {
        match self.steps_of_epoch() {
            None | Some(0) => format!("before epoch {}", epochs + 1),
            Some(steps) => format!("after step {steps} of epoch {}", epochs + 1),
        }
    }

    /// Ends the steps of an epoch: on rank 0, its metrics become the sums over all processes.
    fn total(&mut self, mut partial: PartialEpoch, progress: &dyn Progress) -> Result<PartialEpoch> {
        if let (Some(group), Some(tables)) = (&self.processes.group, &mut self.learner.embeddings) {
            let ranks = self.processes.of_partitions(self.config.partitions());
            let (owners, rank) = (&self.partitions.owners, self.processes.rank());
            let is_own = |chunk: usize| ranks[owners[chunk] as usize] == rank;
            partial.row_bytes += tables.exchange(&self.data.graph, is_own, group, progress)?;
        }
        if let Some(group) = &self.processes.group
            && let Some(all) = group.gather("metrics", partial)?
        {
            all[1..].iter().for_each(|other| partial.add(other));
        }
        self.learner.average_buffers(&self.processes)?;
        partial.is_trained = true;
        Ok(partial)
    }

    /// Whether other ranks have embeddings of this epoch that this one lacks: they send them after an epoch.
    pub(super) fn lacks_rows_of_others(&self) -> bool {
        let is_within = self.partial.is_some_and(|partial| partial.steps > 0 && !partial.is_trained);
        is_within && self.processes.group.is_some() && self.learner.embeddings.is_some()
    }

    /// On rank 0, takes what the other ranks leave when all stop within an epoch. False if one of them is missing, or stopped elsewhere.
    pub(super) fn collect_left_behind(&mut self) -> bool {
        let (gradients, step) = (&mut self.learner.gradients, self.learner.step);
        self.partial.as_mut().is_none_or(|partial| collect_metrics(&self.processes, partial))
            && gradients.collect_left(&self.processes, step)
    }

    /// Leaves what rank 0 needs of this rank for a checkpoint when all stop within an epoch.
    pub(super) fn leave_behind(&self, group: &ProcessGroup) {
        if let Some(partial) = &self.partial {
            group.leave_behind(UNFINISHED, partial);
        }
        self.learner.gradients.leave(&self.processes, self.learner.step);
    }

    /// Opens the partitions and the feed, and takes the steps that are not finished.
    fn remaining_steps(
        &mut self,
        epoch: u64,
        partial: &mut PartialEpoch,
        rate: RateOfStep<'_>,
        save: Option<&mut dyn Save>,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.clock.enter(Stage::Load);
        check_stopped(progress)?;
        if self.method.is_some() {
            return self.full_graph_step(epoch, partial, rate(0, 1), progress);
        }
        if self.data.links().is_none() {
            self.data.labels().begin_epoch();
        }
        self.open_partitions(epoch, progress)?;
        self.refresh_when_due(epoch, progress)?;
        // An epoch that is continued after a stop had them before.
        let halo_bytes = std::mem::take(&mut self.partitions.halo_bytes);
        if partial.steps == 0 {
            partial.halo_bytes = halo_bytes;
            if let Some(tables) = self.learner.embeddings.as_mut().filter(|_| self.config.partitions() > 1) {
                let bytes = tables.copy()?;
                // Several processes have all rows since the end of the epoch before, which counted them.
                partial.row_bytes = if self.processes.group.is_none() { bytes } else { 0 };
            }
        }
        let whole = self.partitions.loader.all_batches(epoch);
        let (steps, seeds_per_step) = (whole.steps(), whole.seeds_per_step());
        drop(whole);
        let opens_feed = self.partitions.loader.opens_feed();
        if opens_feed {
            // What inferences keep only to save time: the feed may take all memory that the views leave.
            self.evaluations.free_memory();
        }
        let batches = self.partitions.loader.batches(epoch, |batches| batches.from_step(partial.steps));
        let batches = match (batches, &self.processes.group) {
            // Ranks of one machine open their feeds together.
            (Err(error @ grappa_io::Error::Stopped), Some(group)) => {
                return Err(group.failure().unwrap_or(error.into()));
            }
            (batches, _) => batches?,
        };
        let leases = self.memory().step_leases(self.history.memory(), self.evaluations.memory());
        let leases = match opens_feed {
            true => leases,
            // The adjacency lists of this super-epoch may be a little larger than those for which the feed divided the memory.
            false => split_at_limit(self.ledger.limit, leases),
        };
        self.ledger.enter(STEPS, leases)?;
        // While batches arrive, the trainer is busy with them.
        let feed = self.partitions.loader.feed().expect("batches() opens the feed").clone();
        progress.steps("training", steps);
        progress.advance(partial.steps, 0);
        let before = (feed.stats(), self.clock.seconds()[Stage::Sample]);
        let mut epoch = Epoch {
            number: epoch,
            steps,
            seeds_per_step,
            batches: &batches,
            rate: &|step| rate(step, steps),
            keeps_batch: false,
            partial: &mut *partial,
            save,
        };
        let result = match self.partitions.repeated.take() {
            Some(batch) if epoch.partial.steps == 0 => self.step_again(&mut epoch, batch, progress),
            _ => self.steps_of(&mut epoch, &feed, progress),
        };
        self.add_feed(partial, before, &feed.stats());
        result
    }

    /// Takes the steps of `epoch.batches`: the loop that the [module](self) describes.
    fn steps_of(&mut self, epoch: &mut Epoch<'_, '_>, feed: &Feed, progress: &dyn Progress) -> Result<()> {
        // Embeddings change, so a batch with them is not the same one again.
        let is_same = self.learner.embeddings.is_none();
        epoch.keeps_batch = is_same && feed.is_resident() && self.repeated_batch_memory() > 0;
        // If all features are in memory, batches come too fast for reading ahead to help.
        let read_ahead = usize::from(self.history.rows.is_some() && !feed.is_resident());
        let batches = epoch.batches;
        let loading = self.partitions.loading(&self.config, &self.data, &self.learner.model, self.history.rows.clone());
        let mut source = feed.epoch(batches);
        if self.overlaps {
            loading.in_background(&mut source, batches, |loaded| {
                self.steps_from(
                    epoch,
                    &mut |clock| {
                        clock.enter(Stage::Sample);
                        loaded.recv().ok()
                    },
                    progress,
                )
            })?;
        } else {
            let mut arrived = VecDeque::new();
            self.steps_from(
                epoch,
                &mut |clock| {
                    clock.enter(Stage::Sample);
                    while arrived.len() <= read_ahead
                        && let Some(batch) = source.next()
                    {
                        if let Ok(batch) = &batch
                            && read_ahead > 0
                        {
                            loading.read_ahead(batch);
                        }
                        arrived.push_back(batch);
                    }
                    clock.enter(Stage::Forward);
                    let batch = arrived.pop_front()?;
                    Some(batch.map_err(Into::into).and_then(|batch| loading.load(batch, batches)))
                },
                progress,
            )?;
        }
        self.steps_without_batch(epoch, epoch.steps, progress)
    }

    /// Takes the steps of batches. If steps overlap, one is finished when the next is begun.
    fn steps_from(&mut self, epoch: &mut Epoch<'_, '_>, next: NextBatch<'_>, progress: &dyn Progress) -> Result<()> {
        let mut begun = None;
        let result = self.begin_steps(epoch, next, &mut begun, progress);
        // Also after a failure: a loss that is not finite may be the reason for it.
        begun.map_or(Ok(()), |step| self.finish_step(epoch, step))?;
        result
    }

    /// The loop of [`Trainer::steps_from`]. `begun` is then the last step, if steps overlap.
    fn begin_steps(
        &mut self,
        epoch: &mut Epoch<'_, '_>,
        next: NextBatch<'_>,
        begun: &mut Option<BegunStep>,
        progress: &dyn Progress,
    ) -> Result<()> {
        while let Some(batch) = next(&mut self.clock) {
            let step = self.begin_step(epoch, batch?, progress)?;
            let before = if self.overlaps { begun.replace(step) } else { Some(step) };
            if let Some(step) = before {
                // The step that was begun on top of a failed one fails too, and says less.
                self.finish_step(epoch, step).inspect_err(|_| *begun = None)?;
            }
            if epoch.partial.steps < epoch.steps && epoch.save.as_ref().is_some_and(|save| save.is_due(self)) {
                // The metrics of the finished steps must be complete.
                if let Some(step) = begun.take() {
                    self.finish_step(epoch, step)?;
                }
                self.learner.check_parameters(epoch.number)?;
                self.partial = Some(*epoch.partial);
                epoch.save.iter_mut().try_for_each(|save| save.save(self))?;
            }
            epoch.check_stopped(progress)?;
        }
        Ok(())
    }

    /// Who takes memory.
    fn memory(&self) -> TrainingMemory<'_> {
        TrainingMemory {
            config: &self.config,
            data: &self.data,
            loader: &self.partitions.loader,
            uses_history: self.history.is_planned(),
        }
    }

    /// The memory that is left for a batch that all epochs share, in bytes.
    fn repeated_batch_memory(&self) -> u64 {
        repeated_batch_memory(&self.config, self.history.is_planned())
    }

    /// Takes the one step of an epoch with the batch of the epoch before.
    fn step_again(&mut self, epoch: &mut Epoch<'_, '_>, batch: Loaded, progress: &dyn Progress) -> Result<()> {
        let step = self.begin_step(epoch, batch, progress)?;
        self.add_results(epoch, &step)?;
        self.partitions.repeated = Some(step.batch);
        epoch.check_stopped(progress)
    }

    /// Takes the step of a batch. A GPU may still compute it.
    fn begin_step(&mut self, epoch: &mut Epoch<'_, '_>, batch: Loaded, progress: &dyn Progress) -> Result<BegunStep> {
        self.steps_without_batch(epoch, batch.first().step, progress)?;
        let (number, edges) = (batch.first().step, sampled_edges(&batch.batch));
        let step = {
            let data = (&*self.data, &self.partitions.owners[..]);
            self.learner.add_gradient(epoch.number, batch, data, self.overlaps, &mut self.clock)?
        };
        if self.processes.group.is_some() {
            // The exchange would wait for the gradient. And no rank sends one that is not finite.
            step.results(&self.data)?;
        }
        self.end_step(epoch, number, step.weights, edges, progress)?;
        Ok(step)
    }

    /// Waits for the results of a step, and adds them to the metrics of the epoch.
    fn finish_step(&mut self, epoch: &mut Epoch<'_, '_>, step: BegunStep) -> Result<()> {
        self.add_results(epoch, &step)?;
        if epoch.keeps_batch {
            self.partitions.repeated = step.batch.kept(&self.learner.model, self.repeated_batch_memory());
        }
        Ok(())
    }

    fn add_results(&mut self, epoch: &mut Epoch<'_, '_>, step: &BegunStep) -> Result<()> {
        self.clock.enter(Stage::Backward);
        let sums = step.results(&self.data)?;
        add_step(epoch.partial, step.weights.seeds as u64, sampled_edges(&step.batch.batch), sums);
        Ok(())
    }

    /// Takes part in the steps before `step` in which the partitions of this process have no batch, and others may have one.
    fn steps_without_batch(&mut self, epoch: &mut Epoch<'_, '_>, step: u64, progress: &dyn Progress) -> Result<()> {
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
        epoch: &mut Epoch<'_, '_>,
        step: u64,
        weights: LossWeights,
        edges: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.clock.enter(Stage::Exchange);
        let done = (epoch.number as f64 + step as f64 / epoch.steps as f64) / self.config.epochs as f64;
        let rate = (epoch.rate)(step);
        let (summed, denominator) = self.learner.update(weights, epoch.seeds_per_step, rate, done)?;
        self.update_embeddings(epoch.partial, rate, denominator)?;
        epoch.partial.steps = step + 1;
        epoch.partial.gradient_bytes += exchanged_bytes(self.learner.model.parameters().count());
        epoch.partial.bytes_sent += summed.sent_bytes;
        progress.advance(1, edges);
        Ok(())
    }

    /// Updates the embeddings of nodes by the gradients of a step.
    fn update_embeddings(&mut self, partial: &mut PartialEpoch, rate: f64, denominator: f64) -> Result<()> {
        let Some(tables) = &mut self.learner.embeddings else { return Ok(()) };
        let ranks = self.processes.of_partitions(self.config.partitions());
        let gathered = self.learner.gathered.take();
        let (graph, owners) = (&self.data.graph, &self.partitions.owners);
        let rank_of = |node_type: usize, row: u32| {
            let chunk = graph.node_types()[node_type].chunks().chunk_of(NodeId(row.into()));
            let first = graph.positions().chunks_of(node_type).start;
            ranks[owners[(first + chunk.0) as usize] as usize]
        };
        let group = self.processes.group.as_deref();
        let row_owners = group.map(|group| RowOwners { group, rank_of: &rank_of });
        partial.row_gradient_bytes += gathered.as_ref().map_or(0, BatchEmbeddings::sent_gradient_bytes);
        partial.bytes_sent += tables.update(gathered.as_ref(), (rate, denominator), row_owners)?;
        Ok(())
    }

    /// Adds what the feed read, and divides the time that the loop waited. `before` has the feed's statistics and the seconds of
    /// [`Stage::Sample`] before the steps.
    fn add_feed(&mut self, partial: &mut PartialEpoch, (before, waited_before): (FeedStats, f64), after: &FeedStats) {
        partial.bytes_read += after.bytes_read - before.bytes_read;
        self.clock.enter(Stage::Load);
        // The clock was in the stage `Sample` whenever the loop waited. A thread that loads for a GPU waits for the feed also while the
        // loop does not wait.
        let waited = self.clock.seconds()[Stage::Sample] - waited_before;
        let (before, after) = (before.stall, after.stall);
        let (read, assemble) = (after.read - before.read, after.assemble - before.assemble);
        let all = after.sample - before.sample + read + assemble;
        let share = if all > waited { waited / all } else { 1.0 };
        self.clock.shift(Stage::Sample, Stage::Read, share * read);
        self.clock.shift(Stage::Sample, Stage::Assemble, share * assemble);
    }

    /// Metrics of an epoch, as far as it was trained.
    fn stats(&self, partial: &PartialEpoch) -> EpochStats {
        let seeds = partial.seeds.max(1) as f64;
        EpochStats {
            loss: partial.loss / seeds,
            train_accuracy: (self.data.task() == Task::MultiClass).then_some(partial.right as f64 / seeds),
            coverage: partial.coverage / seeds,
            steps: partial.steps,
            seeds: partial.seeds,
            sampled_edges: partial.sampled_edges,
            gradient_bytes: partial.gradient_bytes + partial.row_gradient_bytes,
            bytes_sent: partial.bytes_sent,
            halo_bytes: partial.halo_bytes,
            row_bytes: partial.row_bytes,
            bytes_read: partial.bytes_read,
            feature_bytes: partial.feature_bytes,
            activation_bytes: partial.activation_bytes,
            message_error: partial.message_error(),
        }
    }
}

/// The epoch whose steps are taken.
struct Epoch<'a, 's> {
    number: u64,
    /// Number of steps.
    steps: u64,
    /// Mean number of seeds of a step.
    seeds_per_step: f64,
    /// The batches of the steps that are not finished.
    batches: &'a Arc<PartitionBatches>,
    /// The learning rate of a step.
    rate: &'a dyn Fn(u64) -> f64,
    /// Whether other epochs have its batch, too.
    keeps_batch: bool,
    partial: &'a mut PartialEpoch,
    save: Option<&'a mut (dyn Save + 's)>,
}

impl Epoch<'_, '_> {
    /// Returns early if the run should stop. After the last step the epoch is trained, which is as good a place to stop.
    fn check_stopped(&self, progress: &dyn Progress) -> Result<()> {
        match self.partial.steps < self.steps {
            true => Ok(check_stopped(progress)?),
            false => Ok(()),
        }
    }
}

/// The edges of all relations in a batch.
fn sampled_edges(batch: &Batch) -> u64 {
    batch.minibatches().iter().map(|minibatch| minibatch.edges() as u64).sum()
}

/// Adds the metrics of a finished step.
fn add_step(partial: &mut PartialEpoch, seeds: u64, edges: u64, sums: BatchSums) {
    partial.seeds += seeds;
    partial.loss += sums.loss;
    partial.coverage += sums.coverage;
    partial.right += sums.right;
    partial.sampled_edges += edges;
}

/// On rank 0, makes the metrics of an unfinished epoch the sums over all processes. False if one of them is missing, or stopped elsewhere.
fn collect_metrics(processes: &Processes, partial: &mut PartialEpoch) -> bool {
    let Some(group) = &processes.group else { return true };
    if partial.is_trained || partial.steps == 0 {
        return true;
    }
    if group.failure().is_some() {
        return false;
    }
    let others: Vec<Option<PartialEpoch>> = group.left_behind(UNFINISHED);
    for other in &others {
        match other {
            Some(other) if other.steps == partial.steps => partial.add(other),
            _ => return false,
        }
    }
    true
}
