//! Facts about a run for its report: the dataset, the process, and what options that are `auto` became.

use std::{collections::BTreeMap, fs, time::SystemTime};

use grappa_formats::manifest::{LabelKind, Manifest};
use grappa_io::size::count;
use grappa_report::{Fact, RunFacts};
use grappa_run::config::{Auto, Compress, DeviceChoice, Evaluate, FirstHop, HaloMode};
use grappa_sampling::partition::HeldChunk;
use tch::Device;
use time::OffsetDateTime;

use super::Trainer;
use crate::runtime;

impl Trainer {
    /// The facts, as far as they are known now: some choices need open partitions. `command` is the command line of the
    /// process, and `started` the time when it began.
    pub(super) fn facts(&self, command: &str, started: SystemTime) -> RunFacts {
        RunFacts {
            dataset: self.dataset(),
            process: process(self.device, self.rank().1, command, started),
            chosen: self.chosen(),
        }
    }

    fn dataset(&self) -> Vec<Fact> {
        let manifest = self.store.manifest();
        let trained: Vec<HeldChunk> = self.hosts.trained().map(|(_, held)| held).collect();
        let edges = edges(manifest, trained.iter().map(|held| held.edges).sum());
        let mut facts = vec![("nodes", count(manifest.nodes)), ("edges", edges)];
        if let Some(features) = &manifest.features {
            facts.push(("features", format!("{} x {}", features.dim, features.dtype.name())));
        }
        if let Some(labels) = manifest.labels {
            let several = match labels.kind {
                LabelKind::Single => "",
                LabelKind::Multi => ", any number per node",
            };
            facts.push(("classes", format!("{}{several}", labels.classes)));
        }
        let names = [
            ("train", "training nodes"),
            ("val", "validation nodes"),
            ("test", "test nodes"),
        ];
        for ((split, name), nodes) in names.into_iter().zip(self.splits.of_all()) {
            if manifest.splits.iter().any(|entry| entry.name == split) {
                facts.push((name, count(nodes)));
            }
        }
        if let Some(split) = manifest.random_split() {
            facts.push(("random split", split.to_owned()));
        }
        let chunks = match self.hosts.has_all() {
            true => trained.len().to_string(),
            false => format!("{} of {}", trained.len(), manifest.chunks.len()),
        };
        facts.push(("chunks", chunks));
        if self.hosts.count() > 1 {
            facts.push(("hosts with different chunks", self.hosts.count().to_string()));
        }
        facts.push(("written by", manifest.writer.clone()));
        facts
    }

    fn chosen(&self) -> BTreeMap<&'static str, String> {
        let config = &self.config;
        let mut chosen = BTreeMap::new();
        let mut add = |option, is_auto: bool, value: Option<String>| {
            if let Some(value) = value.filter(|_| is_auto) {
                chosen.insert(option, value);
            }
        };
        let has_last_heads = config.model.attends() && config.last_heads == Auto::Auto;
        let last_heads = self.model.options().heads_of(config.layers - 1);
        add("last-heads", has_last_heads, Some(last_heads.to_string()));
        add("norm", config.norm == Auto::Auto, Some(config.norm().to_string()));
        add(
            "fanouts",
            config.fanouts == Auto::Auto,
            Some(config.fanouts().to_string()),
        );
        let batch = match config.full_graph {
            true => "all training nodes".to_owned(),
            false => config.batch().to_string(),
        };
        add("batch", config.batch == Auto::Auto, Some(batch));
        let [partitions, concurrent] = self.chosen_numbers;
        add("partitions", partitions, Some(config.partitions().to_string()));
        add("concurrent", concurrent, Some(config.concurrent().to_string()));
        add(
            "threads",
            config.threads == Auto::Auto,
            Some(config.threads().to_string()),
        );
        let has_rate = config.compress == Compress::TopK && config.compress_rate == Auto::Auto;
        add("compress-rate", has_rate, Some(config.compress_rate().to_string()));
        let first_hop = match self.aggregates {
            Some(_) => FirstHop::Preaggregated,
            None => FirstHop::Sampled,
        };
        add(
            "first-hop",
            config.first_hop == FirstHop::Auto,
            Some(first_hop.to_string()),
        );
        let halo = match &self.refresh_plan {
            Some(_) => HaloMode::History,
            None if self.loader.halo_lists().is_some() => HaloMode::Neighbors,
            None => HaloMode::Stop,
        };
        let has_halo = config.halo == HaloMode::Auto && config.partitions() > 1 && self.super_epoch.is_some();
        add("halo", has_halo, Some(halo.to_string()));
        let device = device_name(self.device);
        add("device", config.device == DeviceChoice::Auto, Some(device));
        let lookahead = self.loader.feed().map(|feed| feed.lookahead().to_string());
        add("lookahead", config.lookahead == Auto::Auto, lookahead);
        let evaluated = self.scored_nodes.as_ref().map(|scored| scored.method());
        let is_auto = config.evaluate == Evaluate::Auto;
        add("evaluate", is_auto, evaluated.map(|method| method.to_string()));
        chosen
    }
}

/// Describes `edges` edges.
fn edges(manifest: &Manifest, edges: u64) -> String {
    let undirected = if manifest.edge_options.undirected {
        ", both directions"
    } else {
        ""
    };
    let weighted = if manifest.weighted { ", weighted" } else { "" };
    format!("{}{undirected}{weighted}", count(edges))
}

fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

fn process(device: Device, processes: u32, command: &str, started: SystemTime) -> Vec<Fact> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| -> Option<String> {
        let value = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name);
        value.map(|(_, value)| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned());
    let started = OffsetDateTime::from(started);
    vec![
        (
            "started",
            format!("{} {:02}:{:02} UTC", started.date(), started.hour(), started.minute()),
        ),
        ("host", read("/proc/sys/kernel/hostname").trim().to_owned()),
        ("processors", format!("{processors} of {processor}")),
        ("processes", processes.to_string()),
        ("device", device_name(device)),
        ("libtorch", runtime::libtorch_version()),
        ("command", command.to_owned()),
    ]
}
