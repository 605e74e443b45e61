//! The journal of a run: its fingerprint and its finished chunks.

use std::{collections::BTreeMap, path::Path};

use grappa_formats::manifest::FeatureSource;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::{StoreFolder, not_begun, same_options};
use serde::{Deserialize, Serialize};

use super::Run;

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
    /// Path in the store, bytes and digest of each file.
    pub(super) files: Vec<(String, u64, u64)>,
}

impl Run<'_> {
    /// Reads the journal of an earlier run. Returns the chunks that it finished.
    pub(super) fn resume(&self, folder: &StoreFolder, path: &Path) -> Result<(Journal, BTreeMap<u32, ChunkDone>)> {
        let (journal, records) = Journal::resume(path)?;
        let mut records = records.into_iter();
        let Some(Record::Started(before)) = records.next() else {
            return Err(not_begun(path));
        };
        same_options(folder.path(), &before, &self.fingerprint())?;
        let chunk_done = |record| match record {
            Record::Chunk(chunk, done) => Some((chunk, done)),
            Record::Started(_) => None,
        };
        Ok((journal, records.filter_map(chunk_done).collect()))
    }

    /// Everything that the store depends on. A run can be resumed only with an equal fingerprint.
    pub(super) fn fingerprint(&self) -> BTreeMap<String, String> {
        let chunks: Vec<_> = self.wanted.iter().collect();
        let chunks = match chunks.len() == self.chunks.chunks() as usize {
            true => "all".to_owned(),
            false => chunks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        let edge_options = self.options.edge_options;
        let flags = edge_options.dedup.then(|| ("--dedup", String::new()));
        let features = self.options.features.iter().flat_map(|features| {
            let source = match features.source {
                FeatureSource::Stored => "stored",
                FeatureSource::Procedural => "procedural",
            };
            [
                ("--feature-dim", features.dim.to_string()),
                ("--feature-dtype", features.dtype.name().to_owned()),
                ("--features", source.to_owned()),
            ]
        });
        let values = [
            ("graph", self.options.recipe.to_json()),
            (
                "--assign",
                if self.options.random_permutation {
                    "random"
                } else {
                    "range"
                }
                .to_owned(),
            ),
            ("--chunks", self.chunks.chunks().to_string()),
            ("--only-chunks", chunks),
            ("--self-loops", format!("{:?}", edge_options.self_loops).to_lowercase()),
            ("version", self.options.writer.clone()),
        ];
        let all = values.into_iter().chain(flags).chain(features);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
