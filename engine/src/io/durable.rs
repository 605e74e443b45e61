//! Making files and renames survive a power failure.
//!
//! A finished file is never modified. It is written under a temporary name, synced, renamed, and then its folder is
//! synced: the rename is on disk only after that.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
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
