//! Facts about a run for its report: the dataset, the process, and what options that are `auto` became.

use std::{collections::BTreeMap, fs, time::SystemTime};

use grappa_formats::manifest::{LabelKind, Manifest};
use grappa_io::size::count;
use grappa_report::{Fact, RunFacts};
use grappa_run::config::{Auto, Compress, DeviceChoice, Evaluate, FirstHop, HaloMode};
use grappa_sampling::partition::HeldChunk;
use grappa_storage::Graph;
use tch::Device;
use time::OffsetDateTime;

use crate::runtime;
use crate::train::trainer::Trainer;

/// The facts, as far as they are known now: some choices need open partitions. `command` is the command line of the
/// process, and `started` the time when it began.
pub(crate) fn facts(trainer: &Trainer, command: &str, started: SystemTime) -> RunFacts {
    RunFacts {
        dataset: dataset(trainer),
        process: process(trainer.config.device, trainer.processes.count(), command, started),
        chosen: chosen(trainer),
    }
}

fn dataset(trainer: &Trainer) -> Vec<Fact> {
    let (graph, manifest) = (&trainer.data.graph, trainer.data.store.manifest());
    let trained: Vec<HeldChunk> = trainer.processes.hosts.trained().map(|(_, counts)| counts).collect();
    let edges = edges(graph, trained.iter().map(|counts| counts.edges).sum());
    let nodes = graph.positions().chunks().nodes();
    let mut facts = vec![("nodes", count(nodes)), ("edges", edges)];
    if graph.has_types() {
        let names = |names: Vec<&str>| format!("{} ({})", names.len(), names.join(", "));
        let types = graph.manifest().node_types.iter().map(|node_type| &*node_type.name);
        let relations: Vec<String> =
            (0..graph.relations().len()).map(|number| graph.manifest().relation_name(number)).collect();
        facts.push(("node types", names(types.collect())));
        facts.push(("relations", names(relations.iter().map(String::as_str).collect())));
        facts.push(match trainer.data.links() {
            Some(links) => ("learned relation", graph.manifest().relation_name(links.task.relation.number)),
            None => ("learned type", graph.manifest().node_types[trainer.data.target].name.clone()),
        });
    }
    if let Some(features) = &manifest.features {
        facts.push(("features", format!("{} x {}", features.dim, features.dtype.name())));
    }
    if let Some(links) = trainer.data.links() {
        let names = ["training edges", "validation edges", "test edges"];
        facts.extend(names.into_iter().zip(links.edges.map(count)));
    } else {
        facts.extend(of_labels(trainer));
    }
    let chunks = match trainer.processes.hosts.has_all() {
        true => trained.len().to_string(),
        false => format!("{} of {}", trained.len(), graph.positions().chunks().chunks()),
    };
    facts.push(("chunks", chunks));
    if trainer.processes.hosts.count() > 1 {
        facts.push(("hosts with different chunks", trainer.processes.hosts.count().to_string()));
    }
    facts.push(("written by", manifest.writer.clone()));
    facts
}

/// The labels of nodes, and the nodes that have them.
fn of_labels(trainer: &Trainer) -> Vec<Fact> {
    let manifest = trainer.data.store.manifest();
    let mut facts = Vec::new();
    if let Some(labels) = manifest.labels {
        let (name, several) = match labels.kind {
            LabelKind::Single => ("classes", ""),
            LabelKind::Multi => ("classes", ", any number per node"),
            LabelKind::Partial => ("classes", ", any number per node, some unknown"),
            LabelKind::Targets => ("targets", ""),
        };
        facts.push((name, format!("{}{several}", labels.classes)));
    }
    let names = [("train", "training nodes"), ("val", "validation nodes"), ("test", "test nodes")];
    for ((split, name), nodes) in names.into_iter().zip(trainer.data.splits.of_all()) {
        if manifest.splits.iter().any(|entry| entry.name == split) {
            facts.push((name, count(nodes)));
        }
    }
    if let Some(split) = manifest.random_split() {
        facts.push(("random split", split.to_owned()));
    }
    facts
}

