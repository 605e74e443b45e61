//! Verifies a store: every checksum, and whether the files agree with the manifest and with each other.
//!
//! ```text
//! manifest and CURRENT, and the list of files
//! each file: header and length against the manifest, then every block against its checksum     read once, by pread
//! each file that passed: does its payload make sense?
//!     edges      adjacency lists decode, ascend, and have no other encoding; degrees, edges and bucket counts match the manifest
//!     aggregates the index against the manifest, the files against the index
//!     others     classes, scales, anchors, order of ids, splits inside the graph and disjoint
//! ```
//!
//! Each member of a graph with node types and relations is checked as a store (`graph`).
//!
//! The check continues after a problem, so one run reports all of them. Payloads with wrong checksums are not examined
//! further: they mean nothing.
//!
//! Cost: reading all bytes once, and encoding all adjacency lists again. Memory for each thread: some megabytes and a bit
//! more than a byte for each node of a chunk, for stores of any size. Splits are decoded as a whole.

mod aggregates;
mod assignments;
mod check;
mod graph;
mod in_payload;
mod rows;
mod times;

use std::{fs, ops::Range, path::Path, sync::PoisonError};

use grappa_formats::{
    ChunkId, ChunkSpan, EdgePart, FormatError,
    aggregates::{AggregateFile, AggregateKind},
    dictionary::{DictionaryMeta, IntegerDictionary, KeyKind, StringDictionary},
    features::{FeatureLayout, FeaturesMeta},
    labels::{Labels, LabelsMeta},
    manifest::{ExternalIds, FeatureSource, FeatureSpec, FileEntry, Manifest, Sources},
    permutation_table::{ENTRY_BYTES, PermutationTable, PermutationTableMeta},
    splits,
    time_axis::TimeAxis,
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
    progress::Progress,
    regular, workers,
};
use grappa_storage::{
    NodeTimeFiles, aggregates as stored_aggregates, files, is_graph, read_manifest, read_schema, writer::EndChunks,
};
use grappa_synthetic::Recipe;
use roaring::RoaringTreemap;

pub use self::check::{Problem, VerifyReport};
use self::{
    assignments::is_assignment,
    check::{RELEASE_BYTES, StoreCheck, entry_of},
    rows::RowsCheck,
    times::TimesFiles,
};

/// Checks the store or the graph at `path` on `threads` threads.
///
/// # Errors
/// If there is no store. Problems of the store are in the report.
pub fn verify(path: &Path, threads: usize, progress: &dyn Progress) -> Result<VerifyReport> {
    if is_graph(path).unwrap_or(false) {
        return graph::verify_graph(path, threads, progress);
    }
    let check = StoreCheck::new(path, progress);
    match read_manifest(path) {
        Ok(manifest) => check.store(&manifest, manifest.features.as_ref(), threads)?,
        // Without a manifest, which files should exist is unknown, but those that exist have checksums.
        Err(error @ Error::Format { .. }) => {
            check.failed(files::MANIFEST, error);
            check.stray_files(threads)?;
        }
        Err(error) => return Err(error),
    }
    let mut found = check.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.problems.sort();
    Ok(found)
}

