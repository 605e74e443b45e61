//! Assignments on disk: making a new one the one that counts.
//!
//! [`repartition`] does so for a store. [`assign`] and [`keep`] do the same for a training run, in a folder of the run's, so
//! that a store may be read-only and several runs may share it.
//!
//! ```text
//! lock assignments/                       one at a time; a process that is killed lets go
//! g = CURRENT
//! write <g+1>.tmp, sync, rename to <g+1>, sync the folder
//! write CURRENT.tmp, sync, rename to CURRENT, sync the folder         now g+1 counts
//! remove generations but g and g+1, and what killed runs left
//! ```
//!
//! Killed anywhere, by a signal or a power failure, this leaves a store in which g or g+1 counts, and files that the next run
//! removes. Processes that have the store open hold its assignment in memory, and are not disturbed; one that is between
//! reading `CURRENT` and the file it names has until the repartitioning after this one.
//!
//! It costs four syncs, and the time of the table. Nothing is read but the manifest, which the caller has, and `CURRENT`:
//! the number of edges does not matter.

use std::{fs, io::ErrorKind, path::Path};

use grappa_formats::{
    FormatError,
    assignment::{Assignment, Current},
    manifest::Manifest,
};
use grappa_io::{
    Error, Position, Result,
    durable::{self, FolderLock, Patience},
};
use grappa_storage::{assignments::read_current, files};

use super::schedule::{Schedule, assignment, chunk_sizes};

/// What a repartitioning is to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepartitionOptions {
    /// Number of partitions, K; at most as many as chunks.
    pub partitions: u32,
    /// How they change from one super-epoch to the next.
    pub schedule: Schedule,
    /// Selects the random groups.
    pub seed: u64,
    /// The super-epoch. By default the next one: the number of repartitionings before, which is the generation that counts
    /// until now. A `sweep` may start with any.
    pub super_epoch: Option<u64>,
}

/// What a repartitioning made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repartitioned {
    /// The assignment that counts now.
    pub assignment: Assignment,
    /// The super-epoch it is for.
    pub super_epoch: u64,
}

/// The assignment that `options` mean, as generation `generation`, for the store at `store`, which has this manifest. Nothing
/// is written.
///
/// # Errors
/// If there are no partitions or more than chunks; if the store is a slice.
///
/// # Panics
/// If `options` name no super-epoch.
pub fn assign(store: &Path, manifest: &Manifest, options: &RepartitionOptions, generation: u64) -> Result<Assignment> {
    if !manifest.is_whole() {
        let present = manifest.chunks.iter().filter(|chunk| chunk.present).count();
        let what = format!(
            "the store is a slice of its graph, with {present} of its {} chunks, and partitions need them all; generate it \
             without --only-chunks",
            manifest.chunks.len()
        );
        return Err(Error::input(store, Position::Whole, what));
    }
    let super_epoch = options.super_epoch.expect("a super-epoch");
    let sizes = chunk_sizes(manifest);
    assignment(
        options.schedule,
        &sizes,
        options.partitions,
        options.seed,
        super_epoch,
        generation,
    )
}

/// Keeps an assignment in `folder`, which is made if it is not there, as the one that counts. The folder has the files that a
/// store's folder of assignments has.
///
/// # Errors
/// If the disk is full, or the folder can't be written to for another reason.
pub fn keep(folder: &Path, assignment: &Assignment) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let generation = assignment.generation();
    durable::write_file(&folder.join(generation.to_string()), &assignment.encode().0)?;
    let current = Current { generation }.encode();
    durable::write_file(&folder.join(files::CURRENT_NAME), current.as_bytes())?;
    remove_old(folder, generation);
    Ok(())
}

/// Repartitions the store in the folder `store`, which has this manifest.
///
/// # Errors
/// If there are no partitions or more than chunks; if the store is a slice; if another process is repartitioning it; if
/// the folder can't be written to. Then the assignment that counted before does so still.
pub fn repartition(store: &Path, manifest: &Manifest, options: &RepartitionOptions) -> Result<Repartitioned> {
    let lock = lock(store)?;
    let before = read_current(store)?;
    let generation = before.checked_add(1).ok_or_else(|| {
        let what = "there is no generation after 2^64 - 1; write CURRENT anew with a lower one";
        Error::format(store.join(files::CURRENT))(FormatError::invalid(0, what))
    })?;
    let super_epoch = options.super_epoch.unwrap_or(before);
    let options = RepartitionOptions {
        super_epoch: Some(super_epoch),
        ..*options
    };
    let assignment = assign(store, manifest, &options, generation)?;
    keep(&store.join(files::ASSIGNMENTS), &assignment)?;
    drop(lock);
    Ok(Repartitioned {
        assignment,
        super_epoch,
    })
}

/// Holds the folder of assignments until dropped, or until the process ends.
pub(super) fn lock(store: &Path) -> Result<FolderLock> {
    let path = store.join(files::ASSIGNMENTS);
    // Others hold it for some milliseconds: runs that share a store need not fail by that.
    match FolderLock::of(&path, Patience::Moment)? {
        Some(lock) => Ok(lock),
        None => Err(files::missing(Error::io("open", &path)(ErrorKind::NotFound.into()))),
    }
}

/// Removes generations that nobody can want any more, and files that killed runs left.
fn remove_old(folder: &Path, current: u64) {
    let remove = || -> Result<()> {
        let listed = |error| Error::io("list", folder)(error);
        for entry in fs::read_dir(folder).map_err(listed)? {
            let name = entry.map_err(listed)?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_old = files::generation_of(name).is_some_and(|g| g != current && g.checked_add(1) != Some(current));
            if is_old || files::is_left_over(&format!("{}/{name}", files::ASSIGNMENTS)) {
                durable::remove_file(&folder.join(name))?;
            }
        }
        Ok(())
    };
    // The store is as it should be, and the next run tries again.
    if let Err(error) = remove() {
        tracing::warn!("old assignments stay: {error}");
    }
}
