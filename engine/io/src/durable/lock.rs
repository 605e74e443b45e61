//! Locks of folders: one process at a time works in a folder.
//!
//! The lock is `flock` on the folder itself. It leaves no file behind, and the kernel releases it when the process ends
//! in any way. The holder may rename or remove the folder. So a process that gets the lock then checks that the folder
//! still has its name.
//!
//! The lock does not keep a user from removing the folder. If another process then makes a folder of the same name, the
//! first process must not write there. So changes of files in a folder that is watched ([`FolderLock::watch`]) first check that
//! the folder is still in its place. This takes about a microsecond.
//!
//! A file system without such locks (some network file systems) is used without them. The log warns once.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Once,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock, major, minor},
    io::Errno,
};

use super::{
    changes::create_folder,
    watch::{Watched, file_id, is_at},
};
use crate::{Error, Position, Result};

/// Interval between attempts to get a lock that another process holds.
const POLL: Duration = Duration::from_millis(5);
/// Time to wait for a lock that should be free. Other processes may hold it for a moment to test it.
const A_MOMENT: Duration = Duration::from_secs(1);

/// How long to wait for a folder that another process works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// Long enough for another process to test whether the folder is free.
    Moment,
    /// Until the folder is free. The log reports the wait.
    Forever,
}

/// A folder that is locked for this process until this is dropped.
#[derive(Debug)]
pub struct FolderLock {
    folder: File,
    watched: Option<Watched>,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Before the lock is released.
        self.watched = None;
        // Closing the folder is not enough: a child that another thread has just forked holds it open until it executes a
        // program. If this fails, the lock is released when the child does.
        let _ = flock(&self.folder, FlockOperation::Unlock);
    }
}

impl FolderLock {
    /// Locks a folder. None if it does not exist, or was removed or renamed while this waited.
    ///
    /// # Errors
    /// [`Error::Input`] if another process works in it, with the process id if the kernel reports it. Also if `path` is
    /// not a folder.
    pub fn acquire(path: &Path, patience: Patience) -> Result<Option<Self>> {
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
        let folder = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open the folder", path))?,
        };
        lock(&folder, path, patience)?;
        Ok(is_at(&folder, path)?.then_some(Self { folder, watched: None }))
    }

    /// Creates a folder if it does not exist, and locks it. Waits while another process works in it.
    ///
    /// # Errors
    /// If it cannot be created or locked.
    pub fn wait(path: &Path) -> Result<Self> {
        loop {
            create_folder(path)?;
            // The previous holder may have finished and renamed it.
            if let Some(lock) = Self::acquire(path, Patience::Forever)? {
                return Ok(lock);
            }
        }
    }

    /// From now on until this is dropped, this module changes no file in the folder, called `path`, if the folder is not in its
    /// place any more.
    ///
    /// # Errors
    /// If the file system does not answer.
    pub fn watch(mut self, path: &Path) -> Result<Self> {
        self.watched = Some(Watched::begin(&self.folder, path)?);
        Ok(self)
    }

    /// Whether `path` still leads to the locked folder. It does not after the folder was removed or renamed. Links are followed.
    ///
    /// # Errors
    /// If the file system does not answer.
    pub fn is_at(&self, path: &Path) -> Result<bool> {
        let own = self.folder.metadata().map_err(Error::io("look at", path))?;
        match fs::metadata(path) {
            Ok(now) => Ok(file_id(&now) == file_id(&own)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("look at", path)(error)),
        }
    }
}

pub(super) fn lock(file: &File, path: &Path, patience: Patience) -> Result<()> {
    let begin = Instant::now();
    let mut operation = FlockOperation::NonBlockingLockExclusive;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => match patience {
                Patience::Moment if begin.elapsed() < A_MOMENT => thread::sleep(POLL),
                Patience::None | Patience::Moment => return Err(busy(file, path)),
                Patience::Forever => {
                    tracing::info!("{}; waiting for it", busy(file, path));
                    operation = FlockOperation::LockExclusive;
                }
            },
            // Errors of kernels and network file systems that have no such locks, or none on folders.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL | Errno::BADF) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(
                        "the file system of {} has no locks: make sure that no other process writes there",
                        path.display()
                    );
                });
                return Ok(());
            }
            Err(error) => return Err(Error::io("lock", path)(error.into())),
        }
    }
}