/// The unit of work of a thread.
#[derive(Clone, Copy)]
enum WorkUnit<'a> {
    Chunk(ChunkId),
    /// The features and in-degrees of a chunk that a slice lacks.
    Halo(ChunkId),
    Dictionary,
    Permutation,
    Splits,
    Schema,
    NodeTimes,
    Assignment(&'a str),
    /// The index of pre-aggregated features, and the headers of their files.
    Aggregates(AggregateKind),
    /// The pre-aggregated features of a chunk.
    AggregatesOf(AggregateKind, ChunkId, AggregateFile),
    /// A file that the manifest lists and nothing needs: only its checksums are checked.
    Other(&'a FileEntry),
}

impl StoreCheck<'_> {
    /// Checks the store. `features` are those that its pre-aggregated features reduce.
    fn store(&self, manifest: &Manifest, features: Option<&FeatureSpec>, threads: usize) -> Result<()> {
        for problem in files::disagreements(manifest) {
            self.problem(files::MANIFEST, 64, problem);
        }
        if manifest.generator.is_empty() {
            let source = manifest.features.as_ref().map(|features| &features.source);
            if source == Some(&FeatureSource::Procedural) {
                self.problem(files::MANIFEST, 64, "features are to be computed, but there is no recipe".into());
            }
        } else if let Err(error) = Recipe::from_json(&manifest.generator) {
            self.problem(files::MANIFEST, 64, error.to_string());
        }
        let manifest_bytes = fs::metadata(self.root.join(files::MANIFEST)).map_or(0, |m| m.len());
        self.looked_at(manifest_bytes);
        let stray = self.list(|path| entry_of(manifest, path).is_some())?;
        let assignments: Vec<&str> = stray.iter().filter_map(|found| is_assignment(found)).collect();
        if manifest.sources == Sources::Nodes {
            assignments::current(self, &assignments);
        }
        for found in &stray {
            let is_known = found == files::MANIFEST
                || found == files::CURRENT && manifest.sources == Sources::Nodes
                || files::is_left_over(found)
                || files::is_unlisted_feature_file(manifest, found)
                || files::aggregates_of(found).is_some();
            if !is_known && is_assignment(found).is_none() {
                let problem = "this is no part of the store; remove it".to_owned();
                self.problem(found, 0, problem);
            }
        }

        let chunks = manifest.chunk_map();
        let sources = manifest.source_map().unwrap_or_else(|| chunks.clone());
        let ends = EndChunks { destinations: &chunks, sources: &sources };
        let required = files::required(manifest);
        // A problem with the file is reported here.
        let axis = self.time_axis(manifest, files::TIME_AXIS);
        let mut parts: Vec<WorkUnit<'_>> = (0..)
            .map(ChunkId)
            .zip(&manifest.chunks)
            .filter_map(|(chunk, entry)| match entry.present {
                true => Some(WorkUnit::Chunk(chunk)),
                false => entry.halo.then_some(WorkUnit::Halo(chunk)),
            })
            .collect();
        // Long units that cannot be divided come first.
        parts.splice(
            0..0,
            [WorkUnit::Dictionary, WorkUnit::Permutation, WorkUnit::NodeTimes, WorkUnit::Splits, WorkUnit::Schema],
        );
        let kinds = stray.iter().filter_map(|found| files::aggregates_of(found));
        for kind in kinds {
            parts.push(WorkUnit::Aggregates(kind));
            // Another part reports an index that cannot be read.
            let index = stored_aggregates::read_index(self.root, kind, &chunks);
            let files = index.into_iter().flat_map(|index| index.files);
            parts.extend(
                (0..)
                    .map(ChunkId)
                    .zip(files)
                    .filter_map(|(chunk, file)| Some(WorkUnit::AggregatesOf(kind, chunk, file?))),
            );
        }
        parts.extend(assignments.iter().map(|name| WorkUnit::Assignment(name)));
        let others = manifest.files.iter().filter(|file| !required.contains_key(&file.path));
        parts.extend(others.map(WorkUnit::Other));
        let total = manifest.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        self.progress.stage("verifying", Some(total));
        workers::for_each(threads, &parts, |part| {
            match part {
                WorkUnit::Chunk(chunk) => self.chunk(manifest, ends, chunk, axis.as_ref()),
                WorkUnit::Halo(chunk) => {
                    let span = ChunkSpan::for_chunk(&chunks, chunk);
                    self.stored_features(manifest, span);
                    // A slice may have no in-degrees of the chunk.
                    let path = files::of_chunk(chunk, "degrees");
                    self.content(manifest, &path, |file| rows::halo_degrees(manifest, span, file));
                }
                WorkUnit::Dictionary => self.content(manifest, files::DICTIONARY, |file| dictionary(manifest, file)),
                WorkUnit::Permutation => self.content(manifest, files::PERMUTATION, |file| permutation(manifest, file)),
                WorkUnit::NodeTimes => self.node_times(manifest),
                WorkUnit::Splits => self.splits(manifest),
                WorkUnit::Schema => {
                    self.content(manifest, files::SCHEMA, |_| read_schema(self.root, manifest).map(drop));
                }
                WorkUnit::Assignment(path) => assignments::assignment(self, manifest, path),
                WorkUnit::Aggregates(kind) => aggregates::indexed(self, manifest, features, &chunks, kind),
                WorkUnit::AggregatesOf(kind, chunk, file) => aggregates::of_chunk(self, &chunks, kind, chunk, &file),
                WorkUnit::Other(entry) => drop(self.file(entry)),
            }
            Ok(())
        })
    }

    /// Without a manifest: checks the checksums of every file.
    fn stray_files(&self, threads: usize) -> Result<()> {
        let found = self.list(|_| false)?;
        self.progress.stage("verifying checksums", None);
        let paths: Vec<&str> = found.iter().map(String::as_str).collect();
        workers::for_each(threads, &paths, |path| {
            let whole = self.root.join(path);
            match files::kind_of(path) {
                _ if path == files::MANIFEST => self.looked_at(fs::metadata(whole).map_or(0, |m| m.len())),
                _ if path == files::CURRENT => assignments::current(self, &[]),
                Some(kind) => {
                    let opened = ContainerFile::open(&whole, kind);
                    self.checksums(path, opened);
                }
                // Without a manifest, which aggregates belong to the store is unknown.
                None if files::is_left_over(path) || files::aggregates_of(path).is_some() => {}
                None => self.problem(path, 0, "no file of a store is called that".into()),
            }
            Ok(())
        })
    }

    /// The points in time of edges or nodes. None if they have no times, or the file is damaged.
    fn time_axis(&self, manifest: &Manifest, path: &str) -> Option<TimeAxis> {
        let mut axis = None;
        self.content(manifest, path, |file| {
            let payload = file.read_payload()?;
            axis = Some(TimeAxis::from_payload(file.header(), &payload).map_err(Error::format(file.path()))?);
            Ok(())
        });
        axis
    }

    /// Checks the times of nodes: their positions ascend, and are on the axis.
    fn node_times(&self, manifest: &Manifest) {
        let axis = self.time_axis(manifest, files::NODE_TIME_AXIS);
        let [times, degrees] = [files::NODE_TIMES, files::NODE_TIME_DEGREES].map(|path| self.listed(manifest, path));
        if let (Some(axis), Some(times), Some(degrees)) = (axis, times, degrees) {
            let opened = NodeTimeFiles::new(times, degrees, manifest.nodes, axis.positions());
            let checked = opened.and_then(|files| files.map(axis)).and_then(|times| times.check());
            if let Err(error) = checked {
                let is_degrees =
                    matches!(&error, Error::Format { path, .. } if path.ends_with(files::NODE_TIME_DEGREES));
                self.failed(if is_degrees { files::NODE_TIME_DEGREES } else { files::NODE_TIMES }, error);
            }
        }
    }

    fn chunk(&self, manifest: &Manifest, ends: EndChunks<'_>, chunk: ChunkId, axis: Option<&TimeAxis>) {
        let span = ChunkSpan::for_chunk(ends.destinations, chunk);
        for part in [EdgePart::Graph].into_iter().chain(manifest.held_out()) {
            let listed = |name| self.listed(manifest, &files::of_chunk(chunk, &part.file(name)));
            let [edges, degrees, weights, features] = ["edges", "degrees", "weights", files::EDGE_FEATURES].map(listed);
            let [times, time_degrees] = [files::TIMES, files::TIME_DEGREES].map(listed);
            if let (Some(edges), Some(degrees)) = (&edges, &degrees) {
                let rows = RowsCheck { check: self, manifest, sources: ends.sources, span, part };
                let edge_values: Vec<_> = weights.iter().chain(&features).collect();
                let times = times.as_ref().zip(time_degrees.as_ref()).zip(axis);
                let times = times.map(|((times, degrees), axis)| TimesFiles { times, degrees, axis });
                rows.run(edges, degrees, times, &edge_values);
            }
        }
        self.stored_features(manifest, span);
        self.content(manifest, &files::of_chunk(chunk, "labels"), |file| self.labels(manifest, span, file));
    }

    /// The features of a chunk, if they are stored.
    fn stored_features(&self, manifest: &Manifest, span: ChunkSpan) {
        let path = files::of_chunk(span.chunk, "features");
        self.content(manifest, &path, |file| self.features(manifest, span, file));
    }

    fn features(&self, manifest: &Manifest, span: ChunkSpan, file: &ContainerFile) -> Result<()> {
        let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&span).map_err(Error::format(file.path()))?;
        let layout = meta.layout;
        let expected = manifest.features.as_ref().map(|spec| FeatureLayout {
            dtype: spec.dtype,
            dim: spec.dim,
            stride: spec.row_stride,
        });
        if expected != Some(layout) || meta.with_features {
            let problem = format!("the file has {layout:?}, the manifest {expected:?}");
            return Err(Error::format(file.path())(FormatError::invalid(88, problem)));
        }
        self.feature_rows(&meta, file)
    }

    fn labels(&self, manifest: &Manifest, span: ChunkSpan, file: &ContainerFile) -> Result<()> {
        let meta = LabelsMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&span).map_err(Error::format(file.path()))?;
        if manifest.labels != Some(meta.spec) {
            let problem = format!("the file has {:?}, the manifest {:?}", meta.spec, manifest.labels);
            return Err(Error::format(file.path())(FormatError::invalid(88, problem)));
        }
        let mapped = MappedPayload::new(file, Access::Sequential)?;
        Labels::new(mapped.header(), mapped.unchecked())
            .and_then(|labels| labels.check())
            .map_err(Error::format(file.path()))
    }

    fn splits(&self, manifest: &Manifest) {
        let mut before: Vec<(&str, RoaringTreemap)> = Vec::new();
        for entry in &manifest.splits {
            let path = files::split(&entry.name);
            if self.listed(manifest, &path).is_none() {
                continue;
            }
            let decoded = regular::read(&self.root.join(&path))
                .and_then(|bytes| splits::decode(&bytes, &entry.name, manifest.nodes).map_err(Error::format(&path)));
            let set = match decoded {
                Ok(set) => set,
                Err(error) => {
                    self.failed(&path, error);
                    continue;
                }
            };
            if set.len() != entry.nodes {
                let problem = format!("{} nodes, but the manifest says {}", set.len(), entry.nodes);
                self.problem(&path, 80, problem);
            }
            for (name, other) in &before {
                let shared = set.intersection_len(other);
                if shared > 0 {
                    let problem = format!("{shared} nodes are in {name} too; splits must not overlap");
                    self.problem(&path, 0, problem);
                }
            }
            before.push((&entry.name, set));
        }
    }
}

