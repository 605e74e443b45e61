//! Describes a store: counts, sizes, and the distribution of its degrees.
//!
//! Everything but the degrees is in the manifest and the headers. Degrees are counted exactly, from the directories of
//! adjacency lists: about a byte for each node is read, chunk by chunk, on all threads (in gap code, also the start of each
//! list).

mod graph;
mod times;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    ChunkId, EdgePart,
    aggregates::AggregateKind,
    container::FileKind,
    manifest::{ExternalIds, FeatureSource, LabelKind, Manifest, PermutationSpec, SelfLoops, Sources},
};
use grappa_io::{Error, Result, progress::Progress, workers};
use grappa_storage::{Relation, Store, aggregates::Aggregates, files};
use serde::Serialize;

use self::times::{node_times_info, times_info};
pub use self::{
    graph::{GraphInfo, NodeTypeInfo, RelationInfo, graph_info},
    times::{NodeTimesInfo, TimeAxisInfo, TimesInfo},
};

/// Degrees are below 2^48.
const DEGREE_BITS_MAX: u32 = 48;
/// Adjacency lists whose pages stay in memory while a chunk is counted.
const RELEASE_ROWS: u64 = 1 << 22;

/// The description of a store. Field names are the keys of the JSON object that `grappa-store info --json` prints.
#[derive(Debug, Clone, Serialize)]
pub struct Info {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Edges of the graph.
    pub edges: u64,
    /// Edges that are held out of the graph for validation; `None` if there is no such part.
    pub edges_val: Option<u64>,
    /// As `edges_val`, for test.
    pub edges_test: Option<u64>,
    /// How they were drawn, such as `80/10/10, seed 0`.
    pub edge_split: Option<String>,
    /// Chunks of the graph.
    pub chunks: u32,
    /// Chunks whose files exist; fewer than `chunks` in a slice.
    pub chunks_present: u32,
    /// Other chunks whose features a slice has, for halo nodes.
    pub chunks_halo: u32,
    /// Those of these chunks whose in-degrees it has, too.
    pub chunks_halo_degrees: u32,
    /// Bits of an edge, with its share of the directory; `None` if there are no edges.
    pub bits_per_edge: Option<f64>,
    /// Length of the files, by content.
    pub bytes: Bytes,
    /// In-degrees of the nodes of the existing chunks, in buckets from 0 up to the largest.
    pub degree_histogram: Vec<DegreeBucket>,
    /// The largest in-degree.
    pub degree_max: u64,
    /// The mean in-degree of the nodes of the existing chunks; `None` if there are none.
    pub degree_mean: Option<f64>,
    /// The features, if there are any.
    pub features: Option<FeaturesInfo>,
    /// The name of each dimension of the features. Empty if they have none.
    pub feature_names: Vec<String>,
    /// The pre-aggregated features of each kind.
    pub aggregates: Vec<AggregatesInfo>,
    /// Number of classes or targets, if there are labels.
    pub classes: Option<u32>,
    /// The name of each class. Empty if they have none.
    pub class_names: Vec<String>,
    /// `single`, `multi`, `partial` or `targets`, if there are labels.
    pub labels: Option<&'static str>,
    /// Nodes in each split.
    pub splits: SplitsInfo,
    /// How the splits were drawn, such as `60/20/20, seed 0, stratified`, if ingest drew them.
    pub random_split: Option<String>,
    /// Generation of the assignment of edge buckets to partitions.
    pub generation: u64,
    /// Number of partitions in it.
    pub partitions: u32,
    /// The schedule: `sweep`, `shuffle` or `fixed`; `whole` if the store was not partitioned.
    pub schedule: String,
    /// The kind of external ids: `dense`, `sparse` or `string`.
    pub ids: &'static str,
    /// The node permutation: `range` (by external id), `random`, `time` or `table`.
    pub order: &'static str,
    /// The seed of the random permutation.
    pub seed: Option<u64>,
    /// Whether edges have weights.
    pub weighted: bool,
    /// The times of edges, if they have any.
    pub times: Option<TimesInfo>,
    /// The times of nodes, if they have any.
    pub node_times: Option<NodeTimesInfo>,
    /// The features of edges, if they have any.
    pub edge_features: Option<EdgeFeaturesInfo>,
    /// The name of each dimension of the edge features. Empty if they have none.
    pub edge_feature_names: Vec<String>,
    /// Whether each edge was stored in both directions.
    pub undirected: bool,
    /// Whether parallel edges were merged.
    pub dedup: bool,
    /// How self-loops were treated: `keep`, `drop` or `add`.
    pub self_loops: &'static str,
    /// Edges in the input.
    pub edges_read: u64,
    /// Lines of the input that were not edges.
    pub rejected: u64,
    /// The recipe of a generated graph.
    pub generator: Option<serde_json::Value>,
    /// The program that wrote the store.
    pub writer: String,
}

