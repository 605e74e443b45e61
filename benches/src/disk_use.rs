//! Disk traffic and scratch files of a child process.

use std::{
    collections::BTreeMap,
    fs,
    os::linux::fs::MetadataExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::child::{Measured, Started};

/// Time between two looks at the open files.
const PERIOD: Duration = Duration::from_millis(20);
/// Bytes of a block, as `stat` counts them.
const BLOCK_BYTES: u64 = 512;

/// Disk traffic and scratch files of a finished program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes that it read from the disk: direct reads, page faults and the readahead of the page cache. Cached bytes do not count.
    pub bytes_read: u64,
    /// Bytes that it wrote. Those of scratch files count, even if the files were removed before they reached the disk.
    pub bytes_written: u64,
    /// Peak size of its unnamed files.
    pub scratch_bytes: u64,
}

/// Runs a program to its end. Its unnamed files on the file system of `folder` are watched.
///
/// # Errors
/// If it can't be started or fails, or the kernel does not count its disk traffic.
pub fn run(command: &mut Command, folder: &Path) -> Result<(Measured, DiskUse)> {
    let device = fs::metadata(folder).with_context(|| format!("cannot find {}", folder.display()))?.st_dev();
    let mut started = Started::new(command)?;
    let id = started.id();
    let ended = AtomicBool::new(false);
    let (output, scratch_bytes) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !ended.load(Ordering::Acquire) {
                peak = peak.max(unnamed_bytes(id, device));
                thread::park_timeout(PERIOD);
            }
            peak
        });
        let output = started.read_output();
        ended.store(true, Ordering::Release);
        watcher.thread().unpark();
        (output, watcher.join().expect("the watcher does not panic"))
    });
    output?;
    // The process has closed its output. Its counters stay until it is waited for.
    let (bytes_read, bytes_written) = transferred(id)?;
    let measured = started.finish()?;
    Ok((measured, DiskUse { bytes_read, bytes_written, scratch_bytes }))
}

/// Bytes that a process has read from the disk and written to it.
fn transferred(id: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{id}/io");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok((counter(&text, "read_bytes")?, counter(&text, "write_bytes")?))
}

/// A counter in the text of `/proc/ID/io`.
fn counter(text: &str, name: &str) -> Result<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
        .with_context(|| format!("expected a line `{name}` in /proc/ID/io, found {text:?}"))
}

/// Bytes on `device` of the open files of a process that have no name.
fn unnamed_bytes(id: u32, device: u64) -> u64 {
    // Files are closed, and the process ends, while this looks.
    let Ok(files) = fs::read_dir(format!("/proc/{id}/fd")) else { return 0 };
    let unnamed: BTreeMap<u64, u64> = files
        .filter_map(|file| fs::metadata(file.ok()?.path()).ok())
        .filter(|file| file.is_file() && file.st_nlink() == 0 && file.st_dev() == device)
        .map(|file| (file.st_ino(), file.st_blocks() * BLOCK_BYTES))
        .collect();
    unnamed.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache;

    #[test]
    fn reads_writes_and_unnamed_files_are_those_of_the_child() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("input");
        fs::write(&input, vec![1; 8 << 20]).unwrap();
        let is_cold = cache::forget(std::slice::from_ref(&input)).unwrap();
        // The shell keeps a removed file open.
        let script = "cat input > scratch; exec 3< scratch; rm scratch; sleep 0.3; cp input output; sync output";
        let mut shell = Command::new("sh");
        let (_, used) = run(shell.current_dir(folder.path()).args(["-c", script]), folder.path()).unwrap();
        assert!(used.scratch_bytes >= 8 << 20, "{used:?}");
        if !is_cold {
            return grappa_skip::skip_part!("the file system is in memory");
        }
        assert!(used.bytes_read >= 8 << 20, "{used:?}");
        assert!(used.bytes_written >= 8 << 20, "{used:?}");
    }
}
