//! Cost of a training step: aggregation, products, and forward, backward and Adam of a 3-layer GraphSAGE. The bench
//! compares it with libtorch's operators and with the lower bound from flops and bytes.
//!
//!     OMP_NUM_THREADS=2 cargo bench -p grappa-trainer --bench step [-- [--tiny] aggregation|products|steps]
//!
//! With `--tiny`, a few seeds and one run show that the bench works; its figures mean nothing.
//!
//! Minibatches are of R-MAT, scale 22, edge factor 16, 1024 seeds, fanouts 15, 10, 5, 128 features. Columns are milliseconds:
//! the best run's, the median run's, and the processor time of a run on all threads, which counts threads that wait.

use std::{collections::HashMap, hint::black_box, slice, time::Instant};

use grappa_formats::NodeId;
use grappa_run::model::{LayerKind, ModelOptions, NormKind, Precision, Task};
use grappa_sampling::sample::{self, Minibatch};
use grappa_synthetic::{AdjacencyBuffer, Generator, Model as GraphModel, Recipe, Rmat};
use grappa_trainer::{
    nn::{Aggregate, Block, Input, Loss, Model, Pass, Scaling, aggregate},
    runtime,
};
use tch::{Device, Kind, Tensor, no_grad};

const FANOUTS: [usize; 3] = [15, 10, 5];
const WIDTH: i64 = 128;
const CLASSES: i64 = 16;

fn is_tiny() -> bool {
    std::env::args().any(|argument| argument == "--tiny")
}

fn seeds() -> usize {
    if is_tiny() { 16 } else { 1024 }
}

fn repeats() -> usize {
    if is_tiny() { 1 } else { 30 }
}

fn main() {
    runtime::keep_freed_memory(u64::MAX);
    // Registers libtorch's threads for our kernels.
    runtime::set_threads(tch::get_num_threads() as usize);
    let minibatch = minibatch();
    println!("threads: {}", tch::get_num_threads());
    for (hop, block) in minibatch.blocks.iter().enumerate() {
        println!(
            "hop {hop}: {} destinations, {} edges, {} sources",
            block.destinations,
            block.indices.len(),
            block.sources
        );
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if wanted("aggregation") {
        aggregation("hop 2", &minibatch.blocks[2]);
        aggregation("hop 1", &minibatch.blocks[1]);
    }
    if wanted("products") {
        products(minibatch.blocks[2].destinations as i64);
    }
    if wanted("steps") {
        steps(&minibatch);
    }
}

/// Milliseconds of the best and of the median run, and the processor time of a run, on average. On one thread, the latter is what a quiet
/// machine would take.
fn time(mut run: impl FnMut()) -> [f64; 3] {
    (0..3).for_each(|_| run());
    let processor = processor_time();
    let mut times: Vec<f64> = (0..repeats())
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[0], times[repeats() / 2], (processor_time() - processor) / repeats() as f64]
}

/// The time that processors spent on this process so far, in milliseconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Times many runs and prints the result.
fn report(name: &str, run: impl FnMut()) -> [f64; 3] {
    let [best, median, processor] = time(run);
    println!("  {name:<45} {best:8.2} {median:8.2} {processor:8.2}");
    [best, median, processor]
}

