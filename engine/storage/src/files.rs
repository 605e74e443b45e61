//! The names of the files of a store.

use std::{collections::BTreeMap, path::Path};

pub use grappa_formats::manifest::EDGE_FEATURES;
use grappa_formats::{
    ChunkId, EdgePart, FormatError,
    aggregates::AggregateKind,
    container::FileKind,
    manifest::{ExternalIds, FileEntry, Manifest, PermutationSpec, Sources},
    schema, time_axis,
};
use grappa_io::{Error, Position, Result, container::ContainerFile, durable::TEMPORARY};

/// The manifest.
pub const MANIFEST: &str = "manifest";
/// The folder of assignments.
pub const ASSIGNMENTS: &str = "assignments";
/// The file that names the current assignment.
pub const CURRENT: &str = "assignments/CURRENT";
/// Its name in the folder of assignments.
pub const CURRENT_NAME: &str = "CURRENT";
/// The sorted external ids.
pub const DICTIONARY: &str = "ids/dictionary";
/// The table of the node permutation.
pub const PERMUTATION: &str = "ids/order";
/// The names of features, classes and edge features.
pub const SCHEMA: &str = schema::FILE;
/// The points in time of edges.
pub const TIME_AXIS: &str = time_axis::FILE;
/// The name of a chunk's file of times of edges.
pub const TIMES: &str = "times";
/// The name of the directory of that file.
pub const TIME_DEGREES: &str = "time-degrees";
/// The points in time of nodes.
pub const NODE_TIME_AXIS: &str = time_axis::NODE_FILE;
/// The times of all nodes.
pub const NODE_TIMES: &str = "node-times";
/// The directory of that file.
pub const NODE_TIME_DEGREES: &str = "node-time-degrees";

/// The folder of pre-aggregated features.
pub const AGGREGATES: &str = "aggregates";
/// Suffix of the folder of pre-aggregated features while they are made.
pub const AGGREGATES_PARTIAL: &str = ".partial";
/// Suffix of a folder of pre-aggregated features that was replaced, until it is removed.
pub const AGGREGATES_OLD: &str = ".old.partial";
/// The file that lists the files of one kind of pre-aggregated features.
pub const AGGREGATE_INDEX: &str = "index";

/// The folder in which features grow that are added to a finished store.
pub const FEATURES_PARTIAL: &str = "features.partial";

/// The folder of a node type, in the folder of a graph with types.
pub fn node_type_folder(node_type: usize) -> String {
    format!("nodes-{node_type}")
}

/// The folder of a relation, in the folder of a graph with types.
pub fn relation_folder(relation: usize) -> String {
    format!("relation-{relation}")
}

/// Name of the folder of a chunk.
pub fn chunk_folder(chunk: ChunkId) -> String {
    format!("chunk-{chunk}")
}

/// The file of a chunk's pre-aggregated features, in the folder of their kind.
pub fn aggregate(chunk: ChunkId) -> String {
    chunk_folder(chunk)
}

/// The file of the assignment of a generation.
pub fn assignment(generation: u64) -> String {
    format!("{ASSIGNMENTS}/{generation}")
}

/// The generation of an assignment, given the name of its file.
pub fn generation_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|generation: &u64| generation.to_string() == name)
}

/// Whether a killed run left the file at `path`, relative to a store, and the next run removes it: an assignment with a
/// temporary name, or a file in a folder with a temporary name.
pub fn is_left_over(path: &str) -> bool {
    if path.split('/').next() == Some(FEATURES_PARTIAL) {
        return true;
    }
    let name = path.strip_prefix(ASSIGNMENTS).and_then(|rest| rest.strip_prefix('/')?.strip_suffix(TEMPORARY));
    [AGGREGATES_OLD, AGGREGATES_PARTIAL]
        .iter()
        .any(|suffix| path.strip_suffix(suffix).and_then(aggregates_of).is_some())
        || name.is_some_and(|name| name == CURRENT_NAME || generation_of(name).is_some())
}

/// The kind of pre-aggregated features in a folder, given its path relative to a store.
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

