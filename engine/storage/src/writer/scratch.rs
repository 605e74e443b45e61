//! The folder for scratch files of an unfinished store.
//!
//! By default it is in the folder of the store. Below `--tmp` it must be safe in a folder for all users, such as `/tmp`,
//! where names that others can guess are unsafe. So its name is random and is recorded in the folder of the store before
//! the scratch folder is created. A scratch folder is used, and later removed, only if no other user can access it.
//!
//! If a user removes the unfinished store of a killed run, its scratch folder stays. The next run of that store removes it:
//! the file `store` in the folder says whose it is. Nobody else can have written it, because only this user can access the
//! folder. A run locks its scratch folder, so no folder of a living run is removed.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use grappa_io::{
    Error, Position, Result,
    durable::{self, FolderLock, Patience},
    regular,
};
use rustix::process::geteuid;
use xxhash_rust::xxh3::xxh3_64;

/// Name of the scratch folder in the folder of an unfinished store.
pub(super) const FOLDER: &str = "scratch";
/// Name of the file with the path of the scratch folder, if that is elsewhere.
pub(super) const PATH_FILE: &str = "scratch-folder";

/// The beginning of the name of a scratch folder that is elsewhere.
const PREFIX: &str = "grappa-scratch-";
/// Name of the file in such a folder that says whose it is.
const OWNER_FILE: &str = "store";
/// The maximum length of that file: a path and two numbers.
const OWNER_BYTES_MAX: u64 = 8 << 10;

/// A scratch folder.
pub(super) struct Scratch {
    pub folder: PathBuf,
    /// Held if it is elsewhere.
    pub lock: Option<FolderLock>,
}

/// Creates the scratch folder of the unfinished store `partial`, or finds the one that an earlier run created.
pub(super) fn create(partial: &Path, tmp: Option<&Path>) -> Result<Scratch> {
    let recorded = recorded(partial)?;
    let scratch = match (recorded, tmp) {
        (Some(scratch), _) => scratch,
        // An earlier run without --tmp has its scratch files here. Another --tmp is an error later, which may change nothing.
        (None, Some(tmp)) if !partial.join(FOLDER).is_dir() => {
            remove_orphans(partial, tmp)?;
            durable::create_folder(tmp)?;
            let tmp = std::path::absolute(tmp).map_err(Error::io("resolve", tmp))?;
            let scratch = tmp.join(format!("{PREFIX}{:016x}", random()?));
            durable::write_file(&partial.join(PATH_FILE), &record(&scratch))?;
            scratch
        }
        (None, _) => {
            let folder = partial.join(FOLDER);
            durable::create_folder(&folder)?;
            return Ok(Scratch { folder, lock: None });
        }
    };
    if !durable::create_private_folder(&scratch)? && !is_private(&scratch) {
        let problem = format!(
            "expected the scratch folder of {}, found something that other users can access",
            partial.display()
        );
        return Err(Error::input(scratch, Position::Whole, problem));
    }
    let lock = FolderLock::acquire(&scratch, Patience::Moment)?;
    durable::write_file(&scratch.join(OWNER_FILE), &owner(partial)?)?;
    Ok(Scratch { folder: scratch, lock })
}

/// The content of the file that says that a scratch folder belongs to `partial`: device and inode of the folder with the
/// store, because paths differ between containers, and the path.
fn owner(partial: &Path) -> Result<Vec<u8>> {
    let path = std::path::absolute(partial).map_err(Error::io("resolve", partial))?;
    let parent = path.parent().expect("a folder is in a folder");
    let metadata = fs::metadata(parent).map_err(Error::io("resolve", parent))?;
    let mut owner = format!("{} {} ", metadata.dev(), metadata.ino()).into_bytes();
    owner.extend_from_slice(path.as_os_str().as_bytes());
    Ok(owner)
}

/// Removes the scratch folders below `tmp` of earlier runs whose unfinished store had the path `partial` and was removed, or
/// lost the path of its scratch folder. `partial` must have no scratch folder.
fn remove_orphans(partial: &Path, tmp: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(tmp) else {
        return Ok(());
    };
    let owner = owner(partial)?;
    for orphan in entries.flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()))
            && is_private(path)
            && regular::read_up_to(&path.join(OWNER_FILE), OWNER_BYTES_MAX).is_ok_and(|found| found == owner)
    }) {
        if let Ok(Some(_lock)) = FolderLock::acquire(&orphan, Patience::None) {
            tracing::info!("{}: removing scratch files that an earlier run left", orphan.display());
            // A folder that stays is no reason not to make the store.
            if let Err(error) = durable::remove_folder(&orphan) {
                tracing::warn!("{error}");
            }
        }
    }
    Ok(())
}

/// The scratch folder of the unfinished store, if it exists elsewhere and only this user can access it.
pub(super) fn elsewhere(partial: &Path) -> Result<Option<PathBuf>> {
    Ok(recorded(partial)?.filter(|scratch| is_private(scratch)))
}

/// The content of the file with the path of the scratch folder: the path, and the checksum of these bytes, because the folder
/// is removed later.
fn record(scratch: &Path) -> Vec<u8> {
    let mut bytes = scratch.as_os_str().as_bytes().to_owned();
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// The path of the scratch folder, if it is not in the folder of the unfinished store.
fn recorded(partial: &Path) -> Result<Option<PathBuf>> {
    let path = partial.join(PATH_FILE);
    let Some(bytes) = regular::read_if_there(&path)? else {
        return Ok(None);
    };
    match bytes.split_last_chunk() {
        Some((scratch, checksum)) if u64::from_le_bytes(*checksum) == xxh3_64(scratch) => {
            Ok(Some(OsString::from_vec(scratch.to_owned()).into()))
        }
        _ => Err(damaged_scratch(&path)),
    }
}

/// Whether this is a folder, not a link to one, that only this user can access.
fn is_private(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0)
}

/// The error about the scratch file `path`, which has lost what an earlier step wrote. A resumed run would need it again.
pub fn damaged_scratch(path: &Path) -> Error {
    let problem = "scratch data is missing or is not what was written";
    Error::input(path, Position::Whole, problem)
}

/// For `map_err` where a scratch file of an earlier step is read: a file that is missing or too short is damaged.
pub fn scratch_error(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) =>
        {
            damaged_scratch(&path)
        }
        error => error,
    }
}

/// A random number that others cannot guess.
fn random() -> Result<u64> {
    let (source, mut bytes) = ("/dev/urandom", [0; 8]);
    fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::io("draw a name from", source))?;
    Ok(u64::from_ne_bytes(bytes))
}
