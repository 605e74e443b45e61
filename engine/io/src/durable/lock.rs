//! Folders that one process at a time works in.
//!
//! The lock is `flock` on the folder itself: no file is left behind, and the kernel lets go of it when the process ends, however
//! it does. A folder may be renamed or removed by the process that holds it, so whoever gets the lock then looks whether the
//! folder still has its name.
//!
//! A file system without such locks (some network file systems) is used without, which is said once in the log.

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

use super::create_folder;
use crate::{Error, Position, Result};

/// How often a lock that another process holds is tried again.
const POLL: Duration = Duration::from_millis(5);
/// How long a lock is tried that is expected to be free. Others may hold it for a moment, to see whether it is.
const A_MOMENT: Duration = Duration::from_secs(1);

/// How long to wait for a folder that another process works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// As long as a process needs that only looks whether the folder is free.
    Moment,
    /// Until the folder is free; the log says that it is waited for.
    Forever,
}

/// A folder that this process works in, and no other does until this is dropped.
#[derive(Debug)]
pub struct FolderLock {
    _folder: File,
}

impl FolderLock {
    /// Locks a folder. None if it is not there, or went away or got another name while it was waited for.
    ///
    /// # Errors
    /// [`Error::Input`] if another process works in it, which says which; or if `path` is no folder.
    pub fn of(path: &Path, patience: Patience) -> Result<Option<Self>> {
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
        let folder = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open the folder", path))?,
        };
        lock(&folder, path, patience)?;
        Ok(is_at(&folder, path)?.then_some(Self { _folder: folder }))
    }

    /// Makes a folder if it is not there, and locks it; waits for as long as another process works in it.
    ///
    /// # Errors
    /// If it can't be made or locked.
    pub fn wait(path: &Path) -> Result<Self> {
        loop {
            create_folder(path)?;
            // Who had it may have finished, and renamed it.
            if let Some(lock) = Self::of(path, Patience::Forever)? {
                return Ok(lock);
            }
        }
    }
}

/// Locks an open file or folder.
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
            // What kernels and network file systems answer that have no such locks, or none on folders.
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
    Error::input(
        path,
        Position::Whole,
        format!("{who}; wait until it has ended, or choose another name"),
    )
}

/// Whether this open file is the one called `path`.
pub(super) fn is_at(file: &File, path: &Path) -> Result<bool> {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let own = file.metadata().map_err(Error::io("look at", path))?;
    Ok(fs::symlink_metadata(path).is_ok_and(|now| id(now) == id(own)))
}

/// The process that holds the lock of a file, if the kernel tells.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let id = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &id)
}

/// The process of a line like `3: FLOCK  ADVISORY  WRITE 1234 fe:01:56789 0 EOF`, by the file's id.
fn holder_in(locks: &str, id: &str) -> Option<u32> {
    let fields = |line: &str| -> Option<u32> {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, "WRITE", pid, file, ..] if file == id => pid.parse().ok(),
            _ => None,
        }
    };
    locks.lines().find_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("folder");
        assert!(
            FolderLock::of(&path, Patience::None).unwrap().is_none(),
            "it is not there"
        );
        let held = FolderLock::wait(&path).unwrap();
        let error = FolderLock::of(&path, Patience::None).unwrap_err().to_string();
        assert!(
            error.contains("another process") && error.contains("choose another name"),
            "{error}"
        );
        drop(held);
        FolderLock::of(&path, Patience::None).unwrap().unwrap();
    }

    #[test]
    fn whoever_waits_for_a_folder_that_gets_another_name_does_not_hold_it() {
        let parent = tempfile::tempdir().unwrap();
        let [path, renamed] = ["folder", "renamed"].map(|name| parent.path().join(name));
        let held = FolderLock::wait(&path).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| FolderLock::of(&path, Patience::Forever).unwrap());
            // Some file systems list their locks under other numbers. The outcome is the same, then, but waited for less.
            for _ in 0..200 {
                if is_waited_for(&path) {
                    break;
                }
                thread::sleep(POLL);
            }
            fs::rename(&path, &renamed).unwrap();
            drop(held);
            assert!(waiting.join().unwrap().is_none());
        });
    }

    /// Whether a process waits for the lock: the kernel lists it as `3: -> FLOCK  ADVISORY  WRITE ...`.
    fn is_waited_for(path: &Path) -> bool {
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks
            .lines()
            .any(|line| line.contains("-> FLOCK") && line.contains(&inode))
    }

    #[test]
    fn a_symbolic_link_is_not_locked_in_place_of_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| parent.path().join(name));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = FolderLock::of(&link, Patience::None).unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }

    #[test]
    fn the_kernel_tells_who_holds_a_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 fe:01:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 14 fe:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:01:77 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:01:77"), Some(13));
        assert_eq!(holder_in(locks, "fe:01:78"), None);
        assert_eq!(holder_in("", "fe:01:77"), None);
    }
}
