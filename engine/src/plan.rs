//! Estimates a store before it exists: chunks, bytes, and the time to build it and to read it once.
//!
//! Sizes follow from the formats: the size of an adjacency list in Elias-Fano code depends on its degree alone. Degrees
//! are not known beforehand, so they are assumed ([`Degrees`]): skewed as in an R-MAT graph with the parameters of
//! Graph500, as in many social and web graphs, or even as in a uniformly random graph, which needs the most space.
//! Graphs whose ids have locality need less if they are ingested in the order of their ids; the estimate ignores gap
//! code.
//!
//! A pass takes the time of the disk or of the processors, whichever is longer:
//!
//! ```text
//! ingest       pass 1: read the input, write spill files                 read_ns an edge and thread
//!              pass 2: read spill files, write adjacency lists           sort_ns an edge and thread
//!              the same for features, by the byte
//! super-epoch  read adjacency lists and features once, decode them       decode_ns an edge and thread
//! ```
//!
//! Input and store move between disk and memory once. Spill files move only as far as they exceed the free memory: the
//! kernel keeps written pages for reading, and lets a fifth of free memory be dirty before it makes the writer wait for
//! the disk (`vm.dirty_ratio`).
//!
//! [`Rates`] are measurements. `benches/record/ingest.md` has them.

mod degrees;
pub mod measure;
mod minibatch;
#[cfg(test)]
mod tests;
pub mod train;

use grappa_formats::{
    NODES_MAX,
    chunks::ChunkMap,
    container::{FileKind, Header},
    edge_rows::{EdgeRowsMeta, WEIGHT},
    features::{DIM_MAX, FeatureLayout, FeaturesMeta},
    labels::LabelsMeta,
    manifest::{FeatureDtype, LabelKind, LabelSpec},
    rows::{LINE_BYTES, LINE_ROWS, PADDING_BYTES, RowsMeta, elias_fano_bits},
    splits::META_BYTES as SPLIT_META_BYTES,
};
use grappa_ingestion::ingest::{
    RandomSplit, Shares, ValueShape,
    plan::{IngestBudget, SpillPlan, check_buckets, chunk_map, directory_memory},
};
use grappa_io::{Error, Result, sort::bits_for};
use serde::{Deserialize, Serialize};

pub use self::degrees::Degrees;
use self::{
    degrees::{degree_classes, expected},
    train::TrainRates,
};

/// Bytes of an edge in the input: a row of a `.npy` of 64-bit ids. A text line with ids of up to eight digits is no
/// longer.
const INPUT_EDGE_BYTES: u64 = 16;
/// Bytes of a feature value in the input.
const INPUT_VALUE_BYTES: u64 = 4;
/// The share of free memory that may be written but not yet on disk.
const DIRTY_PART: u64 = 5;
/// Bytes of a word of a spilled record.
const WORD_BYTES: u64 = 8;
/// Degrees from the first number on take an exception in the directory; the second is its size in bytes.
const EXCEPTION: (u64, u64) = (255, 6);
/// Bytes in a manifest for each file, with its name.
const FILE_ENTRY_BYTES: u64 = 40;
/// Bytes in manifest and assignment for each chunk, without its edge buckets.
const CHUNK_ENTRY_BYTES: u64 = 32 + 12;
/// More edges than the chunks of a store can hold. A manifest has at most 2^13 chunks.
const EDGES_MAX: u64 = 1 << 56;

/// The graph, and how it is built.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// The assumed distribution of degrees.
    pub degrees: Degrees,
    /// Values of a node and their type, if there are features.
    pub features: Option<(u32, FeatureDtype)>,
    /// Number of classes, if each node has one label.
    pub classes: Option<u32>,
    /// The shares of a random split, if there is one.
    pub split: Option<Shares>,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Values of an edge and their type, if edges have features.
    pub edge_features: Option<(u32, FeatureDtype)>,
    /// Number of parts of the edges that are held out of the graph: 0, 1 or 2.
    pub held_out_parts: u64,
    /// The number of chunks, if the user chooses one.
    pub chunks: Option<u32>,
    /// Bytes of memory for building the store.
    pub memory: u64,
    /// Disk bandwidth in bytes a second.
    pub disk_bandwidth: f64,
    /// Bytes of memory that the kernel can use to cache files.
    pub free_memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Speed of the processors.
    pub rates: Rates,
}