fn aggregation(name: &str, sampled: &sample::Block) {
    println!("mean of {name}, {WIDTH} values");
    let block = Block::new(sampled, Device::Cpu);
    block.prepare_backward();
    let numbers = |rows: usize| Tensor::randn([rows as i64, WIDTH], (Kind::Float, Device::Cpu));
    let (x, gradient) = (numbers(sampled.sources), numbers(sampled.destinations));
    let int64 = |values: &[u32]| Tensor::from_slice(&values.iter().map(|&value| i64::from(value)).collect::<Vec<_>>());
    let (offsets, indices) = (int64(&sampled.offsets), int64(&sampled.indices));
    let degrees: Vec<i64> = sampled.offsets.windows(2).map(|two| i64::from(two[1] - two[0])).collect();
    let destinations = Tensor::repeat_interleave(&Tensor::from_slice(&degrees), None::<i64>);
    let inverse = Tensor::from_slice(&degrees).clamp_min(1).to_kind(Kind::Float).reciprocal();
    let weights = inverse.index_select(0, &destinations);
    let matrix = Tensor::sparse_csr_tensor_crow_col_value_size(
        &offsets,
        &indices,
        &weights,
        [sampled.destinations as i64, sampled.sources as i64],
        (Kind::Float, Device::Cpu),
    );
    type Way<'a> = &'a dyn Fn(&Tensor) -> Tensor;
    let ways: [(&str, Way<'_>); 5] = [
        ("gather of ours", &|x| aggregate(&block, Aggregate::Mean, Scaling::None, x, None)),
        ("embedding_bag", &|x| Tensor::embedding_bag(x, &indices, &offsets, false, 0, false, Some(&weights), true).0),
        ("index_select, index_add", &|x| {
            let zeros = Tensor::zeros([sampled.destinations as i64, WIDTH], (Kind::Float, Device::Cpu));
            zeros.index_add(0, &destinations, &x.index_select(0, &indices)) * inverse.unsqueeze(1)
        }),
        ("index_select, segment_reduce", &|x| {
            let none = None::<&Tensor>;
            Tensor::segment_reduce(&x.index_select(0, &indices), "mean", none, none, Some(&offsets), 0, true, 0.0)
        }),
        ("CSR matrix (backward not offered)", &|x| matrix.matmul(x)),
    ];
    for (name, way) in ways {
        report(&format!("{name}, forward"), || drop(black_box(way(&x))));
        if name.contains("CSR") {
            continue;
        }
        let leaf = x.copy().set_requires_grad(true);
        let result = (way(&leaf) * &gradient).sum(Kind::Float);
        let run = || drop(black_box(Tensor::run_backward(&[&result], &[&leaf], true, false)));
        report(&format!("{name}, backward"), run);
    }
    let half = x.to_kind(Kind::BFloat16);
    let run = || drop(black_box(aggregate(&block, Aggregate::Mean, Scaling::None, &half, None)));
    report("gather of ours, bf16, forward", run);
    report("copying, transposing the block", || Block::new(sampled, Device::Cpu).prepare_backward());
}

fn options(precision: Precision, layers: usize, inputs: i64, outputs: i64) -> ModelOptions {
    ModelOptions {
        layer: LayerKind::Sage,
        layers,
        inputs: inputs as usize,
        hidden: WIDTH as usize,
        outputs: outputs as usize,
        heads: 4,
        dropout: 0.5,
        norm: NormKind::None,
        residual: false,
        precision,
        ..ModelOptions::default()
    }
}

/// The products of the largest layer: two of `[rows, 128]` with `[128, 128]`.
fn products(rows: i64) {
    println!("[{rows}, 2 x 128] x [2 x 128, 128]: milliseconds, then GFlop/s");
    let flops = 2.0 * rows as f64 * 2.0 * (WIDTH * WIDTH) as f64;
    for (kind, precision) in [(Kind::Float, Precision::F32), (Kind::BFloat16, Precision::Bf16)] {
        let x = Tensor::randn([rows, WIDTH], (Kind::Float, Device::Cpu)).to_kind(kind);
        let weight = Tensor::randn([WIDTH, WIDTH], (Kind::Float, Device::Cpu)).to_kind(kind);
        let rated = |name: String, run: &dyn Fn()| {
            let rates = report(&name, run).map(|time| flops / time / 1e6);
            println!("  {:<45} {:8.0} {:8.0} {:8.0}", "", rates[0], rates[1], rates[2]);
        };
        let both = || drop(black_box((x.linear(&weight, None::<&Tensor>), x.linear(&weight, None::<&Tensor>))));
        rated(format!("libtorch, {kind:?}"), &both);
        let both = || drop(black_box((x.tr().matmul(&x), x.tr().matmul(&x))));
        rated(format!("libtorch, {kind:?}, of weights"), &both);
        let model = Model::new(options(precision, 1, WIDTH, WIDTH), 1, Device::Cpu).expect("a model");
        let known = Input::Aggregated { own: slice::from_ref(&x), neighbors: slice::from_ref(&x), degrees: None };
        let forward = || model.forward(&[], known, &[], Pass::default());
        rated(format!("a layer of ours, {kind:?}"), &|| no_grad(|| drop(black_box(forward()))));
        let loss = forward().sum(Kind::Float);
        let weight = &model.parameters().named()[0].1;
        let other = &model.parameters().named()[2].1;
        let both = || drop(black_box(Tensor::run_backward(&[&loss], &[weight, other], true, false)));
        rated(format!("a layer of ours, {kind:?}, of weights"), &both);
    }
}

/// Adam (Kingma, Ba, 2015) on flat vectors.
struct Adam {
    mean: Tensor,
    square: Tensor,
    step: i32,
}

impl Adam {
    fn step(&mut self, model: &Model) {
        self.step += 1;
        let gradient = model.parameters().flat_gradient();
        no_grad(|| {
            let _ = self.mean.lerp_(&gradient, 0.1);
            let _ = self.square.lerp_(&gradient.square(), 0.001);
            let root = self.square.sqrt() / (1.0 - 0.999f64.powi(self.step)).sqrt() + 1e-8;
            let step = &self.mean / root * (0.003 / (1.0 - 0.9f64.powi(self.step)));
            let _ = model.parameters().flat_values().subtract_(&step);
        });
        model.parameters().zero_gradient();
    }
}

fn steps(minibatch: &Minibatch) {
    println!("forward, backward and Adam of 3 layers, hidden {WIDTH}, {CLASSES} classes, dropout 0.5");
    let first = &minibatch.blocks[2];
    let labels = Tensor::arange(seeds() as i64, (Kind::Int64, Device::Cpu)).remainder(CLASSES);
    for (kind, precision) in [(Kind::Float, Precision::F32), (Kind::BFloat16, Precision::Bf16)] {
        let x = Tensor::randn([first.sources as i64, WIDTH], (Kind::Float, Device::Cpu)).to_kind(kind);
        let own = x.narrow(0, 0, first.destinations as i64).copy();
        let neighbors = own.roll(7, 0);
        for known in [false, true] {
            let model = Model::new(options(precision, 3, WIDTH, CLASSES), 1, Device::Cpu).expect("a model");
            let zeros = || Tensor::zeros([model.parameters().count() as i64], (Kind::Float, Device::Cpu));
            let mut adam = Adam { mean: zeros(), square: zeros(), step: 0 };
            let mut parts = [0.0; 4];
            let mut count = 0;
            let first = if known { "known" } else { "sampled" };
            report(&format!("{kind:?}, first hop {first}"), || {
                let hops = if known { 2 } else { 3 };
                let start = Instant::now();
                let blocks: Vec<Vec<Block>> =
                    minibatch.blocks[..hops].iter().map(|block| vec![Block::new(block, Device::Cpu)]).collect();
                let blocks_made = start.elapsed();
                let input = if known {
                    Input::Aggregated {
                        own: slice::from_ref(&own),
                        neighbors: slice::from_ref(&neighbors),
                        degrees: None,
                    }
                } else {
                    Input::features(&x)
                };
                let pass = Pass { training: Some(count as u64), names: None, ..Pass::default() };
                let logits = model.forward(&blocks, input, &[], pass);
                let loss = Loss::of_classes(Task::MultiClass, 0.0).losses(&logits, &labels).mean(Kind::Float);
                let forward = start.elapsed();
                loss.backward();
                let backward = start.elapsed();
                adam.step(&model);
                let times = [blocks_made, forward - blocks_made, backward - forward, start.elapsed() - backward];
                parts.iter_mut().zip(times).for_each(|(sum, time)| *sum += time.as_secs_f64() * 1e3);
                count += 1;
            });
            let [blocks, forward, backward, adam] = parts.map(|part| part / f64::from(count));
            println!("    mean: blocks {blocks:.2}, forward {forward:.2}, backward {backward:.2}, Adam {adam:.2}");
        }
    }
}

/// A minibatch sampled without replacement, naively: rows come from the generator, one by one.
fn minibatch() -> Minibatch {
    let recipe = Recipe::new(GraphModel::Rmat(Rmat::graph500(22, 16.0)), 1);
    let generator = Generator::new(recipe).expect("a recipe");
    let mut random = 1u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut places = HashMap::new();
    let mut nodes = Vec::new();
    while nodes.len() < seeds() {
        let node = below(generator.nodes());
        if places.insert(node, nodes.len() as u32).is_none() {
            nodes.push(node);
        }
    }
    let mut buffer = AdjacencyBuffer::default();
    let mut blocks = Vec::new();
    for fanout in FANOUTS {
        let mut block = sample::Block { destinations: nodes.len(), offsets: vec![0], ..sample::Block::default() };
        for destination in 0..block.destinations {
            let mut row = generator.sources(nodes[destination], &mut buffer).to_vec();
            for drawn in 0..fanout.min(row.len()) {
                let other = drawn + below((row.len() - drawn) as u64) as usize;
                row.swap(drawn, other);
                let place = *places.entry(row[drawn]).or_insert_with(|| {
                    nodes.push(row[drawn]);
                    nodes.len() as u32 - 1
                });
                block.indices.push(place);
            }
            block.offsets.push(block.indices.len() as u32);
            block.global.push(row.len() as u64);
        }
        block.sources = nodes.len();
        blocks.push(block);
    }
    Minibatch { nodes: nodes.into_iter().map(NodeId).collect(), seeds: seeds(), blocks, ..Minibatch::default() }
}
