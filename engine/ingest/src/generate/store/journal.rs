//! The journal of a run: its fingerprint and its finished chunks.

use std::{collections::BTreeMap, path::Path};

use grappa_formats::manifest::FileEntry;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::resume_journal;
use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// The run began. Has the fingerprint: name and value of each option that the store depends on.
    Started(BTreeMap<String, String>),
    /// The files of a chunk are on disk.
    Chunk(u32, ChunkDone),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkDone {
    pub edges: u64,
    /// Number of edges before the edge options were applied.
    pub drawn: u64,
    /// Number of edges by chunk of the source.
    pub bucket_edges: Vec<u64>,
    pub files: Vec<FileEntry>,
}

/// Reads the journal of an earlier run. Returns the chunks that it finished.
pub fn resume(folder: &Path, fingerprint: &BTreeMap<String, String>) -> Result<(Journal, BTreeMap<u32, ChunkDone>)> {
    let (journal, records) = resume_journal(folder, fingerprint, |first| match first {
        Record::Started(before) => Some(before),
        Record::Chunk(..) => None,
    })?;
    let done = records.into_iter().filter_map(|record| match record {
        Record::Chunk(chunk, done) => Some((chunk, done)),
        Record::Started(_) => None,
    });
    Ok((journal, done.collect()))
}
