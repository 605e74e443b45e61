//! What the threads of a feed share, and which of them does what next. Everything here is done under one lock, and none
//! of it takes long: batches are sampled, planned, read and assembled outside.
//!
//! A batch goes this way; windows are numbered, and read one after another:
//!
//! ```text
//! Sampling -> Sampled -> Planned(window) -> Assembling -> Ready -> delivered
//!                           when window < fetched
//! ```

use std::collections::VecDeque;

use grappa_io::Error;

use super::{
    buffer::FeatureBuffer,
    planner::{Planner, Window},
    pool::Miss,
};
use crate::sample::Minibatch;

/// A window with fewer misses than these is not worth waiting for more: they take a disk some hundredths of a second.
const SPARSE_MISSES: usize = 4096;

/// A minibatch and memory for the places of its rows, and how much of it is paid for.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub minibatch: Minibatch,
    pub places: Vec<u32>,
    /// Bytes that the budget has for it.
    pub bytes: u64,
}

/// How far a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A worker samples it.
    Sampling,
    /// It has its nodes, and perhaps some of their places.
    Sampled,
    /// It has all places; the rows are there when this window is fetched.
    Planned(u64),
    /// A worker assembles it.
    Assembling,
    /// It can be delivered.
    Ready,
}

/// A batch under way.
#[derive(Debug)]
struct Job {
    stage: Stage,
    /// None while a worker has it.
    sheet: Option<Sheet>,
    buffer: Option<FeatureBuffer>,
}

/// What a worker is to do.
#[derive(Debug)]
pub(super) enum Work {
    Sample {
        index: u64,
        sheet: Sheet,
    },
    Plan {
        index: u64,
        sheet: Sheet,
        planner: Box<Planner>,
        /// Its number of all batches since the feed was made.
        serial: u64,
        /// How many of the batches before it are not assembled.
        pinned: u64,
    },
    /// End the window that is being planned.
    Close {
        planner: Box<Planner>,
        next_batch: u64,
        misses: Vec<Miss>,
    },
    Assemble {
        index: u64,
        sheet: Sheet,
        buffer: Option<FeatureBuffer>,
    },
    /// Nothing now.
    Wait,
    /// Nothing any more.
    End,
}

/// What the reader is to do.
#[derive(Debug)]
pub(super) enum Reading {
    Window(Window),
    Wait,
    End,
}

/// How batches are planned.
#[derive(Debug)]
struct Planning {
    /// None while a worker has it.
    planner: Option<Box<Planner>>,
    /// A planned window, until the reader takes it.
    closed: Option<Window>,
    /// Whether the reader is at work.
    reading: bool,
    /// Windows that were read.
    fetched: u64,
    /// The first batch that was not assembled when the last row found no place.
    full_at: Option<u64>,
    /// Memory for the misses of the next window.
    misses: Vec<Miss>,
}

/// What the threads share.
#[derive(Debug)]
pub(super) struct State {
    /// Batches of the epoch.
    batches: u64,
    /// Batches of the epochs before.
    serial: u64,
    /// The next one to be sampled, planned, delivered.
    next_sample: u64,
    next_plan: u64,
    next_deliver: u64,
    /// The batches from `next_deliver` to `next_sample`.
    jobs: VecDeque<Job>,
    sheets: Vec<Sheet>,
    /// Empty buffers; none at all if there are no features.
    buffers: Vec<FeatureBuffer>,
    with_features: bool,
    assembling: usize,
    threads: usize,
    lookahead: usize,
    planning: Option<Planning>,
    stop: bool,
    panicked: bool,
    failure: Option<Error>,
}

impl State {
    /// `buffers` is none if there are no features, `planner` if no row is read as it is wanted.
    pub fn new(
        sheets: Vec<Sheet>,
        buffers: Option<Vec<FeatureBuffer>>,
        planner: Option<Planner>,
        threads: usize,
        lookahead: usize,
    ) -> Self {
        Self {
            batches: 0,
            serial: 0,
            next_sample: 0,
            next_plan: 0,
            next_deliver: 0,
            jobs: VecDeque::new(),
            sheets,
            with_features: buffers.is_some(),
            buffers: buffers.unwrap_or_default(),
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
            stop: false,
            panicked: false,
            failure: None,
        }
    }

    /// Begins an epoch of `batches` batches.
    pub fn begin(&mut self, batches: u64) {
        (self.batches, self.next_sample, self.next_plan, self.next_deliver) = (batches, 0, 0, 0);
        (self.stop, self.panicked, self.failure) = (false, false, None);
        if let Some(planning) = &mut self.planning {
            (planning.fetched, planning.full_at) = (0, None);
            planning.planner().begin(self.serial);
        }
    }

