//! What a feed delivers is what a naive gather finds, whatever the tier, the budget, the threads and the disk do.

mod bad_luck;
mod budget;
mod equality;
mod partitions;
mod register;

use std::{
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use grappa_build::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_engine::derive::preaggregate::{AggregateOptions, preaggregate};
use grappa_formats::{
    ChunkId, NodeId,
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource},
    random,
};
use grappa_io::progress::Silent;
use grappa_synthetic::{Model, Rmat};

use super::*;
use crate::sample::{Block, Minibatch};

const SCALE: u32 = 11;
pub(super) const NODES: u64 = 1 << SCALE;
const CHUNKS: u32 = 5;

/// A store whose nodes have feature vectors.
fn store(folder: &Path, features: Option<(FeatureDtype, u32, FeatureSource)>) -> Arc<Store> {
    store_with(folder, features, |_| {})
}

fn store_with(
    folder: &Path,
    features: Option<(FeatureDtype, u32, FeatureSource)>,
    change: impl FnOnce(&mut StoreOptions),
) -> Arc<Store> {
    let mut options = StoreOptions {
        recipe: Recipe::new(Model::Rmat(Rmat::graph500(SCALE, 2.0)), 3),
        out: folder.join("graph.grappa"),
        random_permutation: true,
        chunks: Some(CHUNKS),
        only_chunks: None,
        edge_options: Default::default(),
        features: features.map(|(dtype, dim, source)| FeatureOptions { dim, dtype, source }),
        memory: 64 << 20,
        threads: 2,
        resume: false,
        writer: "test 1".into(),
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

/// Minibatches of some 200 nodes, of which a few are in nearly all.
#[derive(Debug, Clone)]
struct Wishes {
    seed: u64,
    batches: u64,
    rows: u64,
    /// What happens at which batch.
    mishap: Option<(u64, Mishap)>,
    /// Nodes are below it.
    nodes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Mishap {
    Fails,
    Panics,
    /// It has so many rows.
    Swells(u64),
    Sleeps(Duration),
}

impl Wishes {
    fn new(seed: u64, batches: u64) -> Self {
        Self {
            seed,
            batches,
            rows: 200,
            mishap: None,
            nodes: NODES,
        }
    }

    fn with(self, at: u64, mishap: Mishap) -> Self {
        Self {
            mishap: Some((at, mishap)),
            ..self
        }
    }

    fn random(&self, index: u64, i: u64) -> u64 {
        random::draw_at(0, self.seed << 40 | index << 20 | i)
    }

    /// The minibatch, made in the simplest way.
    fn minibatch(&self, index: u64) -> Minibatch {
        let rows = match self.mishap {
            Some((at, Mishap::Swells(rows))) if at == index => rows,
            _ => self.rows - self.random(index, 0) % (self.rows / 4).max(1),
        };
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut i = 1;
        while (nodes.len() as u64) < rows {
            let uniform = self.random(index, i) as f64 / u64::MAX as f64;
            // Half of the wishes are skewed, so that few nodes have most of them, all over the chunks.
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
                edge_weights: Vec::new(),
                visible: vec![index; destinations],
                global: vec![index + 1; destinations],
                halo: vec![false; destinations],
            }],
            nodes,
        }
    }
}

impl BatchSource for Wishes {
    type Scratch = ();

    fn batches(&self) -> u64 {
        self.batches
    }

    fn nodes_max(&self) -> u64 {
        self.nodes
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn nodes_min(&self) -> u64 {
        0
    }

    fn scratch(&self) {}

    fn scratch_bytes(&self, (): &(), _: usize) -> u64 {
        0
    }

    fn sample(&self, index: u64, (): &mut (), out: &mut Minibatch) -> Result<()> {
        match self.mishap {
            Some((at, Mishap::Fails)) if at == index => return Err(Error::conflict("this batch fails", "try another")),
            Some((at, Mishap::Panics)) if at == index => panic!("this batch panics"),
            Some((_, Mishap::Sleeps(time))) => std::thread::sleep(time),
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

/// The delivered bytes of one row, found without a feed.
fn row(store: &Store, node: NodeId, output: OutputDtype) -> Vec<u8> {
    let spec = store.manifest().features.as_ref().unwrap();
    let mut values = vec![0.0; spec.dim as usize];
    match spec.source {
        FeatureSource::Stored => {
            let id = store.chunks().chunk_of(node);
            let chunk = store.chunk(id).unwrap();
            let rows = chunk.features().unwrap();
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

/// The bytes that values are delivered as.
fn delivered(values: &[f32], output: OutputDtype) -> Vec<u8> {
    match output {
        OutputDtype::F32 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        OutputDtype::Bf16 => {
            let dim = values.len() as u32;
            let layout = FeatureLayout {
                dtype: FeatureDtype::Bf16,
                dim,
                stride: 2 * dim,
            };
            let mut bytes = vec![0; 2 * values.len()];
            layout.encode_row(values, &mut bytes);
            bytes
        }
    }
}

/// Appends to each of `rows` the delivered bytes of the node's aggregate.
pub(super) fn append_aggregates(rows: &mut [Vec<u8>], store: &Store, kind: AggregateKind, output: OutputDtype) {
    let aggregates = Aggregates::open(store, kind).unwrap().unwrap();
    let layout = aggregates.layout();
    let mut values = vec![0.0; layout.dim as usize];
    let mut rows = rows.iter_mut();
    for (chunk, file) in (0..).map(ChunkId).zip(aggregates.files()) {
        let payload = file.open().unwrap().read_payload().unwrap();
        let stored = payload.chunks_exact(layout.stride as usize);
        let nodes = store.chunks().len(chunk) as usize;
        for (row, bytes) in rows.by_ref().zip(stored).take(nodes) {
            layout.decode_row(&bytes[..layout.row_bytes()], &mut values);
            row.extend(delivered(&values, output));
        }
    }
    assert!(rows.next().is_none());
}

/// Makes pre-aggregated features.
pub(super) fn aggregate(store: &Store, kind: AggregateKind, dtype: Option<FeatureDtype>) {
    let options = AggregateOptions {
        kind,
        dtype,
        budget: grappa_engine::aggregate::Budget {
            memory: 64 << 20,
            threads: 2,
        },
        replace: false,
    };
    preaggregate(store, &options, &Silent).unwrap();
}

/// The delivered bytes of all rows, found without a feed.
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

fn check(batch: &Batch, source: &Wishes, rows: &[Vec<u8>]) {
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
            assert_eq!(
                found.next(),
                row,
                "batch {}, column {column}, node {node}",
                batch.index()
            );
        }
    }
    assert!(found.next().is_none());
}

/// Takes all batches of an epoch and checks them; how many they were, and the error if there was one.
fn consume(feed: &mut Feed, source: &Wishes, rows: &[Vec<u8>]) -> (u64, Option<Error>) {
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

fn consume_all(feed: &mut Feed, source: &Wishes, rows: &[Vec<u8>]) {
    let (taken, error) = consume(feed, source, rows);
    if let Some(error) = error {
        panic!("{error}");
    }
    assert_eq!(taken, source.batches);
}

/// Options of a feed that reads little at a time.
fn options(memory_bytes: u64, threads: usize) -> FeedOptions {
    FeedOptions {
        memory_bytes,
        threads,
        engine: read::Choice::Pread,
        read: read::Options {
            depth: 8,
            read_bytes_max: 16 << 10,
            threads: 2,
            ..read::Options::default()
        },
        bridge_bytes: Some(12 << 10),
        ..FeedOptions::default()
    }
}

/// `options` with so many bytes more than the least that will do.
fn with_little(store: &Arc<Store>, source: &Wishes, more: u64, options: FeedOptions) -> FeedOptions {
    FeedOptions {
        memory_bytes: smallest(store, source, &options) + more,
        ..options
    }
}

/// The smallest budget that opens, as the error for a smaller one says. The first error may be about less than all that is
/// needed.
fn smallest(store: &Arc<Store>, source: &Wishes, options: &FeedOptions) -> u64 {
    let mut options = FeedOptions {
        memory_bytes: 1000,
        ..options.clone()
    };
    for _ in 0..2 {
        match Feed::open(store, &[], source, &options).err() {
            Some(Error::Budget { least, .. }) => options.memory_bytes = least,
            other => panic!("{} bytes are too little: {other:?}", options.memory_bytes),
        }
    }
    options.memory_bytes
}

/// Runs a test on a thread of its own, and fails if it does not end.
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
