//! The file of lines that `--on-bad-line skip` skipped.

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use grappa_input::Reject;
use grappa_io::{
    Error, Result,
    durable::{self, Temporary},
    regular,
};
use grappa_storage::writer::{damaged_scratch, scratch_error};
use xxhash_rust::xxh3::Xxh3Default;

use crate::ingest::journal::{Rejects, StageState};

/// The file of one worker. It is created when the first skipped lines are written out.
pub struct RejectsWriter {
    path: PathBuf,
    file: Option<File>,
    /// Lines that are not in the file yet.
    buffer: Vec<u8>,
    bytes: u64,
    /// The checksum of its bytes so far.
    hasher: Xxh3Default,
}

/// Buffered bytes above which lines are written out.
const BUFFER_BYTES: usize = 64 << 10;

/// The file of a worker among the scratch files in `folder`.
fn path(folder: &Path, worker: u32) -> PathBuf {
    folder.join(format!("rejects-{worker}"))
}

/// Writes the recorded part of all workers' files in `folder` to `target`, which is replaced. Lines of different workers are in no
/// particular order.
pub fn collect(folder: &Path, spilled: &StageState, target: &Path) -> Result<()> {
    let out = Temporary::replace(target)?;
    out.write_all(b"# file\tline or row\treason\ttext\n")?;
    for (&worker, spilled) in spilled.workers.iter().filter(|(_, worker)| worker.counts.rejects.bytes > 0) {
        let path = path(folder, worker);
        let file = regular::open(&path).map_err(scratch_error)?;
        let Rejects { bytes, checksum } = spilled.counts.rejects;
        let (mut part, mut buffer, mut hasher) = (file.take(bytes), Vec::new(), Xxh3Default::new());
        while (&mut part).take(BUFFER_BYTES as u64).read_to_end(&mut buffer).map_err(Error::io("read", &path))? > 0 {
            hasher.update(&buffer);
            out.write_all(&buffer)?;
            buffer.clear();
        }
        if part.limit() > 0 || hasher.digest() != checksum {
            return Err(damaged_scratch(&path));
        }
    }
    out.finish()
}

impl RejectsWriter {
    /// The file of `worker`, a number that no earlier run recorded in the journal, in the scratch folder `folder`.
    pub fn new(folder: &Path, worker: u32) -> Self {
        Self { path: path(folder, worker), file: None, buffer: Vec::new(), bytes: 0, hasher: Xxh3Default::new() }
    }

    /// Appends a skipped line of `input`.
    pub fn write(&mut self, input: &Path, reject: &Reject) -> Result<()> {
        writeln!(self.buffer, "{}\t{}\t{}\t{}", input.display(), reject.position, reject.reason.reason(), reject.text)
            .map_err(Error::io("write", &self.path))?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Writes out all lines. Returns the valid part of the worker's file.
    pub fn flush(&mut self) -> Result<Rejects> {
        self.write_out()?;
        Ok(Rejects { bytes: self.bytes, checksum: self.hasher.digest() })
    }

    fn write_out(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(durable::create_file(&self.path)?),
        };
        file.write_all(&self.buffer).map_err(Error::io("write", &self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.hasher.update(&self.buffer);
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::ingest::journal::{Counts, Spilled};

    #[test]
    fn a_file_that_is_missing_too_short_or_changed_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("store.rejects");
        let mut spilled = StageState::default();
        let counts = Counts { rejects: Rejects { bytes: 7, checksum: xxh3_64(b"a line\n") }, ..Counts::default() };
        let extents = Vec::new();
        spilled.workers.insert(0, Spilled { extents, counts });
        let path = path(folder.path(), 0);
        std::fs::write(&path, "a line\nof a killed run\n").unwrap();
        collect(folder.path(), &spilled, &target).unwrap();
        assert!(std::fs::read_to_string(&target).unwrap().ends_with("text\na line\n"));
        for damage in [Some("a line"), Some("a\0line\nof a killed run\n"), None] {
            match damage {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let error = collect(folder.path(), &spilled, &target).unwrap_err();
            assert!(matches!(error, Error::Input { .. }), "{error}");
            assert!(error.to_string().contains("rejects-0: scratch data is missing"), "{error}");
        }
    }
}
