//! The adjacency lists of a slice that has only edges between nodes of its own chunks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use grappa_formats::{ChunkId, NodeId, manifest::ChunkEntry};
use grappa_io::{
    Error, Result,
    container::WrittenFile,
    journal::Journal,
    progress::{Progress, check_stopped},
};
use grappa_storage::{
    Store, files,
    writer::{AdjacencyWriter, EndChunks, StoreFolder},
};

use super::record::{ChunkEdges, RELEASE_ROWS, Record};

/// Which edges into the nodes of its chunks a slice has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SliceEdges {
    /// All of them. The files of the store are shared.
    #[default]
    All,
    /// Those from nodes of its chunks. The adjacency lists are written anew.
    Inside,
}

impl SliceEdges {
    /// All values.
    pub const ALL: [Self; 2] = [Self::All, Self::Inside];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Inside => "inside",
        }
    }
}

impl fmt::Display for SliceEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SliceEdges {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|edges| edges.name() == name);
        found.ok_or_else(|| Error::UnknownName {
            kind: "choice of edges",
            name: name.to_owned(),
            known: "all and inside",
        })
    }
}

/// The names of the files of a chunk that are written anew.
pub(super) const FILES: [&str; 4] = ["edges", "degrees", "weights", files::EDGE_FEATURES];

/// Writes adjacency lists without the edges from chunks that the slice lacks.
pub(super) struct EdgesInside<'a> {
    pub store: &'a Store,
    /// The chunks of the slice.
    pub chunks: BTreeSet<u32>,
    /// Whether the slice has each chunk that edges come from.
    pub is_present: Vec<bool>,
    pub threads: usize,
    pub progress: &'a dyn Progress,
}

impl EdgesInside<'_> {
    /// Number of edges of a chunk that are kept.
    pub fn edges_of(&self, chunk: ChunkId) -> u64 {
        let buckets = &self.store.manifest().chunks[chunk.0 as usize].bucket_edges;
        let present_edges = buckets.iter().zip(&self.is_present).filter(|(_, present)| **present);
        present_edges.map(|(edges, _)| edges).sum()
    }

    /// About how many bytes the files of a chunk take.
    pub fn bytes_of(&self, chunk: ChunkId) -> u64 {
        let manifest = self.store.manifest();
        let edges = manifest.chunks[chunk.0 as usize].edges;
        let share = self.edges_of(chunk) as f64 / edges.max(1) as f64;
        let paths = FILES.iter().map(|name| files::of_chunk(chunk, name));
        let listed = paths.filter_map(|path| manifest.files.iter().find(|file| file.path == path));
        listed.map(|file| (file.bytes as f64 * share) as u64).sum()
    }

    /// Writes the chunks that are not in `done`. Returns all.
    pub fn write(
        &self,
        folder: &StoreFolder,
        journal: &Journal,
        done: BTreeMap<u32, ChunkEdges>,
    ) -> Result<BTreeMap<u32, ChunkEdges>> {
        let missing = self.chunks.iter().filter(|&chunk| !done.contains_key(chunk));
        let missing: Vec<ChunkId> = missing.copied().map(ChunkId).collect();
        let bytes = missing.iter().map(|&chunk| self.bytes_of(chunk)).sum();
        self.progress.stage("writing edges between the chunks", Some(bytes));
        let done = Mutex::new(done);
        folder.write_chunks(
            self.threads,
            &missing,
            |chunk| self.chunk(folder, chunk),
            |chunk, entry, files| {
                let bucket_edges = entry.bucket_edges;
                let edges = ChunkEdges { bucket_edges, files };
                journal.append(&Record::Edges(chunk.0, edges.clone()))?;
                done.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk.0, edges);
                Ok(())
            },
        )?;
        Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn chunk(&self, folder: &StoreFolder, chunk: ChunkId) -> Result<(ChunkEntry, Vec<WrittenFile>)> {
        let ends = EndChunks { destinations: self.store.chunks(), sources: self.store.source_chunks() };
        let files = self.store.chunk_in_order(chunk)?;
        let (rows, weights, features) = (files.rows(), files.weights(), files.edge_features());
        let layout = features.as_ref().map(|features| features.meta().layout);
        let mut writer = AdjacencyWriter::create(folder, ends, chunk, weights.is_some(), layout)?;
        let (mut sources, mut kept_weights, mut list_weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut kept_features: Vec<u8> = Vec::new();
        let stride = layout.map_or(1, |layout| layout.stride as usize);
        let bytes_of_row = self.bytes_of(chunk) as f64 / rows.rows().max(1) as f64;
        for start in (0..rows.rows()).step_by(RELEASE_ROWS as usize) {
            let end = rows.rows().min(start + RELEASE_ROWS);
            for (row, list) in (start..end).zip(rows.range(start..end)) {
                let list = list?;
                sources.clear();
                kept_weights.clear();
                if let Some(weights) = &weights {
                    list_weights.resize(list.degree() as usize, 0.0);
                    weights.copy(weights.range(row, &rows)?, &mut list_weights)?;
                }
                kept_features.clear();
                let rows_of_list = match &features {
                    Some(features) => features.encoded(features.range(row, &rows)?)?,
                    None => &[],
                };
                for (at, source) in list.iter().enumerate() {
                    if self.is_present[ends.sources.chunk_of(NodeId(source)).0 as usize] {
                        sources.push(source);
                        kept_weights.extend(list_weights.get(at));
                        kept_features.extend(rows_of_list.chunks_exact(stride).nth(at).into_iter().flatten());
                    }
                }
                writer.push(&sources, &kept_weights, &kept_features)?;
            }
            files.release_rows(start..end);
            self.progress.advance(((end - start) as f64 * bytes_of_row) as u64, 0);
            check_stopped(self.progress)?;
        }
        writer.finish()
    }
}
