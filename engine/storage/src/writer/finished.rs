//! Checks files that an earlier process finished, before a resumed run relies on them.
//!
//! A file is recorded after it was synced. It may still be damaged when the run is resumed: by a failing disk, or by a power
//! failure on a disk that does not keep its promises. Nothing else reads such a file before the store is complete. Cost: the
//! files are read once, on all threads. Files that the process itself writes are not read again.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use grappa_formats::{container::FileKind, manifest::FileEntry};
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
    workers,
};

use crate::files;

/// Files that the manifest of the store in `root` lists, with their kinds.
///
/// # Errors
/// If no store has a file of that name.
pub fn with_kinds(root: &Path, files: Vec<FileEntry>) -> Result<Vec<(FileEntry, FileKind)>> {
    files.into_iter().map(|file| files::expect_kind(root, &file).map(|kind| (file, kind))).collect()
}

/// Compares files below `root` with their entries and their checksums. Returns the paths of files that are missing, damaged or
/// cannot be read, sorted, each with its first problem.
///
/// # Errors
/// If the caller asks to stop.
pub fn damaged(
    root: &Path,
    files: &[(FileEntry, FileKind)],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<(String, Error)>> {
    let found = Mutex::new(Vec::new());
    if !files.is_empty() {
        progress.stage("checking finished files", Some(files.iter().map(|(file, _)| file.bytes).sum()));
    }
    let all: Vec<_> = files.iter().collect();
    workers::for_each(threads, &all, |(file, kind)| {
        check_stopped(progress)?;
        let opened = files::open_as(root, file, *kind);
        if let Err(error) = opened.and_then(|opened| opened.verify_all(|bytes| progress.advance(bytes, 0))) {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.push((file.path.clone(), error));
        }
        Ok(())
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// As [`damaged`], where a damaged file cannot be written again: the error is the first problem.
///
/// # Errors
/// Also if a file is damaged.
pub fn expect_sound(
    root: &Path,
    files: &[(FileEntry, FileKind)],
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    match damaged(root, files, threads, progress)?.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// As [`damaged`], where damaged files are written again. The log names each.
///
/// # Errors
/// If the caller asks to stop.
pub fn to_rewrite(
    root: &Path,
    files: &[(FileEntry, FileKind)],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    let damaged = damaged(root, files, threads, progress)?;
    for (_, error) in &damaged {
        tracing::warn!("{error}; an earlier run had finished this file, and it is written again");
    }
    Ok(damaged.into_iter().map(|(path, _)| path).collect())
}
