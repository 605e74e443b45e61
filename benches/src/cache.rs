//! Drops files from the page cache, so that a run reads from the disk.
//!
//! Files are dropped one by one (`posix_fadvise`). That needs no privileges, and programs and libraries stay cached;
//! their loading is not measured. If it has no effect, the whole cache is dropped, if permitted.

use std::{
    fs::{self, File},
    io::IoSliceMut,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::{
    fs::Advice,
    io::{Errno, ReadWriteFlags},
};

/// Pages that are probed in a file, to find out whether it is cached.
const PROBES: u64 = 32;

/// Writes back dirty pages, so that the next run does not wait for them, then drops `files` from the cache. Returns
/// whether that worked for a sample of pages.
///
/// # Errors
/// If a file can't be opened.
pub fn forget(files: &[PathBuf]) -> Result<bool> {
    rustix::fs::sync();
    let opened = files
        .iter()
        .map(|path| File::open(path).with_context(|| format!("cannot open {}", path.display())))
        .collect::<Result<Vec<_>>>()?;
    forget_opened(&opened)?;
    if all_cold(&opened)? {
        // Probing read a few pages.
        forget_opened(&opened)?;
        return Ok(true);
    }
    drop_all();
    let cold = all_cold(&opened)?;
    forget_opened(&opened)?;
    Ok(cold)
}

/// Drops the whole page cache, folders and inodes. Returns whether that was permitted: it needs root.
pub fn drop_all() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// All files in a folder and in those below it.
///
/// # Errors
/// If a folder can't be read.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

fn forget_opened(files: &[File]) -> Result<()> {
    for file in files {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).context("cannot drop a file from the page cache")?;
    }
    Ok(())
}

/// Whether at most one in ten probed pages is cached.
fn all_cold(files: &[File]) -> Result<bool> {
    let (mut looked_at, mut cached) = (0, 0);
    for file in files {
        let bytes = file.metadata()?.len();
        let step = (bytes / PROBES).max(4096);
        // From the end, because a read starts a read-ahead of the following pages.
        for offset in (0..bytes.div_ceil(step)).rev().map(|probe| probe * step) {
            looked_at += 1;
            cached += u64::from(is_cached(file, offset)?);
        }
    }
    Ok(cached * 10 <= looked_at)
}

fn is_cached(file: &File, offset: u64) -> Result<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        // The file system can't tell: count the page as cached, so that the record says so.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            file.read_at(&mut byte, offset)?;
            Ok(true)
        }
        Err(error) => Err(error).context("cannot look at the page cache"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tmpfs in statfs.
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;

    #[test]
    fn a_file_just_read_is_cached_and_then_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; 8 << 20]).unwrap();
        fs::read(&path).unwrap();
        assert!(!all_cold(&[File::open(&path).unwrap()]).unwrap());
        // A file system in memory drops nothing, and `forget` says so. Probing can start a read-ahead, so pages are
        // dropped again before a second probe.
        let in_memory = rustix::fs::statfs(&path).unwrap().f_type == TMPFS;
        assert_eq!(forget(std::slice::from_ref(&path)).unwrap(), !in_memory);
    }

    #[test]
    fn files_of_nested_folders_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("x"), "").unwrap();
        fs::write(folder.path().join("a/b/y"), "").unwrap();
        assert_eq!(files_below(folder.path()).unwrap().len(), 2);
    }
}
