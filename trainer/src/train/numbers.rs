//! The numbers of partitions that are `auto`: chosen from the memory and the store, and kept by a resumed run.

use std::path::PathBuf;

use grappa_io::size::ByteSize;
use grappa_run::{
    checkpoint::{Checkpoint, RunState},
    config::{Auto, HaloMode, TrainConfig},
};
use grappa_sampling::{ListsPlace, LoaderOptions, NumberOptions, PartitionNumbers, Remedy};
use grappa_storage::Store;
use serde::{Deserialize, Serialize};
use tch::Device;

use super::{hosts::Ranks, load::DeviceCopy, trainer::loader_options};
use crate::Result;

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
