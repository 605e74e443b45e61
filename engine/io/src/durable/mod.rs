//! Changes of the file system that survive a crash.
//!
//! A finished file is never modified. It is written under a temporary name, synced and renamed. Then its folder is
//! synced; only after that is the rename on disk.
//!
//! Every creation, sync, rename and removal that a resumed run depends on goes through this module, for three reasons.
//! Creating a file never follows a symbolic link ([`create_file`], [`Temporary`]). A folder or file that is being
//! written belongs to one process ([`FolderLock`], [`Temporary`]), and a process whose store was removed while it grew
//! changes nothing there any more ([`FolderLock::watch`]). Tests can kill the process before each of these calls (`faults`).

mod changes;
#[cfg(debug_assertions)]
mod faults;
mod lock;
mod temporary;
mod watch;

pub(crate) use self::changes::begin_change;
pub use self::{
    changes::{
        create_folder, create_new_folder, create_private_folder, empty_folder, kill_point, link, parent, remove_file,
        remove_folder, rename, rename_new, sync_file, sync_folder,
    },
    lock::{FolderLock, Patience},
    temporary::{
        Destination, TEMPORARY, Temporary, create_file, open_to_append, reopen_file, temporary_name, write_file,
    },
};
