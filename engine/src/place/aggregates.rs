//! The pre-aggregated features of a slice: of the nodes whose features it has, over all their in-neighbors in the whole graph.

use grappa_formats::{
    ChunkId,
    aggregates::{AggregateIndex, AggregateKind},
    manifest::{FileEntry, Manifest},
};
use grappa_io::{Result, durable};
use grappa_storage::{
    Store,
    aggregates::{folder, read_index},
    files,
    writer::StoreFolder,
};

/// The index of each kind that `store` has, with the files of the chunks whose features `manifest` has.
///
/// # Errors
/// If an index cannot be read, or belongs to another store.
pub(super) fn indexes(store: &Store, manifest: &Manifest) -> Result<Vec<AggregateIndex>> {
    let kinds = AggregateKind::ALL.into_iter().filter(|&kind| folder(store, kind).exists());
    let indexes = kinds.map(|kind| {
        let mut index = read_index(store.path(), kind, store.chunks())?;
        for (file, chunk) in index.files.iter_mut().zip(&manifest.chunks) {
            *file = file.filter(|_| chunk.has_features());
        }
        Ok(index)
    });
    indexes.collect()
}

/// The path of the folder of a kind, relative to a store.
fn path_of(kind: AggregateKind) -> String {
    format!("{}/{kind}", files::AGGREGATES)
}

pub(super) fn files_of(index: &AggregateIndex) -> impl Iterator<Item = FileEntry> {
    let chunks = (0..).map(ChunkId).zip(&index.files);
    chunks.filter_map(|(chunk, file)| {
        file.map(|file| FileEntry {
            path: format!("{}/{}", path_of(index.kind), files::aggregate(chunk)),
            bytes: file.bytes,
            digest: file.digest,
        })
    })
}

/// Writes an index for the slice that `manifest` describes. The files that it lists are there.
pub(super) fn write_index(folder: &StoreFolder, index: &AggregateIndex, manifest: &Manifest) -> Result<()> {
    let index = AggregateIndex { manifest_digest: manifest.digest(), ..index.clone() };
    let of_kind = folder.path().join(path_of(index.kind));
    // A slice of a graph may have no chunk of a type.
    durable::create_folder(&of_kind)?;
    durable::write_file(&of_kind.join(files::AGGREGATE_INDEX), &index.encode())?;
    durable::sync_folder(&of_kind)
}
