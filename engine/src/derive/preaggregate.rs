//! Pre-aggregates features: computes them for a finished store and keeps them beside its chunks.
//!
//! The first layer's aggregation of raw features has no parameters, so it can be computed once. A minibatch then needs one
//! hop less, and a partition knows the exact aggregates of its halo nodes.
//!
//! ```text
//! NAME.grappa/aggregates/mean.partial/    while they are made
//!     chunk-<i>                           complete files, synced one by one
//! NAME.grappa/aggregates/mean/            after one rename
//!     chunk-<i>, index
//! ```
//!
//! The next run continues a killed one: it keeps complete files of the same kind. The result has the same bytes for any
//! memory and any number of threads. A run that finds the disk full removes its files, so that other programs can write.
//!
//! Of a graph with node types, each relation whose sources have features has aggregates of its own, in its folder.
//!
//! Two renames replace existing aggregates: `mean` becomes `mean.old.partial`, which is removed at the end, and
//! `mean.partial` becomes `mean`. A run that is killed in between leaves a store without aggregates, and everything that the
//! next run needs to finish at once.

use std::{fs, io::ErrorKind, ops::Range, path::Path, sync::Arc};

use grappa_formats::{
    aggregates::{AggregateFile, AggregateIndex, AggregateKind},
    features::FeatureLayout,
    manifest::FeatureDtype,
};
use grappa_io::{
    Error, Position, Result,
    durable::{self, FolderLock},
    ledger::{Lease, Ledger, leased_bytes},
    machine::free_disk_bytes,
    progress::Progress,
};
use grappa_sampling::EdgeValues;
use grappa_storage::{
    MappedChunks, Relation, Store,
    aggregates::{folder, manifest_digest, partial_folder},
    feature_rows::FeatureRowsWriter,
    files, no_features,
    writer::with_suffix,
};
use serde::Serialize;

use crate::aggregate::{
    AllWeights, Budget, GcnSum, Mean, NodeRows, ScaledRows, Sum, WeightedGcnSum, WeightedMean, WeightedSum, WholeGraph,
    store_features,
};

/// Options of [`preaggregate`].
#[derive(Debug, Clone, Copy)]
pub struct AggregateOptions {
    /// How the rows of in-neighbors are reduced.
    pub kind: AggregateKind,
    /// The type in which values are stored. By default the type of the features.
    pub dtype: Option<FeatureDtype>,
    /// Memory and threads to use.
    pub budget: Budget,
    /// Whether each row is followed by the features of its node, so that a feed reads both together. They must be stored,
    /// and in the type of the rows.
    pub with_features: bool,
    /// Whether to replace existing aggregates.
    pub replace: bool,
}

impl AggregateOptions {
    /// New aggregates in the type of the features, apart from the features.
    pub const fn new(kind: AggregateKind, budget: Budget) -> Self {
        Self { kind, dtype: None, budget, with_features: false, replace: false }
    }
}

/// The result of [`preaggregate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Aggregated {
    /// Nodes; each has one row. A node counts once for each relation into its type.
    pub nodes: u64,
    /// Length of the files in bytes.
    pub bytes: u64,
    /// Chunks that an earlier run had finished.
    pub chunks_kept: u32,
    /// Who took how much of the memory. Without phases if an earlier run had finished all chunks.
    pub memory: Ledger,
}

/// The bytes that pre-aggregated features of a store take on disk, in the type of its features and without headers.
///
/// # Errors
/// If the store has no features.
pub fn aggregate_bytes<'a>(relation: impl Into<Relation<'a>>, with_features: bool) -> Result<u64> {
    let relation = relation.into();
    Ok(relation.edges.manifest().nodes * u64::from(layout(relation, None, with_features)?.stride))
}

/// Whether training with this memory should have features beside its aggregates: if both exceed it, their rows are read from
/// files again and again. `feature_bytes` is the size of the features alone.
pub fn wants_features_beside(feature_bytes: u64, memory: u64) -> bool {
    feature_bytes.saturating_mul(2) > memory
}

