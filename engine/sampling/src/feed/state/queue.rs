//! The queue of batches that were begun and not delivered.

use std::collections::VecDeque;

use crate::feed::buffer::FeatureBuffer;
use crate::feed::in_flight::InFlightBatch;

/// Progress of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::feed) enum Stage {
    /// A worker samples it.
    Sampling,
    /// It is sampled, and waits until earlier batches have their memory and the reserve has enough for it.
    Unreserved,
    /// Its nodes are known. Some of its rows may have slots.
    Sampled,
    /// All its rows have slots. They are in memory when this window is read.
    Planned(u64),
    /// A worker assembles it.
    Assembling,
    /// It can be delivered.
    Ready,
}

#[derive(Debug)]
pub(super) struct Job {
    pub stage: Stage,
    /// None while a worker has it.
    pub batch: Option<InFlightBatch>,
    pub buffer: Option<FeatureBuffer>,
}

/// The batches of an epoch. They are numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Batches of this epoch.
    pub batches: u64,
    /// Batches of all earlier epochs.
    pub serial: u64,
    /// The next batches to be sampled, planned and delivered.
    next_sample: u64,
    pub next_plan: u64,
    pub next_deliver: u64,
    /// The batches from `next_deliver` to `next_sample`.
    jobs: VecDeque<Job>,
}

impl Queue {
    /// Begins an epoch of `batches` batches.
    pub fn begin(&mut self, batches: u64) {
        (self.batches, self.next_sample, self.next_plan, self.next_deliver) = (batches, 0, 0, 0);
    }

    /// Ends an epoch, and removes the batches that were not delivered.
    pub fn end(&mut self) -> impl Iterator<Item = Job> {
        self.serial += self.next_sample;
        self.jobs.drain(..)
    }

    /// Appends the next batch. A worker samples it.
    pub fn push(&mut self) -> u64 {
        self.jobs.push_back(Job { stage: Stage::Sampling, batch: None, buffer: None });
        self.next_sample += 1;
        self.next_sample - 1
    }

    /// Gives a batch to a worker.
    pub fn take(&mut self, index: u64, stage: Stage) -> InFlightBatch {
        let job = self.job_mut(index);
        job.stage = stage;
        job.batch.take().expect("no worker has a batch that waits")
    }

    /// Takes a batch back from a worker.
    pub fn put(&mut self, index: u64, stage: Stage, batch: InFlightBatch) -> &mut Job {
        let job = self.job_mut(index);
        job.stage = stage;
        job.batch = Some(batch);
        job
    }

    /// Removes the next batch, if it is ready.
    pub fn deliver(&mut self) -> Option<(u64, InFlightBatch, Option<FeatureBuffer>)> {
        let job = self.jobs.pop_front_if(|job| job.stage == Stage::Ready)?;
        self.next_deliver += 1;
        let batch = job.batch.expect("no worker has a ready batch");
        Some((self.next_deliver - 1, batch, job.buffer))
    }

    /// The stage of the next batch to be delivered, or None if it was not begun.
    pub fn next_stage(&self) -> Option<Stage> {
        self.jobs.front().map(|job| job.stage)
    }

    /// The next batch to be planned, or None if it was not begun.
    pub fn next_planned(&self) -> Option<&Job> {
        self.jobs.get((self.next_plan - self.next_deliver) as usize)
    }

    /// The first batch whose stage is one of these.
    pub fn first(&self, is_one: impl Fn(Stage) -> bool) -> Option<u64> {
        let at = self.jobs.iter().position(|job| is_one(job.stage))?;
        Some(self.next_deliver + at as u64)
    }

    /// The first batch that is not assembled. Rows of this batch and all later ones must stay in their slots.
    pub fn unassembled(&self) -> u64 {
        self.first(|stage| stage != Stage::Ready).unwrap_or(self.next_sample)
    }

    /// Whether all batches were begun.
    pub fn is_sampled(&self) -> bool {
        self.next_sample == self.batches
    }

    /// Whether all batches were planned.
    pub fn is_planned(&self) -> bool {
        self.next_plan == self.batches
    }

    fn job_mut(&mut self, index: u64) -> &mut Job {
        &mut self.jobs[(index - self.next_deliver) as usize]
    }
}