/// The kind of the file at `path`, relative to a store. None if no store has such a file, and for `CURRENT`, which is not a
/// container file.
pub fn kind_of(path: &str) -> Option<FileKind> {
    let Some((folder, name)) = path.split_once('/') else {
        return match path {
            MANIFEST => Some(FileKind::MANIFEST),
            SCHEMA => Some(FileKind::SCHEMA),
            TIME_AXIS | NODE_TIME_AXIS => Some(FileKind::TIME_AXIS),
            NODE_TIMES => Some(FileKind::TIMES),
            NODE_TIME_DEGREES => Some(FileKind::TIME_DEGREES),
            _ => None,
        };
    };
    match (folder, name) {
        ("splits", _) if name.ends_with(".roaring") => Some(FileKind::SPLIT),
        ("ids", "dictionary") => Some(FileKind::DICTIONARY),
        ("ids", "order") => Some(FileKind::PERMUTATION),
        (ASSIGNMENTS, _) => generation_of(name).map(|_| FileKind::ASSIGNMENT),
        _ => {
            chunk_of(folder)?;
            match name {
                "features" => Some(FileKind::FEATURES),
                "labels" => Some(FileKind::LABELS),
                _ => EdgePart::ALL.into_iter().find_map(|part| kind_of_edges(part, name)),
            }
        }
    }
}

fn kind_of_edges(part: EdgePart, name: &str) -> Option<FileKind> {
    let kinds = [
        ("edges", FileKind::ROWS),
        ("degrees", FileKind::DEGREES),
        ("weights", FileKind::WEIGHTS),
        (EDGE_FEATURES, FileKind::EDGE_FEATURES),
        (TIMES, FileKind::TIMES),
        (TIME_DEGREES, FileKind::TIME_DEGREES),
    ];
    kinds.into_iter().find_map(|(of_graph, kind)| (part.file(of_graph) == name).then_some(kind))
}

fn chunk_of(folder: &str) -> Option<ChunkId> {
    let chunk = ChunkId(folder.strip_prefix("chunk-")?.parse().ok()?);
    (chunk_folder(chunk) == folder).then_some(chunk)
}

/// Whether the file at `path`, relative to a store with this manifest, belongs to features that a killed run was adding: the
/// files are in their final places before a manifest lists them.
pub fn is_unlisted_feature_file(manifest: &Manifest, path: &str) -> bool {
    manifest.features.is_none() && kind_of(path) == Some(FileKind::FEATURES)
}

/// The files that a store with this manifest must have, and their kinds. Of the list of files in the manifest, only the optional
/// schema, axes of time, edge features and the optional parts of the edges are used.
pub fn required(manifest: &Manifest) -> BTreeMap<String, FileKind> {
    let mut names = Vec::new();
    for part in [EdgePart::Graph].into_iter().chain(manifest.held_out()) {
        if manifest.sources != Sources::None {
            names.extend(["edges", "degrees"].map(|name| part.file(name)));
        }
        if manifest.weighted {
            names.push(part.file("weights"));
        }
        if manifest.has_edge_features() {
            names.push(part.file(EDGE_FEATURES));
        }
        if manifest.is_timed() {
            names.extend([TIMES, TIME_DEGREES].map(|name| part.file(name)));
        }
    }
    if manifest.stored_features().is_some() {
        names.push("features".to_owned());
    }
    if manifest.labels.is_some() {
        names.push("labels".to_owned());
    }
    let mut paths: Vec<String> = (0u32..)
        .zip(&manifest.chunks)
        .filter(|(_, entry)| entry.present)
        .flat_map(|(chunk, _)| names.iter().map(move |name| of_chunk(ChunkId(chunk), name)))
        .collect();
    let halo = (0..).map(ChunkId).zip(&manifest.chunks).filter(|(_, entry)| entry.halo);
    for (chunk, entry) in halo {
        // Of a relation, there are pre-aggregated features, which the manifest does not list.
        if manifest.stored_features().is_some() {
            paths.push(of_chunk(chunk, "features"));
        }
        if entry.halo_degrees {
            paths.push(of_chunk(chunk, "degrees"));
        }
    }
    paths.extend(manifest.splits.iter().map(|entry| split(&entry.name)));
    if manifest.ids.external != ExternalIds::Dense {
        paths.push(DICTIONARY.to_owned());
    }
    if manifest.ids.permutation == PermutationSpec::Table {
        paths.push(PERMUTATION.to_owned());
    }
    if manifest.has_schema() {
        paths.push(SCHEMA.to_owned());
    }
    if manifest.is_timed() {
        paths.push(TIME_AXIS.to_owned());
    }
    if manifest.has_node_times() {
        paths.extend([NODE_TIME_AXIS, NODE_TIMES, NODE_TIME_DEGREES].map(str::to_owned));
    }
    paths
        .into_iter()
        .map(|path| {
            let kind = kind_of(&path).expect("all names are names of files of stores");
            (path, kind)
        })
        .collect()
}