/// Computes pre-aggregated features of a relation, or of a store, and adds them to it. [`crate::aggregate`] says how often the features of
/// all sources are read.
///
/// # Errors
/// If there are some and `replace` is not set, the sources have no features, the store is a slice, GCN's kinds meet a relation of two types, a
/// weighted kind cannot take the weights of its edges or they have none, features that should follow are computed or of another type, the memory or the disk is too small, the
/// stored type cannot hold a value, or a file cannot be read or written. Finished files stay for the next run, unless the disk is full or the type has to change.
pub fn preaggregate<'a>(
    relation: impl Into<Relation<'a>>,
    options: &AggregateOptions,
    progress: &dyn Progress,
) -> Result<Aggregated> {
    let relation = relation.into();
    let store = relation.edges;
    let target = folder(store, options.kind);
    let old = with_suffix(&target, files::AGGREGATES_OLD);
    if target.exists() {
        // Left by a run that was killed after it had replaced them.
        durable::remove_folder(&old)?;
    }
    check_absent(&target, options.replace)?;
    check_ends(relation, options.kind)?;
    check_weights(store, options.kind)?;
    let layout = layout(relation, options.dtype, options.with_features)?;
    let features = store_features(relation.sources)?;
    let partial = partial_folder(store, options.kind);
    let lock = FolderLock::wait(&partial)?.watch(&partial)?;
    if let Err(error) = check_absent(&target, options.replace) {
        // Another process made them meanwhile.
        remove_empty(&partial);
        return Err(error);
    }
    let mut writer = match options.with_features {
        true => FeatureRowsWriter::with_features(store, &partial, layout, features.layout()),
        false => FeatureRowsWriter::new(store, &partial, layout),
    };
    let made =
        check_disk(store, layout, &partial).and_then(|()| make(relation, options, &*features, &mut writer, progress));
    let AggregateFiles { files, chunks_kept, memory } = match made {
        Err(error) if error.is_disk_full() => {
            drop(writer);
            durable::remove_folder(&partial)?;
            return Err(Error::DiskFull {
                source: Box::new(error),
                remedy: full_disk_remedy(store, layout, options.with_features),
            });
        }
        Err(error) => {
            drop(writer);
            // Another process may have made a folder of that name.
            if lock.is_at(&partial).unwrap_or(false) {
                // Another type makes other files, so nothing that was made is of use.
                if let Error::Unstorable { .. } = error {
                    durable::remove_folder(&partial)?;
                }
                remove_empty(&partial);
            }
            return Err(error);
        }
        Ok(made) => made,
    };
    durable::remove_folder(&old)?;
    if target.exists() {
        durable::rename(&target, &old)?;
    }
    durable::rename(&partial, &target)?;
    durable::sync_folder(store.path())?;
    durable::remove_folder(&old)?;
    Ok(Aggregated {
        nodes: store.manifest().nodes,
        bytes: files.iter().map(|file| file.bytes).sum(),
        chunks_kept,
        memory,
    })
}

/// The files of all rows, before they get their names.
struct AggregateFiles {
    files: Vec<AggregateFile>,
    /// The number of files that were there before.
    chunks_kept: u32,
    memory: Ledger,
}