/// Processor time of one thread.
///
/// Measured on two cores of a shared AMD EPYC (5th generation, L2 1 MiB): processor time of grappa-ingest on R-MAT of scale
/// 22, edge factor 16, from `.npy` with a given number of nodes, without features and with 64 features a node. It is divided
/// among the passes in proportion to their times. Decoding as in `benches/record/row-codec.md`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Nanoseconds to parse an edge, map its ids and spill it.
    pub edge_read_ns: f64,
    /// Nanoseconds to read back an edge, sort it and encode it.
    pub edge_sort_ns: f64,
    /// Nanoseconds to convert a byte of input features and spill it.
    pub feature_read_ns: f64,
    /// Nanoseconds to read back a byte of stored features, put it in place and write it.
    pub feature_write_ns: f64,
    /// Nanoseconds to decode an edge.
    pub edge_decode_ns: f64,
    /// Nanoseconds to decode a byte of stored features.
    pub feature_decode_ns: f64,
    /// Training.
    pub train: TrainRates,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            edge_read_ns: 18.0,
            edge_sort_ns: 17.0,
            feature_read_ns: 0.55,
            feature_write_ns: 0.9,
            edge_decode_ns: 3.2,
            feature_decode_ns: 0.25,
            train: TrainRates::default(),
        }
    }
}

/// The estimate. `grappa-store plan --json` prints it with these field names.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Edges in the store.
    pub edges: u64,
    /// The assumed distribution of degrees.
    pub degrees: Degrees,
    /// Number of chunks.
    pub chunks: u32,
    /// Bits of an edge, with its share of the directory; `None` if there are no edges.
    pub bits_per_edge: Option<f64>,
    /// Length of the files, by content.
    pub bytes: PlannedBytes,
    /// Scratch files.
    pub spill: SpillBytes,
    /// Parts of a chunk that are sorted in memory one by one.
    pub shards_per_chunk: u32,
    /// Bytes of memory for the whole build.
    pub memory: u64,
    /// Building the store.
    pub ingest: PlannedTime,
    /// One pass over adjacency lists and features.
    pub super_epoch: PlannedTime,
    /// The rates behind the times.
    pub rates: Rates,
}

/// Length of files in bytes, by content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PlannedBytes {
    /// Adjacency lists.
    pub edges: u64,
    /// Directories of adjacency lists.
    pub degrees: u64,
    /// Edge weights.
    pub weights: u64,
    /// Edge features.
    pub edge_features: u64,
    /// Feature rows.
    pub features: u64,
    /// Labels.
    pub labels: u64,
    /// Splits.
    pub splits: u64,
    /// Manifest and assignment.
    pub other: u64,
    /// The sum.
    pub total: u64,
}

impl PlannedBytes {
    /// Adjacency lists, and the weights and features of edges.
    fn of_edges(&self) -> u64 {
        self.edges + self.degrees + self.weights + self.edge_features
    }
}

/// Scratch files in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpillBytes {
    /// While edges are sorted.
    pub edges: u64,
    /// While features are sorted.
    pub features: u64,
    /// The maximum at any time.
    pub peak: u64,
}

/// A duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PlannedTime {
    /// In total.
    pub seconds: f64,
    /// Of the disk alone.
    pub disk_seconds: f64,
    /// Of the processors alone.
    pub processor_seconds: f64,
}

