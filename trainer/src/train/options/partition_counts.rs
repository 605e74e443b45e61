//! The numbers of partitions that are `auto`: chosen from the memory and the store, and kept by a resumed run.

use grappa_io::size::ByteSize;
use grappa_run::{
    checkpoint::RunState,
    config::{Auto, HaloMode, Sampling, TrainConfig},
};
use grappa_sampling::{ListsPlace, LoaderOptions, NumberOptions, PartitionNumbers, Remedy};
use grappa_storage::Graph;
use serde::{Deserialize, Serialize};

use super::loader_options::{loader_options, sampler};
use crate::Result;
use crate::train::{
    data::{edge_data, times},
    ranks::Processes,
};

/// The number of partitions, and the number of partitions in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChosenNumbers {
    pub partitions: u32,
    pub concurrent: u32,
    /// Whether minibatches are swept.
    pub sweeps: bool,
    /// Why they were chosen, if memory decided.
    pub reason: Option<String>,
}

impl ChosenNumbers {
    /// The numbers of a run. A run that continues `from` a checkpoint keeps its numbers: the memory may have changed since. All ranks have
    /// the numbers of rank 0.
    pub fn of_run(
        graph: &Graph,
        config: &TrainConfig,
        knows_first_hop: bool,
        from: Option<&RunState>,
        processes: &Processes,
    ) -> Result<Self> {
        if let Some(state) = from {
            let [partitions, concurrent] = state.partitions([config.partitions(), config.concurrent()]);
            // Minibatches do not depend on how they are sampled, so the memory of this process decides that.
            let kept = TrainConfig { partitions: Auto::Value(partitions), ..config.clone() };
            let sweeps = match config.sampling {
                Sampling::Auto if partitions == 1 => Self::choose(graph, &kept, knows_first_hop, processes)?.sweeps,
                sampling => sampling == Sampling::Sweep,
            };
            return Ok(Self { partitions, concurrent, sweeps, reason: None });
        }
        match processes.with_slices() {
            Some(_) => Self::choose(graph, config, knows_first_hop, processes),
            None => {
                processes.broadcast("numbers of partitions", || Self::choose(graph, config, knows_first_hop, processes))
            }
        }
    }

    /// Chooses the numbers that are `auto`. They depend on the ranks, and not on which one this process is. On several hosts, all ranks
    /// must call it: each host chooses for its chunks, and all ranks get as many partitions as the one that needs most.
    fn choose(graph: &Graph, config: &TrainConfig, knows_first_hop: bool, processes: &Processes) -> Result<Self> {
        let requested = [times::partitions(graph, config).value(), config.concurrent.value()];
        let may_sweep = match config.sampling {
            Sampling::Auto => {
                processes.count() == 1
                    && requested[0].is_none_or(|number| number == 1)
                    && config.halo == HaloMode::Auto
                    && config.may_sweep()
            }
            _ => false,
        };
        if let ([Some(partitions), Some(concurrent)], false) = (requested, may_sweep) {
            let sweeps = config.sampling == Sampling::Sweep;
            return Ok(Self { partitions, concurrent, sweeps, reason: None });
        }
        let edges = edge_data::of_graph(graph, config).input(config)?;
        let (workers, share) = (processes.share().workers(), processes.share_within());
        let host_numbers = requested.map(|number| Some(share_of_host(number?, share.workers(), workers)));
        let options = NumberOptions {
            partitions: host_numbers[0],
            schedule: config.schedule,
            super_epochs: config.epochs.div_ceil(config.repartition_every),
            expands_halo: matches!(config.halo, HaloMode::Auto | HaloMode::Neighbors)
                && !times::keeps_order(graph, config),
        };
        let mut loader = LoaderOptions {
            concurrent: host_numbers[1].map(|concurrent| concurrent as usize),
            share,
            ..loader_options(graph, config, None, edges)?
        };
        loader.minibatches.sampler = sampler(graph, config, knows_first_hop, edges)?.into();
        let mut chosen = PartitionNumbers::choose(graph, &loader, &options)?;
        if may_sweep && lacks_edges(graph, config, knows_first_hop, (&chosen, &loader)) {
            let reason = sweep_reason(config, &chosen);
            return Ok(Self { partitions: 1, concurrent: 1, sweeps: true, reason: Some(reason) });
        }
        if let Some(group) = processes.with_slices() {
            let rank_numbers = [chosen.partitions, chosen.concurrent].map(|number| number.div_ceil(share.workers()));
            let rank_choices = group.gather_all("numbers of partitions", rank_numbers)?;
            let most = rank_choices.into_iter().reduce(|[a, b], [c, d]| [a.max(c), b.max(d)]);
            let [partitions, concurrent] = most.unwrap_or(rank_numbers);
            // Each partition needs a chunk.
            let partitions = partitions.min(processes.hosts.partitions_of_worker_max()).max(1);
            chosen.partitions = requested[0].unwrap_or(partitions * workers);
            chosen.concurrent = requested[1].unwrap_or((concurrent * workers).min(chosen.partitions));
        }
        Ok(Self {
            partitions: chosen.partitions,
            concurrent: chosen.concurrent,
            sweeps: config.sampling == Sampling::Sweep,
            reason: reason(config, &chosen, workers),
        })
    }
}