fn busy(file: &File, path: &Path) -> Error {
    let who = match holder(file) {
        Some(pid) => format!("another process (pid {pid}) is writing here"),
        None => "another process is writing here".to_owned(),
    };
    Error::input(path, Position::Whole, format!("{who}; wait until it has ended, or choose another name"))
}

/// The process that holds the lock of a file, if the kernel reports it.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let id = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &id)
}

/// The process of a line like `3: FLOCK  ADVISORY  WRITE 1234 fe:01:56789 0 EOF`, by the file's id.
fn holder_in(locks: &str, id: &str) -> Option<u32> {
    locks.lines().find_map(|line| -> Option<u32> {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, "WRITE", pid, file, ..] if file == id => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{create_file, remove_file, remove_folder, rename_new, reopen_file, write_file},
        *,
    };

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("folder");
        assert!(FolderLock::acquire(&path, Patience::None).unwrap().is_none(), "the folder does not exist");
        let folder_lock = FolderLock::wait(&path).unwrap();
        let error = FolderLock::acquire(&path, Patience::None).unwrap_err().to_string();
        assert!(error.contains("another process") && error.contains("choose another name"), "{error}");
        drop(folder_lock);
        FolderLock::acquire(&path, Patience::None).unwrap().unwrap();
    }

    #[test]
    fn a_folder_renamed_during_the_wait_is_not_locked() {
        let parent = tempfile::tempdir().unwrap();
        let [path, renamed] = ["folder", "renamed"].map(|name| parent.path().join(name));
        let folder_lock = FolderLock::wait(&path).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| FolderLock::acquire(&path, Patience::Forever).unwrap());
            // Some file systems list their locks under other numbers. The outcome is the same, then, but waited for less.
            for _ in 0..200 {
                if is_waited_for(&path) {
                    break;
                }
                thread::sleep(POLL);
            }
            fs::rename(&path, &renamed).unwrap();
            drop(folder_lock);
            assert!(waiting.join().unwrap().is_none());
        });
    }

    #[test]
    fn nothing_is_changed_in_a_folder_that_replaced_a_watched_one() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("folder");
        let folder_lock = FolderLock::wait(&path).unwrap().watch(&path).unwrap();
        let file = path.join("file");
        drop(create_file(&file).unwrap());
        fs::remove_dir_all(&path).unwrap();
        // Without the check, the folder would be made again, and nobody would hold its lock.
        let taken = |result: Result<()>| assert!(matches!(result, Err(Error::Taken { .. })), "{result:?}");
        taken(create_folder(&path.join("inner")));
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        fs::write(&file, "of another process").unwrap();
        taken(create_file(&file).map(drop));
        taken(reopen_file(&file).map(drop));
        taken(write_file(&file, b"ours"));
        taken(remove_file(&file));
        taken(remove_folder(&path));
        taken(rename_new(&path, &parent.path().join("finished")));
        assert_eq!(fs::read(&file).unwrap(), b"of another process");
        drop(folder_lock);
        remove_folder(&path).unwrap();
    }

    /// Whether a process waits for the lock: the kernel lists it as `3: -> FLOCK  ADVISORY  WRITE ...`.
    fn is_waited_for(path: &Path) -> bool {
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
    }

    #[test]
    fn a_lock_tells_whether_its_folder_still_has_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let [path, renamed, link] = ["folder", "renamed", "link"].map(|name| parent.path().join(name));
        let folder_lock = FolderLock::wait(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(folder_lock.is_at(&path).unwrap() && folder_lock.is_at(&link).unwrap());
        fs::rename(&path, &renamed).unwrap();
        assert!(folder_lock.is_at(&renamed).unwrap() && !folder_lock.is_at(&path).unwrap());
        fs::create_dir(&path).unwrap();
        assert!(!folder_lock.is_at(&path).unwrap() && !folder_lock.is_at(&link).unwrap());
    }

    #[test]
    fn a_symbolic_link_to_a_folder_is_not_locked() {
        let parent = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| parent.path().join(name));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = FolderLock::acquire(&link, Patience::None).unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }

    #[test]
    fn the_holder_of_a_lock_is_found_in_proc_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 fe:01:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 14 fe:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:01:77 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:01:77"), Some(13));
        assert_eq!(holder_in(locks, "fe:01:78"), None);
        assert_eq!(holder_in("", "fe:01:77"), None);
    }
}
