//! Making files and renames survive a power failure.
//!
//! A finished file is never modified. It is written under a temporary name, synced, renamed, and then its folder is
//! synced: the rename is on disk only after that.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Error, Result};

/// What the name of a file ends with until the file is complete.
pub const TEMPORARY: &str = ".tmp";

/// Syncs a folder, so that the creations, renames and removals in it are on disk.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::io("sync", folder))
}

/// The folder a path lies in.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Replaces or creates the small file `path` with `bytes`, so that a crash leaves the old or the new one.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    let mut file = File::create(&temporary).map_err(Error::io("create", &temporary))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(Error::io("write", &temporary))?;
    rename(&temporary, path)
}

/// A new file under a temporary name. Dropped before it has its own, it is removed.
pub struct Temporary<'a> {
    /// The file.
    pub file: File,
    /// Where it is for now.
    pub path: PathBuf,
    /// Where it will be.
    name: &'a Path,
}

impl<'a> Temporary<'a> {
    /// Begins the file `name`, which must not exist.
    ///
    /// # Errors
    /// If it does, or can't be made.
    pub fn create(name: &'a Path) -> Result<Self> {
        if name.exists() {
            return Err(Error::Options(format!(
                "{} exists; remove it or choose another name",
                name.display()
            )));
        }
        let path = temporary_name(name);
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        Ok(Self { file, path, name })
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// If the disk is full, or refuses for another reason.
    pub fn finish(self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("write", &self.path))?;
        rename(&self.path, self.name)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // It is gone if all went well; if it cannot be removed, then whatever went wrong says more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Renames and syncs the folder of the new name. Both names must be in the same file system.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io("rename a finished file to", to))?;
    sync_folder(parent(to))
}

/// Where a file is written before it gets its name: beside it, so that the rename stays in one file system.
pub fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

/// Makes a folder, and holds it until dropped, or until the process ends: waits while another process does.
pub fn lock_folder(folder: &Path) -> Result<File> {
    loop {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let held = File::open(folder).map_err(Error::io("open", folder))?;
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                tracing::info!("{} is being made by another process; waiting for it", folder.display());
                flock(&held, FlockOperation::LockExclusive).map_err(|error| Error::io("lock", folder)(error.into()))?;
            }
            Err(error) => return Err(Error::io("lock", folder)(error.into())),
        }
        // Who had it may have finished, and renamed it.
        let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let now = fs::metadata(folder).map(inode).ok();
        if now == Some(inode(held.metadata().map_err(Error::io("stat", folder))?)) {
            return Ok(held);
        }
    }
}
