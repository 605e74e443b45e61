//! New files, and their temporary names.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::{
    changes::{begin_change, remove_file, rename, rename_new, sync_file},
    lock::{Patience, lock},
    watch::{check_watched, is_at},
};
use crate::{Error, Position, Result, regular};

/// Suffix of a file's name until the file is complete.
pub const TEMPORARY: &str = ".tmp";

/// Maximum number of attempts to remove a file and create a new one, while another process keeps creating it.
const ATTEMPTS: usize = 100;

/// Creates a file that no other process uses, open for reading and writing. Anything that has the name is removed
/// first: a file that a killed run left, or a symbolic link. A link is never followed.
///
/// # Errors
/// If it cannot be created, or if the existing entry cannot be removed, such as a folder.
pub fn create_file(path: &Path) -> Result<File> {
    for _ in 0..ATTEMPTS {
        if let Some(file) = create_new(path)? {
            return Ok(file);
        }
        remove_file(path)?;
    }
    Err(made_again(path))
}

/// Opens a file to append to it, and creates it if it is missing. Never blocks.
///
/// # Errors
/// If it cannot be opened, or is a symbolic link, a pipe or another special file.
pub fn open_to_append(path: &Path) -> Result<File> {
    begin_change("create", path)?;
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
        .open(path);
    match file {
        Err(_) if path.is_symlink() => {
            let problem = "this is a symbolic link, and a file that is written here is never one: remove the link";
            Err(Error::input(path, Position::Whole, problem))
        }
        opened => {
            let file = opened.map_err(Error::io("open", path))?;
            let metadata = file.metadata().map_err(Error::io("open", path))?;
            regular::require_regular(path, metadata.file_type())?;
            Ok(file)
        }
    }
}

/// Opens a file for writing that this process has created with [`create_file`] and closed.
///
/// # Errors
/// If it cannot be opened, or it is in a watched folder that was removed or replaced.
pub fn reopen_file(path: &Path) -> Result<File> {
    check_watched(path)?;
    OpenOptions::new().write(true).open(path).map_err(Error::io("open", path))
}

/// Creates a file. None if the path exists.
fn create_new(path: &Path) -> Result<Option<File>> {
    begin_change("create", path)?;
    // `create_new` does not follow a symbolic link: a link counts as existing.
    match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        opened => opened.map(Some).map_err(Error::io("create", path)),
    }
}

fn made_again(path: &Path) -> Error {
    let problem =
        "another process makes this file as often as it is removed; end that process, or choose another folder";
    Error::input(path, Position::Whole, problem)
}

/// Replaces or creates the small file `path` with `bytes`. A crash leaves the old or the new file.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = Temporary::replace(path)?;
    temporary.write_all(bytes)?;
    temporary.finish()
}

/// The name of a new file, and whether it may take the place of a file.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The path of the file.
    pub path: &'a Path,
    /// Whether an existing file is replaced, when the new one is complete. Folders, links and special files never are.
    pub replaces: bool,
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Destination<'a> {
    /// A file that must not exist.
    fn from(path: &'a P) -> Self {
        let path = path.as_ref();
        Self { path, replaces: false }
    }
}

impl<'a> Destination<'a> {
    /// Fails if the file exists and is not to be replaced, or is no file. For a check before the work.
    ///
    /// # Errors
    /// [`Error::Exists`], or what is there instead of a file.
    pub fn check(self) -> Result<()> {
        match self.path.symlink_metadata() {
            Ok(_) if !self.replaces => Err(Error::Exists { path: self.path.to_owned() }),
            Ok(found) if !found.is_file() => {
                let problem = "this is not a regular file, and only files are replaced; choose another name";
                Err(Error::input(self.path, Position::Whole, problem))
            }
            _ => Ok(()),
        }
    }

    /// Begins the file.
    ///
    /// # Errors
    /// As [`Destination::check`], and if it cannot be created, or another process is making it.
    pub fn begin(self) -> Result<Temporary<'a>> {
        match self.replaces {
            true => {
                self.check()?;
                Temporary::replace(self.path)
            }
            false => Temporary::create(self.path),
        }
    }
}

/// A new file under a temporary name, locked against other processes. Dropping it before [`Temporary::finish`] removes
/// it.
#[derive(Debug)]
pub struct Temporary<'a> {
    /// The file.
    pub file: File,
    /// Its temporary path.
    pub path: PathBuf,
    /// Its final path.
    name: &'a Path,
    /// Whether it takes the place of a file that exists.
    replaces: bool,
    is_finished: bool,
}