/// Computes the missing rows and writes the index.
fn make(
    relation: Relation<'_>,
    options: &AggregateOptions,
    features: &dyn NodeRows,
    writer: &mut FeatureRowsWriter,
    progress: &dyn Progress,
) -> Result<AggregateFiles> {
    let store = relation.edges;
    let first = writer.keep_finished(options.budget.threads, progress)?;
    let chunks_kept = writer.finished().len() as u32;
    let sums = weight_sums(store, options)?;
    let width = features.width();
    let mut leases = vec![
        writer.lease(),
        Lease::new("sums of edge weights", size_of_val(&sums[..]) as u64, "weighted GCN divides by one sum per node"),
    ];
    let beside = leased_bytes(&leases);
    let budget = Budget { memory: options.budget.memory.saturating_sub(beside), ..options.budget };
    let folder = writer.folder().to_owned();
    let sink = &mut |nodes: Range<u64>, rows: &mut Vec<f32>| {
        keep_first(rows, (nodes.end - nodes.start) as usize, width);
        writer.write_with(nodes, rows, |nodes, out| features.read_encoded(nodes, out))
    };
    let edge_values = match options.kind.is_weighted() {
        true => EdgeValues::Weight,
        false => EdgeValues::Nothing,
    };
    let graph = |rows| WholeGraph { relation, rows, edge_values, budget, scratch: Some(&folder) };
    let aggregation = match options.kind {
        AggregateKind::Mean => graph(features).run(&Mean { width }, first, progress, sink),
        AggregateKind::Sum => graph(features).run(&Sum { width }, first, progress, sink),
        AggregateKind::Gcn => {
            let scaled = ScaledRows::new(features, store)?;
            graph(&scaled).run(&GcnSum { width }, first, progress, sink)
        }
        AggregateKind::WeightedMean => graph(features).run(&WeightedMean { width }, first, progress, sink),
        AggregateKind::WeightedSum => graph(features).run(&WeightedSum { width }, first, progress, sink),
        AggregateKind::WeightedGcn => {
            let scaled = ScaledRows::by_weights(features, &sums);
            graph(&scaled).run(&WeightedGcnSum { width }, first, progress, sink)
        }
    }
    .map_err(Error::in_budget(options.budget.memory, |least| least + beside))?;
    leases.extend(aggregation);
    let mut memory = Ledger::new(options.budget.memory);
    memory.enter("aggregation", leases)?;
    writer.complete()?;
    let files = writer.finished().to_vec();
    let index = AggregateIndex {
        kind: options.kind,
        manifest_digest: manifest_digest(store.path())?,
        files: files.iter().copied().map(Some).collect(),
    };
    durable::write_file(&writer.folder().join(files::AGGREGATE_INDEX), &index.encode())?;
    Ok(AggregateFiles { files, chunks_kept, memory })
}

/// Fails if GCN's kinds meet a relation of two types: its lists have the in-degrees of destinations alone.
fn check_ends(relation: Relation<'_>, kind: AggregateKind) -> Result<()> {
    match kind {
        AggregateKind::Gcn | AggregateKind::WeightedGcn if !relation.joins_one_type() => Err(Error::conflict(
            format!(
                "{}: {kind} divides by the in-degrees of both ends of an edge, and this relation joins nodes of two types",
                relation.edges.path().display()
            ),
            "use --kind mean or sum",
        )),
        _ => Ok(()),
    }
}

/// Fails if a weighted kind finds edges without weights.
fn check_weights(store: &Store, kind: AggregateKind) -> Result<()> {
    if !kind.is_weighted() || store.manifest().weighted {
        return Ok(());
    }
    let contradiction = format!("{}: {kind} takes the weights of edges, and these have none", store.path().display());
    Err(Error::conflict(contradiction, "use --kind mean, gcn or sum, or ingest the edges with --weight or --weights"))
}

/// Checks the weights of all edges if the kind takes them. Returns their sums for each node if GCN needs them, and else nothing.
fn weight_sums(store: &Store, options: &AggregateOptions) -> Result<Arc<[f32]>> {
    let kind = options.kind;
    if !kind.is_weighted() || !store.manifest().is_whole() {
        // Of a slice nothing is made.
        return Ok(Arc::default());
    }
    let weights = AllWeights {
        store,
        chunks: &MappedChunks::open(store)?,
        taker: kind.name(),
        divides: kind != AggregateKind::WeightedSum,
        remedy: "ingest other weights, or use --kind mean, gcn or sum",
        threads: options.budget.threads,
    };
    match kind {
        AggregateKind::WeightedGcn => weights.sums(),
        _ => weights.check().map(|()| Arc::default()),
    }
}

