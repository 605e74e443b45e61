//! Fault injection, for tests of code that reads.
//!
//! A [`FaultInjector`] sits between an engine and the kernel. It alters results of the kernel, and the engine's own
//! code must handle them. [`Faults`] is the injector that tests use. [`Reordered`] wraps a whole engine, and delivers
//! completions late and in another order. All of it depends on a seed and the sequence of calls only.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::random::draw_at;
use rustix::io::Errno;

pub use super::request::FaultInjector;
use super::{
    options::{Options, ReadEngine},
    request::{FileIndex, Read},
};
use crate::Result;

/// Overwrites bytes that a failed read must not have delivered.
const SPOILED: u8 = 0xEE;

/// Short reads, temporary refusals and a permanent error. The default has no faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Selects the answers to alter, and the faults.
    pub seed: u64,
    /// About one in `short_one_in` answers is cut short, by any number of bytes; 0 for none. The rest is overwritten.
    pub short_one_in: u32,
    /// About one in `refuse_one_in` answers and entries into io_uring is EINTR, EAGAIN or ENOBUFS; 0 for none.
    pub refuse_one_in: u32,
    /// The answer with this number and all later ones are EIO.
    pub fail_from: Option<u64>,
    /// Number of first answers that are EINVAL: a file system that refuses direct reads, until the engine reads through
    /// the page cache.
    pub refuse_first: u64,
}

/// Faults, and the number of calls so far.
#[derive(Debug, Default)]
struct InjectedFaults {
    faults: Faults,
    answers: AtomicU64,
    entries: AtomicU64,
}

impl Faults {
    /// Engine options that inject these faults.
    pub fn meet(self, options: Options) -> Options {
        Options {
            fault_injector: Some(Arc::new(InjectedFaults { faults: self, ..InjectedFaults::default() })),
            ..options
        }
    }
}

impl FaultInjector for InjectedFaults {
    fn answer(&self, _file: FileIndex, _offset: u64, part: &mut [u8], answer: io::Result<usize>) -> io::Result<usize> {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let chance = |salt| random(self.faults.seed, 8 * number + salt);
        if self.faults.fail_from.is_some_and(|from| number >= from) {
            part.fill(SPOILED);
            return Err(Errno::IO.into());
        }
        if number < self.faults.refuse_first {
            part.fill(SPOILED);
            return Err(Errno::INVAL.into());
        }
        if one_in(self.faults.refuse_one_in, chance(0)) {
            part.fill(SPOILED);
            return Err(refusal(chance(1)));
        }
        match answer {
            Ok(count @ 2..) if one_in(self.faults.short_one_in, chance(2)) => {
                // Any length, but often a multiple of a block, as real short reads are.
                let mut short = 1 + (chance(3) % (count as u64 - 1)) as usize;
                if chance(4).is_multiple_of(2) && short > 512 {
                    short -= short % 512;
                }
                part[short..].fill(SPOILED);
                Ok(short)
            }
            answer => answer,
        }
    }

    fn enter(&self) -> io::Result<()> {
        let number = self.entries.fetch_add(1, Ordering::Relaxed);
        if one_in(self.faults.refuse_one_in, random(!self.faults.seed, 2 * number)) {
            return Err(refusal(random(!self.faults.seed, 2 * number + 1)));
        }
        Ok(())
    }
}

fn one_in(count: u32, random: u64) -> bool {
    count > 0 && random.is_multiple_of(u64::from(count))
}

fn refusal(random: u64) -> io::Error {
    [Errno::INTR, Errno::AGAIN, Errno::NOBUFS][(random % 3) as usize].into()
}

/// Draw `number` of the sequence of `seed`.
fn random(seed: u64, number: u64) -> u64 {
    draw_at(seed, number.wrapping_add(1))
}

/// An engine that delivers completions late and in another order.
pub struct Reordered {
    engine: Box<dyn ReadEngine>,
    seed: u64,
    steps: u64,
    /// Completed reads that are not delivered yet.
    delayed: VecDeque<(Read, Vec<u8>)>,
}

impl Reordered {
    /// Holds back completions of `engine`, at random.
    pub fn new(engine: Box<dyn ReadEngine>, seed: u64) -> Self {
        Self { engine, seed, steps: 0, delayed: VecDeque::new() }
    }

    fn random(&mut self) -> u64 {
        self.steps += 1;
        random(self.seed, self.steps)
    }
}

impl ReadEngine for Reordered {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn options(&self) -> &Options {
        self.engine.options()
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight() + self.delayed.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize> {
        let count = reads.len().min(self.options().depth - self.in_flight());
        self.engine.submit(&reads[..count]).inspect_err(|_| self.delayed.clear())
    }

    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        let mut completed = Vec::new();
        if self.delayed.is_empty() || self.random().is_multiple_of(2) {
            let result = self.engine.complete(&mut |read, bytes| completed.push((*read, bytes.to_vec())));
            result.inspect_err(|_| self.delayed.clear())?;
        }
        for entry in completed {
            let place = self.random() as usize % (self.delayed.len() + 1);
            self.delayed.insert(place, entry);
        }
        if self.delayed.is_empty() {
            return Ok(0);
        }
        let count = 1 + self.random() as usize % self.delayed.len();
        for (read, bytes) in self.delayed.drain(..count) {
            done(&read, &bytes);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Choice, ReadFile, open};

    #[test]
    fn faults_come_as_often_as_asked() {
        let faults = Faults { short_one_in: 4, refuse_one_in: 5, fail_from: Some(1000), ..Faults::default() };
        let injector = faults.meet(Options::default()).fault_injector.unwrap();
        let (mut short, mut refused) = (0, 0);
        for _ in 0..1000 {
            let mut part = [1; 4096];
            match injector.answer(FileIndex(0), 0, &mut part, Ok(4096)) {
                Ok(4096) => assert_eq!(part, [1; 4096]),
                Ok(count) => {
                    assert!(part[..count] == [1; 4096][..count] && part[count..].iter().all(|&byte| byte != 1));
                    short += 1;
                }
                Err(error) => {
                    assert_ne!(Errno::from_io_error(&error), Some(Errno::IO));
                    refused += 1;
                }
            }
        }
        assert!((150..250).contains(&short) && (150..250).contains(&refused), "{short} {refused}");
        let error = injector.answer(FileIndex(0), 0, &mut [0; 10], Ok(10)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
        assert!((0..100).any(|_| injector.enter().is_err()));
        assert!((0..100).any(|_| injector.enter().is_ok()));
    }

    #[test]
    fn completions_are_held_back_and_reordered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0; 100]).unwrap();
        let files = [ReadFile::open(&path, None).unwrap()].into();
        let mut engine = Reordered::new(open(Choice::Pread, files, Options::default()).unwrap(), 1);
        let reads: Vec<_> = (0..100).map(|tag| Read { file: FileIndex(0), offset: tag, length: 1, tag }).collect();
        assert_eq!(engine.submit(&reads).unwrap(), 100);
        let (mut order, mut calls) = (Vec::new(), 0);
        while engine.in_flight() > 0 {
            engine.complete(&mut |read, _| order.push(read.tag)).unwrap();
            calls += 1;
        }
        assert!(calls > 1, "they come in parts");
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
