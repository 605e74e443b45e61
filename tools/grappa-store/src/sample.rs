//! `grappa-store sample`: minibatches without a model, to measure disk and processors.

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use anyhow::bail;
use grappa_console::{ByteSize, Console, Summary, count, peak_rss_bytes};
use grappa_engine::{
    Error, Graph, Progress, Silent, Store,
    io::ledger::{Lease, Ledger},
    node_list::read_nodes,
    sample::{
        Assignment, Loader, LoaderOptions, Sampler, ScratchOptions, SeedTimes, Seeds, TimeOptions,
        feed::{Feed, MinibatchOptions, RowOptions},
        partition::{RepartitionOptions, Schedule, assign},
        view::ViewKind,
    },
};
use roaring::RoaringTreemap;
use serde::Serialize;

use crate::{
    args, members,
    table::{Table, exact},
};

/// Memory of the program itself: its code, system libraries, and their data.
const PROGRAM_BYTES: u64 = 8 << 20;

#[derive(Serialize)]
struct Sampled {
    batches: u64,
    seconds: f64,
    batches_per_second: f64,
    sampled_edges: u64,
    sampled_edges_per_second: f64,
    input_nodes: u64,
    bytes_wanted: u64,
    bytes_read: u64,
    read_amplification: f64,
    read_engine: Option<&'static str>,
    view: &'static str,
    stall_seconds: Stall,
    peak_rss_bytes: Option<u64>,
    /// Who may take how much of `--memory`, and why.
    memory: Ledger,
    /// The share of feature rows that were in memory.
    hit_rate: f64,
    windows: u64,
    queue_depth: f64,
    lookahead: usize,
    partitions: u32,
    /// The most disk space that scratch files of sweeps took at a time.
    scratch_peak_bytes: Option<u64>,
    /// Seconds to open the store, load rows and resident features, which are not part of `seconds`.
    seconds_to_open: f64,
    #[serde(skip)]
    features: bool,
}

#[derive(Serialize)]
struct Stall {
    sample: f64,
    read: f64,
    assemble: f64,
}

