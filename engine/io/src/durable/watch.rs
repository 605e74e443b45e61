//! Folders that must stay in their place while this process writes there.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use crate::{Error, Result};

/// Path, device and inode of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedFolder {
    path: PathBuf,
    id: (u64, u64),
}

/// Watches a folder until this is dropped.
#[derive(Debug)]
pub(super) struct Watched(WatchedFolder);

impl Watched {
    pub(super) fn begin(folder: &File, path: &Path) -> Result<Self> {
        let metadata = folder.metadata().map_err(Error::io("look at", path))?;
        let own = WatchedFolder { path: path.to_owned(), id: file_id(&metadata) };
        WATCHED.write().unwrap_or_else(PoisonError::into_inner).push(own.clone());
        Ok(Self(own))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = WATCHED.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = watched.iter().position(|other| *other == self.0) {
            watched.swap_remove(at);
        }
    }
}

static WATCHED: RwLock<Vec<WatchedFolder>> = RwLock::new(Vec::new());

/// Fails if `path` is a watched folder, or in one, and the folder was removed or replaced.
pub(super) fn check_watched(path: &Path) -> Result<()> {
    let watched = WATCHED.read().unwrap_or_else(PoisonError::into_inner);
    for folder in watched.iter().filter(|folder| path.starts_with(&folder.path)) {
        let now = fs::symlink_metadata(&folder.path).ok().map(|now| file_id(&now));
        // A process may watch a folder that replaced another one of its own.
        let is_watched = watched.iter().any(|other| other.path == folder.path && Some(other.id) == now);
        if !is_watched {
            return Err(Error::Taken { path: folder.path.clone() });
        }
    }
    Ok(())
}

/// Whether this open file is the one called `path`.
pub(super) fn is_at(file: &File, path: &Path) -> Result<bool> {
    let own = file.metadata().map_err(Error::io("look at", path))?;
    Ok(fs::symlink_metadata(path).is_ok_and(|now| file_id(&now) == file_id(&own)))
}

/// Device and inode of a file or folder.
pub(super) fn file_id(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
