//! Which files make up a store, by name.

use std::{collections::BTreeMap, path::Path};

use grappa_formats::{
    ChunkId, FormatError,
    aggregates::AggregateKind,
    container::FileKind,
    manifest::{ExternalIds, FeatureSource, FileEntry, Manifest, PermutationSpec},
};
use grappa_io::{Error, Position, Result, container::ContainerFile, durable::TEMPORARY};

use crate::writer::chunk_folder;

/// The manifest.
pub const MANIFEST: &str = "manifest";
/// The folder of assignments.
pub const ASSIGNMENTS: &str = "assignments";
/// The file that names the assignment that counts.
pub const CURRENT: &str = "assignments/CURRENT";
/// Its name in the folder of assignments.
pub const CURRENT_NAME: &str = "CURRENT";
/// The sorted external ids.
pub const DICTIONARY: &str = "ids/dictionary";
/// The explicit order.
pub const PERMUTATION: &str = "ids/order";

/// The folder of pre-aggregated features.
pub const AGGREGATES: &str = "aggregates";
/// What is added to the name of their folder while they are made.
pub const AGGREGATES_PARTIAL: &str = ".partial";
/// What is added to the name of a folder of aggregates that others replace, until it is removed.
pub const AGGREGATES_OLD: &str = ".old.partial";
/// The file that says which files there are of one kind.
pub const AGGREGATE_INDEX: &str = "index";

/// The folder in which features grow that are added to a store.
pub const FEATURES_PARTIAL: &str = "features.partial";

/// The file of a chunk's pre-aggregated features, in the folder of their kind.
pub fn aggregate(chunk: ChunkId) -> String {
    chunk_folder(chunk)
}

/// The file of the assignment with this generation.
pub fn assignment(generation: u64) -> String {
    format!("{ASSIGNMENTS}/{generation}")
}

/// The generation whose assignment a file of the folder of assignments holds, by its name.
pub fn generation_of(name: &str) -> Option<u64> {
    name.parse()
        .ok()
        .filter(|generation: &u64| generation.to_string() == name)
}

/// Whether a file, relative to a store, is what a run leaves if it is killed, and the next one removes: a file of the folder
/// of assignments that has not got its name yet, or what grows in a folder that has not.
pub fn is_left_over(path: &str) -> bool {
    if path.split('/').next() == Some(FEATURES_PARTIAL) {
        return true;
    }
    let name = path
        .strip_prefix(ASSIGNMENTS)
        .and_then(|rest| rest.strip_prefix('/')?.strip_suffix(TEMPORARY));
    let is_partial = |suffix| path.strip_suffix(suffix).and_then(aggregates_of).is_some();
    is_partial(AGGREGATES_OLD)
        || is_partial(AGGREGATES_PARTIAL)
        || name.is_some_and(|name| name == CURRENT_NAME || generation_of(name).is_some())
}

/// The aggregates that a folder holds, complete or on their way, by its path relative to a store.
pub fn aggregates_of(path: &str) -> Option<AggregateKind> {
    let name = path.strip_prefix(AGGREGATES)?.strip_prefix('/')?;
    name.parse().ok()
}

/// The file of a split.
pub fn split(name: &str) -> String {
    format!("splits/{name}.roaring")
}

/// A file of a chunk.
pub fn of_chunk(chunk: ChunkId, name: &str) -> String {
    format!("{}/{name}", chunk_folder(chunk))
}

/// What the file at `path`, relative to a store, holds; `None` if no store has such a file, and for `CURRENT`, which is no
/// container file.
pub fn kind_of(path: &str) -> Option<FileKind> {
    let Some((folder, name)) = path.split_once('/') else {
        return (path == MANIFEST).then_some(FileKind::MANIFEST);
    };
    match (folder, name) {
        ("splits", _) if name.ends_with(".roaring") => Some(FileKind::SPLIT),
        ("ids", "dictionary") => Some(FileKind::DICTIONARY),
        ("ids", "order") => Some(FileKind::PERMUTATION),
        (ASSIGNMENTS, _) => generation_of(name).map(|_| FileKind::ASSIGNMENT),
        _ => {
            chunk_of(folder)?;
            match name {
                "edges" => Some(FileKind::ROWS),
                "degrees" => Some(FileKind::DEGREES),
                "weights" => Some(FileKind::WEIGHTS),
                "features" => Some(FileKind::FEATURES),
                "labels" => Some(FileKind::LABELS),
                _ => None,
            }
        }
    }
}

fn chunk_of(folder: &str) -> Option<ChunkId> {
    let chunk = ChunkId(folder.strip_prefix("chunk-")?.parse().ok()?);
    (chunk_folder(chunk) == folder).then_some(chunk)
}