/// Length of files in bytes, by content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Adjacency lists.
    pub edges: u64,
    /// Directories of adjacency lists.
    pub degrees: u64,
    /// Edge weights.
    pub weights: u64,
    /// Edge features.
    pub edge_features: u64,
    /// Times of edges or nodes, their directories, and the axis.
    pub times: u64,
    /// Feature rows.
    pub features: u64,
    /// Labels.
    pub labels: u64,
    /// Splits.
    pub splits: u64,
    /// Dictionary and node permutation.
    pub ids: u64,
    /// Manifest and assignments.
    pub other: u64,
    /// Pre-aggregated features.
    pub aggregates: u64,
    /// The sum.
    pub total: u64,
}

/// Nodes whose in-degree is in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DegreeBucket {
    /// The smallest degree of the range.
    pub from: u64,
    /// The largest degree of the range.
    pub to: u64,
    /// Number of nodes.
    pub nodes: u64,
}

/// The features of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeaturesInfo {
    /// Values of a node.
    pub dim: u32,
    /// The type of a value.
    pub dtype: &'static str,
    /// Length of their files.
    pub bytes: u64,
    /// `stored`, or `procedural` if they are computed when needed.
    pub source: &'static str,
}

/// The edge features of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EdgeFeaturesInfo {
    /// Values of an edge.
    pub dim: u32,
    /// The type of a value.
    pub dtype: &'static str,
    /// Length of their files.
    pub bytes: u64,
}

/// The pre-aggregated features of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AggregatesInfo {
    /// The kind, such as `mean`.
    pub kind: &'static str,
    /// The type of a value.
    pub dtype: &'static str,
    /// Whether their files have the features too.
    pub with_features: bool,
    /// Length of their files.
    pub bytes: u64,
}

/// Nodes in each split; `None` if there is no such split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SplitsInfo {
    /// Training nodes.
    pub train: Option<u64>,
    /// Validation nodes.
    pub val: Option<u64>,
    /// Test nodes.
    pub test: Option<u64>,
}

fn nodes_of(manifest: &Manifest, split: &str) -> Option<u64> {
    let mut splits = manifest.splits.iter();
    splits.find(|entry| entry.name == split).map(|entry| entry.nodes)
}

fn edges_of(store: &Store, part: EdgePart) -> Result<Option<u64>> {
    let parts = store.manifest().held_out();
    parts.contains(&part).then(|| store.part_edges(part)).transpose()
}

/// Describes a store; counts degrees on `threads` threads.
pub fn info(store: &Store, threads: usize, progress: &dyn Progress) -> Result<Info> {
    let manifest = store.manifest();
    let aggregates = aggregates(store.into())?;
    let bytes = bytes(store, aggregates.iter().map(|of_kind| of_kind.bytes).sum())?;
    let counted = count_degrees(store, threads, bytes.degrees, progress)?;
    let schema = store.schema()?;
    Ok(Info {
        nodes: manifest.nodes,
        edges: manifest.edges,
        edges_val: edges_of(store, EdgePart::Val)?,
        edges_test: edges_of(store, EdgePart::Test)?,
        edge_split: manifest.edge_split().map(str::to_owned),
        chunks: store.chunks().chunks(),
        chunks_present: store.present_chunks().count() as u32,
        chunks_halo: manifest.chunks.iter().filter(|entry| entry.halo).count() as u32,
        chunks_halo_degrees: manifest.chunks.iter().filter(|entry| entry.halo_degrees).count() as u32,
        bits_per_edge: (manifest.edges > 0).then(|| counted.row_bytes as f64 * 8.0 / manifest.edges as f64),
        times: times_info(store, |table_bytes| counted.time_bytes + table_bytes)?,
        node_times: node_times_info(store)?,
        bytes,
        degree_histogram: counted.histogram(),
        degree_max: counted.max,
        degree_mean: (counted.nodes > 0).then(|| manifest.edges as f64 / counted.nodes as f64),
        features: features_info(manifest, &bytes),
        feature_names: schema.feature_names(),
        edge_feature_names: schema.edge_feature_names(),
        aggregates,
        classes: manifest.labels.map(|labels| labels.classes),
        class_names: schema.classes,
        labels: labels_name(manifest),
        splits: splits_info(manifest),
        random_split: manifest.random_split().map(str::to_owned),
        generation: store.generation(),
        partitions: store.assignment().partitions(),
        schedule: store.assignment().schedule().to_owned(),
        ids: ids_name(manifest),
        order: match manifest.ids.permutation {
            PermutationSpec::Identity => "range",
            PermutationSpec::Feistel(_) => "random",
            PermutationSpec::Table if manifest.has_node_times() => "time",
            PermutationSpec::Table => "table",
        },
        seed: match manifest.ids.permutation {
            PermutationSpec::Feistel(seed) => Some(seed),
            _ => None,
        },
        weighted: manifest.weighted,
        edge_features: edge_features_info(store, &bytes),
        undirected: manifest.edge_options.undirected,
        dedup: manifest.edge_options.dedup,
        self_loops: self_loops_name(manifest.edge_options.self_loops),
        edges_read: manifest.edges_read,
        rejected: manifest.rejected,
        // Text that is not JSON is shown unchanged.
        generator: recipe_json(&manifest.generator),
        writer: manifest.writer.clone(),
    })
}

