//! Bandwidth of the disk, measured in the same run as the bench, for its floor.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use grappa_io::direct::DirectFile;

use crate::cache;

/// Enough for a steady rate, and read in seconds.
const BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES: usize = 4 << 20;

/// Sequential bandwidths in bytes per second.
#[derive(Debug, Clone, Copy)]
pub struct Disk {
    /// Reading a file that is not cached.
    pub read: f64,
    /// Writing and syncing a new file.
    pub write: f64,
}

impl Disk {
    /// Drops `file` from the page cache, reads its start (at most 1 GiB), and writes as much to a file beside it. Reads go past
    /// the page cache, as Grappa's do, if the file system allows that.
    ///
    /// # Errors
    /// If a read or write fails.
    pub fn measure(file: &Path) -> Result<Self> {
        cache::forget(&[file.to_owned()])?;
        let mut block = vec![0; BLOCK_BYTES];
        let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        let direct = DirectFile::from_file(&input);
        let bytes = input.metadata()?.len().min(BYTES_MAX);
        let begin = Instant::now();
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            let block = &mut block[..(bytes - at).min(BLOCK_BYTES as u64) as usize];
            match &direct {
                Some(direct) => direct.read_exact_at(block, at)?,
                None => input.read_exact_at(block, at)?,
            }
        }
        let read = bytes as f64 / begin.elapsed().as_secs_f64();

        let scratch = Scratch(file.with_extension("bandwidth"));
        let mut output = File::create(&scratch.0).with_context(|| format!("cannot create {}", scratch.0.display()))?;
        let begin = Instant::now();
        for _ in 0..bytes.div_ceil(BLOCK_BYTES as u64) {
            output.write_all(&block)?;
        }
        output.sync_all()?;
        let written = bytes.next_multiple_of(BLOCK_BYTES as u64);
        let write = written as f64 / begin.elapsed().as_secs_f64();
        Ok(Self { read, write })
    }

    /// Seconds for reading and then writing this many bytes.
    pub fn seconds(&self, read_bytes: u64, written_bytes: u64) -> f64 {
        read_bytes as f64 / self.read + written_bytes as f64 / self.write
    }
}

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error leaves a file in a scratch folder, and can't be reported here.
        let _ = fs::remove_file(&self.0);
    }
}