/// Whether a file, relative to a store with this manifest, is one of features that were to be added, and were not when the
/// run was killed: they are in their places before a manifest names them.
pub fn is_unlisted_feature_file(manifest: &Manifest, path: &str) -> bool {
    manifest.features.is_none() && kind_of(path) == Some(FileKind::FEATURES)
}

/// The files that the parts of a manifest call for, with what they hold.
pub fn called_for(manifest: &Manifest) -> BTreeMap<String, FileKind> {
    let mut names = vec!["edges", "degrees"];
    if manifest.weighted {
        names.push("weights");
    }
    if manifest
        .features
        .as_ref()
        .is_some_and(|f| f.source == FeatureSource::Stored)
    {
        names.push("features");
    }
    if manifest.labels.is_some() {
        names.push("labels");
    }
    let mut paths: Vec<String> = (0u32..)
        .zip(&manifest.chunks)
        .filter(|(_, entry)| entry.present)
        .flat_map(|(chunk, _)| names.iter().map(move |name| of_chunk(ChunkId(chunk), name)))
        .collect();
    paths.extend(manifest.splits.iter().map(|entry| split(&entry.name)));
    if manifest.ids.external != ExternalIds::Dense {
        paths.push(DICTIONARY.to_owned());
    }
    if manifest.ids.permutation == PermutationSpec::Table {
        paths.push(PERMUTATION.to_owned());
    }
    let with_kind = |path: String| {
        let kind = kind_of(&path).expect("these are names of files of stores");
        (path, kind)
    };
    paths.into_iter().map(with_kind).collect()
}

/// How the manifest's list of files differs from what its other parts call for: a sentence for each file.
pub fn disagreements(manifest: &Manifest) -> Vec<String> {
    let mut called_for = called_for(manifest);
    let mut found = Vec::new();
    for file in &manifest.files {
        if called_for.remove(&file.path).is_none() {
            found.push(format!(
                "the manifest lists {}, which nothing in it calls for",
                file.path
            ));
        }
    }
    found.extend(
        called_for
            .into_keys()
            .map(|path| format!("the manifest does not list {path}, which it calls for")),
    );
    found
}

/// The manifest's entry for a file that it calls for.
///
/// # Panics
/// If the manifest disagrees with itself ([`disagreements`]), or does not call for that file.
pub fn entry<'a>(manifest: &'a Manifest, path: &str) -> &'a FileEntry {
    let at = manifest.files.binary_search_by(|file| file.path.as_str().cmp(path));
    &manifest.files[at.expect("the manifest lists what it calls for")]
}

/// Opens a file below the store `root` and compares header and length with what the manifest recorded. The payload is
/// not read.
pub fn open(root: &Path, entry: &FileEntry) -> Result<ContainerFile> {
    let path = root.join(&entry.path);
    let Some(kind) = kind_of(&entry.path) else {
        let what = "no file of a store is called that; was the store written by a newer Grappa?";
        return Err(Error::input(path, Position::Whole, what));
    };
    let file = ContainerFile::open(&path, kind).map_err(missing)?;
    if file.bytes() != entry.bytes {
        return Err(Error::format(path)(FormatError::Length {
            what: "file",
            expected: entry.bytes,
            found: file.bytes(),
        }));
    }
    if file.digest() != entry.digest {
        let what = format!(
            "this is not the file that the manifest lists: its digest is {:016x}, not {:016x}; was it copied from another \
             store, or did it change places with another?",
            file.digest(),
            entry.digest
        );
        return Err(Error::format(path)(FormatError::invalid(56, what)));
    }
    Ok(file)
}

/// Says of a file that is not there what that means in a store.
pub fn missing(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let what = "this file of the store is missing; restore it from a copy, or make the store again";
            Error::input(path, Position::Whole, what)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_writer_gives_are_known() {
        for (path, kind) in [
            ("manifest", FileKind::MANIFEST),
            ("chunk-0/edges", FileKind::ROWS),
            ("chunk-17/labels", FileKind::LABELS),
            ("splits/val.roaring", FileKind::SPLIT),
            ("ids/order", FileKind::PERMUTATION),
            ("assignments/12", FileKind::ASSIGNMENT),
        ] {
            assert_eq!(kind_of(path), Some(kind), "{path}");
        }
        for path in [
            "",
            "edges",
            "chunk-/edges",
            "chunk-01/edges",
            "chunk-+1/edges",
            "chunk-0/edges.tmp",
            "chunk-0/a/edges",
            "ids/dictionary/x",
            "assignments/CURRENT",
            "assignments/012",
            "splits/val",
        ] {
            assert_eq!(kind_of(path), None, "{path}");
        }
    }
}