pub fn run(options: &args::SampleArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let graph = Graph::open(&options.store)?;
    let threads = options.threads.get()?;
    let sampler = sampler(&graph, &options.sampling)?;
    let assignment = partitions(&graph, &options.sampling)?;
    let seeds = seeds(&graph, &options.sampling.seeds)?;
    let has_features = graph.node_types().iter().any(|store| store.manifest().features.is_some());
    if options.reading.features && !has_features {
        bail!("{} has no features to deliver; leave out --features", graph.path().display());
    }
    let features = has_features && !options.reading.no_features;
    let concurrent = options.sampling.concurrent.map_or(assignment.partitions() as usize, NonZeroUsize::get);
    let mut loader = Loader::of_graph(
        &graph,
        LoaderOptions {
            concurrent: options.sampling.concurrent.map(NonZeroUsize::get),
            halo: options.sampling.halo,
            view: options.reading.view,
            scratch: ScratchOptions { folder: options.reading.tmp.clone(), bytes_max: None },
            memory: options.memory.0.saturating_sub(PROGRAM_BYTES),
            threads,
            rows: RowOptions { features, ..RowOptions::default() },
            lookahead: options.reading.lookahead,
            read_engine: options.reading.read_engine,
            ..LoaderOptions::new(MinibatchOptions {
                batch: options.sampling.batch.get(),
                // An epoch of few steps visits all partitions.
                steps_max: Some(options.sampling.batches.div_ceil(concurrent as u64)),
                seed: options.sampling.seed,
                disjoint: options.sampling.seed_time.is_some(),
                ..MinibatchOptions::new(sampler)
            })
        },
    );
    loader.partition(&assignment, &seeds, &Silent).map_err(with_program(options))?;
    if let Some(time) = options.sampling.seed_time {
        loader.set_seed_times(match time {
            args::SeedTime::At(time) => SeedTimes::At(time),
            args::SeedTime::Own => SeedTimes::Own,
        })?;
    }
    // Only the batches that are taken: memory for their preparation counts.
    let mut left = options.sampling.batches;
    let mut batches = loader.batches(0, |batches| batches.first(left)).map_err(with_program(options))?;
    let kind = match loader.sweeps() {
        Some(_) => ViewKind::Sweep,
        None => loader.served().next().expect("a single worker serves all partitions").view.kind(),
    };
    let seconds_to_open = begin.elapsed().as_secs_f64();
    let mut memory = Ledger::new(options.memory.0);
    let program = Lease::new("program", PROGRAM_BYTES, "8 MiB for code, system libraries, and their data");
    memory.enter("sampling", [vec![program], loader.leases()].concat())?;

    let bars = console.bars();
    bars.stage("sampling", None);
    let begin = Instant::now();
    let mut input_nodes = 0;
    let mut epoch = 0;
    while left > 0 {
        for batch in loader.deliver(&batches) {
            let batch = batch.map_err(with_program(options))?;
            let types = batch.minibatches();
            input_nodes += types.iter().map(|minibatch| minibatch.nodes.len() as u64).sum::<u64>();
            let bytes = batch.features().map_or(0, |features| features.bytes().len() as u64);
            bars.advance(bytes, types.iter().map(|minibatch| minibatch.edges() as u64).sum());
            left -= 1;
        }
        epoch += 1;
        batches = loader.batches(epoch, |batches| batches.first(left))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    drop(bars);
    let stats = loader.stats();
    console.answer(&Sampled {
        batches: options.sampling.batches,
        seconds,
        batches_per_second: options.sampling.batches as f64 / seconds,
        sampled_edges: stats.edges,
        sampled_edges_per_second: stats.edges as f64 / seconds,
        input_nodes,
        bytes_wanted: stats.bytes_wanted,
        bytes_read: stats.bytes_read,
        read_amplification: stats.read_amplification(),
        read_engine: loader.feed().and_then(Feed::engine_name),
        view: kind.name(),
        stall_seconds: Stall { sample: stats.stall.sample, read: stats.stall.read, assemble: stats.stall.assemble },
        peak_rss_bytes: peak_rss_bytes(),
        memory,
        hit_rate: stats.hit_rate(),
        windows: stats.windows,
        queue_depth: stats.queue_depth,
        lookahead: loader.feed().map_or(0, Feed::lookahead),
        partitions: assignment.partitions(),
        scratch_peak_bytes: loader.sweeps().map(|sweeps| sweeps.disk_peak()),
        seconds_to_open,
        features,
    })
}

/// Draws from the in-neighbors of all relations. As in PyTorch Geometric, a node of a graph with types draws once.
fn sampler(graph: &Graph, options: &args::SamplingArgs) -> anyhow::Result<Sampler> {
    let fanouts = options.fanouts.clone();
    let sampler = match options.by_weight {
        true => Sampler::by_weight(fanouts.clone(), options.replace),
        false => Sampler::uniform(fanouts.clone(), options.replace),
    };
    let sampler = match options.seed_time {
        None => sampler,
        Some(_) if !graph.is_timed() => bail!(
            "{}: neither edges nor nodes have times, so --seed-time limits nothing; ingest them with --time, or omit it",
            graph.path().display()
        ),
        Some(_) => sampler.with_times(TimeOptions {
            equal: !options.time_strict,
            hops: options.time_hops,
            window: options.time_window,
            strategy: options.time_strategy,
        })?,
    };
    if !graph.has_types() {
        return Ok(sampler);
    }
    Ok(sampler.drawing_once().with_relation_fanouts(vec![fanouts; graph.relations().len()])?)
}

/// The graph's own partitions, or as many as were asked for.
fn partitions(graph: &Graph, options: &args::SamplingArgs) -> anyhow::Result<Assignment> {
    let Some(partitions) = options.partitions else { return Ok(graph.assignment().clone()) };
    let repartition =
        RepartitionOptions { partitions, schedule: Schedule::Sweep, seed: options.seed, super_epoch: Some(0) };
    Ok(assign(graph, &repartition, 0)?)
}

fn seeds(graph: &Graph, choice: &args::Seeds) -> anyhow::Result<Seeds> {
    let path = graph.path().display();
    Ok(match choice {
        args::Seeds::All => Seeds::All,
        args::Seeds::Train => {
            let has_split = |store: &Arc<Store>| store.manifest().splits.iter().any(|split| split.name == "train");
            if !graph.node_types().iter().any(has_split) {
                bail!("{path} has no split `train`; give --seeds all, or a file with the ids of nodes");
            }
            Seeds::Split("train".to_owned())
        }
        args::Seeds::Type(name) => {
            let positions = graph.positions().range(members::node_type(graph, name)?);
            Seeds::Nodes(Arc::new(positions.collect::<RoaringTreemap>()))
        }
        args::Seeds::File(_) if graph.has_types() => {
            bail!("{path} has several node types, and a file has ids of one; give --seeds train, all or type:NAME")
        }
        args::Seeds::File(file) => {
            let nodes = read_nodes(&graph.node_types()[0], file)?.into_iter().map(|node| node.0);
            Seeds::Nodes(Arc::new(nodes.collect::<RoaringTreemap>()))
        }
    })
}

/// For `map_err`: adds to an error about too little memory what the program itself takes.
fn with_program(options: &args::SampleArgs) -> impl FnOnce(Error) -> Error {
    Error::in_budget(options.memory.0, |least| least + PROGRAM_BYTES)
}

impl Summary for Sampled {
    fn text(&self) -> String {
        let mut table = Table::default();
        table.row(
            "batches",
            format!("{} in {:.2} s, {:.1} per second", exact(self.batches), self.seconds, self.batches_per_second),
        );
        table.row(
            "sampled edges",
            format!("{}, {} per second", exact(self.sampled_edges), count(self.sampled_edges_per_second as u64)),
        );
        table.row("input nodes", exact(self.input_nodes));
        table.row("adjacency lists", format!("{}, {} partition(s)", self.view, self.partitions));
        if let Some(bytes) = self.scratch_peak_bytes {
            table.row("scratch files", format!("at most {}", ByteSize(bytes)));
        }
        if self.features {
            table.row("features wanted", ByteSize(self.bytes_wanted).to_string());
            table.row(
                "features read",
                format!(
                    "{} ({:.2} per byte wanted, {:.1} % of feature rows were in memory)",
                    ByteSize(self.bytes_read),
                    self.read_amplification,
                    self.hit_rate * 100.0
                ),
            );
            table.row(
                "reads",
                format!(
                    "{}, {} windows of at most {} batches, queue depth {:.1}",
                    self.read_engine.unwrap_or("none: features are computed"),
                    self.windows,
                    self.lookahead,
                    self.queue_depth
                ),
            );
        }
        let Stall { sample, read, assemble } = self.stall_seconds;
        table.row("waited for", format!("sampling {sample:.2} s, reading {read:.2} s, assembling {assemble:.2} s"));
        table.row("opened in", format!("{:.2} s", self.seconds_to_open));
        if let Some(bytes) = self.peak_rss_bytes {
            table.row("peak memory", ByteSize(bytes).to_string());
        }
        let memory = self.memory.to_string().replace('\n', "\n  ");
        format!("{}\n\n  {memory}", table.text())
    }
}
