//! Pre-aggregated features: for each destination of a relation, the features of its in-neighbors. They are in the folder of the relation,
//! which is that of a store without types.

use std::path::{Path, PathBuf};

use grappa_formats::{
    ChunkId, FormatError,
    aggregates::{AggregateFile, AggregateIndex, AggregateKind},
    chunks::ChunkMap,
    container::{self, FileKind},
    features::{FeatureLayout, FeaturesMeta},
};
use grappa_io::{
    Error, Result,
    container::{ClosedFile, ContainerFile},
    regular,
};

use crate::{Relation, Store, feature_rows, files, writer::with_suffix};

/// The files of pre-aggregated features of one kind. No file stays open.
#[derive(Debug)]
pub struct Aggregates {
    kind: AggregateKind,
    layout: FeatureLayout,
    with_features: bool,
    /// By chunk; none for chunks whose feature rows a slice lacks.
    files: Vec<Option<ClosedFile>>,
}

impl Aggregates {
    /// Finds the pre-aggregated features of a relation, and checks the header of each file. None if there are none of this kind.
    pub fn open<'a>(relation: impl Into<Relation<'a>>, kind: AggregateKind) -> Result<Option<Self>> {
        let relation = relation.into();
        let store = relation.edges;
        let folder = folder(store, kind);
        if !folder.exists() {
            return Ok(None);
        }
        let index = read_index(store.path(), kind, store.chunks())?;
        let (mut files, mut layout) = (Vec::with_capacity(index.files.len()), None);
        for (chunk, entry) in (0..).map(ChunkId).zip(&index.files) {
            let Some(entry) = entry else {
                check_absent(store, &folder, chunk)?;
                files.push(None);
                continue;
            };
            let (file, meta) = open_file(&folder, store.chunks(), chunk, entry)?;
            check_layout(relation.sources, &meta).map_err(Error::format(file.path()))?;
            let found = (meta.layout, meta.with_features);
            if *layout.get_or_insert(found) != found {
                let problem = "the feature rows have another layout than in the chunks before";
                return Err(Error::format(file.path())(FormatError::invalid(64, problem)));
            }
            files.push(Some(file.close()));
        }
        Ok(layout.map(|(layout, with_features)| Self { kind, layout, with_features, files }))
    }

    /// The aggregation.
    pub fn kind(&self) -> AggregateKind {
        self.kind
    }

    /// The layout of a feature row.
    pub fn layout(&self) -> FeatureLayout {
        self.layout
    }

    /// Whether the features of its node follow each row.
    pub fn with_features(&self) -> bool {
        self.with_features
    }

    /// The file of each chunk; none for chunks whose feature rows a slice lacks.
    pub fn files(&self) -> &[Option<ClosedFile>] {
        &self.files
    }

    /// The file of each chunk, without this value.
    pub fn into_files(self) -> Vec<Option<ClosedFile>> {
        self.files
    }

    /// Total length of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().flatten().map(ClosedFile::bytes).sum()
    }
}

/// Fails if rows could not be aggregates of the features of `sources`.
fn check_layout(sources: &Store, meta: &FeaturesMeta) -> std::result::Result<(), FormatError> {
    let features = sources.manifest().features.as_ref();
    let features = features.map(|spec| (spec.dim, spec.dtype));
    let (dim, dtype) = (meta.layout.dim, meta.layout.dtype);
    match features {
        Some((of_sources, _)) if of_sources != dim => {
            let problem = format!("the rows have {dim} values, and the features of the sources {of_sources}");
            Err(FormatError::invalid(88, problem))
        }
        Some((_, of_sources)) if meta.with_features && of_sources != dtype => {
            let problem = format!(
                "features of type {} follow the rows, and the features of the sources have {}",
                dtype.name(),
                of_sources.name()
            );
            Err(FormatError::invalid(96, problem))
        }
        _ => Ok(()),
    }
}

/// Fails if the store has the feature rows of a chunk, because the index lists no file for it.
fn check_absent(store: &Store, folder: &Path, chunk: ChunkId) -> Result<()> {
    if !store.manifest().chunks[chunk.0 as usize].has_features() {
        return Ok(());
    }
    let problem = format!("chunk {chunk} has no pre-aggregated features; remove the folder and pre-aggregate again");
    let index = folder.join(files::AGGREGATE_INDEX);
    Err(Error::format(index)(FormatError::invalid(64, problem)))
}

/// Opens a chunk's file of pre-aggregated features, and checks that it is the one that the index lists.
pub fn open_file(
    folder: &Path,
    chunks: &ChunkMap,
    chunk: ChunkId,
    entry: &AggregateFile,
) -> Result<(ContainerFile, FeaturesMeta)> {
    let (file, meta) = feature_rows::open(folder, chunks, chunk)?;
    if (file.bytes(), file.digest()) != (entry.bytes, entry.digest) {
        let problem = "this is not the file that the index lists; remove the folder and pre-aggregate again";
        return Err(Error::format(file.path())(FormatError::invalid(56, problem)));
    }
    Ok((file, meta))
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
    let path = root.join(files::AGGREGATES).join(kind.name()).join(files::AGGREGATE_INDEX);
    let bytes = regular::read(&path).map_err(files::missing)?;
    AggregateIndex::decode(&bytes, kind, manifest_digest(root)?, chunks.chunks()).map_err(Error::format(&path))
}

/// The digest of the manifest of the store, or of the member of a graph, at `root`.
pub fn manifest_digest(root: &Path) -> Result<u64> {
    let path = root.join(files::MANIFEST);
    let is_member = regular::read(&path).map(|bytes| container::is_of_kind(&bytes, FileKind::MEMBER))?;
    let kind = if is_member { FileKind::MEMBER } else { FileKind::MANIFEST };
    Ok(ContainerFile::open(&path, kind)?.digest())
}
