//! Changes of files and folders. Tests can kill the process before each.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

#[cfg(debug_assertions)]
use super::faults;
use super::watch::check_watched;
use crate::{Error, Result};

/// Comes before `action` is done to `path`: a point at which tests can kill the process, and a check that another process has
/// not taken the folder ([`FolderLock::watch`](super::FolderLock::watch)).
///
/// # Errors
/// If `path` is in a folder that is watched, and that folder was removed or replaced.
pub(crate) fn begin_change(action: &str, path: &Path) -> Result<()> {
    kill_point(action, path);
    check_watched(path)
}

/// A point at which tests can kill the process: just before `action` is done to `path`. Does nothing in release builds.
/// Code that changes files without this module calls it too.
pub fn kill_point(action: &str, path: &Path) {
    #[cfg(debug_assertions)]
    faults::reach(action, path);
    #[cfg(not(debug_assertions))]
    let _ = (action, path);
}

/// Syncs a file.
pub fn sync_file(file: &File, path: &Path) -> Result<()> {
    kill_point("sync", path);
    file.sync_all().map_err(Error::io("sync", path))
}

/// Syncs a folder, so that the creations, renames and removals in it are on disk.
pub fn sync_folder(folder: &Path) -> Result<()> {
    kill_point("sync", folder);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))
}

/// The parent folder of a path.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a file another name, `to`, which must not exist. Returns false if these file systems have no such links.
pub fn link(from: &Path, to: &Path) -> Result<bool> {
    begin_change("link", to)?;
    match fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(e) => match e.kind() {
            io::ErrorKind::CrossesDevices
            | io::ErrorKind::TooManyLinks
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported => Ok(false),
            _ => Err(Error::io("link", to)(e)),
        },
    }
}

/// Renames a file, and syncs the folder of the new name. Both names must be on the same file system.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    begin_change("rename", to)?;
    check_watched(from)?;
    fs::rename(from, to).map_err(Error::io("rename a finished file to", to))?;
    sync_folder(parent(to))
}

/// Renames a file or folder, and syncs the folder of the new name. Fails if `to` exists.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    rename_new_as(from, to, |from, to| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE))
}

/// As [`rename_new`]. `rename_exclusively` renames if nothing has the new name, or says that the file system cannot do that at once.
fn rename_new_as(
    from: &Path,
    to: &Path,
    rename_exclusively: impl FnOnce(&Path, &Path) -> rustix::io::Result<()>,
) -> Result<()> {
    begin_change("rename", to)?;
    check_watched(from)?;
    match rename_exclusively(from, to) {
        // Network file systems have no such flag. Look first, then: the caller holds the lock of `from`, so only another program could
        // take the name between the two.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if to.symlink_metadata().is_err() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(Errno::EXIST.into()),
        renamed => renamed.map_err(io::Error::from),
    }
    .map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: to.to_owned() },
        _ => Error::io("give its name to the finished", to)(error),
    })?;
    sync_folder(parent(to))
}

/// Creates a folder and its missing parents.
pub fn create_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    begin_change("create", path)?;
    fs::create_dir_all(path).map_err(Error::io("create the folder", path))
}

/// Creates a folder. Returns false if the path exists.
pub fn create_new_folder(path: &Path) -> Result<bool> {
    create_with(&DirBuilder::new(), path)
}

/// Like [`create_new_folder`], but only the owner may access the folder.
pub fn create_private_folder(path: &Path) -> Result<bool> {
    create_with(DirBuilder::new().mode(0o700), path)
}

fn create_with(builder: &DirBuilder, path: &Path) -> Result<bool> {
    begin_change("create", path)?;
    match builder.create(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Error::io("create the folder", path)(e)),
    }
}

/// Removes a file if it exists.
pub fn remove_file(path: &Path) -> Result<()> {
    begin_change("remove", path)?;
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Removes a folder with its content, if it exists. If `path` is a symbolic link, only the link is removed.
pub fn remove_folder(path: &Path) -> Result<()> {
    begin_change("remove", path)?;
    #[cfg(debug_assertions)]
    faults::remove_slowly(path);
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Removes the content of a folder. The folder itself stays, because its lock keeps other processes out.
pub fn empty_folder(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let entry = entry.map_err(Error::io("list", path))?;
        let kind = entry.file_type().map_err(Error::io("list", path))?;
        match kind.is_dir() {
            true => remove_folder(&entry.path())?,
            false => remove_file(&entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gets_its_name_on_file_systems_without_exclusive_renames() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        for refusal in [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP] {
            fs::create_dir(&from).unwrap();
            rename_new_as(&from, &to, |_, _| Err(refusal)).unwrap();
            assert!(to.is_dir() && !from.exists());
            fs::create_dir(&from).unwrap();
            for error in
                [rename_new_as(&from, &to, |_, _| Err(refusal)).unwrap_err(), rename_new(&from, &to).unwrap_err()]
            {
                assert!(matches!(error, Error::Exists { .. }), "{error}");
            }
            assert!(from.is_dir());
            fs::remove_dir(&from).unwrap();
            fs::remove_dir(&to).unwrap();
        }
    }
}