/// Whether sweeps give minibatches more edges, or the same ones faster. With a pre-aggregated first hop, halo nodes need fewer in-neighbors.
fn lacks_edges(
    graph: &Graph,
    config: &TrainConfig,
    knows_first_hop: bool,
    (chosen, loader): (&PartitionNumbers, &LoaderOptions),
) -> bool {
    let has_halo_lists = config.halo == HaloMode::Auto && !times::keeps_order(graph, config);
    loader.holds_whole_minibatches(graph)
        && chosen.lacks_edges(|| {
            knows_first_hop || config.layers == 1 || (has_halo_lists && loader.expands_all_halo_nodes(graph))
        })
}

fn sweep_reason(config: &TrainConfig, chosen: &PartitionNumbers) -> String {
    format!(
        "--sampling auto is sweep: adjacency lists take {} and may take {} of --memory {}; passes over the files give the \
         minibatches of the whole graph",
        ByteSize(chosen.whole_bytes),
        ByteSize(chosen.room),
        config.memory
    )
}

/// The part of `number` that a host with `own` of the `workers` has, at least 1.
fn share_of_host(number: u32, own: u32, workers: u32) -> u32 {
    let share = u64::from(number) * u64::from(own);
    share.div_ceil(workers.into()).max(1) as u32
}

/// Why these numbers were chosen. None if the adjacency lists of the whole graph fit one process.
fn reason(config: &TrainConfig, chosen: &PartitionNumbers, workers: u32) -> Option<String> {
    let PartitionNumbers { partitions, concurrent, .. } = chosen;
    let numbers = match (config.partitions, config.concurrent) {
        (Auto::Auto, Auto::Auto) => format!("--partitions auto is {partitions}, {concurrent} per step"),
        (Auto::Auto, _) => format!("--partitions auto is {partitions}"),
        _ => format!("--concurrent auto is {concurrent} of {partitions} partitions"),
    };
    let each = if workers > 1 { " of each process" } else { "" };
    let size = format!(
        "adjacency lists take {} and may take {} of --memory {}{each}",
        ByteSize(chosen.whole_bytes),
        ByteSize(chosen.room),
        config.memory
    );
    match chosen.lists {
        ListsPlace::Memory if workers > 1 => Some(format!("{numbers}: {workers} processes divide them")),
        ListsPlace::Memory => None,
        ListsPlace::InTurn(bytes) => Some(format!(
            "{numbers}: {size}; the minibatches of a step and of the next one take at most {}{each}",
            ByteSize(bytes)
        )),
        ListsPlace::Mapped(remedy) => {
            let remedy = match remedy {
                Remedy::Partitions(fitting) => format!("with --partitions {fitting} they would be in memory in turn"),
                Remedy::Memory(bytes) => format!(
                    "to have them in memory, raise --memory to {} MiB, or create the store with more --chunks",
                    bytes.div_ceil(1 << 20)
                ),
            };
            Some(format!("{numbers}: {size}, so they are read from mapped files; {remedy}"))
        }
    }
}
