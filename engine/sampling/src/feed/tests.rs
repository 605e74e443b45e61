//! A feed delivers the same rows as a naive gather, for any kind of row, budget, number of threads and disk.

mod budget;
mod equality;
mod faults;
mod partitions;
mod planning;
mod register;
mod sharing;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use grappa_engine::derive::preaggregate::{AggregateOptions, preaggregate};
use grappa_formats::{
    ChunkId, NodeId,
    aggregates::AggregateKind,
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource},
    random,
};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{Error, Result, progress::Silent, read};
use grappa_storage::{Store, aggregates::Aggregates};
use grappa_synthetic::{Generator, Model, Recipe, Rmat};
use tempfile::TempDir;

use super::*;
use crate::sample::{Block, Minibatch};

const SCALE: u32 = 11;
pub(super) const NODES: u64 = 1 << SCALE;
const CHUNKS: u32 = 5;

/// A store whose nodes have feature vectors.
fn store(folder: &Path, features: Option<(FeatureDtype, u32, FeatureSource)>) -> Arc<Store> {
    store_with(folder, features, |_| {})
}

/// A store whose nodes have `dim` stored values, and the rows that a feed delivers as f32.
fn f32_rows(dim: u32) -> (TempDir, Arc<Store>, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, dim);
    let rows = rows(&store, OutputDtype::F32);
    (folder, store, rows)
}

fn store_with(
    folder: &Path,
    features: Option<(FeatureDtype, u32, FeatureSource)>,
    change: impl FnOnce(&mut StoreOptions),
) -> Arc<Store> {
    let mut options = StoreOptions {
        chunks: Some(CHUNKS),
        features: features.map(|(dtype, dim, source)| FeatureOptions { dim, dtype, source }),
        ..StoreOptions::new(Recipe::new(Model::Rmat(Rmat::graph500(SCALE, 2.0)), 3), folder.join("graph.grappa"))
    };
    change(&mut options);
    generate_store(&options, &Silent).unwrap();
    Arc::new(Store::open(&options.out).unwrap())
}

pub(super) fn stored(folder: &Path, dtype: FeatureDtype, dim: u32) -> Arc<Store> {
    store(folder, Some((dtype, dim, FeatureSource::Stored)))
}

fn all_chunks() -> Vec<ChunkId> {
    (0..CHUNKS).map(ChunkId).collect()
}

/// A source of minibatches of about 200 nodes. A few nodes are in nearly all of them.
#[derive(Debug, Clone)]
struct SkewedSource {
    seed: u64,
    batches: u64,
    rows: u64,
    /// A fault, and the batch that it is injected at.
    fault: Option<(u64, InjectedFault)>,
    /// All nodes are below it.
    nodes: u64,
}

#[derive(Debug, Clone, Copy)]
enum InjectedFault {
    Error,
    Panic,
    /// The batch has this many rows.
    Grow(u64),
    /// All batches from this one on have this many rows, and those that are sampled in advance are before it.
    GrowFrom(u64),
    /// Every batch is sampled this much slower.
    Delay(Duration),
    /// No batch is sampled before this is set.
    HoldUntil(&'static AtomicBool),
}

impl SkewedSource {
    fn new(seed: u64, batches: u64) -> Self {
        Self { seed, batches, rows: 200, fault: None, nodes: NODES }
    }

    fn with_fault(self, at: u64, fault: InjectedFault) -> Self {
        Self { fault: Some((at, fault)), ..self }
    }

    fn random(&self, index: u64, i: u64) -> u64 {
        random::draw_at(0, self.seed << 40 | index << 20 | i)
    }

    /// A minibatch, computed without a feed.
    fn minibatch(&self, index: u64) -> Minibatch {
        let rows = match self.fault {
            Some((at, InjectedFault::Grow(rows))) if at == index => rows,
            Some((at, InjectedFault::GrowFrom(rows))) if at <= index => rows,
            _ => self.rows - self.random(index, 0) % (self.rows / 4).max(1),
        };
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut i = 1;
        while (nodes.len() as u64) < rows {
            let uniform = self.random(index, i) as f64 / u64::MAX as f64;
            // Half of the nodes are drawn uniformly, half from a skewed distribution whose hot nodes are in all chunks.
            let node = match i % 2 {
                0 => (uniform * self.nodes as f64) as u64,
                _ => ((self.nodes as f64).powf(uniform) as u64).wrapping_mul(7919) % self.nodes,
            };
            let node = NodeId(node.min(self.nodes - 1));
            if seen.insert(node) {
                nodes.push(node);
            }
            i += 1;
        }
        let destinations = nodes.len().min(3);
        Minibatch {
            seeds: destinations,
            blocks: vec![Block {
                destinations,
                sources: nodes.len(),
                offsets: (0..=destinations as u32).collect(),
                indices: (0..destinations as u32).map(|i| i + index as u32).collect(),
                own: Vec::new(),
                edge_weights: Vec::new(),
                edge_ids: Vec::new(),
                edge_times: Vec::new(),
                edge_features: Vec::new(),
                visible: vec![index; destinations],
                global: vec![index + 1; destinations],
                halo: vec![false; destinations],
            }],
            nodes,
            ..Minibatch::default()
        }
    }
}

impl BatchSource for SkewedSource {
    type Scratch = ();