fn features_info(manifest: &Manifest, bytes: &Bytes) -> Option<FeaturesInfo> {
    manifest.features.as_ref().map(|spec| FeaturesInfo {
        dim: spec.dim,
        dtype: spec.dtype.name(),
        bytes: bytes.features,
        source: match spec.source {
            FeatureSource::Stored => "stored",
            FeatureSource::Procedural => "procedural",
        },
    })
}

fn edge_features_info(store: &Store, bytes: &Bytes) -> Option<EdgeFeaturesInfo> {
    store.edge_features().map(|layout| EdgeFeaturesInfo {
        dim: layout.dim,
        dtype: layout.dtype.name(),
        bytes: bytes.edge_features,
    })
}

fn labels_name(manifest: &Manifest) -> Option<&'static str> {
    manifest.labels.map(|labels| match labels.kind {
        LabelKind::Single => "single",
        LabelKind::Multi => "multi",
        LabelKind::Partial => "partial",
        LabelKind::Targets => "targets",
    })
}

fn splits_info(manifest: &Manifest) -> SplitsInfo {
    let [train, val, test] = ["train", "val", "test"].map(|name| nodes_of(manifest, name));
    SplitsInfo { train, val, test }
}

fn ids_name(manifest: &Manifest) -> &'static str {
    match manifest.ids.external {
        ExternalIds::Dense => "dense",
        ExternalIds::Sparse => "sparse",
        ExternalIds::String => "string",
    }
}

fn self_loops_name(self_loops: SelfLoops) -> &'static str {
    match self_loops {
        SelfLoops::Keep => "keep",
        SelfLoops::Drop => "drop",
        SelfLoops::Add => "add",
    }
}

fn aggregates(relation: Relation<'_>) -> Result<Vec<AggregatesInfo>> {
    let found = AggregateKind::ALL.into_iter().filter_map(|kind| {
        let info = |of_kind: Aggregates| AggregatesInfo {
            kind: kind.name(),
            dtype: of_kind.layout().dtype.name(),
            with_features: of_kind.with_features(),
            bytes: of_kind.bytes(),
        };
        Aggregates::open(relation, kind).map(|found| found.map(info)).transpose()
    });
    found.collect()
}

fn bytes(store: &Store, aggregates: u64) -> Result<Bytes> {
    let mut bytes = Bytes { aggregates, total: aggregates, ..Bytes::default() };
    for file in &store.manifest().files {
        let part = match files::kind_of(&file.path) {
            Some(FileKind::ROWS) => &mut bytes.edges,
            Some(FileKind::DEGREES) => &mut bytes.degrees,
            Some(FileKind::WEIGHTS) => &mut bytes.weights,
            Some(FileKind::EDGE_FEATURES) => &mut bytes.edge_features,
            Some(FileKind::TIME_AXIS | FileKind::TIMES | FileKind::TIME_DEGREES) => &mut bytes.times,
            Some(FileKind::FEATURES) => &mut bytes.features,
            Some(FileKind::LABELS) => &mut bytes.labels,
            Some(FileKind::SPLIT) => &mut bytes.splits,
            Some(FileKind::DICTIONARY | FileKind::PERMUTATION) => &mut bytes.ids,
            _ => &mut bytes.other,
        };
        *part += file.bytes;
        bytes.total += file.bytes;
    }
    // Members of a graph have no assignments.
    let others = match store.manifest().sources {
        Sources::Nodes => bytes_beside_members(store.path())?,
        Sources::Type(_) | Sources::None => file_bytes(store.path().join(files::MANIFEST))?,
    };
    bytes.other += others;
    bytes.total += others;
    Ok(bytes)
}

