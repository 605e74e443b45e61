//! Features for a store that has none, computed from the graph.
//!
//! ```text
//! NAME.grappa/features.partial/   while they are made; one process at a time holds the folder
//!     recipe                      the features to make, and the digest of the store's manifest
//!     hop-<h>/chunk-<i>           fastrp: rows of earlier hops, complete files, synced one by one
//!     rows/chunk-<i>              the features, likewise
//!     manifest                    the next manifest, when all rows are there
//! NAME.grappa/chunk-<i>/features  renamed from rows/chunk-<i>, which nothing reads yet
//! NAME.grappa/manifest            replaced by one rename: now the store has features
//! ```
//!
//! Only this module replaces the manifest of a store. A run that is killed at any moment leaves the store either as it was
//! or with all features. The next run with the same recipe continues with the complete files; a run with another recipe
//! starts anew. No other file refers to the manifest of a store without features: assignments name no manifest, and
//! aggregates need features. Processes that have the store open keep the old manifest.
//!
//! In a graph with types, a node type gets features. The manifest of the graph lists the digest of each type's manifest. So the manifest of
//! the graph is replaced first, by one rename: now the type has features. A reader that does not find the listed manifest in the folder of
//! the type finds it in `features.partial` there. At last the manifest of the type is renamed, as the manifest of a store is.
//!
//! The result has the same bytes for any memory and any number of threads. Edge weights are ignored.

mod degrees;
mod fastrp;
mod neighbors;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_formats::{
    ChunkId,
    aggregates::AggregateFile,
    features::{DIM_MAX, FeatureLayout},
    graph::GraphManifest,
    manifest::{FeatureDtype, FeatureSource, FeatureSpec, FileEntry, Manifest},
};
use grappa_io::{
    Error, Position, Result,
    durable::{self, FolderLock},
    ledger::Ledger,
    progress::Progress,
    regular,
};
use grappa_storage::{
    Graph, Store, aggregates::manifest_digest, feature_rows::FeatureRowsWriter, files, read_manifest,
    read_manifest_of_member, writer::finished,
};
use serde::Serialize;

pub use self::{fastrp::FastRp, neighbors::NeighborMeans};
use crate::aggregate::Budget;

/// Name of the recipe: the options of a run and the digest of the manifest that it started from.
const RECIPE: &str = "recipe";
/// The folder of the rows that become the features.
const ROWS: &str = "rows";

/// Which features to compute.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureKind {
    /// 18 values of each node's in-degree d: `ln(1 + d)`, `1 / sqrt(1 + d)`, and a one-hot code of 16 values. Its first
    /// value is 1 for d = 0, value b for `2^(b - 1) <= d < 2^b`, and the last for all d from 2^14 on.
    ///
    /// In a store whose edges have a direction, 18 values of the out-degree follow: 36 in all.
    Degrees,
    /// Embeddings of the graph.
    FastRp(FastRp),
    /// For each of some relations into a node type, the mean of the features of a node's in-neighbors.
    Mean(NeighborMeans),
}

/// What gets features: a store, or a node type of a graph.
#[derive(Debug, Clone, Copy)]
pub struct FeatureTarget<'a> {
    nodes: &'a Store,
    /// The graph, and the number of the type.
    member: Option<(&'a Graph, usize)>,
}

impl<'a> From<&'a Store> for FeatureTarget<'a> {
    fn from(store: &'a Store) -> Self {
        Self { nodes: store, member: None }
    }
}

impl<'a> From<&'a Arc<Store>> for FeatureTarget<'a> {
    fn from(store: &'a Arc<Store>) -> Self {
        Self::from(&**store)
    }
}

impl<'a> FeatureTarget<'a> {
    /// A node type of a graph.
    ///
    /// # Panics
    /// If there is no such type.
    pub fn node_type(graph: &'a Graph, node_type: usize) -> Self {
        let member = graph.has_types().then_some((graph, node_type));
        Self { nodes: &graph.node_types()[node_type], member }
    }

    /// Makes `next` the manifest of the nodes.
    fn replace_manifest(&self, next: &Path, digest: u64) -> Result<()> {
        if let Some((graph, node_type)) = self.member {
            // Another process may give features to another type.
            let _lock = FolderLock::wait(&graph.path().join(files::ASSIGNMENTS))?;
            let file = graph.path().join(files::MANIFEST);
            let mut manifest = GraphManifest::decode(&regular::read(&file)?).map_err(Error::format(&file))?;
            manifest.node_types[node_type].digest = digest;
            durable::write_file(&file, &manifest.encode())?;
        }
        durable::rename(next, &self.nodes.path().join(files::MANIFEST))
    }