    fn batches(&self) -> u64 {
        self.batches
    }

    fn nodes_max(&self) -> u64 {
        self.nodes
    }

    fn scratch_bytes(&self, (): &(), _: usize) -> u64 {
        0
    }

    fn probes(&self) -> std::ops::Range<u64> {
        match self.fault {
            Some((at, InjectedFault::GrowFrom(_))) => 0..at,
            _ => 0..self.batches,
        }
    }

    fn sample(&self, index: u64, (): &mut (), out: &mut [Minibatch]) -> Result<()> {
        let out = &mut out[0];
        match self.fault {
            Some((at, InjectedFault::Error)) if at == index => {
                return Err(Error::conflict("this batch fails", "try another"));
            }
            Some((at, InjectedFault::Panic)) if at == index => panic!("this batch panics"),
            Some((_, InjectedFault::Delay(time))) => std::thread::sleep(time),
            Some((_, InjectedFault::HoldUntil(is_set))) => {
                while !is_set.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
        let minibatch = self.minibatch(index);
        out.clear();
        out.nodes.extend_from_slice(&minibatch.nodes);
        out.seeds = minibatch.seeds;
        out.blocks.resize_with(minibatch.blocks.len(), Block::default);
        for (out, block) in out.blocks.iter_mut().zip(minibatch.blocks) {
            out.destinations = block.destinations;
            out.sources = block.sources;
            out.offsets.extend(block.offsets);
            out.indices.extend(block.indices);
            out.visible.extend(block.visible);
            out.global.extend(block.global);
            out.halo.extend(block.halo);
        }
        Ok(())
    }
}

/// The bytes of one delivered row, computed without a feed.
fn row(store: &Store, node: NodeId, output: OutputDtype) -> Vec<u8> {
    let spec = store.manifest().features.as_ref().unwrap();
    let mut values = vec![0.0; spec.dim as usize];
    match spec.source {
        FeatureSource::Stored => {
            let id = store.chunks().chunk_of(node);
            let rows = store.features(id).unwrap().unwrap();
            let row = rows.row(node.0 - store.chunks().range(id).start).unwrap();
            rows.meta().layout.decode_row(row, &mut values);
        }
        FeatureSource::Procedural => {
            let generator = Generator::new(Recipe::from_json(&store.manifest().generator).unwrap()).unwrap();
            let label = store.ids().integer(node).unwrap();
            generator.features(values.len()).row(label, &mut values);
        }
    }
    delivered(&values, output)
}

/// The delivered bytes of some values.
fn delivered(values: &[f32], output: OutputDtype) -> Vec<u8> {
    match output {
        OutputDtype::F32 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        OutputDtype::Bf16 => {
            let dim = values.len() as u32;
            let layout = FeatureLayout { dtype: FeatureDtype::Bf16, dim, stride: 2 * dim };
            let mut bytes = vec![0; 2 * values.len()];
            layout.encode_row(values, &mut bytes);
            bytes
        }
    }
}

/// Appends the delivered bytes of its pre-aggregated features to each row.
pub(super) fn append_aggregates(rows: &mut [Vec<u8>], store: &Store, kind: AggregateKind, output: OutputDtype) {
    let aggregates = Aggregates::open(store, kind).unwrap().unwrap();
    let layout = aggregates.layout();
    let mut values = vec![0.0; layout.dim as usize];
    let mut rows = rows.iter_mut();
    for (chunk, file) in (0..).map(ChunkId).zip(aggregates.files()) {
        let payload = file.as_ref().unwrap().open().unwrap().read_payload().unwrap();
        let stored = payload.chunks_exact(layout.stride as usize);
        let nodes = store.chunks().len(chunk) as usize;
        for (row, bytes) in rows.by_ref().zip(stored).take(nodes) {
            layout.decode_row(&bytes[..layout.row_bytes()], &mut values);
            row.extend(delivered(&values, output));
        }
    }
    assert!(rows.next().is_none());
}

/// Computes pre-aggregated features in the type of the features.
pub(super) fn aggregate(store: &Store, kind: AggregateKind, with_features: bool) {
    aggregate_as(store, kind, None, with_features);
}

/// Computes pre-aggregated features.
fn aggregate_as(store: &Store, kind: AggregateKind, dtype: Option<FeatureDtype>, with_features: bool) {
    let options = AggregateOptions {
        kind,
        dtype,
        with_features,
        budget: grappa_engine::aggregate::Budget { memory: 64 << 20, threads: 2 },
        replace: false,
    };
    preaggregate(store, &options, &Silent).unwrap();
}

/// The delivered bytes of all rows, computed without a feed.
pub(super) fn rows(store: &Store, output: OutputDtype) -> Vec<Vec<u8>> {
    let present: Vec<ChunkId> = store.present_chunks().collect();
    (0..store.manifest().nodes)
        .map(NodeId)
        .map(|node| match present.contains(&store.chunks().chunk_of(node)) {
            true => row(store, node, output),
            false => Vec::new(),
        })
        .collect()
}

fn check(batch: &Batch, source: &SkewedSource, rows: &[Vec<u8>]) {
    let expected = source.minibatch(batch.index());
    assert_eq!(batch.minibatch(), &expected, "batch {}", batch.index());
    let features = batch.features().unwrap();
    assert_eq!(features.rows(), expected.nodes.len());
    assert_eq!(features.bytes().as_ptr().addr() % 4096, 0);
    let row_bytes = features.dim() * features.dtype().bytes();
    let mut found = features.bytes().chunks_exact(row_bytes);
    for column in 0..features.columns() {
        for node in &expected.nodes {
            let row = rows[node.0 as usize].chunks_exact(row_bytes).nth(column);
            assert_eq!(found.next(), row, "batch {}, column {column}, node {node}", batch.index());
        }
    }
    assert!(found.next().is_none());
}

/// Checks all batches of an epoch. Returns their number, and the error if there was one.
fn consume(feed: &Feed, source: &SkewedSource, rows: &[Vec<u8>]) -> (u64, Option<Error>) {
    let shared = Arc::new(source.clone());
    let mut epoch = feed.epoch(&shared);
    let mut taken = 0;
    let mut error = None;
    for batch in epoch.by_ref() {
        match batch {
            Ok(batch) => {
                assert_eq!(batch.index(), taken);
                check(&batch, source, rows);
                taken += 1;
            }
            Err(e) => {
                assert!(error.is_none(), "a second error: {e}");
                error = Some(e);
            }
        }
    }
    assert!(epoch.next().is_none());
    (taken, error)
}

fn consume_all(feed: &Feed, source: &SkewedSource, rows: &[Vec<u8>]) {
    let (taken, error) = consume(feed, source, rows);
    if let Some(error) = error {
        panic!("{error}");
    }
    assert_eq!(taken, source.batches);
}

/// Options of a feed with short reads.
fn options(memory_bytes: u64, threads: usize) -> FeedOptions {
    FeedOptions {
        memory_bytes,
        threads,
        engine: read::Choice::Pread,
        read: read::Options { depth: 8, read_bytes_max: 16 << 10, threads: 2, ..read::Options::default() },
        coalescing_gap_bytes: Some(12 << 10),
        ..FeedOptions::default()
    }
}

/// `options` with `more` bytes above the smallest sufficient budget.
fn with_little(store: &Arc<Store>, source: &impl BatchSource, more: u64, options: FeedOptions) -> FeedOptions {
    FeedOptions { memory_bytes: smallest(store, source, &options) + more, ..options }
}

/// The smallest sufficient budget, according to the error for a smaller one. The first error may be about seeds alone,
/// and then names less.
fn smallest(store: &Arc<Store>, source: &impl BatchSource, options: &FeedOptions) -> u64 {
    let mut options = FeedOptions { memory_bytes: 1000, ..options.clone() };
    for _ in 0..2 {
        match Feed::open(store, &[], source, &options).err() {
            Some(Error::Budget { least, .. }) => options.memory_bytes = least,
            other => panic!("{} bytes should be too little: {other:?}", options.memory_bytes),
        }
    }
    options.memory_bytes
}

/// Runs a test on another thread, and fails if it does not end.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the feed hangs"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