/// The length of the manifest and the assignments of a store or graph in bytes.
fn bytes_beside_members(path: &Path) -> Result<u64> {
    let folder = path.join(files::ASSIGNMENTS);
    let mut bytes = file_bytes(path.join(files::MANIFEST))?;
    for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
        bytes += file_bytes(entry.map_err(Error::io("list", &folder))?.path())?;
    }
    Ok(bytes)
}

fn file_bytes(path: PathBuf) -> Result<u64> {
    match fs::metadata(&path) {
        Ok(file) => Ok(file.len()),
        // An old generation, which a repartitioning removed meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::io("read the length of", path)(e)),
    }
}

/// The recipe of a generated graph.
fn recipe_json(generator: &str) -> Option<serde_json::Value> {
    (!generator.is_empty()).then(|| serde_json::from_str(generator).unwrap_or_else(|_| generator.into()))
}

/// Counts of some chunks.
#[derive(Default)]
struct Counted {
    nodes: u64,
    /// Bytes of adjacency lists and directories, without headers and checksums.
    row_bytes: u64,
    /// The same of the times of edges.
    time_bytes: u64,
    max: u64,
    /// Nodes of degree 0, then of degrees with one bit, two bits, ...
    by_bits: Vec<u64>,
}

fn count_degrees(store: &Store, threads: usize, bytes: u64, progress: &dyn Progress) -> Result<Counted> {
    progress.stage("counting degrees", Some(bytes));
    let chunks: Vec<ChunkId> = store.present_chunks().collect();
    let total = Mutex::new(Counted::default());
    workers::for_each(threads, &chunks, |chunk| {
        let counted = Counted::of_chunk(store, chunk)?;
        progress.advance(store.file_entry(&files::of_chunk(chunk, "degrees")).bytes, 0);
        total.lock().unwrap_or_else(PoisonError::into_inner).add(&counted);
        Ok(())
    })?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Counted {
    fn of_chunk(store: &Store, chunk: ChunkId) -> Result<Self> {
        let chunk = store.chunk_in_order(chunk)?;
        let rows = chunk.rows();
        let mut counted = Self {
            nodes: rows.rows(),
            row_bytes: rows.meta().edges_payload_bytes() + rows.meta().degrees_payload_bytes(),
            time_bytes: chunk
                .times()
                .map_or(0, |times| times.meta().edges_payload_bytes() + times.meta().degrees_payload_bytes()),
            ..Self::default()
        };
        let mut by_bits = [0; DEGREE_BITS_MAX as usize + 1];
        for row in (0..rows.rows()).step_by(RELEASE_ROWS as usize) {
            let part = row..rows.rows().min(row + RELEASE_ROWS);
            for degree in rows.degrees(part.clone()) {
                let degree = degree?;
                counted.max = counted.max.max(degree);
                // A damaged degree may have more bits than any valid one.
                by_bits[(u64::BITS - degree.leading_zeros()).min(DEGREE_BITS_MAX) as usize] += 1;
            }
            chunk.release_rows(part);
        }
        counted.by_bits = by_bits.to_vec();
        Ok(counted)
    }

    fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.row_bytes += other.row_bytes;
        self.time_bytes += other.time_bytes;
        self.max = self.max.max(other.max);
        self.by_bits.resize(other.by_bits.len(), 0);
        self.by_bits.iter_mut().zip(&other.by_bits).for_each(|(sum, nodes)| *sum += nodes);
    }

    fn histogram(&self) -> Vec<DegreeBucket> {
        let last = self.by_bits.iter().rposition(|&nodes| nodes > 0);
        let buckets = last.map_or(0, |last| last + 1);
        (0..)
            .zip(&self.by_bits[..buckets])
            .map(|(bits, &nodes)| DegreeBucket { from: 1 << bits >> 1, to: (1 << bits) - 1, nodes })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_end_with_the_largest_degree() {
        let counted = Counted { by_bits: vec![5, 1, 0, 2, 0], ..Counted::default() };
        let histogram: Vec<_> = counted.histogram().iter().map(|b| (b.from, b.to, b.nodes)).collect();
        assert_eq!(histogram, [(0, 0, 5), (1, 1, 1), (2, 3, 0), (4, 7, 2)]);
        assert!(Counted::default().histogram().is_empty());
    }
}
