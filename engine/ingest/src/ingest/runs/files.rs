//! The files of runs, and the writer of a run.

use std::{
    fs::File,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use grappa_formats::dictionary::KeyKind;
use grappa_io::{Error, Result, durable};

/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// The runs of one sort, shared by all threads.
pub struct Runs {
    pub folder: PathBuf,
    pub kind: KeyKind,
    finished: Mutex<FinishedRuns>,
}

#[derive(Default)]
pub struct FinishedRuns {
    /// The number of the next run that is begun.
    next: u32,
    pub runs: Vec<SortedRun>,
}

/// Gets the number of bytes that were read.
pub type Advance<'a> = dyn FnMut(u64) + Send + 'a;
/// Gets an id.
pub type EachId<'a> = dyn FnMut(&[u8]) -> Result<()> + Send + 'a;

/// A finished run.
pub struct SortedRun {
    pub number: u32,
    pub bytes: u64,
    /// The first and the last string. Integers need none.
    ends: [Vec<u8>; 2],
}

impl SortedRun {
    /// The number of bytes with which all strings of `runs` begin. Runs are sorted, so their ends tell it.
    pub fn common(runs: &[Self]) -> usize {
        let mut ends = runs.iter().filter(|run| run.bytes > 0).flat_map(|run| &run.ends);
        let Some(first) = ends.next() else { return 0 };
        ends.fold(first.len(), |common, end| common_prefix(&first[..common], end))
    }
}

/// The number of bytes with which both strings begin.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Runs {
    /// No runs yet. Files of earlier runs in `folder` are replaced.
    pub fn new(folder: &Path, kind: KeyKind) -> Self {
        Self { folder: folder.to_owned(), kind, finished: Mutex::default() }
    }

    pub fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("run-{number}"))
    }

    pub fn finished(&self) -> MutexGuard<'_, FinishedRuns> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn writer(&self) -> Result<RunWriter<'_>> {
        let mut finished = self.finished();
        let number = finished.next;
        finished.next += 1;
        let path = self.path(number);
        let file = durable::create_file(&path)?;
        Ok(RunWriter {
            runs: self,
            number,
            path,
            file,
            buffer: Vec::with_capacity(WRITE_BYTES),
            bytes: 0,
            last: 0..0,
            ends: Default::default(),
        })
    }

    /// Bytes of all finished runs.
    pub fn bytes(&self) -> u64 {
        self.finished().runs.iter().map(|run| run.bytes).sum()
    }
}

/// Writes the ids of a run, ascending.
pub struct RunWriter<'a> {
    runs: &'a Runs,
    number: u32,
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    bytes: u64,
    /// Where the last id is in the buffer.
    last: Range<usize>,
    ends: [Vec<u8>; 2],
}

impl RunWriter<'_> {
    #[inline]
    pub fn push(&mut self, id: &[u8]) -> Result<()> {
        if self.buffer.len() + 2 + id.len() > WRITE_BYTES {
            self.flush()?;
        }
        if self.runs.kind == KeyKind::Strings {
            let length = u16::try_from(id.len()).expect("collectors refuse longer ids");
            self.buffer.extend_from_slice(&length.to_le_bytes());
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(id);
        self.last = start..self.buffer.len();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.runs.kind == KeyKind::Strings && !self.buffer.is_empty() {
            if self.bytes == 0 {
                let length = usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]]));
                self.ends[0] = self.buffer[2..2 + length].to_owned();
            }
            self.ends[1] = self.buffer[self.last.clone()].to_owned();
        }
        self.file.write_all(&self.buffer).map_err(Error::io("write", &self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, and adds the run to the finished ones.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        let run = SortedRun { number: self.number, bytes: self.bytes, ends: self.ends };
        self.runs.finished().runs.push(run);
        Ok(())
    }
}

/// The first eight bytes of an id as an integer with the same order. It decides most comparisons without touching the id.
///
/// Shorter ids are padded with zeros, so ids with equal prefixes must be compared themselves.
#[inline]
pub fn prefix(id: &[u8]) -> u64 {
    match id.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..id.len()].copy_from_slice(id);
            u64::from_be_bytes(bytes)
        }
    }
}
