//! The run that a new one replaces with `--force`. It stays in `RUN/replaced` until the new one has finished.
//!
//! Files move one by one, the configuration last, so that a move that was interrupted is continued, and is complete once
//! `RUN/replaced/config.toml` is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable};

use super::names::{CONFIG, REPLACED, is_of_run, refuse_links};
use crate::{Error, Result, own_folder::OwnFolder};

/// Sets the run in `path` aside.
///
/// # Errors
/// If the folder has files that are not a run's, another process works on the run, or files cannot be moved.
pub(super) fn set_aside(path: &Path) -> Result<()> {
    refuse_links(path)?;
    if let Some(other) = names(path)?.into_iter().find(|name| !is_of_run_or_temporary(name)) {
        let problem = "this is no file of a run, so --force does not replace the run in this folder; move the file, or choose another \
                        folder with --out";
        return Err(Error::run_file(&path.join(other), problem));
    }
    // Nobody works on the run while it is moved.
    let _own = OwnFolder::lock(path)?;
    move_files(path)
}

/// Moves the run in `path` into its folder of the replaced run. If a run is there whose successor has not finished, that one stays, and the
/// successor is removed.
fn move_files(path: &Path) -> Result<()> {
    let replaced = path.join(REPLACED);
    durable::create_folder(&replaced)?;
    let keeps_older = replaced.join(CONFIG).exists();
    for name in names(path)?.into_iter().filter(|name| name != Path::new(REPLACED)) {
        let (from, to) = (path.join(&name), replaced.join(&name));
        match (keeps_older, from.is_dir()) {
            (true, true) => durable::remove_folder(&from)?,
            (true, false) => durable::remove_file(&from)?,
            (false, _) => fs::rename(&from, &to).map_err(EngineError::io("move", &from))?,
        }
    }
    durable::sync_folder(&replaced)?;
    Ok(durable::sync_folder(path)?)
}

/// Puts the replaced run back. An error leaves files in `path/replaced`.
pub(super) fn put_back(path: &Path) -> Result<()> {
    let replaced = path.join(REPLACED);
    if !replaced.join(CONFIG).exists() {
        return Ok(());
    }
    for name in names(&replaced)? {
        let from = replaced.join(&name);
        fs::rename(&from, path.join(&name)).map_err(EngineError::io("move", &from))?;
    }
    Ok(durable::remove_folder(&replaced)?)
}

/// The names in a folder, with the configuration last.
fn names(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(EngineError::io("read", folder))?;
    let mut names: Vec<_> = entries.iter().map(|entry| PathBuf::from(entry.file_name())).collect();
    names.sort_by_key(|name| name == Path::new(CONFIG));
    Ok(names)
}

fn is_of_run_or_temporary(name: &Path) -> bool {
    let finished = match name.extension().is_some_and(|extension| extension == "tmp") {
        true => name.with_extension(""),
        false => name.to_owned(),
    };
    is_of_run(finished.as_os_str())
}
