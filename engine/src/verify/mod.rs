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
//! The check continues after a problem, so one run reports all of them. Payloads with wrong checksums are not examined
//! further: they mean nothing.
//!
//! Cost: reading all bytes once, and encoding all adjacency lists again. Memory for each thread: some megabytes and a bit
//! more than a byte for each node of a chunk, for stores of any size. Splits are decoded as a whole.

mod aggregates;
mod assignments;
mod rows;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    ChunkId, ChunkSpan, FormatError,
    aggregates::{AggregateFile, AggregateKind},
    chunks::ChunkMap,
    dictionary::{DictionaryMeta, IntegerDictionary, KeyKind, StringDictionary},
    features::{FeatureLayout, FeaturesMeta},
    labels::{Labels, LabelsMeta},
    manifest::{ExternalIds, FeatureDtype, FeatureSource, FileEntry, Manifest},
    permutation_table::{ENTRY_BYTES, PermutationTable, PermutationTableMeta},
    splits,
};
use grappa_io::{
    Error, Position, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
    progress::Progress,
    regular, workers,
};
use grappa_storage::{aggregates as stored_aggregates, files, read_manifest, read_schema};
use grappa_synthetic::Recipe;
use roaring::RoaringTreemap;

use self::{assignments::is_assignment, rows::RowsCheck};

/// The most problems that are reported for one file. A failing disk would give a million.
const PROBLEMS_MAX: usize = 100;
/// Mapped bytes that are read before their pages are released.
const RELEASE_BYTES: u64 = 16 << 20;
/// Feature bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Number of checked files.
    pub files: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// The problems, sorted by file and offset.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Whether there are no problems.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A problem of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, relative to the store.
    pub file: String,
    /// The offset in bytes, as exact as it is known.
    pub offset: u64,
    /// Description of the problem.
    pub what: String,
}