    /// Ends an epoch whose threads have ended without a panic.
    pub fn end(&mut self) {
        for job in self.jobs.drain(..) {
            self.sheets.extend(job.sheet);
            self.buffers.extend(job.buffer);
        }
        self.assembling = 0;
        if let Some(planning) = &mut self.planning {
            let unread = planning.closed.take();
            planning.planner().forget(unread);
        }
        self.serial += self.next_sample;
    }

    /// What a worker should do now.
    pub fn work(&mut self) -> Work {
        if self.stop {
            return Work::End;
        }
        if let Some(close) = self.close() {
            return close;
        }
        let assemble = self.assemblable();
        let (plan, sample) = (self.can_plan(), self.can_sample());
        if let Some(at) = assemble
            && !(self.reader_starves() && (plan || sample) && self.assembling >= self.threads / 2)
        {
            return self.assemble(at);
        }
        if plan {
            return self.plan();
        }
        if sample {
            return self.sample();
        }
        let all_done = self.next_sample == self.batches && self.jobs.iter().all(|job| job.stage == Stage::Ready);
        if all_done { Work::End } else { Work::Wait }
    }

    /// What the reader should do now.
    pub fn reading(&mut self) -> Reading {
        if self.stop {
            return Reading::End;
        }
        let all_planned = self.next_plan == self.batches;
        let Some(planning) = &mut self.planning else {
            return Reading::End;
        };
        if let Some(window) = planning.closed.take() {
            planning.reading = true;
            return Reading::Window(window);
        }
        let open = planning
            .planner
            .as_ref()
            .is_none_or(|planner| planner.window().batches > 0);
        if all_planned && !open {
            Reading::End
        } else {
            Reading::Wait
        }
    }

    /// A window was read.
    pub fn fetched(&mut self, mut misses: Vec<Miss>) {
        misses.clear();
        let planning = self.planning.as_mut().expect("only a planned window is read");
        planning.misses = misses;
        planning.reading = false;
        planning.fetched += 1;
    }

    /// A window was not read, because all is stopped, or about to be.
    pub fn not_fetched(&mut self, window: Window) {
        let planning = self.planning.as_mut().expect("only a planned window is read");
        planning.reading = false;
        planning.closed = Some(window);
    }

    /// A batch was sampled.
    pub fn sampled(&mut self, index: u64, sheet: Sheet) {
        let stage = match self.planning {
            Some(_) => Stage::Sampled,
            None => Stage::Planned(0),
        };
        self.put(index, stage, sheet);
    }

    /// A batch was planned: as a whole, or until a row found no place while `pinned` batches before it were not assembled.
    pub fn planned(&mut self, index: u64, sheet: Sheet, planner: Box<Planner>, full: Option<u64>) {
        let number = planner.window().number;
        let planning = self.planning.as_mut().expect("there is a planner");
        planning.planner = Some(planner);
        planning.full_at = full.map(|pinned| index - pinned);
        match full {
            None => {
                self.next_plan += 1;
                self.put(index, Stage::Planned(number), sheet);
            }
            Some(_) => {
                self.put(index, Stage::Sampled, sheet);
            }
        }
    }

    /// A batch was assembled.
    pub fn assembled(&mut self, index: u64, sheet: Sheet, buffer: Option<FeatureBuffer>) {
        self.assembling -= 1;
        let job = self.put(index, Stage::Ready, sheet);
        job.buffer = buffer;
    }

    /// The next batch, if it is ready.
    pub fn deliver(&mut self) -> Option<(u64, Sheet, Option<FeatureBuffer>)> {
        if self.jobs.front()?.stage != Stage::Ready {
            return None;
        }
        let job = self.jobs.pop_front()?;
        let index = self.next_deliver;
        self.next_deliver += 1;
        Some((index, job.sheet.expect("a ready batch has its sheet"), job.buffer))
    }

    /// Whether all batches were delivered.
    pub fn is_delivered(&self) -> bool {
        self.next_deliver == self.batches
    }

    /// How far the next batch is; a planned one whose window is open counts as sampled. None if it is not begun.
    pub fn next_stage(&self) -> Option<Stage> {
        let stage = self.jobs.front()?.stage;
        match (stage, &self.planning) {
            (Stage::Planned(window), Some(planning)) if planning.is_open(window) => Some(Stage::Sampled),
            _ => Some(stage),
        }
    }

    /// Whether the rows of a window have been read.
    pub fn is_fetched(&self, window: u64) -> bool {
        self.planning.as_ref().is_none_or(|planning| window < planning.fetched)
    }

    /// Takes back what a batch was delivered in.
    pub fn take_back(&mut self, sheet: Sheet, buffer: Option<FeatureBuffer>) {
        self.sheets.push(sheet);
        self.buffers.extend(buffer);
    }

