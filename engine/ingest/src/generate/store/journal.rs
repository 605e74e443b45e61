//! The journal of a run: its fingerprint and its finished chunks.

use std::{collections::BTreeMap, path::Path};

use grappa_formats::manifest::FileEntry;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::{StoreFolder, not_begun, same_options};
use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Record {
    /// The run began. Has the fingerprint: name and value of each option that the store depends on.
    Started(BTreeMap<String, String>),
    /// The files of a chunk are on disk.
    Chunk(u32, ChunkDone),
}

/// A finished chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ChunkDone {
    /// Number of edges.
    pub(super) edges: u64,
    /// Number of edges before the edge options were applied.
    pub(super) drawn: u64,
    /// Number of edges by chunk of the source.
    pub(super) bucket_edges: Vec<u64>,
    /// The files.
    pub(super) files: Vec<FileEntry>,
}

/// Reads the journal of an earlier run. Returns the chunks that it finished.
pub(super) fn resume(
    folder: &StoreFolder,
    path: &Path,
    fingerprint: &BTreeMap<String, String>,
) -> Result<(Journal, BTreeMap<u32, ChunkDone>)> {
    let (journal, records) = Journal::resume(path)?;
    let mut records = records.into_iter();
    let Some(Record::Started(before)) = records.next() else {
        return Err(not_begun(path));
    };
    same_options(folder.path(), &before, fingerprint)?;
    let done = records.filter_map(|record| match record {
        Record::Chunk(chunk, done) => Some((chunk, done)),
        Record::Started(_) => None,
    });
    Ok((journal, done.collect()))
}