fn dictionary(manifest: &Manifest, file: &ContainerFile) -> Result<()> {
    let meta = DictionaryMeta::decode(file.header()).map_err(Error::format(file.path()))?;
    let kind = match manifest.ids.external {
        ExternalIds::String => KeyKind::Strings,
        _ => KeyKind::Integers,
    };
    if (meta.kind, meta.keys) != (kind, manifest.nodes) {
        let problem = format!(
            "{} keys of kind {:?}, but the graph has {} nodes with {kind:?}",
            meta.keys, meta.kind, manifest.nodes
        );
        return Err(Error::format(file.path())(FormatError::invalid(64, problem)));
    }
    let mapped = MappedPayload::new(file, Access::Sequential)?;
    let (header, payload) = (mapped.header(), mapped.unchecked());
    match kind {
        KeyKind::Integers => IntegerDictionary::new(header, payload)
            .and_then(|keys| in_parts(keys.keys(), RELEASE_BYTES / 8, &mapped, |ids| keys.check(ids))),
        // Blocks of strings like paths take a few hundred bytes.
        KeyKind::Strings => StringDictionary::new(header, payload)
            .and_then(|keys| in_parts(keys.blocks(), RELEASE_BYTES / 256, &mapped, |blocks| keys.check(blocks))),
    }
    .map_err(Error::format(file.path()))
}

