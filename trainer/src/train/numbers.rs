//! The numbers of partitions that are `auto`: chosen from the memory and the store, and kept by a resumed run.

use std::path::PathBuf;

use grappa_formats::aggregates::AggregateKind;
use grappa_io::{
    machine::{MemoryLimit, free_memory_bytes},
    size::ByteSize,
};
use grappa_run::{
    checkpoint::{Checkpoint, RunState},
    config::{Auto, HaloMode, TrainConfig},
};
use grappa_sampling::{
    ListsPlace, LoaderOptions, NumberOptions, PartitionNumbers, Remedy,
    partition::Owned,
    view::{Halo, PartitionView},
};
use grappa_storage::{Store, aggregates::Aggregates};
use serde::{Deserialize, Serialize};
use tch::Device;

use super::{hosts::Ranks, load::DeviceCopy, trainer::loader_options};
use crate::Result;

const GIB: u64 = 1 << 30;
/// Memory that is advised for minibatches, besides an eighth of what stays in memory.
const ADVICE_BUFFERS: u64 = GIB;

/// Memory of a process besides `--memory`: code, libtorch, and a small model. R-MAT 21 with 256 MiB was killed in a container of 512 MiB, and
/// was not with 640 MiB.
const PROCESS_BYTES: u64 = 350 << 20;

/// The number of partitions, and of those that are computed together in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    partitions: u32,
    concurrent: u32,
    /// Why they were chosen, if memory decided.
    pub reason: Option<String>,
}

impl Numbers {
    /// The numbers of a run. Those of its checkpoint, if it continues from one: the memory may have changed since. All ranks have the
    /// numbers of rank 0.
    ///
    /// # Errors
    /// As [`Numbers::choose`].
    pub fn of_run(
        store: &Store,
        config: &TrainConfig,
        knows_first_hop: bool,
        from: Option<&(PathBuf, Checkpoint)>,
        ranks: &Ranks,
    ) -> Result<Self> {
        let own = || Self::choose(store, config, knows_first_hop, ranks);
        match (from, &ranks.group) {
            (Some((_, checkpoint)), _) => Ok(Self::kept(config, &checkpoint.state)),
            (None, Some(group)) if ranks.hosts.count() == 1 => group.share("numbers of partitions", own),
            (None, _) => own(),
        }
    }

    /// Chooses the numbers that are `auto`. They depend on the ranks, and not on which one this process is. On several hosts, all ranks must
    /// call it: each host chooses for its chunks, and all ranks get as many partitions as the one that needs most.
    ///
    /// # Errors
    /// If a given number is 0 or exceeds the number of chunks.
    pub fn choose(store: &Store, config: &TrainConfig, knows_first_hop: bool, ranks: &Ranks) -> Result<Self> {
        let given = [config.partitions.value(), config.concurrent.value()];
        if let [Some(partitions), Some(concurrent)] = given {
            return Ok(Self {
                partitions,
                concurrent,
                reason: None,
            });
        }
        let (workers, share) = (ranks.share().workers(), ranks.share_within());
        let of_host = |number: u32| {
            let share = u64::from(number) * u64::from(share.workers());
            share.div_ceil(workers.into()).max(1) as u32
        };
        let options = NumberOptions {
            partitions: config.partitions.value().map(of_host),
            schedule: config.schedule,
            super_epochs: config.epochs.div_ceil(config.repartition_every),
            expands_halo: matches!(config.halo, HaloMode::Auto | HaloMode::Neighbors),
        };
        let aggregates = None;
        let loader = LoaderOptions {
            concurrent: config.concurrent.value().map(|concurrent| of_host(concurrent) as usize),
            sampler: config.sampler(knows_first_hop)?.into(),
            share,
            ..loader_options(config, aggregates, &DeviceCopy::new(Device::Cpu))?
        };
        let mut chosen = PartitionNumbers::choose(store, &loader, &options)?;
        if let Some(group) = ranks.group.as_ref().filter(|_| ranks.hosts.count() > 1) {
            let of_rank = [chosen.partitions, chosen.concurrent].map(|number| number.div_ceil(share.workers()));
            let of_each = group.gather_all("numbers of partitions", of_rank)?;
            let most = |number: usize| of_each.iter().map(|of_rank| of_rank[number]).max().unwrap_or(1);
            // Each partition needs a chunk.
            let of_rank = most(0).min(ranks.hosts.partitions_of_worker_max()).max(1);
            chosen.partitions = given[0].unwrap_or(of_rank * workers);
            chosen.concurrent = given[1].unwrap_or((most(1) * workers).min(chosen.partitions));
        }
        Ok(Self {
            partitions: chosen.partitions,
            concurrent: chosen.concurrent,
            reason: reason(config, &chosen, workers),
        })
    }

    /// The numbers in a checkpoint.
    fn kept(config: &TrainConfig, state: &RunState) -> Self {
        let [partitions, concurrent] = state.partitions(config);
        Self {
            partitions,
            concurrent,
            reason: None,
        }
    }

    /// The configuration with these numbers.
    pub fn applied(&self, config: &TrainConfig) -> TrainConfig {
        TrainConfig {
            partitions: Auto::Value(self.partitions),
            concurrent: Auto::Value(self.concurrent),
            ..config.clone()
        }
    }
}

