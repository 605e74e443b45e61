//! The training run of `grappa-store plan --train`.

use std::{iter, num::NonZeroU32, time::Duration};

use anyhow::{Context, bail};
use grappa_console::{ByteSize, duration};
use grappa_engine::{
    ChunkId, Store,
    formats::{aggregates::AggregateKind, container::FileKind, manifest::FeatureSource},
    plan::{
        Plan,
        train::{
            LinkOptions, Machine, MemoryPlan, StagePlan, StoredAggregates, TrainGraph, TrainModel, TrainOptions,
            TrainPlan,
        },
    },
    sample::view::ViewKind,
    store::{aggregates::Aggregates, files},
};

use super::speed::Speed;
use crate::{
    args::{self, Training},
    table::{Table, exact},
};

/// Classes of a model without labels.
const CLASSES: u32 = 16;
/// The fanouts of a run by default: these, then the last one again.
const FANOUTS: [u32; 3] = [15, 10, 5];

/// Training on a store.
pub fn of_store(options: &args::PlanArgs, store: &Store, speed: &Speed) -> anyhow::Result<TrainOptions> {
    let manifest = store.manifest();
    let features = manifest
        .features
        .as_ref()
        .with_context(|| {
            let path = store.path().display();
            format!("{path} has no features to train on; ingest it with --features, or compute some: `grappa-store add-features {path} ...`")
        })?;
    let [train, val, test] = ["train", "val", "test"].map(|name| {
        let split = manifest.splits.iter().find(|entry| entry.name == name);
        split.map(|entry| entry.nodes)
    });
    let lists = manifest
        .files
        .iter()
        .filter(|file| matches!(files::kind_of(&file.path), Some(FileKind::ROWS | FileKind::DEGREES)));
    let kind = if manifest.weighted { AggregateKind::WeightedMean } else { AggregateKind::Mean };
    let source = PlannedGraph {
        graph: TrainGraph {
            nodes: store.present_nodes(),
            edges: manifest.edges,
            degrees: options.graph.degrees,
            chunks: store.present_chunks().count() as u32,
            present: present_sources(store),
            adjacency_bytes: lists.map(|file| file.bytes).sum(),
            features: (features.dim, features.dtype),
            stored: match features.source {
                FeatureSource::Stored => store.feature_nodes(),
                FeatureSource::Procedural => 0,
            },
            aggregates: Aggregates::open(store, kind)?
                .map(|aggregates| StoredAggregates { with_features: aggregates.with_features() }),
        },
        is_whole: manifest.is_whole(),
        classes: manifest.labels.map_or(CLASSES, |labels| labels.classes),
        train,
        scored: Some(val.unwrap_or(0) + test.unwrap_or(0)),
        held_out: manifest.held_out().into_iter().map(|part| store.part_edges(part)).sum::<Result<_, _>>()?,
        undirected: manifest.edge_options.undirected,
    };
    of_source(options, source, speed)
}

/// Training on a store that is planned.
pub fn of_plan(options: &args::PlanArgs, plan: &Plan, speed: &Speed) -> anyhow::Result<TrainOptions> {
    let Some(dim) = options.graph.dim else { bail!("--train needs features: give --dim") };
    let shares = options.graph.split.map(|split| split.fractions());
    let held_out = options.graph.edge_split.map_or(0, |split| {
        let [_, val, test] = split.fractions();
        ((val + test) * plan.edges as f64) as u64
    });
    let source = PlannedGraph {
        graph: TrainGraph {
            nodes: plan.nodes,
            edges: plan.edges - held_out,
            degrees: options.graph.degrees,
            chunks: plan.chunks,
            present: 1.0,
            adjacency_bytes: plan.bytes.edges + plan.bytes.degrees,
            features: (dim, options.graph.dtype),
            stored: if options.training.computed_features { 0 } else { plan.nodes },
            aggregates: None,
        },
        is_whole: true,
        classes: options.graph.classes.unwrap_or(CLASSES),
        train: shares.map(|shares| (shares[0] * plan.nodes as f64) as u64),
        scored: shares.map(|shares| ((shares[1] + shares[2]) * plan.nodes as f64) as u64),
        held_out,
        undirected: false,
    };
    of_source(options, source, speed)
}

