//! Reads by a few blocking threads: the reference, and the fallback where io_uring is refused.
//!
//! Reads go through the page cache; the kernel reclaims its pages. At most `depth` reads wait or are under way, one per thread. A buffer travels
//! with its read, from the engine to a thread and back.

use std::{
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crossbeam::channel::{Receiver, Sender, unbounded};

use super::{
    files::{Descriptors, Open, ReadFile},
    options::{Options, ReadEngine},
    request::Read,
    transfer::Transfer,
};
use crate::{Error, Result};

/// A pool of threads that read.
pub struct Pread {
    options: Options,
    descriptors: Descriptors,
    /// None only during drop.
    jobs: Option<Sender<PreadJob>>,
    finished: Receiver<FinishedRead>,
    in_flight: usize,
    /// Free buffers.
    spare: Vec<Vec<u8>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct PreadJob {
    transfer: Transfer,
    file: Arc<Open>,
    buffer: Vec<u8>,
}

struct FinishedRead {
    read: Read,
    requested: io::Result<Range<usize>>,
    buffer: Vec<u8>,
}

impl Pread {
    /// An engine that reads `files`. Starts the threads.
    pub fn new(files: Arc<[ReadFile]>, options: Options) -> Result<Self> {
        options.check()?;
        let (jobs, waiting) = unbounded::<PreadJob>();
        let (results, finished) = unbounded();
        let mut engine = Self {
            descriptors: Descriptors::new(files, false),
            jobs: Some(jobs),
            finished,
            in_flight: 0,
            spare: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            options,
        };
        for number in 0..engine.options.threads.min(engine.options.depth) {
            let (waiting, results) = (waiting.clone(), results.clone());
            let (options, stop) = (engine.options.clone(), engine.stop.clone());
            let thread = thread::Builder::new()
                .name(format!("pread {number}"))
                .spawn(move || {
                    for job in waiting {
                        if stop.load(Ordering::Relaxed) || results.send(job.run(&options)).is_err() {
                            break;
                        }
                    }
                })
                .map_err(|error| Error::Thread { source: error })?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }

    /// Waits for the reads in flight, and discards them.
    fn abandon(&mut self) {
        while self.in_flight > 0 {
            let finished = self.finished.recv().expect("the reading threads live as long as the engine");
            self.spare.push(finished.buffer);
            self.in_flight -= 1;
        }
    }

    fn try_submit(&mut self, reads: &[Read]) -> Result<usize> {
        for (count, read) in reads.iter().enumerate() {
            if self.in_flight == self.options.depth {
                return Ok(count);
            }
            self.options.check_read(read, self.descriptors.files().len());
            self.descriptors.check_end(read)?;
            let Some(file) = self.descriptors.get(read.file)? else {
                return Ok(count);
            };
            let transfer = Transfer::new(*read, file.align);
            let mut buffer = self.spare.pop().unwrap_or_default();
            if buffer.len() < transfer.span() {
                buffer.resize(transfer.span(), 0);
            }
            let job = PreadJob { transfer, file, buffer };
            let jobs = self.jobs.as_ref().expect("the channel exists until the engine is dropped");
            jobs.send(job).expect("the reading threads live as long as the engine");
            self.in_flight += 1;
        }
        Ok(reads.len())
    }
}

impl PreadJob {
    fn run(mut self, options: &Options) -> FinishedRead {
        let read = self.transfer.read;
        let requested = self.transfer.run(&mut self.buffer, |offset, part| {
            let answer = self.file.file.read_at(part, offset);
            options.answer(read.file, offset, part, answer)
        });
        // Close the file before the engine gets the result, so that a waiting read finds a free descriptor.
        drop(self.file);
        FinishedRead { read, requested, buffer: self.buffer }
    }
}

impl ReadEngine for Pread {
    fn name(&self) -> &'static str {
        "pread"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize> {
        self.try_submit(reads).inspect_err(|_| self.abandon())
    }

    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        if self.in_flight == 0 {
            return Ok(0);
        }
        let mut next = Some(self.finished.recv().expect("the reading threads live as long as the engine"));
        let mut count = 0;
        while let Some(FinishedRead { read, requested, buffer }) = next {
            self.in_flight -= 1;
            let shown = requested.map(|requested| done(&read, &buffer[requested]));
            self.spare.push(buffer);
            if let Err(source) = shown {
                self.abandon();
                return Err(self.descriptors.error(&read, source));
            }
            count += 1;
            next = self.finished.try_recv().ok();
        }
        Ok(count)
    }
}

impl Drop for Pread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}
