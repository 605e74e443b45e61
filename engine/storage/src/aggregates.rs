//! Pre-aggregated features of a store.

use std::path::{Path, PathBuf};

use grappa_formats::{
    ChunkId, FormatError,
    aggregates::{AggregateFile, AggregateIndex, AggregateKind},
    chunks::ChunkMap,
    container::FileKind,
    features::FeatureLayout,
};
use grappa_io::{
    Error, Result,
    container::{ClosedFile, ContainerFile},
    regular,
};

use crate::{Store, feature_rows, files, writer::with_suffix};

/// The files of pre-aggregated features of one kind. No file stays open.
#[derive(Debug)]
pub struct Aggregates {
    kind: AggregateKind,
    layout: FeatureLayout,
    files: Vec<ClosedFile>,
}

impl Aggregates {
    /// Finds the pre-aggregated features of a store, and checks the header of each file. None if the store has none of this
    /// kind.
    pub fn open(store: &Store, kind: AggregateKind) -> Result<Option<Self>> {
        let folder = folder(store, kind);
        if !folder.exists() {
            return Ok(None);
        }
        let index = read_index(store.path(), kind, store.chunks())?;
        let open = |(chunk, entry)| {
            let (file, layout) = open_file(&folder, store.chunks(), chunk, entry)?;
            Ok((file.close()?, layout))
        };
        let opened = (0..)
            .map(ChunkId)
            .zip(&index.files)
            .map(open)
            .collect::<Result<Vec<_>>>()?;
        let Some(&(_, layout)) = opened.first() else {
            return Ok(None);
        };
        if let Some((file, _)) = opened.iter().find(|(_, other)| *other != layout) {
            let what = "the feature rows have another layout than those of chunk 0";
            return Err(Error::format(file.path())(FormatError::invalid(64, what)));
        }
        Ok(Some(Self {
            kind,
            layout,
            files: opened.into_iter().map(|(file, _)| file).collect(),
        }))
    }

    /// The aggregation.
    pub fn kind(&self) -> AggregateKind {
        self.kind
    }

    /// The layout of a feature row.
    pub fn layout(&self) -> FeatureLayout {
        self.layout
    }

    /// The file of each chunk.
    pub fn files(&self) -> &[ClosedFile] {
        &self.files
    }

    /// The file of each chunk, without this value.
    pub fn into_files(self) -> Vec<ClosedFile> {
        self.files
    }

    /// Total length of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(ClosedFile::bytes).sum()
    }
}

/// Opens a chunk's file of pre-aggregated features, and checks that it is the one that the index lists.
pub fn open_file(
    folder: &Path,
    chunks: &ChunkMap,
    chunk: ChunkId,
    entry: &AggregateFile,
) -> Result<(ContainerFile, FeatureLayout)> {
    let (file, layout) = feature_rows::open(folder, chunks, chunk)?;
    if (file.bytes(), file.digest()) != (entry.bytes, entry.digest) {
        let what = "this is not the file that the index lists; remove the folder and pre-aggregate again";
        return Err(Error::format(file.path())(FormatError::invalid(56, what)));
    }
    Ok((file, layout))
}

/// The folder of the pre-aggregated features of a kind.
pub fn folder(store: &Store, kind: AggregateKind) -> PathBuf {
    store.path().join(files::AGGREGATES).join(kind.name())
}

/// The folder in which the pre-aggregated features of a kind grow until they are complete.
pub fn partial_folder(store: &Store, kind: AggregateKind) -> PathBuf {
    with_suffix(&folder(store, kind), files::AGGREGATES_PARTIAL)
}

/// Reads and checks the index of the pre-aggregated features of a kind, of the store at `root`.
pub fn read_index(root: &Path, kind: AggregateKind, chunks: &ChunkMap) -> Result<AggregateIndex> {
    let path = root
        .join(files::AGGREGATES)
        .join(kind.name())
        .join(files::AGGREGATE_INDEX);
    let bytes = regular::read(&path).map_err(files::missing)?;
    AggregateIndex::decode(&bytes, kind, manifest_digest(root)?, chunks.chunks()).map_err(Error::format(&path))
}

/// The digest of the manifest of the store at `root`.
pub fn manifest_digest(root: &Path) -> Result<u64> {
    let path = root.join(files::MANIFEST);
    Ok(ContainerFile::open(&path, FileKind::MANIFEST)?.digest())
}
