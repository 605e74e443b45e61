//! Assignments on disk: replaces the current assignment by a new one, atomically.
//!
//! [`repartition`] does this in a store. [`assign`] and [`keep`] do the same in a folder of a training run, so the
//! store may be read-only and several runs can share it.
//!
//! ```text
//! lock assignments/                       one process at a time; the lock ends with the process
//! g = CURRENT
//! write <g+1>.tmp, sync, rename to <g+1>, sync the folder
//! write CURRENT.tmp, sync, rename to CURRENT, sync the folder         g+1 is current from here on
//! remove all generations except g and g+1, and leftovers of killed runs
//! ```
//!
//! If the process is killed or the power fails at any point, either g or g+1 is current, and the next run removes the
//! leftovers. Processes that have the store open hold their assignment in memory and are not disturbed. A process that
//! has read `CURRENT` but not yet the file that it names has time until the second repartitioning from then: generation
//! g is kept for it.
//!
//! The cost is four syncs plus the table. Only `CURRENT` is read; the caller has the manifest. The number of edges does
//! not matter.

use std::{fs, io::ErrorKind, path::Path};

use grappa_formats::{
    FormatError,
    assignment::{Assignment, Current},
};
use grappa_io::{
    Error, Result,
    durable::{self, FolderLock, Patience},
};
use grappa_storage::{assignments::read_current, files};

use super::{
    schedule::{Schedule, assignment},
    tables::ChunkTables,
};

/// Options of a repartitioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepartitionOptions {
    /// Number of partitions, K. At most the number of chunks.
    pub partitions: u32,
    /// How partitions change between super-epochs.
    pub schedule: Schedule,
    /// Seed of the random groups of chunks.
    pub seed: u64,
    /// The super-epoch. The default is the current generation, which is the number of repartitionings so far. A `sweep`
    /// may start with any super-epoch.
    pub super_epoch: Option<u64>,
}

/// Result of a repartitioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repartitioned {
    /// The new, current assignment.
    pub assignment: Assignment,
    /// Its super-epoch.
    pub super_epoch: u64,
}

/// Computes the assignment for `options`, as generation `generation`. Writes nothing. The chunks of each node type are dealt on their own,
/// so that each partition has a part of each type that has as many chunks.
///
/// # Errors
/// If there are no partitions, or no node type has as many chunks.
///
/// # Panics
/// If `options` has no super-epoch.
pub fn assign<'a>(
    tables: impl Into<ChunkTables<'a>>,
    options: &RepartitionOptions,
    generation: u64,
) -> Result<Assignment> {
    let super_epoch = options.super_epoch.expect("the caller sets the super-epoch");
    let sizes = tables.into().sizes();
    assignment(options.schedule, &sizes, options.partitions, options.seed, super_epoch, generation)
}

/// Writes `assignment` to `folder` as the current one. Creates the folder if it does not exist. Its files are the files of
/// the folder `assignments` of a store.
///
/// # Errors
/// If the folder cannot be written, for example because the disk is full.
pub fn keep(folder: &Path, assignment: &Assignment) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let generation = assignment.generation();
    durable::write_file(&folder.join(generation.to_string()), &assignment.encode().0)?;
    let current = Current { generation }.encode();
    durable::write_file(&folder.join(files::CURRENT_NAME), current.as_bytes())?;
    // The new assignment is in place. The next run tries to remove these files again.
    if let Err(error) = remove_old(folder, generation) {
        tracing::warn!("old assignments are not removed: {error}");
    }
    Ok(())
}

/// Repartitions the store or graph in the folder `store`, whose chunks are `tables`.
///
/// # Errors
/// If there are no partitions, or more partitions than chunks, if another process is repartitioning the store, or if
/// the folder cannot be written. The previous assignment then remains current.
pub fn repartition<'a>(
    store: &Path,
    tables: impl Into<ChunkTables<'a>>,
    options: &RepartitionOptions,
) -> Result<Repartitioned> {
    let lock = lock(store)?;
    let before = read_current(store)?;
    let generation = before.checked_add(1).ok_or_else(|| {
        let problem = "there is no generation after 2^64 - 1; replace CURRENT by one that names a lower generation";
        Error::format(store.join(files::CURRENT))(FormatError::invalid(0, problem))
    })?;
    let super_epoch = options.super_epoch.unwrap_or(before);
    let options = RepartitionOptions { super_epoch: Some(super_epoch), ..*options };
    let assignment = assign(tables, &options, generation)?;
    keep(&store.join(files::ASSIGNMENTS), &assignment)?;
    drop(lock);
    Ok(Repartitioned { assignment, super_epoch })
}

/// Locks the folder of assignments until the result is dropped or the process ends.
pub(super) fn lock(store: &Path) -> Result<FolderLock> {
    let path = store.join(files::ASSIGNMENTS);
    // Others hold the lock for some milliseconds. Waiting that long lets runs that share a store succeed.
    match FolderLock::acquire(&path, Patience::Moment)? {
        Some(lock) => Ok(lock),
        None => Err(files::missing(Error::io("open", &path)(ErrorKind::NotFound.into()))),
    }
}

/// Removes generations that no process can need any more, and leftovers of killed runs.
fn remove_old(folder: &Path, current: u64) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let name = entry.map_err(Error::io("list", folder))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_old = files::generation_of(name).is_some_and(|g| g != current && g.checked_add(1) != Some(current));
        if is_old || files::is_left_over(&format!("{}/{name}", files::ASSIGNMENTS)) {
            durable::remove_file(&folder.join(name))?;
        }
    }
    Ok(())
}