    /// Ends everything; the first failure counts.
    pub fn fail(&mut self, error: Error) {
        self.stop = true;
        self.failure.get_or_insert(error);
    }

    /// Ends everything, because a thread panicked.
    pub fn panicked(&mut self) {
        (self.stop, self.panicked) = (true, true);
    }

    /// Ends everything.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// Whether everything ends before its time.
    pub fn is_stopped(&self) -> bool {
        self.stop
    }

    /// Why everything ended, once.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Whether a thread panicked.
    pub fn has_panicked(&self) -> bool {
        self.panicked
    }

    fn put(&mut self, index: u64, stage: Stage, sheet: Sheet) -> &mut Job {
        let job = &mut self.jobs[(index - self.next_deliver) as usize];
        job.stage = stage;
        job.sheet = Some(sheet);
        job
    }

    /// The first batch that has not all its rows in a buffer: those from here on need their slots.
    fn unassembled(&self) -> u64 {
        let ready = self.jobs.iter().take_while(|job| job.stage == Stage::Ready).count();
        self.next_deliver + ready as u64
    }

    /// The first batch that could be assembled.
    fn assemblable(&self) -> Option<usize> {
        if self.with_features && self.buffers.is_empty() {
            return None;
        }
        self.jobs
            .iter()
            .position(|job| matches!(job.stage, Stage::Planned(window) if self.is_fetched(window)))
    }

    fn assemble(&mut self, at: usize) -> Work {
        self.assembling += 1;
        let job = &mut self.jobs[at];
        job.stage = Stage::Assembling;
        Work::Assemble {
            index: self.next_deliver + at as u64,
            sheet: job.sheet.take().expect("a planned batch has its sheet"),
            buffer: self.buffers.pop(),
        }
    }

    fn can_sample(&self) -> bool {
        self.next_sample < self.batches && !self.sheets.is_empty()
    }

    fn sample(&mut self) -> Work {
        let index = self.next_sample;
        self.next_sample += 1;
        self.jobs.push_back(Job {
            stage: Stage::Sampling,
            sheet: None,
            buffer: None,
        });
        let sheet = self.sheets.pop().expect("there is one");
        Work::Sample { index, sheet }
    }

    fn can_plan(&self) -> bool {
        let Some(planning) = &self.planning else {
            return false;
        };
        let Some(planner) = &planning.planner else {
            return false;
        };
        let sampled = self
            .jobs
            .get((self.next_plan - self.next_deliver) as usize)
            .is_some_and(|job| job.stage == Stage::Sampled && job.sheet.is_some());
        let room = match planning.full_at {
            // Rows have become free since.
            Some(full_at) => self.unassembled() > full_at,
            None => !planner.is_full(self.lookahead),
        };
        sampled && room
    }

    fn plan(&mut self) -> Work {
        let (index, unassembled) = (self.next_plan, self.unassembled());
        let job = &mut self.jobs[(index - self.next_deliver) as usize];
        let planning = self.planning.as_mut().expect("there is a planner");
        Work::Plan {
            index,
            sheet: job.sheet.take().expect("a sampled batch has its sheet"),
            planner: planning.planner.take().expect("no other worker has it"),
            serial: self.serial + index,
            pinned: index - unassembled,
        }
    }

    /// Whether the reader has nothing to do, and will have.
    fn reader_starves(&self) -> bool {
        self.next_plan < self.batches
            && self
                .planning
                .as_ref()
                .is_some_and(|planning| !planning.reading && planning.closed.is_none())
    }

    /// Ends the open window, if the reader has nothing else to do, and waiting for more batches would not help or not pay.
    fn close(&mut self) -> Option<Work> {
        let all_planned = self.next_plan == self.batches;
        let no_more = self.next_plan == self.next_sample && self.sheets.is_empty();
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
            || planner.window().misses.len() <= SPARSE_MISSES;
        if planner.window().batches == 0 || !due {
            return None;
        }
        Some(Work::Close {
            planner: planning.planner.take()?,
            next_batch: self.serial + self.next_plan,
            misses: std::mem::take(&mut planning.misses),
        })
    }

    /// A window was ended, and can be read.
    pub fn closed(&mut self, planner: Box<Planner>, window: Window) {
        let planning = self.planning.as_mut().expect("there is a planner");
        planning.planner = Some(planner);
        if window.misses.is_empty() {
            planning.misses = window.misses;
            planning.fetched += 1;
        } else {
            planning.closed = Some(window);
        }
    }
}

impl Planning {
    fn planner(&mut self) -> &mut Planner {
        self.planner.as_mut().expect("no worker is at work")
    }

    /// Whether a window is still being planned.
    fn is_open(&self, window: u64) -> bool {
        window >= self.fetched + u64::from(self.reading) + u64::from(self.closed.is_some())
    }
}
