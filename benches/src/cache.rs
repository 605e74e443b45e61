//! Drops files from the page cache, so that a run reads from the disk.
//!
//! Files are dropped one by one (`posix_fadvise`). That needs no privileges, and programs and libraries stay cached;
//! their loading is not measured. If it has no effect, the whole cache is dropped, if permitted.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use grappa_io::map::{Access, Mapping};
use rustix::fs::Advice;

/// Writes back dirty pages, so that the next run does not wait for them, then drops `files` from the cache. Returns
/// whether that worked: whether at most one page in ten is still cached.
///
/// # Errors
/// If a file can't be opened or mapped.
pub fn forget(files: &[PathBuf]) -> Result<bool> {
    rustix::fs::sync();
    for path in files {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).context("cannot drop a file from the page cache")?;
    }
    if all_cold(files)? {
        return Ok(true);
    }
    drop_all();
    all_cold(files)
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

fn all_cold(files: &[PathBuf]) -> Result<bool> {
    let (mut bytes, mut cached) = (0, 0);
    for path in files {
        let mapping = Mapping::new(&File::open(path)?, path, Access::Random)?;
        bytes += mapping.len();
        cached += mapping.cached_pages()? * rustix::param::page_size();
    }
    Ok(cached <= bytes / 10)
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
        assert!(!all_cold(std::slice::from_ref(&path)).unwrap());
        // A file system in memory drops nothing, and `forget` says so.
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
