//! The journal of a slice that is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use grappa_formats::manifest::FileEntry;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::resume_journal;
use serde::{Deserialize, Serialize};

/// Adjacency lists that are read between two reports of progress, after which their memory is released.
pub const RELEASE_ROWS: u64 = 1 << 16;

/// The adjacency lists of a chunk, as the journal records them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkEdges {
    /// Edges from each chunk.
    pub bucket_edges: Vec<u64>,
    pub files: Vec<FileEntry>,
}

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// The run began, with these options.
    Started(BTreeMap<String, String>),
    /// The file with this path is there, and its checksums are right.
    File(String),
    /// The adjacency lists of this chunk are written.
    Edges(u32, ChunkEdges),
    /// The in-degrees of this chunk, which the slice lacks, are written.
    Degrees(u32, FileEntry),
}

/// Files that an earlier run finished.
#[derive(Default)]
pub struct Finished {
    /// Paths of shared files.
    pub files: BTreeSet<String>,
    /// Adjacency lists, by chunk.
    pub edges: BTreeMap<u32, ChunkEdges>,
    /// In-degrees of halo nodes, by chunk.
    pub degrees: BTreeMap<u32, FileEntry>,
}

impl Finished {
    /// Reads the journal of an earlier run, which must have an equal fingerprint.
    pub fn resume(folder: &Path, fingerprint: &BTreeMap<String, String>) -> Result<(Journal, Self)> {
        let (journal, records) = resume_journal(folder, fingerprint, |first| match first {
            Record::Started(before) => Some(before),
            _ => None,
        })?;
        let mut finished = Self::default();
        for record in records {
            match record {
                Record::Started(_) => {}
                Record::File(path) => _ = finished.files.insert(path),
                Record::Edges(chunk, edges) => _ = finished.edges.insert(chunk, edges),
                Record::Degrees(chunk, file) => _ = finished.degrees.insert(chunk, file),
            }
        }
        Ok((journal, finished))
    }
}
