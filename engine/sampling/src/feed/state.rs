//! The state that the threads of a feed share. It is protected by one lock, which is held briefly: batches are sampled,
//! planned, read and assembled outside of it.
//!
//! A batch passes through these stages:
//!
//! ```text
//! Sampling -> Sampled -> Planned(window) -> Assembling -> Ready -> delivered
//!                           when window < fetched
//! ```
//!
//! A minibatch that is larger than expected takes memory from the reserve. If too little is left, it waits until
//! batches return theirs: before `Sampled` as `Unreserved`, before `Assembling` as `Planned`.
//!
//! Windows are numbered and read one after another. This file has the transitions, which threads report when they
//! finish a task. [`schedule`] chooses the next task of each thread.

mod queue;
pub(super) mod schedule;
mod stock;

use grappa_io::Error;

pub(super) use self::queue::Stage;
use self::{queue::Queue, stock::Stock};
use super::{
    buffer::FeatureBuffer,
    in_flight::InFlightBatch,
    planner::{Planner, Window},
    pool::geometry::Miss,
    reserve::MemoryReserve,
};

/// The state of planning and reading.
#[derive(Debug)]
struct Planning {
    /// None while a worker has it.
    planner: Option<Box<Planner>>,
    /// A window that is planned and waits for the reader.
    closed: Option<Window>,
    /// Whether the reader is reading a window.
    reading: bool,
    /// Number of windows that were read.
    fetched: u64,
    /// Set if the last row that was planned found no free slot: the first batch that was not assembled at that time.
    full_at: Option<u64>,
    /// Empty, with the capacity of an earlier window, for the misses of the next one.
    misses: Vec<Miss>,
}

/// The consumer of batches.
#[derive(Debug)]
pub(super) struct Consumer {
    /// Whether it waits for the next batch.
    pub waits: bool,
    /// Number of batches that were delivered and have not returned.
    held: u64,
    /// How many of them stay while it waits.
    pub held_while_waiting: u64,
}

/// The shared state.
#[derive(Debug)]
pub(super) struct State {
    queue: Queue,
    pub stock: Stock,
    pub consumer: Consumer,
    /// Number of batches that workers assemble now.
    assembling: usize,
    threads: usize,
    lookahead: usize,
    planning: Option<Planning>,
    is_running: bool,
    /// All threads stop before the end of the epoch.
    pub stop: bool,
    /// A thread panicked.
    pub panicked: bool,
    /// The first error.
    pub failure: Option<Error>,
}

impl State {
    /// `buffers` is None if there are no features. `planner` is None if no row is read on demand.
    pub fn new(
        batches: Vec<InFlightBatch>,
        buffers: Option<Vec<FeatureBuffer>>,
        planner: Option<Planner>,
        threads: usize,
        lookahead: usize,
    ) -> Self {
        Self {
            queue: Queue::default(),
            // One in each of two windows, one that is assembled, one at the consumer. Without windows only the last
            // two.
            stock: Stock::new(batches, buffers, if planner.is_some() { 4 } else { 2 }),
            consumer: Consumer { waits: false, held: 0, held_while_waiting: u64::MAX },
            assembling: 0,
            threads,
            lookahead,
            planning: planner.map(|planner| Planning {
                planner: Some(Box::new(planner)),
                closed: None,
                reading: false,
                fetched: 0,
                full_at: None,
                misses: Vec::new(),
            }),
            is_running: false,
            stop: false,
            panicked: false,
            failure: None,
        }
    }

    /// Panics if an epoch cannot begin.
    pub fn check_idle(&self) {
        assert!(!self.panicked, "a thread of this feed panicked in an earlier epoch");
        assert!(!self.is_running, "another epoch of this feed has not ended");
    }

    /// Begins an epoch of `batches` batches.
    pub fn begin(&mut self, batches: u64) {
        self.queue.begin(batches);
        (self.is_running, self.stop, self.panicked, self.failure) = (true, false, false, None);
        (self.stock.short_for_minibatch, self.stock.short_for_features) = (false, false);
        (self.consumer.waits, self.consumer.held_while_waiting) = (false, u64::MAX);
        if let Some(planning) = &mut self.planning {
            (planning.fetched, planning.full_at) = (0, None);
            planning.planner().begin(self.queue.serial);
        }
    }

    /// Ends an epoch. All its threads have ended without a panic.
    pub fn end(&mut self) {
        for job in self.queue.end() {
            self.stock.batches.extend(job.batch);
            self.stock.buffers.extend(job.buffer);
        }
        self.assembling = 0;
        if let Some(planning) = &mut self.planning {
            // If the epoch ended early, rows of these windows have slots and were never read. The next epoch must not
            // find them in the pool.
            let unread = planning.closed.take();
            planning.planner().forget(unread);
        }
        self.is_running = false;
    }

    /// A worker sampled a batch.
    pub fn sampled(&mut self, index: u64, batch: InFlightBatch) {
        let stage = match self.planning {
            Some(_) => Stage::Sampled,
            None => Stage::Planned(0),
        };
        self.queue.put(index, stage, batch);
    }