    /// Ends a run that was killed after the graph had got the next manifest of the type.
    fn finish_earlier(&self, next: &Path) -> Result<()> {
        let Some((graph, node_type)) = self.member else { return Ok(()) };
        let listed = graph.manifest().node_types[node_type].digest;
        let found = regular::read_if_there(next)?.and_then(|bytes| Manifest::decode(&bytes).ok());
        match found.is_some_and(|found| found.digest() == listed) {
            true => durable::rename(next, &self.nodes.path().join(files::MANIFEST)),
            false => Ok(()),
        }
    }
}

/// Options of [`add_features`].
#[derive(Debug, Clone)]
pub struct AddFeatures {
    /// The features to compute.
    pub kind: FeatureKind,
    /// The type in which values are stored.
    pub dtype: FeatureDtype,
    /// Memory and threads to use.
    pub budget: Budget,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

/// The result of [`add_features`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddedFeatures {
    /// Nodes, one row each.
    pub nodes: u64,
    /// Values of a node.
    pub dim: u32,
    /// Length of the files in bytes.
    pub bytes: u64,
    /// Chunks whose features an earlier run had finished.
    pub chunks_kept: u32,
    /// Who took how much of the memory. Without phases if an earlier run had finished all chunks.
    pub memory: Ledger,
}

impl FeatureKind {
    /// The name users write: `degrees`, `fastrp` or `mean`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Degrees => "degrees",
            Self::FastRp(_) => "fastrp",
            Self::Mean(_) => "mean",
        }
    }

    /// Values of a node, in a store with this manifest.
    pub fn dim(&self, manifest: &Manifest) -> u32 {
        match self {
            Self::Degrees => degrees::dim(manifest),
            Self::FastRp(options) => options.dim,
            Self::Mean(means) => means.dim,
        }
    }
}

/// As options on the command line: `--kind fastrp --dim 128 --hop-weights 1,1,1 --seed 1`.
impl fmt::Display for FeatureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degrees => f.write_str("--kind degrees"),
            Self::FastRp(options) => options.fmt(f),
            Self::Mean(means) => means.fmt(f),
        }
    }
}

/// Computes features and adds them to the store. Open the store again to see them.
///
/// While `fastrp` is computed, the disk also holds the rows of all hops but the last, in f32. [`crate::aggregate`] says how
/// often they are read. `degrees` reads all adjacency lists once for each `budget.memory / 8` nodes, but only once if edges
/// were ingested in both directions.
///
/// # Errors
/// If the store has features, or is a slice; if options do not fit together; if the memory is too small; or if a file cannot
/// be read or written. Finished files stay for the next run with the same options, unless the disk is full.
pub fn add_features<'a>(
    target: impl Into<FeatureTarget<'a>>,
    options: &AddFeatures,
    progress: &dyn Progress,
) -> Result<AddedFeatures> {
    let target = target.into();
    let store = target.nodes;
    let root = store.path();
    match (&options.kind, target.member) {
        (FeatureKind::Mean(_), None) => {
            return Err(Error::conflict(
                "features that are means of neighbors' features are for a node type of a graph with types",
                "use --kind fastrp or degrees",
            ));
        }
        (FeatureKind::Degrees | FeatureKind::FastRp(_), Some(_)) => {
            return Err(Error::conflict(
                "the nodes of a type have edges of several relations, which this kind does not tell apart",
                "use --kind mean",
            ));
        }
        (FeatureKind::FastRp(fastrp), None) => fastrp.check()?,
        (FeatureKind::Degrees, None) | (FeatureKind::Mean(_), Some(_)) => {}
    }
    let partial = Partial { root, path: partial_folder(store) };
    target.finish_earlier(&partial.manifest())?;
    if let Err(error) = check_store(root, store.manifest()) {
        // Left by a run that was killed after the store had got its features.
        if partial.path.exists() {
            let _lock = FolderLock::wait(&partial.path)?;
            partial.remove();
        }
        return Err(error);
    }
    let _lock = FolderLock::wait(&partial.path)?.watch(&partial.path)?;
    // Another process may have added features since the store was opened.
    let manifest = match target.member {
        None => read_manifest(root)?,
        Some(_) => read_manifest_of_member(root)?,
    };
    if let Err(error) = check_store(root, &manifest) {
        partial.remove();
        return Err(error);
    }
    partial.begin(&recipe(options, manifest_digest(root)?))?;

    // An earlier run may have written it.
    let stored = regular::read_if_there(&partial.manifest())?.and_then(|bytes| Manifest::decode(&bytes).ok());
    let mut memory = Ledger::new(options.budget.memory);
    let (next, chunks_kept) = match stored {
        Some(next) if partial.place(&next).is_ok() && partial.is_sound(&manifest, &next, options, progress)? => {
            (next, store.chunks().chunks())
        }
        _ => {
            let (files, chunks_kept) = match partial.make(target, options, &mut memory, progress) {
                Err(error) if error.is_disk_full() => {
                    partial.remove();
                    return Err(Error::DiskFull { source: Box::new(error), remedy: full_disk_remedy(store, options) });
                }
                made => made?,
            };
            let next = with_features(&manifest, options, &files);
            durable::write_file(&partial.manifest(), &next.encode())?;
            partial.place(&next)?;
            (next, chunks_kept)
        }
    };
    target.replace_manifest(&partial.manifest(), next.digest())?;
    partial.remove();
    let added = next.files.iter().filter(|file| is_added(&manifest, file));
    Ok(AddedFeatures {
        nodes: next.nodes,
        dim: options.kind.dim(&next),
        bytes: added.map(|file| file.bytes).sum(),
        chunks_kept,
        memory,
    })
}