/// Estimates a store.
///
/// # Errors
/// If such a store is impossible, or the memory is too small to build it.
///
/// # Panics
/// If there are no threads, or the disk bandwidth is 0.
pub fn plan(options: &PlanOptions) -> Result<Plan> {
    assert!(options.threads > 0 && options.disk_bandwidth > 0.0);
    if options.nodes > NODES_MAX || options.edges > EDGES_MAX {
        return Err(Error::limit(
            format!("the graph has {} nodes and {} edges", options.nodes, options.edges),
            "2^40 nodes, and 2^48 bits of adjacency lists in a chunk",
            "plan a smaller graph",
        ));
    }
    if options.features.is_some_and(|(dim, _)| !(1..=DIM_MAX).contains(&dim)) {
        return Err(Error::out_of_range(
            "features",
            format!("1 to {DIM_MAX} values per node"),
            options.features.map_or(0, |(dim, _)| dim),
        ));
    }
    if options.classes == Some(0) {
        return Err(Error::out_of_range("the number of classes", "at least 1", 0));
    }
    if options.split.is_some() && RandomSplit::memory(options.nodes) > options.memory {
        return Err(Error::Budget {
            operation: format!("a split of {} nodes", options.nodes),
            given: options.memory,
            least: RandomSplit::memory(options.nodes),
            remedy: "raise --memory, or omit --split",
        });
    }
    let chunks = chunk_map(options.nodes, options.chunks)?;
    check_buckets(&chunks, u64::from(chunks.chunks()))?;
    let budget = IngestBudget::new(options.memory, 1, options.threads);
    directory_memory(&chunks, 1 + options.held_out_parts, &budget)?;
    let shape = ValueShape {
        width: usize::from(options.weighted) + options.edge_features.map_or(0, |(dim, _)| dim as usize),
        is_timed: false,
        is_ordered: false,
    };
    let record_words = 1 + shape.words() as u64;
    let source_bits = bits_for(options.nodes);
    let spill_plan = SpillPlan::of_edges(&chunks, options.edges, shape.sort_cost(), source_bits, &budget)?;

    let layout = options.features.map(|(dim, dtype)| FeatureLayout::new(dtype, dim));
    let bytes = bytes(options, &chunks, layout);
    let spill_edges = options.edges * record_words * WORD_BYTES;
    let spill_features =
        layout.map_or(0, |layout| options.nodes * (1 + u64::from(layout.stride).div_ceil(WORD_BYTES)) * WORD_BYTES);
    Ok(Plan {
        nodes: options.nodes,
        edges: options.edges,
        degrees: options.degrees,
        chunks: chunks.chunks(),
        bits_per_edge: (options.edges > 0).then(|| (bytes.edges + bytes.degrees) as f64 * 8.0 / options.edges as f64),
        bytes,
        spill: SpillBytes { edges: spill_edges, features: spill_features, peak: spill_edges.max(spill_features) },
        shards_per_chunk: spill_plan.shards_per_chunk,
        memory: options.memory,
        ingest: ingest_time(options, &bytes, spill_edges, spill_features),
        super_epoch: super_epoch_time(options, &bytes),
        rates: options.rates,
    })
}

fn bytes(options: &PlanOptions, chunks: &ChunkMap, layout: Option<FeatureLayout>) -> PlannedBytes {
    let (bits, exceptions) = row_sizes(options);
    let mut bytes = PlannedBytes::default();
    let (nodes, files) = (options.nodes, u64::from(chunks.chunks()));
    // Chunks differ by one node at most, or are random samples, so each has its share.
    let per_chunk = |amount: f64| (amount / files as f64).ceil() as u64;
    let rows = nodes.div_ceil(files);
    let mut names = 2;
    bytes.edges = files * file_bytes(FileKind::ROWS, RowsMeta::BYTES, per_chunk(bits / 8.0) + PADDING_BYTES as u64);
    let directory = rows.div_ceil(LINE_ROWS) * LINE_BYTES as u64 + per_chunk(exceptions) * EXCEPTION.1;
    bytes.degrees = files * file_bytes(FileKind::DEGREES, RowsMeta::BYTES, directory);
    if options.weighted {
        bytes.weights = files * edge_rows_bytes(FileKind::WEIGHTS, WEIGHT, per_chunk(options.edges as f64), rows);
        names += 1;
    }
    if let Some((dim, dtype)) = options.edge_features {
        let layout = FeatureLayout::new(dtype, dim);
        let edges = per_chunk(options.edges as f64);
        bytes.edge_features = files * edge_rows_bytes(FileKind::EDGE_FEATURES, layout, edges, rows);
        names += 1;
    }
    // A part has its own directories. Its edges are among the edges that are counted above.
    let part_bytes = file_bytes(FileKind::DEGREES, RowsMeta::BYTES, rows.div_ceil(LINE_ROWS) * LINE_BYTES as u64);
    bytes.degrees += files * options.held_out_parts * part_bytes;
    names *= 1 + options.held_out_parts;
    if let Some(layout) = layout {
        bytes.features = files * file_bytes(FileKind::FEATURES, FeaturesMeta::BYTES, rows * u64::from(layout.stride));
        names += 1;
    }
    if let Some(classes) = options.classes {
        let spec = LabelSpec::new(LabelKind::Single, classes);
        bytes.labels = files * file_bytes(FileKind::LABELS, LabelsMeta::BYTES, rows * u64::from(spec.row_bytes()));
        names += 1;
    }
    if let Some(shares) = options.split {
        bytes.splits = shares.fractions().into_iter().map(|share| split_bytes(nodes, share)).sum();
    }
    bytes.other = 512 + files * (8 * files + CHUNK_ENTRY_BYTES + names * FILE_ENTRY_BYTES);
    bytes.total = bytes.of_edges() + bytes.features + bytes.labels + bytes.splits + bytes.other;
    bytes
}