    /// A worker sampled a batch that needs memory of the reserve. Returns it if all earlier batches have theirs.
    /// Otherwise it waits for them: memory that it took could not return before they are delivered.
    pub fn in_turn(&mut self, index: u64, batch: InFlightBatch) -> Option<InFlightBatch> {
        let first = self.queue.first(|stage| matches!(stage, Stage::Sampling | Stage::Unreserved));
        if first == Some(index) {
            return Some(batch);
        }
        self.queue.put(index, Stage::Unreserved, batch);
        None
    }

    /// A worker sampled a batch, and the reserve has too little memory for it.
    pub fn unreserved(&mut self, index: u64, batch: InFlightBatch) {
        self.stock.short_for_minibatch = true;
        self.queue.put(index, Stage::Unreserved, batch);
    }

    /// A worker could not assemble a batch, because the reserve has too little memory for its features.
    pub fn not_assembled(&mut self, index: u64, batch: InFlightBatch, buffer: Option<FeatureBuffer>) {
        self.assembling -= 1;
        self.stock.short_for_features = true;
        self.stock.buffers.extend(buffer);
        // Its window was read, like the first one.
        self.queue.put(index, Stage::Planned(0), batch);
    }

    /// Whether memory may still return to the reserve before batch `index` is delivered.
    pub fn memory_may_return(&self, index: u64) -> bool {
        let consumer = &self.consumer;
        index > self.queue.next_deliver || !consumer.waits || consumer.held > consumer.held_while_waiting
    }

    /// The consumer returns a batch.
    pub fn returned(&mut self, batch: InFlightBatch, buffer: Option<FeatureBuffer>, reserve: &MemoryReserve) {
        self.consumer.held -= 1;
        self.stock.take_back(batch, buffer, reserve);
    }

    /// The consumer waits for the next batch. Returns whether a batch that waits for memory can try again.
    pub fn wait_for_batch(&mut self) -> bool {
        let before = std::mem::replace(&mut self.consumer.waits, true);
        !before && (self.stock.short_for_minibatch || self.stock.short_for_features)
    }

    /// A worker planned a batch. `full` is None if all rows have slots. Otherwise a row found no free slot, and `full`
    /// is the number of preceding batches that were not assembled at that time.
    pub fn planned(&mut self, index: u64, batch: InFlightBatch, planner: Box<Planner>, full: Option<u64>) {
        let number = planner.window.number;
        let planning = self.planning.as_mut().expect("a pool has a planner");
        planning.planner = Some(planner);
        planning.full_at = full.map(|pinned| index - pinned);
        match full {
            None => {
                self.queue.next_plan += 1;
                self.queue.put(index, Stage::Planned(number), batch);
            }
            // The rest of its rows is planned later, when preceding batches are assembled and their rows are unpinned.
            Some(_) => {
                self.queue.put(index, Stage::Sampled, batch);
            }
        }
    }

    /// A worker closed the open window. The reader can read it.
    pub fn closed(&mut self, planner: Box<Planner>, window: Window) {
        let planning = self.planning.as_mut().expect("a pool has a planner");
        planning.planner = Some(planner);
        if window.misses.is_empty() {
            planning.misses = window.misses;
            planning.fetched += 1;
        } else {
            planning.closed = Some(window);
        }
    }

    /// The reader read a window.
    pub fn fetched(&mut self, mut misses: Vec<Miss>) {
        misses.clear();
        let planning = self.planning.as_mut().expect("a window was planned");
        planning.misses = misses;
        planning.reading = false;
        planning.fetched += 1;
    }

    /// The reader did not read a window completely, because the feed stops or fails.
    pub fn not_fetched(&mut self, window: Window) {
        let planning = self.planning.as_mut().expect("a window was planned");
        planning.reading = false;
        planning.closed = Some(window);
    }

    pub fn assembled(&mut self, index: u64, batch: InFlightBatch, buffer: Option<FeatureBuffer>) {
        self.assembling -= 1;
        let job = self.queue.put(index, Stage::Ready, batch);
        job.buffer = buffer;
    }

    /// Removes the next batch and its index, if the batch is ready.
    pub fn deliver(&mut self) -> Option<(u64, InFlightBatch, Option<FeatureBuffer>)> {
        let delivered = self.queue.deliver()?;
        self.consumer.held += 1;
        self.consumer.waits = false;
        Some(delivered)
    }

    /// Whether all batches were delivered.
    pub fn is_delivered(&self) -> bool {
        self.queue.next_deliver == self.queue.batches
    }

    /// The stage of the next batch, or None if it was not begun. A planned batch counts as sampled while its window is
    /// open.
    pub fn next_stage(&self) -> Option<Stage> {
        let stage = self.queue.next_stage()?;
        match (stage, &self.planning) {
            (Stage::Planned(window), Some(planning)) if planning.is_open(window) => Some(Stage::Sampled),
            _ => Some(stage),
        }
    }

    /// Whether the rows of a window were read.
    pub fn is_fetched(&self, window: u64) -> bool {
        self.planning.as_ref().is_none_or(|planning| window < planning.fetched)
    }
}

impl Planning {
    fn planner(&mut self) -> &mut Planner {
        self.planner.as_mut().expect("no worker is running")
    }

    /// Whether a window is still being planned.
    fn is_open(&self, window: u64) -> bool {
        window >= self.fetched + u64::from(self.reading) + u64::from(self.closed.is_some())
    }
}