fn permutation(manifest: &Manifest, file: &ContainerFile) -> Result<()> {
    let meta = PermutationTableMeta::decode(file.header()).map_err(Error::format(file.path()))?;
    if meta.nodes != manifest.nodes {
        let problem = format!("a node permutation of {} nodes, but the graph has {}", meta.nodes, manifest.nodes);
        return Err(Error::format(file.path())(FormatError::invalid(64, problem)));
    }
    let mapped = MappedPayload::new(file, Access::Sequential)?;
    let table = PermutationTable::new(mapped.header(), mapped.unchecked()).map_err(Error::format(file.path()))?;
    // Both tables have the same pairs if each is the inverse of the other. Sums of the pairs' hashes say whether they do, and take one
    // pass from front to back over each table. Lookups in any order would take a page fault each.
    let (mut id_digest, mut node_digest) = (0u64, 0u64);
    let rows = RELEASE_BYTES / ENTRY_BYTES as u64;
    in_parts(meta.nodes, rows, &mapped, |part| {
        id_digest = id_digest.wrapping_add(table.sum_of_ids(part.clone())?);
        node_digest = node_digest.wrapping_add(table.sum_of_nodes(part)?);
        Ok(())
    })
    .map_err(Error::format(file.path()))?;
    if id_digest == node_digest {
        return Ok(());
    }
    // Finds the entry. Each reverse lookup may bring in another page.
    let mapped = MappedPayload::new(file, Access::Random)?;
    let table = PermutationTable::new(mapped.header(), mapped.unchecked()).map_err(Error::format(file.path()))?;
    in_parts(meta.nodes, RELEASE_BYTES / 4096, &mapped, |ids| table.check(ids)).map_err(Error::format(file.path()))
}

/// Checks `0..end` in steps of `step`, and releases the pages of the file after each.
fn in_parts(
    end: u64,
    step: u64,
    file: &MappedPayload,
    mut check: impl FnMut(Range<u64>) -> grappa_formats::Result<()>,
) -> grappa_formats::Result<()> {
    let mut start = 0;
    loop {
        let part = start..end.min(start + step);
        start = part.end;
        check(part)?;
        if start == end {
            return Ok(());
        }
        file.release(0..u64::MAX);
    }
}
