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
//! - [`write_node_times`] writes the times of the nodes of a type;
//! - [`resume_journal`] reads the journal of a run that is resumed;
//! - [`finished`] compares files that an earlier process finished with their checksums;
//! - [`scratch_error`] and [`damaged_scratch`] are errors that a resumed run would meet again. [`StoreFolder::failed`] adds how
//!   to start again.

mod adjacency;
mod chunks;
pub mod finished;
mod folder;
mod list_files;
mod node_times;
mod scratch;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Position, Result, journal::Journal};
use serde::de::DeserializeOwned;

pub use self::{
    adjacency::{AdjacencyWriter, EndChunks},
    folder::{Begun, StoreFolder},
    node_times::write_node_times,
    scratch::{damaged_scratch, scratch_error},
};

/// Name of the journal in the folder of an unfinished store.
pub const JOURNAL: &str = "journal";

/// Reads the journal of the run that began the store in `folder`. The first record has the options of that run, which `options_of` takes
/// from it, and the run that resumes must have the same `options`. Both maps have the name and value of each option that the store
/// depends on, as on the command line. The value of a flag is empty. Returns the journal and all records.
pub fn resume_journal<R: DeserializeOwned>(
    folder: &Path,
    options: &BTreeMap<String, String>,
    options_of: impl Fn(&R) -> Option<&BTreeMap<String, String>>,
) -> Result<(Journal, Vec<R>)> {
    let path = folder.join(JOURNAL);
    let (journal, records) = Journal::resume(&path)?;
    let Some(before) = records.first().and_then(options_of) else {
        let problem = "the journal does not begin with the options of a run";
        return Err(Error::input(&path, Position::Whole, problem));
    };
    if let Some(name) = before.keys().chain(options.keys()).find(|name| before.get(*name) != options.get(*name)) {
        let [before, now] = [before, options].map(|options| match options.get(name) {
            None => format!("no {name}"),
            Some(value) if value.is_empty() => name.clone(),
            Some(value) => format!("{name} {value}"),
        });
        return Err(Error::conflict(
            format!("cannot resume {}: the run that began it had {before}, this one has {now}", folder.display()),
            "give the same options, or remove that folder and start again",
        ));
    }
    Ok((journal, records))
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