/// The folder in which features grow until they are complete.
pub fn partial_folder<'a>(target: impl Into<FeatureTarget<'a>>) -> PathBuf {
    target.into().nodes.path().join(files::FEATURES_PARTIAL)
}

fn check_store(root: &Path, manifest: &Manifest) -> Result<()> {
    let problem = match () {
        () if manifest.features.is_some() => {
            "the nodes have features already, and a store's features are not replaced; ingest the graph once more, without \
             --features, for a store to add others to"
        }
        () if !manifest.is_whole() => {
            "the store is a slice of its graph, and features are computed from all edges; generate it without --only-chunks"
        }
        () => return Ok(()),
    };
    Err(Error::input(root, Position::Whole, problem))
}

fn full_disk_remedy(store: &Store, options: &AddFeatures) -> String {
    let dim = options.kind.dim(store.manifest());
    let row = u64::from(FeatureLayout::new(options.dtype, dim).stride);
    let hops = match &options.kind {
        FeatureKind::Degrees => 0,
        FeatureKind::FastRp(fastrp) => fastrp.hop_weights.len().saturating_sub(1) as u64,
        // The values of all relations but the last.
        FeatureKind::Mean(means) => u64::from(means.relations.len() > 1),
    };
    let bytes = store.manifest().nodes * (row + hops * u64::from(dim) * 4);
    format!(
        "these features take {} MiB of disk while they are computed: free some, or compute fewer values with --dim or in fewer \
         bytes with --dtype; what was made is removed",
        bytes.div_ceil(1 << 20)
    )
}

/// The recipe: decides whether files of an earlier run can be used.
fn recipe(options: &AddFeatures, manifest_digest: u64) -> String {
    format!("{} {} --dtype {} of manifest {manifest_digest:016x}\n", options.writer, options.kind, options.dtype.name())
}

/// The manifest of the store with features.
fn with_features(manifest: &Manifest, options: &AddFeatures, made: &[AggregateFile]) -> Manifest {
    let layout = FeatureLayout::new(options.dtype, options.kind.dim(manifest));
    let mut next = manifest.clone();
    next.writer = format!("{}; features: {} {}", manifest.writer, options.writer, options.kind);
    next.features = Some(FeatureSpec {
        dim: layout.dim,
        dtype: layout.dtype,
        row_stride: layout.stride,
        source: FeatureSource::Stored,
    });
    next.files.extend((0..).zip(made).map(|(chunk, file)| FileEntry {
        path: files::of_chunk(ChunkId(chunk), "features"),
        bytes: file.bytes,
        digest: file.digest,
    }));
    next.files.sort_by(|a, b| a.path.cmp(&b.path));
    next.check().expect("features make a valid manifest no other");
    next
}