/// The values of options that are `auto`, as far as they are known now.
pub(crate) fn chosen(trainer: &Trainer) -> BTreeMap<&'static str, String> {
    let (config, requested) = (&trainer.config, trainer.config.requested());
    let batch = match config.full_graph {
        true if trainer.data.links().is_some() => "all training edges".to_owned(),
        true => "all training nodes".to_owned(),
        false => config.batch().to_string(),
    };
    let first_hop = match config.aggregates {
        Some(_) => FirstHop::Preaggregated,
        None => FirstHop::Sampled,
    };
    let loader = &trainer.partitions.loader;
    let halo = match (trainer.history.is_planned(), loader.halo_lists()) {
        (true, _) => HaloMode::History,
        (false, Some(_)) => HaloMode::Neighbors,
        (false, None) => HaloMode::Stop,
    };
    let has_halo = config.partitions() > 1 && trainer.partitions.super_epoch.is_some();
    let last_heads = trainer.model().options().heads_of(config.layers - 1).to_string();
    let is_top_k = config.compress == Compress::TopK;
    let evaluated = trainer.evaluations.scored.as_ref();
    let all = [
        ("last-heads", requested.last_heads == Auto::Auto, config.model.attends().then_some(last_heads)),
        ("norm", requested.norm == Auto::Auto, Some(config.norm().to_string())),
        ("fanouts", requested.fanouts == Auto::Auto, Some(config.fanouts().to_string())),
        ("batch", requested.batch == Auto::Auto, Some(batch)),
        ("partitions", requested.partitions == Auto::Auto, Some(config.partitions().to_string())),
        ("concurrent", requested.concurrent == Auto::Auto, Some(config.concurrent().to_string())),
        ("threads", requested.threads == Auto::Auto, Some(config.threads().to_string())),
        ("compress-rate", requested.compress_rate == Auto::Auto, is_top_k.then(|| config.compress_rate().to_string())),
        ("first-hop", requested.first_hop == FirstHop::Auto, Some(first_hop.to_string())),
        ("halo", requested.halo == HaloMode::Auto, has_halo.then(|| halo.to_string())),
        ("device", requested.device == DeviceChoice::Auto, Some(device_name(config.device))),
        ("lookahead", requested.lookahead == Auto::Auto, loader.feed().map(|feed| feed.lookahead().to_string())),
        ("evaluate", requested.evaluate == Evaluate::Auto, evaluated.map(|scored| scored.method().to_string())),
    ];
    let chosen = all.into_iter().filter(|&(_, is_auto, _)| is_auto);
    chosen.filter_map(|(option, _, value)| Some((option, value?))).collect()
}

/// Describes `edges` edges.
fn edges(graph: &Graph, edges: u64) -> String {
    let any = |is: fn(&Manifest) -> bool| graph.relations().iter().any(|relation| is(relation.manifest()));
    let undirected = if any(|manifest| manifest.edge_options.undirected) { ", both directions" } else { "" };
    let weighted = if any(|manifest| manifest.weighted) { ", weighted" } else { "" };
    format!("{}{undirected}{weighted}", count(edges))
}

fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

fn process(device: Device, processes: u32, command: &str, started: SystemTime) -> Vec<Fact> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let processor = processor_name().unwrap_or_else(|| "unknown".to_owned());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = OffsetDateTime::from(started);
    vec![
        ("started", format!("{} {:02}:{:02} UTC", started.date(), started.hour(), started.minute())),
        ("host", host.trim().to_owned()),
        ("processors", format!("{processors} of {processor}")),
        ("processes", processes.to_string()),
        ("device", device_name(device)),
        ("libtorch", runtime::libtorch_version()),
        ("command", command.to_owned()),
    ]
}

/// The name of the processor, as the system has it.
fn processor_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, name) = fields.find(|(key, _)| key.trim() == "model name")?;
    Some(name.trim().to_owned())
}