/// A graph, and what its store says about the examples of a run.
struct PlannedGraph {
    graph: TrainGraph,
    is_whole: bool,
    classes: u32,
    train: Option<u64>,
    scored: Option<u64>,
    /// Edges that are held out.
    held_out: u64,
    /// Whether training asks about an edge in one of two directions.
    undirected: bool,
}

impl PlannedGraph {
    /// A share of the nodes, at least one.
    fn part(&self, share: f64) -> u64 {
        ((share * self.graph.nodes as f64) as u64).max(1)
    }
}

/// The share of a store's edges whose sources it has.
fn present_sources(store: &Store) -> f64 {
    let manifest = store.manifest();
    let entries: Vec<_> = manifest.chunks.iter().filter(|entry| entry.present).collect();
    let buckets = store
        .present_chunks()
        .flat_map(|ChunkId(chunk)| entries.iter().map(move |entry| entry.bucket_edges[chunk as usize]));
    let present: u64 = buckets.sum();
    present as f64 / manifest.edges.max(1) as f64
}

fn of_source(options: &args::PlanArgs, source: PlannedGraph, speed: &Speed) -> anyhow::Result<TrainOptions> {
    let graph = &source.graph;
    let training = &options.training;
    let is_link = training.is_link;
    let train = match is_link {
        true => Some(training_edges(training, &source)?),
        false => training.train_fraction.map(|share| source.part(share)).or(source.train),
    };
    let Some(train) = train else { bail!("the number of training nodes is unknown: give --train-fraction or --split") };
    let fanouts: Vec<Option<u32>> = match &training.fanouts {
        Some(fanouts) => (0..fanouts.hops()).map(|hop| fanouts.at(hop)).collect(),
        None => FANOUTS.into_iter().chain(iter::repeat(FANOUTS[2])).map(Some).take(training.layers as usize).collect(),
    };
    if fanouts.len() != training.layers as usize {
        bail!("--fanouts has {} number(s) for {} layers: give one for each", fanouts.len(), training.layers);
    }
    if let (Some(partitions), Some(concurrent)) = (training.partitions, training.concurrent)
        && concurrent > partitions
    {
        bail!("--concurrent is {concurrent}, and there are {partitions} partition(s): it must be at most that");
    }
    if let Some(partitions) = training.partitions
        && partitions > graph.chunks
    {
        bail!(
            "--partitions is {partitions}, and there are {} chunk(s): it must be at most that; --chunks of grappa-ingest and \
             grappa-gen makes more",
            graph.chunks
        );
    }
    let can_be_preaggregated = graph.stored > 0 && (source.is_whole || graph.aggregates.is_some());
    let preaggregated = match training.is_preaggregated {
        Some(true) if graph.stored == 0 => bail!(
            "the first hop cannot be pre-aggregated: the features are computed, not stored; use --first-hop sampled, or leave it out"
        ),
        Some(true) if !can_be_preaggregated => bail!(
            "the first hop cannot be pre-aggregated: the slice has no pre-aggregated features, and they need the whole graph; use \
             --first-hop sampled, or leave it out"
        ),
        Some(is_preaggregated) => is_preaggregated,
        // A minibatch of links leaves its edges out of the messages.
        None => can_be_preaggregated && !is_link,
    };
    Ok(TrainOptions {
        model: TrainModel {
            fanouts,
            preaggregated,
            hidden: training.hidden,
            classes: if is_link { training.hidden } else { source.classes },
        },
        train,
        scored: match is_link {
            true => source.held_out,
            false => training.scored_fraction.map(|share| source.part(share)).or(source.scored).unwrap_or(0),
        },
        links: is_link.then_some(LinkOptions {
            negatives: training.links.negatives,
            draws_edges: training.links.edges_per_epoch > 0,
            candidates: training.links.candidates.0.map(NonZeroU32::get),
        }),
        batch: training.batch,
        partitions: training.partitions,
        concurrent: training.concurrent,
        expands_halo: training.expands_halo,
        sweeps: training.sweeps,
        machine: Machine {
            memory: options.estimate.memory.0,
            disk_bandwidth: speed.disk_bandwidth as f64,
            threads: speed.threads,
            device_rate: training.device_rate.map(|rate| rate as f64),
            rates: speed.rates.train,
        },
        graph: source.graph,
    })
}

