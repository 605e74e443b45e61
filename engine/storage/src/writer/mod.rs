//! Writes a store: a folder that grows under a temporary name and is renamed when it is complete.
//!
//! ```text
//! NAME.grappa.partial/     while it grows; locked by the process that writes it
//!     journal              the steps that are finished
//!     chunk-<i>/...        complete files, synced one by one
//!     scratch/...          spill files; with --tmp they are in a private folder below that,
//!     scratch-folder       and this file has its path; a file there says whose it is
//!     manifest             written last: its presence means that the commit has begun
//! NAME.grappa/             after one rename
//! ```
//!
//! A process that dies before the rename leaves a folder that no program accepts as a store. An existing store is never
//! touched.
//!
//! An interrupted commit is repeated. Once the manifest has its name, all other files of the store are complete and on disk,
//! and no scratch file is needed any more. So a resumed run that finds a manifest commits and does nothing else
//! ([`StoreFolder::committing`]). Before that, the journal says what is finished.
//!
//! - [`StoreFolder`] begins, resumes and commits a store;
//! - [`AdjacencyWriter`] encodes the adjacency lists of a chunk;
//! - [`same_options`] and [`not_begun`] check the first record of a journal;
//! - [`finished`] compares files that an earlier process finished with their checksums;
//! - [`scratch_error`] and [`damaged_scratch`] are errors that a resumed run would meet again. [`StoreFolder::failed`] adds how
//!   to start again.

mod adjacency;
mod chunks;
pub mod finished;
mod folder;
mod scratch;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Position, Result};

pub use self::{
    adjacency::AdjacencyWriter,
    folder::{Begun, StoreFolder},
    scratch::{damaged_scratch, scratch_error},
};

/// Name of the journal in the folder of an unfinished store.
pub const JOURNAL: &str = "journal";

/// Fails unless a run that resumes the store in `folder` has the same options as the run that began it. Both maps have the
/// name and value of each option that the store depends on, as on the command line. The value of a flag is empty.
pub fn same_options(folder: &Path, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Result<()> {
    let Some(name) = before.keys().chain(now.keys()).find(|name| before.get(*name) != now.get(*name)) else {
        return Ok(());
    };
    let [before, now] = [before, now].map(|options| match options.get(name) {
        None => format!("no {name}"),
        Some(value) if value.is_empty() => name.clone(),
        Some(value) => format!("{name} {value}"),
    });
    Err(Error::conflict(
        format!("cannot resume {}: the run that began it had {before}, this one has {now}", folder.display()),
        "give the same options, or remove that folder and start again",
    ))
}

/// The error about a journal that does not begin with the options of its run.
pub fn not_begun(journal: &Path) -> Error {
    let what = "the journal does not begin with the options of a run";
    Error::input(journal, Position::Whole, what)
}

/// The folder in which the store `store` grows until it is complete.
pub fn partial_folder(store: &Path) -> PathBuf {
    with_suffix(store, ".partial")
}

/// Where the work of an unfinished store is, for messages: its folder `partial`, and its scratch folder if that is elsewhere.
pub fn kept_in(partial: &Path) -> String {
    match scratch::elsewhere(partial) {
        Ok(Some(scratch)) => format!("{} and {}", partial.display(), scratch.display()),
        _ => partial.display().to_string(),
    }
}

/// How to start the unfinished store `partial` again, with the command that removes it and its scratch files.
fn start_again(partial: &Path) -> String {
    let mut words = vec!["rm".to_owned(), "-r".to_owned(), partial.display().to_string()];
    if let Ok(Some(scratch)) = scratch::elsewhere(partial) {
        words.push(scratch.display().to_string());
    }
    // No path has a zero byte, because the system takes C strings.
    let remove = shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "));
    format!("start again: run `{remove}`, then the same command without --resume")
}

/// `path` with `suffix` appended to its file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    // Without a trailing slash: `out/` and `out` are the same store.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}