/// Length of a file with a row for each edge.
fn edge_rows_bytes(kind: FileKind, layout: FeatureLayout, edges: u64, nodes: u64) -> u64 {
    file_bytes(kind, EdgeRowsMeta::bytes(kind), EdgeRowsMeta::payload_bytes(layout, edges, nodes))
}

/// Length of the file of a split that has this share of the nodes, at random.
fn split_bytes(nodes: u64, share: f64) -> u64 {
    if share == 0.0 {
        return 0;
    }
    // A container of the bitmap has 2^16 nodes: one bit for each, or two bytes for each in the split.
    let (full, rest) = (nodes >> 16, nodes % (1 << 16));
    let [of_full, of_rest] = [65536.0, rest as f64].map(|nodes| match nodes * share > 4096.0 {
        true => 8192.0,
        false => 2.0 * nodes * share,
    });
    let payload = full as f64 * (of_full + 8.0) + of_rest + 8.0;
    file_bytes(FileKind::SPLIT, SPLIT_META_BYTES, payload as u64)
}

/// Length of a container file.
fn file_bytes(kind: FileKind, meta: usize, payload: u64) -> u64 {
    Header::payload_offset(kind, meta) + payload + payload.div_ceil(kind.block_bytes() as u64) * 8
}

/// Bits of all adjacency lists, and the number of lists whose degree does not fit the directory.
fn row_sizes(options: &PlanOptions) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    if options.nodes == 0 {
        return sums;
    }
    let source_max = options.nodes - 1;
    for class in degree_classes(options.nodes, options.edges, options.degrees) {
        let (bits, exceptions) = expected(class.mean, |degree| {
            let is_exception = degree >= EXCEPTION.0;
            (elias_fano_bits(degree, source_max) as f64, f64::from(u8::from(is_exception)))
        });
        sums.0 += class.nodes * bits;
        sums.1 += class.nodes * exceptions;
    }
    sums
}

fn ingest_time(options: &PlanOptions, bytes: &PlannedBytes, spill_edges: u64, spill_features: u64) -> PlannedTime {
    let (rates, edges) = (&options.rates, options.edges as f64);
    // Free memory holds a part of what is spilled: all of it when it is read, and what the system may keep unwritten before.
    let (cached, dirty) = (options.free_memory, options.free_memory / DIRTY_PART);
    let mut time = Passes { options, sum: PlannedTime::default() };
    let values = u64::from(options.weighted) + options.edge_features.map_or(0, |(dim, _)| dim.into());
    let input = options.edges * (INPUT_EDGE_BYTES + values * INPUT_VALUE_BYTES);
    time.pass(input + spill_edges.saturating_sub(dirty), edges * rates.edge_read_ns);
    time.pass(spill_edges.saturating_sub(cached) + bytes.of_edges(), edges * rates.edge_sort_ns);
    if let Some((dim, _)) = options.features {
        let input = options.nodes * u64::from(dim) * INPUT_VALUE_BYTES;
        time.pass(input + spill_features.saturating_sub(dirty), input as f64 * rates.feature_read_ns);
        time.pass(
            spill_features.saturating_sub(cached) + bytes.features,
            bytes.features as f64 * rates.feature_write_ns,
        );
    }
    time.sum
}

fn super_epoch_time(options: &PlanOptions, bytes: &PlannedBytes) -> PlannedTime {
    let rates = &options.rates;
    let mut time = Passes { options, sum: PlannedTime::default() };
    time.pass(bytes.of_edges(), options.edges as f64 * rates.edge_decode_ns);
    time.pass(bytes.features, bytes.features as f64 * rates.feature_decode_ns);
    time.sum
}

/// Adds up passes. Each takes as long as the slower of disk and processors.
struct Passes<'a> {
    options: &'a PlanOptions,
    sum: PlannedTime,
}

impl Passes<'_> {
    /// A pass with the given transfer in bytes and processor time over all threads.
    fn pass(&mut self, bytes: u64, processor_ns: f64) {
        let disk = bytes as f64 / self.options.disk_bandwidth;
        let processor = processor_ns / 1e9 / self.options.threads as f64;
        self.sum.disk_seconds += disk;
        self.sum.processor_seconds += processor;
        self.sum.seconds += disk.max(processor);
    }
}
