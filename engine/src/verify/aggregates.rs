//! Checks that pre-aggregated features belong to the store and to each other. Their values are not computed again.

use std::{collections::HashSet, fs, path::Path};

use grappa_formats::{
    ChunkId,
    aggregates::{AggregateFile, AggregateKind},
    chunks::ChunkMap,
    manifest::{FeatureSpec, Manifest},
};
use grappa_io::{Error, Result};
use grappa_storage::{aggregates, files};

use super::check::StoreCheck;

/// Checks the index of a kind, and the headers of the files that it lists. Their rows reduce `features`.
pub(super) fn indexed(
    check: &StoreCheck<'_>,
    manifest: &Manifest,
    features: Option<&FeatureSpec>,
    chunks: &ChunkMap,
    kind: AggregateKind,
) {
    let folder = check.root.join(files::AGGREGATES).join(kind.name());
    check.looked_at(fs::metadata(folder.join(files::AGGREGATE_INDEX)).map_or(0, |m| m.len()));
    let index = match aggregates::read_index(check.root, kind, chunks) {
        Ok(index) => index,
        Err(error) => return check.failed(&path_of(kind, files::AGGREGATE_INDEX), error),
    };
    let mut metas = Vec::new();
    for (chunk, entry) in (0..).map(ChunkId).zip(&index.files) {
        let path = path_of(kind, &files::aggregate(chunk));
        let Some(entry) = entry else {
            if manifest.chunks[chunk.0 as usize].has_features() {
                let problem = format!("the index lists no file for chunk {chunk}");
                check.problem(&path_of(kind, files::AGGREGATE_INDEX), 64, problem);
            }
            continue;
        };
        match aggregates::open_file(&folder, chunks, chunk, entry) {
            Err(error) => check.failed(&path, error),
            Ok((_, meta)) => metas.push((path, (meta.layout, meta.with_features))),
        }
    }
    let (dim, dtype) = (features.map(|spec| spec.dim), features.map(|spec| spec.dtype));
    let first = metas.first().map(|(_, meta)| *meta);
    for (path, meta) in &metas {
        let (layout, with_features) = *meta;
        let is_unlike = with_features && Some(layout.dtype) != dtype;
        if Some(layout.dim) != dim || Some(*meta) != first || is_unlike {
            let problem = format!(
                "the file has {meta:?}, but chunk 0 has {first:?}, and features have {dim:?} values of type {dtype:?}"
            );
            check.problem(path, 88, problem);
        }
    }
    if let Err(error) = only_known(check, &folder, &index.files, kind) {
        check.failed(&path_of(kind, files::AGGREGATE_INDEX), error);
    }
}

/// Checks the file of a chunk, unless [`indexed`] reports that it cannot be opened.
pub(super) fn of_chunk(
    check: &StoreCheck<'_>,
    chunks: &ChunkMap,
    kind: AggregateKind,
    chunk: ChunkId,
    entry: &AggregateFile,
) {
    let folder = check.root.join(files::AGGREGATES).join(kind.name());
    let Ok((file, meta)) = aggregates::open_file(&folder, chunks, chunk, entry) else {
        return;
    };
    let path = path_of(kind, &files::aggregate(chunk));
    if let Some(file) = check.checksums(&path, Ok(file))
        && let Err(error) = check.feature_rows(&meta, &file)
    {
        check.failed(&path, error);
    }
}

/// Files that the index does not list.
fn only_known(
    check: &StoreCheck<'_>,
    folder: &Path,
    listed: &[Option<AggregateFile>],
    kind: AggregateKind,
) -> Result<()> {
    let listed = (0..).map(ChunkId).zip(listed).filter(|(_, entry)| entry.is_some());
    let listed: HashSet<String> = listed.map(|(chunk, _)| files::aggregate(chunk)).collect();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let found = entry.map_err(Error::io("list", folder))?.file_name();
        let found = found.to_string_lossy();
        if !listed.contains(&*found) && found != files::AGGREGATE_INDEX {
            let path = path_of(kind, &found);
            check.problem(&path, 0, "this is no part of the store; remove it".to_owned());
        }
    }
    Ok(())
}

/// The path of a file of a kind, relative to a store.
fn path_of(kind: AggregateKind, file: &str) -> String {
    format!("{}/{kind}/{file}", files::AGGREGATES)
}