/// Checks the store at `path` on `threads` threads.
///
/// # Errors
/// If there is no store. Problems of the store are in the report.
pub fn verify(path: &Path, threads: usize, progress: &dyn Progress) -> Result<VerifyReport> {
    let check = Check {
        root: path,
        progress,
        found: Mutex::default(),
    };
    match read_manifest(path) {
        Ok(manifest) => check.store(&manifest, threads)?,
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

struct Check<'a> {
    root: &'a Path,
    progress: &'a dyn Progress,
    found: Mutex<VerifyReport>,
}

/// The unit of work of a thread.
#[derive(Clone, Copy)]
enum Part<'a> {
    Chunk(ChunkId),
    /// The features and in-degrees of a chunk that a slice lacks.
    Halo(ChunkId),
    Dictionary,
    Permutation,
    Splits,
    Schema,
    Assignment(&'a str),
    /// The index of pre-aggregated features, and the headers of their files.
    Aggregates(AggregateKind),
    /// The pre-aggregated features of a chunk.
    AggregatesOf(AggregateKind, ChunkId, AggregateFile),
    /// A file that the manifest lists and nothing needs: only its checksums are checked.
    Other(&'a FileEntry),
}

impl Check<'_> {
    fn store(&self, manifest: &Manifest, threads: usize) -> Result<()> {
        for what in files::disagreements(manifest) {
            self.problem(files::MANIFEST, 64, what);
        }
        if manifest.generator.is_empty() {
            let source = manifest.features.as_ref().map(|features| &features.source);
            if source == Some(&FeatureSource::Procedural) {
                self.problem(
                    files::MANIFEST,
                    64,
                    "features are to be computed, but there is no recipe".into(),
                );
            }
        } else if let Err(error) = Recipe::from_json(&manifest.generator) {
            self.problem(files::MANIFEST, 64, error.to_string());
        }
        let manifest_bytes = fs::metadata(self.root.join(files::MANIFEST)).map_or(0, |m| m.len());
        self.looked_at(manifest_bytes);
        let is_listed = |path: &str| entry_of(manifest, path).is_some();
        let stray = self.list(is_listed)?;
        let assignments: Vec<&str> = stray.iter().filter_map(|found| is_assignment(found)).collect();
        self.current(&assignments);
        for found in &stray {
            let is_known = found == files::MANIFEST
                || found == files::CURRENT
                || files::is_left_over(found)
                || files::is_unlisted_feature_file(manifest, found)
                || files::aggregates_of(found).is_some();
            if !is_known && is_assignment(found).is_none() {
                let what = "this is no part of the store; remove it".to_owned();
                self.problem(found, 0, what);
            }
        }

        let chunks = manifest.chunk_map();
        let required = files::required(manifest);
        let mut parts: Vec<Part<'_>> = (0..)
            .map(ChunkId)
            .zip(&manifest.chunks)
            .filter_map(|(chunk, entry)| match entry.present {
                true => Some(Part::Chunk(chunk)),
                false => entry.halo.then_some(Part::Halo(chunk)),
            })
            .collect();
        // Long units that cannot be divided come first.
        parts.splice(0..0, [Part::Dictionary, Part::Permutation, Part::Splits, Part::Schema]);
        let kinds = stray.iter().filter_map(|found| files::aggregates_of(found));
        for kind in kinds {
            parts.push(Part::Aggregates(kind));
            // Another part reports an index that cannot be read.
            let index = stored_aggregates::read_index(self.root, kind, &chunks);
            let files = index.into_iter().flat_map(|index| index.files);
            let of_chunk = |(chunk, file): (_, Option<_>)| Some(Part::AggregatesOf(kind, chunk, file?));
            parts.extend((0..).map(ChunkId).zip(files).filter_map(of_chunk));
        }
        parts.extend(assignments.iter().map(|name| Part::Assignment(name)));
        let others = manifest.files.iter().filter(|file| !required.contains_key(&file.path));
        parts.extend(others.map(Part::Other));
        let total = manifest
            .files
            .iter()
            .map(|file| file.bytes)
            .fold(0, u64::saturating_add);
        self.progress.stage("verifying", Some(total));
        workers::for_each(threads, &parts, |part| {
            match part {
                Part::Chunk(chunk) => self.chunk(manifest, &chunks, chunk),
                Part::Halo(chunk) => {
                    let span = ChunkSpan::of(&chunks, chunk);
                    self.stored_features(manifest, span);
                    self.halo_degrees(manifest, span);
                }
                Part::Dictionary => self.dictionary(manifest),
                Part::Permutation => self.permutation(manifest),
                Part::Splits => self.splits(manifest),
                Part::Schema => self.schema(manifest),
                Part::Assignment(path) => self.assignment(manifest, path),
                Part::Aggregates(kind) => self.aggregates(manifest, &chunks, kind),
                Part::AggregatesOf(kind, chunk, file) => self.aggregates_of(&chunks, kind, chunk, &file),
                Part::Other(entry) => drop(self.file(entry)),
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
                _ if path == files::CURRENT => self.current(&[]),
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

    /// Files in the store's folder, and one level below it, for which `is_known` is false; relative to the store.
    fn list(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let names = |folder: &Path| -> Result<Vec<(String, PathBuf)>> {
            let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
            entries
                .map(|entry| {
                    let entry = entry.map_err(Error::io("list", folder))?;
                    Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
                })
                .collect()
        };
        for (name, path) in names(self.root)? {
            if !path.is_dir() {
                found.push(name);
                continue;
            }
            for (inner, _) in names(&path)? {
                found.push(format!("{name}/{inner}"));
            }
        }
        found.retain(|path| !is_known(path));
        found.sort();
        Ok(found)
    }

    /// Checks header, length and checksums of a file that the manifest lists. Returns the file if they are right.
    fn file(&self, entry: &FileEntry) -> Option<ContainerFile> {
        self.checksums(&entry.path, files::open(self.root, entry))
    }

    fn checksums(&self, path: &str, opened: Result<ContainerFile>) -> Option<ContainerFile> {
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                self.failed(path, error);
                return None;
            }
        };
        self.looked_at(file.bytes());
        let mut count = 0;
        let on_problem = |error| {
            count += 1;
            if count <= PROBLEMS_MAX {
                self.failed(path, error);
            }
        };
        if let Err(error) = file.verify(|bytes| self.progress.advance(bytes, 0), on_problem) {
            count += 1;
            self.failed(path, error);
        }
        if count > PROBLEMS_MAX {
            let what = format!("{} more blocks of this file are damaged", count - PROBLEMS_MAX);
            self.problem(path, file.bytes(), what);
        }
        (count == 0).then_some(file)
    }

    fn chunk(&self, manifest: &Manifest, chunks: &ChunkMap, chunk: ChunkId) {
        let span = ChunkSpan::of(chunks, chunk);
        let file = |name: &str| {
            let path = files::of_chunk(chunk, name);
            Some((self.listed(manifest, &path)?, path))
        };
        let (edges, degrees, weights) = (file("edges"), file("degrees"), file("weights"));
        if let (Some((edges, _)), Some((degrees, _))) = (&edges, &degrees) {
            let rows = RowsCheck {
                check: self,
                manifest,
                chunks,
                span,
            };
            rows.run(edges, degrees, weights.as_ref().map(|(file, _)| file));
        }
        self.stored_features(manifest, span);
        if let Some((file, path)) = file("labels") {
            self.result(&path, self.labels(manifest, span, &file));
        }
    }

    /// The features of a chunk, if they are stored.
    fn stored_features(&self, manifest: &Manifest, span: ChunkSpan) {
        let path = files::of_chunk(span.chunk, "features");
        if let Some(file) = self.listed(manifest, &path) {
            self.result(&path, self.features(manifest, span, &file));
        }
    }

    /// The in-degrees of a chunk that a slice lacks, if it has them.
    fn halo_degrees(&self, manifest: &Manifest, span: ChunkSpan) {
        let path = files::of_chunk(span.chunk, "degrees");
        if let Some(file) = self.listed(manifest, &path) {
            self.result(&path, rows::halo_degrees(manifest, span, &file));
        }
    }

    fn features(&self, manifest: &Manifest, span: ChunkSpan, file: &ContainerFile) -> Result<()> {
        let in_file = || Error::format(file.path());
        let meta = FeaturesMeta::decode(file.header()).map_err(in_file())?;
        meta.span.expect(&span).map_err(in_file())?;
        let layout = meta.layout;
        let expected = manifest.features.as_ref().map(|spec| FeatureLayout {
            dtype: spec.dtype,
            dim: spec.dim,
            stride: spec.row_stride,
        });
        if expected != Some(layout) || meta.with_features {
            let what = format!("the file has {layout:?}, the manifest {expected:?}");
            return Err(in_file()(FormatError::invalid(88, what)));
        }
        self.feature_rows(&meta, file)
    }

    /// Whether a feature row could have been written by a writer.
    fn feature_rows(&self, meta: &FeaturesMeta, file: &ContainerFile) -> Result<()> {
        let in_file = || Error::format(file.path());
        let layout = meta.layout;
        if layout.dtype != FeatureDtype::Int8 && !meta.is_padded() {
            return Ok(()); // any bits are values
        }
        let stride = layout.stride as usize;
        let mut buffer = vec![0; (READ_BYTES / stride).max(1) * stride];
        let mut at = 0;
        while at < file.header().payload_bytes {
            let bytes = (file.header().payload_bytes - at).min(buffer.len() as u64) as usize;
            file.read_at(&mut buffer[..bytes], at)?;
            layout
                .check_rows(&buffer[..bytes], file.header().payload_offset + at, meta.with_features)
                .map_err(in_file())?;
            at += bytes as u64;
        }
        Ok(())
    }

    fn labels(&self, manifest: &Manifest, span: ChunkSpan, file: &ContainerFile) -> Result<()> {
        let in_file = || Error::format(file.path());
        let meta = LabelsMeta::decode(file.header()).map_err(in_file())?;
        meta.span.expect(&span).map_err(in_file())?;
        if manifest.labels != Some(meta.spec) {
            let what = format!("the file has {:?}, the manifest {:?}", meta.spec, manifest.labels);
            return Err(in_file()(FormatError::invalid(88, what)));
        }
        let mapped = MappedPayload::new(file, Access::Sequential)?;
        Labels::new(mapped.header(), mapped.unchecked())
            .and_then(|labels| labels.check())
            .map_err(in_file())
    }

    fn dictionary(&self, manifest: &Manifest) {
        if let Some(file) = self.listed(manifest, files::DICTIONARY) {
            self.result(files::DICTIONARY, self.check_dictionary(manifest, &file));
        }
    }

    fn check_dictionary(&self, manifest: &Manifest, file: &ContainerFile) -> Result<()> {
        let in_file = || Error::format(file.path());
        let meta = DictionaryMeta::decode(file.header()).map_err(in_file())?;
        let kind = match manifest.ids.external {
            ExternalIds::String => KeyKind::Strings,
            _ => KeyKind::Integers,
        };
        if (meta.kind, meta.keys) != (kind, manifest.nodes) {
            let what = format!(
                "{} keys of kind {:?}, but the graph has {} nodes with {kind:?}",
                meta.keys, meta.kind, manifest.nodes
            );
            return Err(in_file()(FormatError::invalid(64, what)));
        }
        let mapped = MappedPayload::new(file, Access::Sequential)?;
        match kind {
            KeyKind::Integers => {
                let keys = IntegerDictionary::new(mapped.header(), mapped.unchecked()).map_err(in_file())?;
                in_parts(keys.len(), RELEASE_BYTES / 8, &mapped, |ids| keys.check_ids(ids)).map_err(in_file())
            }
            KeyKind::Strings => {
                let keys = StringDictionary::new(mapped.header(), mapped.unchecked()).map_err(in_file())?;
                // Blocks of strings like paths take a few hundred bytes.
                let blocks_per_release = RELEASE_BYTES / 256;
                in_parts(keys.blocks(), blocks_per_release, &mapped, |blocks| {
                    keys.check_blocks(blocks)
                })
                .map_err(in_file())
            }
        }
    }

    fn permutation(&self, manifest: &Manifest) {
        if let Some(file) = self.listed(manifest, files::PERMUTATION) {
            self.result(files::PERMUTATION, self.check_permutation(manifest, &file));
        }
    }

    fn check_permutation(&self, manifest: &Manifest, file: &ContainerFile) -> Result<()> {
        let in_file = || Error::format(file.path());
        let meta = PermutationTableMeta::decode(file.header()).map_err(in_file())?;
        if meta.nodes != manifest.nodes {
            let what = format!(
                "a node permutation of {} nodes, but the graph has {}",
                meta.nodes, manifest.nodes
            );
            return Err(in_file()(FormatError::invalid(64, what)));
        }
        let mapped = MappedPayload::new(file, Access::Sequential)?;
        let table = PermutationTable::new(mapped.header(), mapped.unchecked()).map_err(in_file())?;
        // Both tables have the same pairs if each is the inverse of the other. Sums of the pairs' hashes say whether they do, and take one
        // pass from front to back over each table. Lookups in any order would take a page fault each.
        let (mut of_ids, mut of_nodes) = (0u64, 0u64);
        let rows = RELEASE_BYTES / ENTRY_BYTES as u64;
        let mut add = |part: Range<u64>| {
            of_ids = of_ids.wrapping_add(table.sum_of_ids(part.clone())?);
            of_nodes = of_nodes.wrapping_add(table.sum_of_nodes(part)?);
            Ok(())
        };
        in_parts(meta.nodes, rows, &mapped, &mut add).map_err(in_file())?;
        if of_ids == of_nodes {
            return Ok(());
        }
        // Finds the entry. Each reverse lookup may bring in another page.
        let mapped = MappedPayload::new(file, Access::Random)?;
        let table = PermutationTable::new(mapped.header(), mapped.unchecked()).map_err(in_file())?;
        in_parts(meta.nodes, RELEASE_BYTES / 4096, &mapped, |ids| table.check(ids)).map_err(in_file())
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
                let what = format!("{} nodes, but the manifest says {}", set.len(), entry.nodes);
                self.problem(&path, 80, what);
            }
            for (name, other) in &before {
                let shared = set.intersection_len(other);
                if shared > 0 {
                    let what = format!("{shared} nodes are in {name} too; splits must not overlap");
                    self.problem(&path, 0, what);
                }
            }
            before.push((&entry.name, set));
        }
    }

    fn schema(&self, manifest: &Manifest) {
        if self.listed(manifest, files::SCHEMA).is_some() {
            self.result(files::SCHEMA, read_schema(self.root, manifest).map(drop));
        }
    }

    /// A file that the manifest may list, if its checksums are right.
    fn listed(&self, manifest: &Manifest, path: &str) -> Option<ContainerFile> {
        self.file(entry_of(manifest, path)?)
    }

    fn looked_at(&self, bytes: u64) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.files += 1;
        found.bytes += bytes;
    }

    fn result(&self, path: &str, result: Result<()>) {
        if let Err(error) = result {
            self.failed(path, error);
        }
    }

    fn failed(&self, path: &str, error: Error) {
        let (offset, what) = match error {
            Error::Format { source, .. } => {
                let offset = source.offset();
                match source {
                    FormatError::Invalid { what, .. } => (offset, what),
                    other => (offset, other.to_string()),
                }
            }
            Error::Input { what, position, .. } => match position {
                Position::Offset(offset) => (offset, what),
                _ => (0, what),
            },
            Error::Io { action, source, .. } => (0, format!("cannot {action} it: {source}")),
            other => (0, other.to_string()),
        };
        self.problem(path, offset, what);
    }

    fn problem(&self, path: &str, offset: u64, what: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.problems.push(Problem {
            file: path.to_owned(),
            offset,
            what,
        });
    }
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

fn entry_of<'m>(manifest: &'m Manifest, path: &str) -> Option<&'m FileEntry> {
    let at = manifest.files.binary_search_by(|file| file.path.as_str().cmp(path));
    Some(&manifest.files[at.ok()?])
}
