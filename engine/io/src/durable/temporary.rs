//! New files, and the names they have until they are complete.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::{
    kill_point,
    lock::{Patience, is_at, lock},
    remove_file, rename, sync_file,
};
use crate::{Error, Position, Result};

/// What the name of a file ends with until the file is complete.
pub const TEMPORARY: &str = ".tmp";

/// How often a file is removed to make a new one, while another process makes it again and again.
const ATTEMPTS: usize = 100;

/// Makes a file that only this process knows, for reading and writing. What has this name is removed, be it a file that a
/// killed run left or a symbolic link, which is never followed.
///
/// # Errors
/// If it can't be made, or what has its name can't be removed: a folder.
pub fn create_file(path: &Path) -> Result<File> {
    for _ in 0..ATTEMPTS {
        if let Some(file) = create_new(path)? {
            return Ok(file);
        }
        remove_file(path)?;
    }
    Err(made_again(path))
}

/// Makes a file that must not be there; none if it is.
fn create_new(path: &Path) -> Result<Option<File>> {
    kill_point("create", path);
    // `create_new` does not follow a symbolic link: that is one of the things that are there.
    match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        opened => opened.map(Some).map_err(Error::io("create", path)),
    }
}

fn made_again(path: &Path) -> Error {
    let what = "another process makes this file as often as it is removed; end that process, or choose another folder";
    Error::input(path, Position::Whole, what)
}

/// A new file under a temporary name, which no other process writes. Dropped before it has its own name, it is removed.
#[derive(Debug)]
pub struct Temporary<'a> {
    /// The file.
    pub file: File,
    /// Where it is for now.
    pub path: PathBuf,
    /// Where it will be.
    name: &'a Path,
    is_finished: bool,
}

impl<'a> Temporary<'a> {
    /// Begins the file `name`, which must not exist.
    ///
    /// # Errors
    /// If it does, or can't be made, or another process is making it.
    pub fn create(name: &'a Path) -> Result<Self> {
        let temporary = Self::replace(name)?;
        // Only now, because whoever was making it had its temporary name until it had its own.
        if name.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: name.to_owned() });
        }
        Ok(temporary)
    }

    /// Begins the file `name`, which replaces the one that has the name, if there is one.
    ///
    /// # Errors
    /// If it can't be made, or another process is making it.
    pub fn replace(name: &'a Path) -> Result<Self> {
        let path = temporary_name(name);
        for _ in 0..ATTEMPTS {
            let Some(file) = create_new(&path)? else {
                remove_left_over(&path)?;
                continue;
            };
            // Another process may hold it for a moment, if it took it for what a killed run left. Then it is gone.
            lock(&file, &path, Patience::Moment)?;
            if is_at(&file, &path)? {
                return Ok(Self {
                    file,
                    path,
                    name,
                    is_finished: false,
                });
            }
        }
        Err(made_again(&path))
    }

    /// Appends to the file.
    ///
    /// # Errors
    /// If the disk is full, or refuses for another reason.
    pub fn write_all(&self, bytes: &[u8]) -> Result<()> {
        (&self.file).write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// If the disk is full, or refuses for another reason.
    pub fn finish(mut self) -> Result<()> {
        sync_file(&self.file, &self.path)?;
        // Where there are no locks, another process may have put its own in this place.
        if !is_at(&self.file, &self.path)? {
            return Err(made_again(&self.path));
        }
        rename(&self.path, self.name)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_finished && is_at(&self.file, &self.path).unwrap_or(false) {
            // If it cannot be removed, then whatever went wrong says more.
            let _ = remove_file(&self.path);
        }
    }
}

/// Removes a file that a killed process left; fails if the process is still there.
fn remove_left_over(path: &Path) -> Result<()> {
    // A pipe without a writer must not keep this waiting, and a symbolic link is removed as it is.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Kept until the file is removed: its lock tells other processes that it is looked after.
    let _held = match file {
        Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => {
            lock(&file, path, Patience::None)?;
            if !is_at(&file, path)? {
                return Ok(());
            }
            Some(file)
        }
        _ => None,
    };
    remove_file(path)
}

/// Where a file is written before it gets its name: beside it, so that the rename stays in one file system.
pub fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{super::write_file, *};

    #[test]
    fn a_planted_link_is_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, name] = ["victim", "name"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        for name in [&name, &temporary_name(&name)] {
            symlink(&victim, name).unwrap();
        }
        write_file(&name, b"bytes").unwrap();
        assert!(!name.is_symlink());
        assert_eq!(fs::read(&name).unwrap(), b"bytes");
        symlink(&victim, temporary_name(&name)).unwrap();
        create_file(&temporary_name(&name))
            .unwrap()
            .write_all(b"bytes")
            .unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_file_that_another_process_writes_is_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        let first = Temporary::replace(&name).unwrap();
        first.write_all(b"first").unwrap();
        let error = Temporary::replace(&name).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        first.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"first");
        assert!(Temporary::create(&name).unwrap_err().to_string().contains("exists"));
        // That attempt left nothing.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        fs::write(temporary_name(&name), "half a file, and longer than the whole").unwrap();
        let temporary = Temporary::create(&name).unwrap();
        temporary.write_all(b"whole").unwrap();
        temporary.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"whole");
    }

    #[test]
    fn of_many_that_make_a_file_one_does_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        std::thread::scope(|scope| {
            for number in 0..8u8 {
                let name = &name;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let Ok(temporary) = Temporary::replace(name) else {
                            continue;
                        };
                        temporary.write_all(&[number; 100]).unwrap();
                        std::thread::yield_now();
                        temporary.write_all(&[number; 100]).unwrap();
                        temporary.finish().unwrap();
                        let found = fs::read(name).unwrap();
                        assert!(found.len() == 200 && found.iter().all(|&byte| byte == found[0]));
                    }
                });
            }
        });
        assert!(!temporary_name(&name).exists());
    }
}
