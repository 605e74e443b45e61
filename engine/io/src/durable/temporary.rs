//! New files, and their temporary names until they are complete.

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

/// The end of a file's name until the file is complete.
pub const TEMPORARY: &str = ".tmp";

/// How often to remove a file that another process creates again and again.
const ATTEMPTS: usize = 100;

/// Creates a file for reading and writing that only this process uses. It removes whatever has this name: a file that a killed
/// run left, or a symbolic link, which is never followed.
///
/// # Errors
/// If the file cannot be created, or the name belongs to something that cannot be removed, such as a folder.
pub fn create_file(path: &Path) -> Result<File> {
    for _ in 0..ATTEMPTS {
        if let Some(file) = create_new(path)? {
            return Ok(file);
        }
        remove_file(path)?;
    }
    Err(made_again(path))
}

/// Creates a file that must not exist. None if it exists.
fn create_new(path: &Path) -> Result<Option<File>> {
    kill_point("create", path);
    // `create_new` does not follow a symbolic link: a link counts as an existing file.
    match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        opened => opened.map(Some).map_err(Error::io("create", path)),
    }
}

fn made_again(path: &Path) -> Error {
    let what = "another process keeps creating this file; end that process, or choose another folder";
    Error::input(path, Position::Whole, what)
}

/// A new file under a temporary name, which no other process writes. If it is dropped before it gets its final name, it is
/// removed.
#[derive(Debug)]
pub struct Temporary<'a> {
    /// The file.
    pub file: File,
    /// Its temporary path.
    pub path: PathBuf,
    /// Its final path.
    name: &'a Path,
    is_finished: bool,
}

impl<'a> Temporary<'a> {
    /// Begins the file `name`, which must not exist.
    ///
    /// # Errors
    /// If it exists or cannot be created, or another process is writing it.
    pub fn create(name: &'a Path) -> Result<Self> {
        let temporary = Self::replace(name)?;
        // Checked after the temporary name is ours: another process that was writing the file had held that name until its
        // file was complete.
        if name.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: name.to_owned() });
        }
        Ok(temporary)
    }

    /// Begins the file `name`, which replaces an existing file of that name.
    ///
    /// # Errors
    /// If it cannot be created, or another process is writing it.
    pub fn replace(name: &'a Path) -> Result<Self> {
        let path = temporary_name(name);
        for _ in 0..ATTEMPTS {
            let Some(file) = create_new(&path)? else {
                remove_left_over(&path)?;
                continue;
            };
            // Another process may lock it for a moment, if it takes it for the remains of a killed run. Then it removes it.
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
        // On a file system without locks, another process may have put its own file in this place.
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
            // An error here is ignored: the error that led here says more.
            let _ = remove_file(&self.path);
        }
    }
}

/// Removes a file that a killed process left. Fails if the process still runs.
fn remove_left_over(path: &Path) -> Result<()> {
    // Opening must not block on a pipe without a writer. A symbolic link is removed without following it.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Held until the file is removed: the lock tells other processes that this one takes care of it.
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

/// The temporary path of a file. It is in the same folder, so the rename stays within one file system.
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
