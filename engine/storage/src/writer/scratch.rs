//! The folder for scratch files of an unfinished store.
//!
//! By default it is in the folder of the store. Below `--tmp` it must be safe in a folder for all users, such as `/tmp`,
//! where names that others can guess are unsafe. So its name is random and is recorded in the folder of the store before
//! the scratch folder is created. A scratch folder is used, and later removed, only if no other user can access it.

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

use grappa_io::{Error, Position, Result, durable, regular};
use rustix::process::geteuid;

/// Name of the scratch folder in the folder of an unfinished store.
pub(super) const FOLDER: &str = "scratch";
/// Name of the file with the path of the scratch folder, if that is elsewhere.
pub(super) const PATH_FILE: &str = "scratch-folder";

/// Creates the scratch folder of the unfinished store `partial`, or finds the one that an earlier run created.
pub(super) fn create(partial: &Path, tmp: Option<&Path>) -> Result<PathBuf> {
    let recorded = recorded(partial)?;
    let scratch = match (recorded, tmp) {
        (Some(scratch), _) => scratch,
        (None, Some(tmp)) => {
            durable::create_folder(tmp)?;
            let tmp = std::path::absolute(tmp).map_err(Error::io("resolve", tmp))?;
            let scratch = tmp.join(format!("grappa-scratch-{:016x}", random()?));
            durable::write_file(&partial.join(PATH_FILE), scratch.as_os_str().as_bytes())?;
            scratch
        }
        (None, None) => {
            let scratch = partial.join(FOLDER);
            durable::create_folder(&scratch)?;
            return Ok(scratch);
        }
    };
    if !durable::create_private_folder(&scratch)? && !is_private(&scratch) {
        let what = format!(
            "expected the scratch folder of {}, found something that other users can access; remove that unfinished store \
             and start again",
            partial.display()
        );
        return Err(Error::input(scratch, Position::Whole, what));
    }
    Ok(scratch)
}

/// The path of the scratch folder, if it is not in the folder of the unfinished store.
pub(super) fn recorded(partial: &Path) -> Result<Option<PathBuf>> {
    let path = partial.join(PATH_FILE);
    Ok(regular::read_if_there(&path)?.map(|bytes| OsString::from_vec(bytes).into()))
}

/// Whether this is a folder, not a link to one, that only this user can access.
pub(super) fn is_private(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0)
}

/// The error about the scratch file `path`, which has lost what an earlier step wrote. A resumed run would need it again.
pub fn damaged_scratch(path: &Path) -> Error {
    let what = "scratch data is missing or is not what was written; remove the unfinished store and start again";
    Error::input(path, Position::Whole, what)
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
