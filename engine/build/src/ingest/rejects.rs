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

use crate::ingest::state::StageState;

/// The files of skipped lines, one per worker, among the scratch files of the unfinished store.
pub struct RejectsFolder {
    folder: PathBuf,
}

/// The file of one worker. It is created with the first skipped line.
pub struct RejectsWriter {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

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
            let file = regular::open(&path)?;
            io::copy(&mut file.take(spilled.counts.reject_bytes), &mut &out.file)
                .map_err(Error::io("write", &out.path))?;
        }
        out.finish()
    }
}

impl RejectsWriter {
    /// Appends the skipped lines of a block of `input`. Returns the length of the worker's file in bytes.
    pub fn write(&mut self, input: &Path, rejects: &[Reject]) -> Result<u64> {
        if rejects.is_empty() {
            return Ok(self.bytes);
        }
        let mut lines = Vec::new();
        for reject in rejects {
            writeln!(
                lines,
                "{}\t{}\t{}\t{}",
                input.display(),
                reject.position,
                reject.reason.reason(),
                reject.text
            )
            .map_err(Error::io("write", &self.path))?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(durable::create_file(&self.path)?),
        };
        file.write_all(&lines).map_err(Error::io("write", &self.path))?;
        self.bytes += lines.len() as u64;
        Ok(self.bytes)
    }
}