/// Whether the old manifest does not list a file.
fn is_added(before: &Manifest, file: &FileEntry) -> bool {
    before.files.binary_search_by(|other| other.path.cmp(&file.path)).is_err()
}

/// The folder in which features grow.
struct Partial<'a> {
    root: &'a Path,
    path: PathBuf,
}

impl Partial<'_> {
    /// The path of the next manifest before it replaces the old one.
    fn manifest(&self) -> PathBuf {
        self.path.join(files::MANIFEST)
    }

    /// A folder inside, created if it does not exist.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path.join(name);
        durable::create_folder(&folder)?;
        durable::sync_folder(&self.path)?;
        Ok(folder)
    }

    /// Keeps the files of a run with the same recipe, and removes all others.
    fn begin(&self, recipe: &str) -> Result<()> {
        let file = self.path.join(RECIPE);
        if regular::read_if_there(&file)?.is_some_and(|found| found == recipe.as_bytes()) {
            return Ok(());
        }
        // The folder itself stays: its lock keeps other processes out.
        durable::empty_folder(&self.path)?;
        durable::sync_folder(&self.path)?;
        durable::write_file(&file, recipe.as_bytes())
    }

    /// Computes the rows of all chunks. Returns their files, and the number of those that were there before.
    fn make(
        &self,
        target: FeatureTarget<'_>,
        options: &AddFeatures,
        memory: &mut Ledger,
        progress: &dyn Progress,
    ) -> Result<(Vec<AggregateFile>, u32)> {
        let store = target.nodes;
        let layout = FeatureLayout::new(options.dtype, options.kind.dim(store.manifest()));
        let folder = self.folder(ROWS)?;
        let mut rows = FeatureRowsWriter::new(store, &folder, layout);
        let first = rows.keep_finished(options.budget.threads, progress)?;
        let chunks_kept = rows.finished().len() as u32;
        if chunks_kept < store.chunks().chunks() {
            let leases = match &options.kind {
                FeatureKind::Degrees => degrees::make(store, &mut rows, first, options.budget, progress)?,
                FeatureKind::FastRp(fastrp) => fastrp::make(
                    store,
                    fastrp,
                    &|number| self.folder(&format!("hop-{number}")),
                    &mut rows,
                    first,
                    options.budget,
                    progress,
                )?,
                FeatureKind::Mean(means) => {
                    let (graph, _) = target.member.expect("a type gets means");
                    let folder = &|number| self.folder(&format!("hop-{number}"));
                    neighbors::make(graph, means, folder, &mut rows, first, options.budget, progress)?
                }
            };
            memory.enter("computing features", leases)?;
            rows.complete()?;
        }
        Ok((rows.finished().to_vec(), chunks_kept))
    }

    /// Renames the files to their places unless they are there, and checks that `next` lists them.
    fn place(&self, next: &Manifest) -> Result<()> {
        for chunk in (0..next.chunks.len() as u32).map(ChunkId) {
            let path = files::of_chunk(chunk, "features");
            let made = self.path.join(ROWS).join(files::aggregate(chunk));
            if made.exists() {
                // A node type without data has no files of chunks.
                let folder = self.root.join(files::chunk_folder(chunk));
                if !folder.exists() {
                    durable::create_folder(&folder)?;
                    durable::sync_folder(self.root)?;
                }
                durable::rename(&made, &self.root.join(&path))?;
            }
            files::open(self.root, files::entry(next, &path))?;
        }
        Ok(())
    }

    /// Whether the features that `next` adds to a store with the manifest `before` have the right checksums. All are in their
    /// places.
    fn is_sound(
        &self,
        before: &Manifest,
        next: &Manifest,
        options: &AddFeatures,
        progress: &dyn Progress,
    ) -> Result<bool> {
        let added = next.files.iter().filter(|file| is_added(before, file)).cloned();
        let added = finished::with_kinds(self.root, added.collect())?;
        let damaged = finished::to_rewrite(self.root, &added, options.budget.threads, progress)?;
        Ok(damaged.is_empty())
    }

    /// Removes what is left, as far as possible. It is no part of the store.
    fn remove(&self) {
        if let Err(error) = durable::remove_folder(&self.path) {
            tracing::warn!("{error}");
        }
    }
}
