//! The file of lines that `--on-bad-line skip` skipped.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use grappa_input::Reject;
use grappa_io::{
    Error, Result,
    durable::{self, Temporary},
    regular,
};
use grappa_storage::writer::{damaged_scratch, scratch_error};

use crate::ingest::state::StageState;

/// The files of skipped lines, one per worker, among the scratch files of the unfinished store.
pub struct RejectsFolder {
    folder: PathBuf,
}

/// The file of one worker. It is created when the first skipped lines are written out.
pub struct RejectsWriter {
    path: PathBuf,
    file: Option<File>,
    /// Lines that are not in the file yet.
    buffer: Vec<u8>,
    /// Length of the file.
    bytes: u64,
}

/// Buffered bytes above which lines are written out.
const BUFFER_BYTES: usize = 64 << 10;

impl RejectsFolder {
    /// The files in the scratch folder `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    fn path(&self, worker: u32) -> PathBuf {
        self.folder.join(format!("rejects-{worker}"))
    }

    /// The file of `worker`, a number that no earlier run recorded in the journal.
    pub fn writer(&self, worker: u32) -> RejectsWriter {
        RejectsWriter {
            path: self.path(worker),
            file: None,
            buffer: Vec::new(),
            bytes: 0,
        }
    }

    /// Writes the recorded part of all workers' files to `target`, which is replaced. Lines of different workers are in no
    /// particular order.
    pub fn collect(&self, spilled: &StageState, target: &Path) -> Result<()> {
        let out = Temporary::replace(target)?;
        out.write_all(b"# file\tline or row\treason\ttext\n")?;
        for (&worker, spilled) in spilled
            .workers
            .iter()
            .filter(|(_, worker)| worker.counts.reject_bytes > 0)
        {
            let path = self.path(worker);
            let file = regular::open(&path).map_err(scratch_error)?;
            let bytes = spilled.counts.reject_bytes;
            let copied = io::copy(&mut file.take(bytes), &mut &out.file).map_err(Error::io("write", &out.path))?;
            if copied < bytes {
                return Err(damaged_scratch(&path));
            }
        }
        out.finish()
    }
}

impl RejectsWriter {
    /// Appends a skipped line of `input`.
    pub fn write(&mut self, input: &Path, reject: &Reject) -> Result<()> {
        writeln!(
            self.buffer,
            "{}\t{}\t{}\t{}",
            input.display(),
            reject.position,
            reject.reason.reason(),
            reject.text
        )
        .map_err(Error::io("write", &self.path))?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes out all lines. Returns the length of the worker's file in bytes.
    pub fn flush(&mut self) -> Result<u64> {
        if self.buffer.is_empty() {
            return Ok(self.bytes);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(durable::create_file(&self.path)?),
        };
        file.write_all(&self.buffer).map_err(Error::io("write", &self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::state::{Counts, Spilled};

    #[test]
    fn a_file_that_is_missing_or_too_short_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (rejects, target) = (RejectsFolder::new(folder.path()), folder.path().join("store.rejects"));
        let mut spilled = StageState::default();
        let counts = Counts {
            reject_bytes: 7,
            ..Counts::default()
        };
        let extents = Vec::new();
        spilled.workers.insert(0, Spilled { extents, counts });
        let path = rejects.path(0);
        std::fs::write(&path, "a line\nof a killed run\n").unwrap();
        rejects.collect(&spilled, &target).unwrap();
        assert!(std::fs::read_to_string(&target).unwrap().ends_with("text\na line\n"));
        std::fs::write(&path, "a line").unwrap();
        for _ in 0..2 {
            let error = rejects.collect(&spilled, &target).unwrap_err();
            assert!(matches!(error, Error::Input { .. }), "{error}");
            assert!(
                error.to_string().contains("rejects-0: scratch data is missing"),
                "{error}"
            );
            _ = std::fs::remove_file(&path);
        }
    }
}