/// Shortens each of `count` rows to its first `width` values. Sums of weights may follow these.
fn keep_first(rows: &mut Vec<f32>, count: usize, width: usize) {
    let found = rows.len() / count.max(1);
    if found > width {
        (1..count).for_each(|row| rows.copy_within(row * found..row * found + width, row * width));
        rows.truncate(count * width);
    }
}

/// Removes the folder in which aggregates grow, and the folder of all aggregates, if there is nothing in them.
fn remove_empty(partial: &Path) {
    let _ = fs::remove_dir(partial);
    if let Some(all) = partial.parent() {
        let _ = fs::remove_dir(all);
    }
}

/// Fails early if the disk has no room for the rows that `partial` lacks.
fn check_disk(store: &Store, layout: FeatureLayout, partial: &Path) -> Result<()> {
    let mut missing = store.manifest().nodes * u64::from(layout.stride);
    for entry in fs::read_dir(partial).map_err(Error::io("list", partial))? {
        let metadata = entry.and_then(|entry| entry.metadata()).map_err(Error::io("list", partial))?;
        missing = missing.saturating_sub(metadata.len());
    }
    match free_disk_bytes(partial) {
        Some(free) if free < missing => Err(Error::io("make aggregates in", partial)(ErrorKind::StorageFull.into())),
        _ => Ok(()),
    }
}

fn full_disk_remedy(store: &Store, layout: FeatureLayout, with_features: bool) -> String {
    let bytes = store.manifest().nodes * u64::from(layout.stride);
    let free = match free_disk_bytes(store.path()) {
        Some(free) => format!(" ({} MiB are free now)", free >> 20),
        None => String::new(),
    };
    let (content, fewer) = match with_features {
        true => (" with features", "half as many bytes (`grappa-store preaggregate` without --with-features)"),
        false => ("", "fewer bytes with --dtype f16 or int8"),
    };
    format!(
        "aggregates of type {}{content} take {} MiB of disk{free}: free some, store them in {fewer}, or train without them with \
         --first-hop sampled",
        layout.dtype.name(),
        bytes.div_ceil(1 << 20)
    )
}

fn check_absent(target: &Path, replace: bool) -> Result<()> {
    if target.exists() && !replace {
        let problem = "these aggregates exist; use them, or make them again with --replace";
        return Err(Error::input(target, Position::Whole, problem));
    }
    Ok(())
}

fn layout(relation: Relation<'_>, dtype: Option<FeatureDtype>, with_features: bool) -> Result<FeatureLayout> {
    let Relation { sources: store, edges, .. } = relation;
    let is_member = store.path() != edges.path();
    let Some(spec) = &store.manifest().features else {
        return Err(match is_member {
            true => Error::conflict(
                format!("{}: the sources of this relation have no features", edges.path().display()),
                "choose a relation whose sources have features, or ingest the graph with features of that type",
            ),
            false => no_features(store.path()),
        });
    };
    if !with_features {
        return Ok(FeatureLayout::new(dtype.unwrap_or(spec.dtype), spec.dim));
    }
    let problem = match dtype {
        _ if is_member => "the features of a graph with node types are apart from its relations".to_owned(),
        _ if store.manifest().stored_features().is_none() => {
            "the features of the store are computed, not stored".to_owned()
        }
        Some(dtype) if dtype != spec.dtype => {
            format!("features have the type {} and aggregates would have {}", spec.dtype.name(), dtype.name())
        }
        _ => return Ok(FeatureLayout::with_features(spec.dtype, spec.dim)),
    };
    let store = store.path().display();
    Err(Error::conflict(
        format!("{store}: aggregates with features are requested, but {problem}"),
        "leave out --with-features",
    ))
}
