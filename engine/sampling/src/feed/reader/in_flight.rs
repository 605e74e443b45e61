//! Bookkeeping of the reads in flight.

use std::time::Instant;

use grappa_io::read::FileIndex;

use super::runs::Run;
use crate::feed::stats::Counters;

/// The runs of reads that wait or are in flight. The tag of a read is the index of its run here. So a tag stays small,
/// however many rows a window misses. There are as many entries as there are reads at the same time.
#[derive(Debug, Default)]
pub(super) struct InFlightRuns {
    runs: Vec<Option<Run>>,
    free: Vec<usize>,
}

impl InFlightRuns {
    /// Adds `run`, and returns the tag for its read.
    pub fn add(&mut self, run: Run) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.runs[index] = Some(run);
                index
            }
            None => {
                self.runs.push(Some(run));
                self.runs.len() - 1
            }
        };
        index as u64
    }

    /// Removes the run of the read with this tag. The tag may then be reused.
    ///
    /// # Panics
    /// If no read in flight has the tag.
    pub fn remove(&mut self, tag: u64) -> Run {
        let index = tag as usize;
        let run = self.runs.get_mut(index).and_then(Option::take);
        self.free.push(index);
        run.expect("a read completes once, with the tag that it was submitted with")
    }
}

/// The files that a window reads.
pub(super) struct TouchedFiles(Vec<bool>);

impl TouchedFiles {
    pub fn new(files: usize) -> Self {
        Self(vec![false; files])
    }

    pub fn add(&mut self, file: FileIndex) {
        self.0[file.0 as usize] = true;
    }

    pub fn iter(&self) -> impl Iterator<Item = FileIndex> {
        (0..).map(FileIndex).zip(&self.0).filter_map(|(file, &touched)| touched.then_some(file))
    }
}

/// Sums the time in which reads were in flight, and this time multiplied by their number.
pub(super) struct DepthMeter<'a> {
    counters: &'a Counters,
    since: Instant,
    depth: usize,
}

impl<'a> DepthMeter<'a> {
    pub fn new(counters: &'a Counters) -> Self {
        Self { counters, since: Instant::now(), depth: 0 }
    }

    pub fn start(&mut self, depth: usize) {
        self.since = Instant::now();
        self.depth = depth;
    }

    pub fn stop(&mut self) {
        if self.depth > 0 {
            let seconds = self.since.elapsed().as_secs_f64();
            self.counters.add(|stats| {
                stats.read_seconds += seconds;
                stats.queue_depth += seconds * self.depth as f64;
            });
        }
    }
}
