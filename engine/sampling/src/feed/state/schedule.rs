//! Chooses the next task of each thread.
//!
//! A worker takes the first task that is possible:
//!
//! ```text
//! close the open window     if the reader is idle and waiting for more batches does not pay
//! reserve memory for the first batch that waits for it
//! assemble the oldest batch whose rows are in memory
//! plan the next batch       if the window is not full
//! sample the next batch     if there is memory for it
//! ```
//!
//! Assembling comes first, because it unpins rows and returns memory. But if the reader is idle, only half of the
//! workers assemble, and the others prepare the next window.

use super::{Stage, State};
use crate::feed::{
    buffer::FeatureBuffer,
    in_flight::InFlightBatch,
    planner::{Planner, Window},
    pool::geometry::Miss,
};

/// A window with at most this many misses is not worth waiting for. A disk reads them in some hundredths of a second.
const SPARSE_MISSES: usize = 4096;

/// The next task of a worker. It contains the memory that the task needs.
#[derive(Debug)]
pub(in crate::feed) enum WorkerTask {
    Sample {
        index: u64,
        batch: InFlightBatch,
    },
    /// Reserve memory for a sampled batch.
    Reserve {
        index: u64,
        batch: InFlightBatch,
    },
    Plan {
        index: u64,
        batch: InFlightBatch,
        planner: Box<Planner>,
        /// The number of the batch since the feed was opened.
        serial: u64,
        /// Number of preceding batches that are not assembled.
        pinned: u64,
    },
    Close {
        planner: Box<Planner>,
        /// The first batch of the next window, counted since the feed was opened.
        next_batch: u64,
        /// Memory for the misses of the next window.
        misses: Vec<Miss>,
    },
    Assemble {
        index: u64,
        batch: InFlightBatch,
        buffer: Option<FeatureBuffer>,
    },
    /// Nothing to do until the state changes.
    Wait,
    /// Nothing to do in this epoch any more.
    End,
}

/// The next task of the reader.
#[derive(Debug)]
pub(in crate::feed) enum ReaderTask {
    Read(Window),
    Wait,
    End,
}

impl State {
    pub fn worker_task(&mut self) -> WorkerTask {
        if self.stop {
            return WorkerTask::End;
        }
        if let Some(close) = self.close() {
            return close;
        }
        if let Some(reserve) = self.reserve() {
            return reserve;
        }
        let assemble = self.assemblable();
        let (plan, sample) = (self.can_plan(), self.can_sample());
        if let Some(index) = assemble
            && !(self.reader_starves() && (plan || sample) && self.assembling >= self.threads / 2)
        {
            return self.assemble(index);
        }
        if plan {
            return self.plan();
        }
        if sample {
            return self.sample();
        }
        if self.queue.unassembled() == self.queue.batches { WorkerTask::End } else { WorkerTask::Wait }
    }

    pub fn reader_task(&mut self) -> ReaderTask {
        if self.stop {
            return ReaderTask::End;
        }
        let all_planned = self.queue.is_planned();
        let Some(planning) = &mut self.planning else {
            return ReaderTask::End;
        };
        if let Some(window) = planning.closed.take() {
            planning.reading = true;
            return ReaderTask::Read(window);
        }
        let open = planning.planner.as_ref().is_none_or(|planner| planner.window.batches > 0);
        if all_planned && !open { ReaderTask::End } else { ReaderTask::Wait }
    }

    /// The first batch that waits for memory before it is planned.
    pub fn first_unreserved(&self) -> Option<u64> {
        self.queue.first(|stage| stage == Stage::Unreserved)
    }

    /// Tries again to reserve memory for a batch, if all earlier ones have theirs, and if memory returned since or none
    /// will return.
    fn reserve(&mut self) -> Option<WorkerTask> {
        let index = self.first_unreserved()?;
        let sampling = self.queue.first(|stage| stage == Stage::Sampling);
        if sampling.is_some_and(|sampling| sampling < index) {
            return None;
        }
        if self.stock.short_for_minibatch && self.memory_may_return(index) {
            return None;
        }
        let batch = self.queue.take(index, Stage::Sampling);
        Some(WorkerTask::Reserve { index, batch })
    }