/// Advice to give more memory than the default, if the graph and its features exceed that, and fit into what is free. None for a budget
/// that the user chose.
///
/// # Errors
/// If the index of the pre-aggregated features is damaged.
pub(super) fn memory_advice(
    store: &Store,
    aggregates: Option<AggregateKind>,
    config: &TrainConfig,
) -> Result<Option<String>> {
    let default = TrainConfig::default().memory;
    if config.memory != default {
        return Ok(None);
    }
    let lists = PartitionView::bytes_in_memory(store, &Owned::whole(store), Halo::Stop, false);
    let aggregates = aggregates
        .map(|kind| Aggregates::open(store, kind))
        .transpose()?
        .flatten();
    let aggregate_stride = aggregates.as_ref().map_or(0, |aggregates| aggregates.layout().stride);
    let stride = match store.manifest().stored_features() {
        Some(spec) if !aggregates.is_some_and(|aggregates| aggregates.with_features()) => spec.row_stride,
        _ => 0,
    };
    let rows = store
        .feature_nodes()
        .saturating_mul(u64::from(stride) + u64::from(aggregate_stride));
    Ok(advice(lists.saturating_add(rows), default.0, free_memory_bytes()))
}

/// A warning about budgets of `processes` processes of this host that leave no room for libtorch in its memory, or in that of a container
/// or job.
pub(super) fn limit_warning(memory: ByteSize, processes: u32, limit: Option<MemoryLimit>) -> Option<String> {
    let (bytes, of_what) = match limit? {
        MemoryLimit::OfMachine(bytes) => (bytes, "memory of this machine"),
        MemoryLimit::OfGroup(bytes) => (bytes, "memory limit of this container or job"),
    };
    if (memory.0.saturating_add(PROCESS_BYTES)).saturating_mul(u64::from(processes)) <= bytes {
        return None;
    }
    let each = match processes {
        1 => String::new(),
        _ => format!(" for each of the {processes} processes of this host,"),
    };
    Some(format!(
        "--memory {memory}, and about {} for libtorch and a small model,{each} exceed {}, the {of_what}: the kernel may end training \
         without a word; give a smaller --memory",
        ByteSize(PROCESS_BYTES),
        ByteSize(bytes)
    ))
}

fn advice(bytes: u64, default: u64, free: Option<u64>) -> Option<String> {
    let buffers = bytes / 8 + ADVICE_BUFFERS;
    let needed = bytes.saturating_add(buffers).div_ceil(GIB).saturating_mul(GIB);
    let is_more = bytes.saturating_add(bytes / 16) > default;
    let free = free.filter(|&free| is_more && needed <= free / 4 * 3)?;
    Some(format!(
        "adjacency lists and features take {} and exceed the default of --memory, {}: with --memory {}GiB they stay in memory, and \
         epochs need no disk; {} are free",
        ByteSize(bytes),
        ByteSize(default),
        needed / GIB,
        ByteSize(free)
    ))
}

/// Why these numbers were chosen. None if the adjacency lists of the whole graph fit one process.
fn reason(config: &TrainConfig, chosen: &PartitionNumbers, workers: u32) -> Option<String> {
    let PartitionNumbers {
        partitions, concurrent, ..
    } = chosen;
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
            "{numbers}: {size}; those of a step and of the next one take at most {}{each}",
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
            Some(format!(
                "{numbers}: {size}, so they are read from mapped files; {remedy}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_beyond_the_memory_of_a_machine_or_container_are_a_warning() {
        let warning = |processes, limit| limit_warning(ByteSize(4 * GIB), processes, limit);
        let container = warning(1, Some(MemoryLimit::OfGroup(2 * GIB))).expect("it exceeds the limit");
        assert!(
            container.contains("small model, exceed 2.0 GiB, the memory limit of this container"),
            "{container}"
        );
        let machine = warning(3, Some(MemoryLimit::OfMachine(8 * GIB))).expect("12 GiB exceed 8");
        assert!(
            machine.contains("for each of the 3 processes of this host, exceed 8.0 GiB, the memory of this machine"),
            "{machine}"
        );
        assert_eq!(warning(2, Some(MemoryLimit::OfMachine(9 * GIB))), None);
        assert!(warning(1, Some(MemoryLimit::OfGroup(4 * GIB + GIB / 4))).is_some());
        assert_eq!(warning(1, None), None);
    }

    #[test]
    fn more_memory_is_advised_where_it_is_free_and_helps() {
        let advice = |bytes, free| advice(bytes * GIB, 4 * GIB, free);
        let given = advice(8, Some(64 * GIB)).expect("8 GiB exceed 4, and 64 are free");
        assert!(
            given.contains("take 8.0 GiB") && given.contains("--memory 10GiB"),
            "{given}"
        );
        assert_eq!(advice(3, Some(64 * GIB)), None);
        assert_eq!(advice(8, Some(12 * GIB)), None);
        assert_eq!(advice(8, None), None);
        assert_eq!(super::advice(u64::MAX, 4 * GIB, Some(64 * GIB)), None);
    }
}