/// The edges that an epoch asks about.
fn training_edges(training: &Training, source: &PlannedGraph) -> anyhow::Result<u64> {
    if source.held_out == 0 {
        bail!("--task link scores edges that are held out: give --edge-split, or a store that was ingested with it");
    }
    let edges = if source.undirected { source.graph.edges / 2 } else { source.graph.edges };
    Ok(match training.links.edges_per_epoch {
        0 => edges,
        wanted => wanted.min(edges),
    })
}

pub fn text(plan: &TrainPlan) -> String {
    let mut table = Table::default();
    let places = match plan.lists {
        ViewKind::InTurn => "adjacency lists in memory in turn",
        ViewKind::Mapped => "adjacency lists in mapped files",
        ViewKind::Sweep => "minibatches swept from adjacency lists in mapped files",
        _ => "all adjacency lists in memory",
    };
    let halo = if plan.expands_halo { "" } else { "; nodes of other partitions are not expanded" };
    table.row("partitions", format!("{}, {} per step, {places}{halo}", plan.partitions, plan.concurrent));
    table.row("steps per epoch", exact(plan.steps));
    table.row("a step", format!("{} nodes, {} edges", exact(plan.step_nodes as u64), exact(plan.step_edges as u64)));
    let how = if plan.evaluates_exactly { "exact" } else { "sampled" };
    for (name, stage) in [
        ("pre-aggregation", &plan.preaggregation),
        ("opening", &plan.opening),
        ("epoch", &plan.epoch),
        ("history", &plan.history),
        ("evaluation", &plan.evaluation),
        ("first sampled evaluation", &plan.first_sampled_evaluation),
        ("exact evaluation", &plan.exact_evaluation),
    ] {
        let note = if name == "evaluation" { format!("{how}: ") } else { String::new() };
        table.row(name, format!("{note}{}", of_stage(stage)));
    }
    table.row(
        "disk besides the store",
        format!("{} of aggregates, {} of scratch files", bytes(plan.disk.aggregates), bytes(plan.disk.scratch)),
    );
    let MemoryPlan { adjacency, features, step, nodes, .. } = plan.memory;
    table.row(
        "memory",
        format!(
            "{}: adjacency lists {}, features {}, a step {}, sets of nodes {}, program and libtorch {}; {} with an exact evaluation",
            bytes(plan.memory.training),
            bytes(adjacency),
            bytes(features),
            bytes(step),
            bytes(nodes),
            bytes(plan.memory.training - adjacency - features - step - nodes),
            bytes(plan.memory.total)
        ),
    );
    let ledger = plan.ledger.to_string().replace('\n', "\n  ");
    format!("{}\n\n  {ledger}", table.text())
}

fn of_stage(stage: &StagePlan) -> String {
    let times = [stage.seconds, stage.disk_seconds, stage.processor_seconds];
    let [all, disk, processors] = times.map(|seconds| duration(Duration::from_secs_f64(seconds)));
    format!(
        "{all} (disk {disk}, processors {processors}), read {}, written {}",
        bytes(stage.bytes_read),
        bytes(stage.bytes_written)
    )
}

fn bytes(bytes: f64) -> ByteSize {
    ByteSize(bytes as u64)
}