    /// The oldest batch that can be assembled.
    fn assemblable(&self) -> Option<u64> {
        if self.stock.lacks_buffer() {
            return None;
        }
        self.queue
            .first(|stage| matches!(stage, Stage::Planned(window) if self.is_fetched(window)))
            .filter(|&index| !self.stock.short_for_features || !self.memory_may_return(index))
    }

    fn assemble(&mut self, index: u64) -> WorkerTask {
        self.assembling += 1;
        WorkerTask::Assemble {
            index,
            batch: self.queue.take(index, Stage::Assembling),
            buffer: self.stock.buffers.pop(),
        }
    }

    fn can_sample(&self) -> bool {
        !self.queue.is_sampled() && !self.stock.batches.is_empty() && self.first_unreserved().is_none()
    }

    /// Whether workers sample batches, or will without waiting for anyone.
    #[cfg(test)]
    pub fn is_sampling(&self) -> bool {
        !self.stop && (self.can_sample() || self.queue.first(|stage| stage == Stage::Sampling).is_some())
    }

    fn sample(&mut self) -> WorkerTask {
        let batch = self.stock.batches.pop().expect("can_sample was true");
        let index = self.queue.push();
        WorkerTask::Sample { index, batch }
    }

    fn can_plan(&self) -> bool {
        let Some(planning) = &self.planning else {
            return false;
        };
        let Some(planner) = &planning.planner else {
            return false;
        };
        let next = self.queue.next_planned();
        let sampled = next.is_some_and(|job| job.stage == Stage::Sampled && job.batch.is_some());
        let room = match planning.full_at {
            // Planning would fail again until another batch is assembled, which unpins rows.
            Some(full_at) => self.queue.unassembled() > full_at,
            None => !planner.is_full(self.lookahead),
        };
        sampled && room
    }

    fn plan(&mut self) -> WorkerTask {
        let (index, unassembled) = (self.queue.next_plan, self.queue.unassembled());
        let planning = self.planning.as_mut().expect("can_plan was true");
        WorkerTask::Plan {
            index,
            batch: self.queue.take(index, Stage::Sampled),
            planner: planning.planner.take().expect("can_plan was true"),
            serial: self.queue.serial + index,
            pinned: index - unassembled,
        }
    }

    /// Whether the reader is idle and more windows will come.
    fn reader_starves(&self) -> bool {
        !self.queue.is_planned()
            && self.planning.as_ref().is_some_and(|planning| !planning.reading && planning.closed.is_none())
    }

    /// Closes the open window if the reader is idle and more batches cannot be added to it, or do not pay.
    fn close(&mut self) -> Option<WorkerTask> {
        let all_planned = self.queue.is_planned();
        self.planning.as_ref()?;
        // All memory for batches is in use, so batches of this window must be assembled before more can be sampled or
        // planned.
        let no_more = match self.queue.next_planned() {
            None => self.stock.batches.is_empty(),
            Some(job) => job.stage == Stage::Unreserved,
        };
        let lookahead = self.lookahead;
        let planning = self.planning.as_mut()?;
        if planning.reading || planning.closed.is_some() {
            return None;
        }
        let planner = planning.planner.as_ref()?;
        let due = all_planned
            || no_more
            || planning.full_at.is_some()
            || planner.is_full(lookahead)
            || planner.window.misses.len() <= SPARSE_MISSES;
        if planner.window.batches == 0 || !due {
            return None;
        }
        Some(WorkerTask::Close {
            planner: planning.planner.take()?,
            next_batch: self.queue.serial + self.queue.next_plan,
            misses: std::mem::take(&mut planning.misses),
        })
    }
}