/// The differences between the manifest's list of files and the files that its other parts require: one sentence per file.
pub fn disagreements(manifest: &Manifest) -> Vec<String> {
    let mut required = required(manifest);
    let mut found = Vec::new();
    for file in &manifest.files {
        if required.remove(&file.path).is_none() {
            found.push(format!("the manifest lists {}, which nothing in it requires", file.path));
        }
    }
    found.extend(required.into_keys().map(|path| format!("the manifest does not list {path}, which it requires")));
    found
}

/// The manifest's entry of a file that it requires.
///
/// # Panics
/// If the manifest contradicts itself ([`disagreements`]), or does not require the file.
pub fn entry<'a>(manifest: &'a Manifest, path: &str) -> &'a FileEntry {
    let at = manifest.files.binary_search_by(|file| file.path.as_str().cmp(path));
    &manifest.files[at.expect("the manifest lists the files that it requires")]
}

/// Opens a file below the store `root`, and compares its header and length with its entry in the manifest. The payload is
/// not read.
pub fn open(root: &Path, entry: &FileEntry) -> Result<ContainerFile> {
    open_as(root, entry, expect_kind(root, entry)?)
}

/// The kind of a file below the store `root`. The error is about a name that no file of a store has.
pub fn expect_kind(root: &Path, entry: &FileEntry) -> Result<FileKind> {
    kind_of(&entry.path).ok_or_else(|| {
        let problem = "no file of a store has this name; was the store written by a newer Grappa?";
        Error::input(root.join(&entry.path), Position::Whole, problem)
    })
}

/// As [`open`], for a file of a known kind that need not be in the manifest.
pub fn open_as(root: &Path, entry: &FileEntry, kind: FileKind) -> Result<ContainerFile> {
    let path = root.join(&entry.path);
    let file = ContainerFile::open(&path, kind).map_err(missing)?;
    if file.bytes() != entry.bytes {
        return Err(Error::format(path)(FormatError::Length {
            part: "file",
            expected: entry.bytes,
            found: file.bytes(),
        }));
    }
    if file.digest() != entry.digest {
        let problem = format!(
            "this is not the file that the store lists: expected the digest {:016x}, found {:016x}; was it copied from \
             another store, or swapped with another file?",
            entry.digest,
            file.digest()
        );
        return Err(Error::format(path)(FormatError::invalid(56, problem)));
    }
    Ok(file)
}

/// Replaces the I/O error about a file that does not exist by one that says what to do about the store.
pub fn missing(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let problem = "this file of the store is missing; restore it from a copy, or build the store again";
            Error::input(path, Position::Whole, problem)
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
            ("schema", FileKind::SCHEMA),
            ("chunk-0/edges", FileKind::ROWS),
            ("chunk-17/labels", FileKind::LABELS),
            ("time-axis", FileKind::TIME_AXIS),
            ("chunk-0/times", FileKind::TIMES),
            ("chunk-1/val-time-degrees", FileKind::TIME_DEGREES),
            ("node-time-axis", FileKind::TIME_AXIS),
            ("node-times", FileKind::TIMES),
            ("node-time-degrees", FileKind::TIME_DEGREES),
            ("chunk-3/val-edges", FileKind::ROWS),
            ("chunk-3/test-degrees", FileKind::DEGREES),
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
            "chunk-0/train-edges",
            "chunk-0/val-features",
            "ids/dictionary/x",
            "assignments/CURRENT",
            "assignments/012",
            "splits/val",
        ] {
            assert_eq!(kind_of(path), None, "{path}");
        }
    }
}