impl<'a> Temporary<'a> {
    /// Begins the file `name`, which must not exist.
    ///
    /// # Errors
    /// If it exists, cannot be created, or another process is making it.
    pub fn create(name: &'a Path) -> Result<Self> {
        let mut temporary = Self::replace(name)?;
        temporary.replaces = false;
        // Check only now: while another process was making the file, it had its temporary name.
        if name.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: name.to_owned() });
        }
        Ok(temporary)
    }

    /// Begins the file `name`, which replaces an existing file.
    ///
    /// # Errors
    /// If it cannot be created, or another process is making it.
    pub fn replace(name: &'a Path) -> Result<Self> {
        let path = temporary_name(name);
        for _ in 0..ATTEMPTS {
            let Some(file) = create_new(&path)? else {
                remove_left_over(&path)?;
                continue;
            };
            // Another process may take the file for one that a killed run left. Then it locks the file for a moment,
            // and removes it.
            lock(&file, &path, Patience::Moment)?;
            if is_at(&file, &path)? {
                return Ok(Self { file, path, name, replaces: true, is_finished: false });
            }
        }
        Err(made_again(&path))
    }

    /// Appends to the file.
    ///
    /// # Errors
    /// If the disk is full, or the write fails for another reason.
    pub fn write_all(&self, bytes: &[u8]) -> Result<()> {
        (&self.file).write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Syncs the file and renames it to its final path.
    ///
    /// # Errors
    /// If the disk is full, or the write fails for another reason. Also if the file must not exist, and another program made it.
    pub fn finish(mut self) -> Result<()> {
        sync_file(&self.file, &self.path)?;
        // On a file system without locks, another process may have put its own file here.
        if !is_at(&self.file, &self.path)? {
            return Err(made_again(&self.path));
        }
        match self.replaces {
            true => rename(&self.path, self.name)?,
            false => rename_new(&self.path, self.name)?,
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_finished && is_at(&self.file, &self.path).unwrap_or(false) {
            // Ignored: the error that led here says more.
            let _ = remove_file(&self.path);
        }
    }
}

/// Removes a file that a killed process left. Fails if the process still runs.
fn remove_left_over(path: &Path) -> Result<()> {
    // Opening a pipe without a writer must not block, and a symbolic link is removed, not followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // Held until the file is removed: the lock shows other processes that it is being handled.
    let _held = match file {
        Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => {
            lock(&file, path, Patience::None)?;
            if !is_at(&file, path)? {
                return Ok(());
            }
            Some(file)
        }
        // Another process has just finished it. A file that is there by now belongs to a third one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => None,
    };
    remove_file(path)
}

/// The temporary path of a file. It is in the same folder, so that the rename stays on one file system.
pub fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

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
        create_file(&temporary_name(&name)).unwrap().write_all(b"bytes").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn only_a_file_is_replaced_and_only_by_a_complete_one() {
        let folder = tempfile::tempdir().unwrap();
        let [name, link, inside] = ["name", "link", "inside"].map(|name| folder.path().join(name));
        let replacing = |path| Destination { path, replaces: true };
        replacing(&name).check().unwrap();
        fs::write(&name, "old").unwrap();
        for begun in [Destination::from(&name).check(), Destination::from(&name).begin().map(drop)] {
            assert!(matches!(begun, Err(Error::Exists { .. })), "{begun:?}");
        }
        let unfinished = replacing(&name).begin().unwrap();
        unfinished.write_all(b"half").unwrap();
        drop(unfinished);
        assert_eq!(fs::read(&name).unwrap(), b"old");
        let complete = replacing(&name).begin().unwrap();
        complete.write_all(b"new").unwrap();
        complete.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"new");
        fs::create_dir(&inside).unwrap();
        symlink(&name, &link).unwrap();
        for path in [&inside, &link] {
            let error = replacing(path).begin().unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(fs::read(&name).unwrap(), b"new");
    }

    #[test]
    fn a_planted_link_or_pipe_is_not_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, name, pipe] = ["victim", "name", "pipe"].map(|name| folder.path().join(name));
        symlink(&victim, &name).unwrap();
        // Neither created nor written to.
        for _ in 0..2 {
            let error = open_to_append(&name).unwrap_err().to_string();
            assert!(error.contains("symbolic link") && error.contains("remove the link"), "{error}");
            fs::write(&victim, "precious").unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        open_to_append(&pipe).unwrap_err();
        let file = folder.path().join("file");
        for _ in 0..2 {
            open_to_append(&file).unwrap().write_all(b"line\n").unwrap();
        }
        assert_eq!(fs::read(&file).unwrap(), b"line\nline\n");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_file_that_another_process_writes_is_not_replaced() {
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
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        let temporary = Temporary::create(&name).unwrap();
        temporary.write_all(b"ours").unwrap();
        fs::write(&name, "of another program").unwrap();
        let error = temporary.finish().unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert_eq!(fs::read(&name).unwrap(), b"of another program");
        assert!(!temporary_name(&name).exists());
    }

    #[test]
    fn the_file_of_a_killed_process_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("name");
        fs::write(temporary_name(&name), "half a file, and longer than the whole").unwrap();
        let temporary = Temporary::create(&name).unwrap();
        temporary.write_all(b"whole").unwrap();
        temporary.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"whole");
    }

    #[test]
    fn one_thread_at_a_time_makes_a_file() {
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
