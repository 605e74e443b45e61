//! The best destinations of sources among all nodes, exactly, next to the products alone.
//!
//!     OMP_NUM_THREADS=2 cargo bench -p grappa-trainer --bench top_k [-- [--tiny] [--file] [SOURCES]]
//!
//! 2^22 nodes with 128 normal values, 10,000 sources or as many as given, the best 100, dot products, 2 threads. With `--file`, embeddings
//! are in a scratch file in the current folder, and 1 GiB of memory is for computing. `benches/peers/top_k.py` runs faiss on as many.

use std::{path::Path, time::Instant};

use grappa_engine::aggregate::StateRows;
use grappa_formats::{NodeId, manifest::FeatureDtype, random::SplitMix64};
use grappa_io::progress::Silent;
use grappa_run::model::{Decoder, LayerKind, ModelOptions};
use grappa_sampling::NodeSet;
use grappa_trainer::{
    links::{EndRows, LinkEmbeddings},
    nn::Model,
    runtime,
};
use tch::{Device, Kind, Tensor};

const WIDTH: usize = 128;
const BEST: usize = 100;
const THREADS: usize = 2;
/// Rows that are written at once.
const ROWS: u64 = 1 << 12;

fn main() {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let sources = std::env::args().filter_map(|argument| argument.parse().ok()).next();
    let (nodes, sources) = match has("--tiny") {
        true => (1 << 12, 100),
        false => (1u64 << 22, sources.unwrap_or(10_000)),
    };
    runtime::set_threads(THREADS);
    let rows = rows(nodes, has("--file"));
    let model = Model::new(
        ModelOptions {
            layer: LayerKind::Sage,
            layers: 1,
            inputs: 1,
            hidden: WIDTH,
            outputs: WIDTH,
            heads: 1,
            decoder: Some(Decoder::Dot),
            ..ModelOptions::default()
        },
        1,
        Device::Cpu,
    )
    .expect("a model");
    let all = NodeSet::all(nodes);
    let [from, to] = EndRows::one_type(&all);
    let embeddings = LinkEmbeddings {
        decoder: model.decoder().expect("it has one"),
        rows: &rows,
        sources: from,
        targets: to,
        destinations: &all,
        memory: 1 << 30,
        threads: THREADS,
        device: Device::Cpu,
    };
    let source_nodes: Vec<NodeId> = (0..sources).map(|source| NodeId(source * 419 % nodes)).collect();
    let begin = Instant::now();
    let best = embeddings.top_k(&source_nodes, BEST, &[], &Silent).expect("embeddings");
    report("top-k", begin, sources * nodes);
    assert!(best.iter().all(|best| best.len() == BEST));
    let begin = Instant::now();
    products(sources, nodes);
    report("products", begin, sources * nodes);
}

fn report(name: &str, begin: Instant, pairs: u64) {
    let seconds = begin.elapsed().as_secs_f64();
    let flops = (2 * pairs * WIDTH as u64) as f64 / seconds / 1e9;
    println!("{name}: {seconds:.2} s, {flops:.1} Gflop/s");
}

/// The products alone, of blocks in the cache.
fn products(sources: u64, nodes: u64) {
    let (group, block) = (512.min(sources as i64), 8192.min(nodes as i64));
    let random = |rows| Tensor::randn([rows, WIDTH as i64], (Kind::Float, Device::Cpu));
    let (queries, keys) = (random(group), random(block));
    let mut out = Tensor::empty([group, block], (Kind::Float, Device::Cpu));
    for _ in 0..(sources * nodes).div_ceil((group * block) as u64) {
        out = queries.mm_out(&out, &keys.tr());
    }
}

fn rows(nodes: u64, in_file: bool) -> StateRows {
    let mut draws = SplitMix64::new(1);
    let rows = match in_file {
        true => StateRows::in_file(Path::new("."), nodes, WIDTH, FeatureDtype::F32),
        false => StateRows::new(nodes, WIDTH),
    };
    let mut rows = rows.expect("space for embeddings");
    // The sum of four uniform values is nearly normal.
    let mut value = || {
        let draw = draws.draw();
        (0..4).map(|part| (draw >> (16 * part)) as u16 as f32 / 65536.0 - 0.5).sum::<f32>() * 1.732
    };
    for first in (0..nodes).step_by(ROWS as usize) {
        let values: Vec<f32> = (0..ROWS as usize * WIDTH).map(|_| value()).collect();
        rows.write(first, &values).expect("space for embeddings");
    }
    rows
}
