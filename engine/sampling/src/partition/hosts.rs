//! Which of several hosts trains which chunks.
//!
//! A *host* is all workers that have the same chunks. If every worker has the whole store, there is one host. If
//! workers have different slices of a graph, each partition consists of chunks of one host: a host divides its chunks
//! among the partitions that its workers serve, by the same schedule as for a whole store. So repartitioning moves no
//! data between hosts.
//!
//! ```text
//! worker   has chunks   host   serves, of 6 partitions with 6 per step
//! 0        0-3          0      0, 1      bases and variable parts are of chunks 0-3
//! 1        0-3          0      2, 3
//! 2        4-9          1      4, 5      of chunks 4-9
//! ```
//!
//! One host trains each chunk. If several hosts have it, it is the one with the least work per worker so far.
//!
//! Hosts are in the order of their chunks, and partitions are divided among workers in the order of hosts. So it does
//! not matter which number a launcher gives a worker.
//!
//! All of this follows from what each worker has, so that workers agree on it once they have told each other.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use grappa_formats::{ChunkId, PartitionId, assignment::Assignment};
use grappa_io::{Error, Result};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use super::{
    RepartitionOptions, Share,
    schedule::{ABSENT, owners_of, too_few_chunks},
    tables::ChunkTables,
};

/// A chunk, as a worker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldChunk {
    /// The number of its node type.
    pub node_type: u32,
    /// Number of its nodes.
    pub nodes: u64,
    /// Number of edges to its nodes.
    pub edges: u64,
    /// Number of training nodes among its nodes.
    pub seeds: u64,
}

impl HeldChunk {
    fn work(self) -> u64 {
        self.nodes.saturating_add(self.edges)
    }
}

/// The chunks that a worker has: an entry for each chunk of the graph, which is none if the worker does not have it.
pub type HeldChunks = Vec<Option<HeldChunk>>;

/// The chunks of a graph. `seeds` are the [positions](grappa_storage::Positions) of its training nodes.
pub fn held_chunks<'a>(graph: impl Into<ChunkTables<'a>>, seeds: &RoaringTreemap) -> HeldChunks {
    let tables = graph.into();
    let mut held = HeldChunks::new();
    let mut first_node = 0;
    for ((node_type, manifest), sizes) in (0..).zip(tables.node_types()).zip(tables.sizes()) {
        for (bounds, size) in manifest.chunk_starts.windows(2).zip(sizes) {
            let nodes = bounds[1] - bounds[0];
            held.push(size.map(|size| HeldChunk {
                node_type,
                nodes,
                edges: size - nodes,
                seeds: seeds.range_cardinality(first_node + bounds[0]..first_node + bounds[1]),
            }));
        }
        first_node += manifest.chunk_starts[manifest.chunks.len()];
    }
    held
}

/// The chunks of the node type that has most.
fn most_chunks(of_types: &[Vec<(usize, u64)>]) -> usize {
    of_types.iter().map(Vec::len).max().unwrap_or(0)
}

/// The hosts that train a graph, and the chunks of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// The host of each worker.
    of_worker: Vec<usize>,
    /// The host that trains each chunk, if one has it.
    chunks: Vec<Option<(usize, HeldChunk)>>,
}

impl Hosts {
    /// One host, whose `workers` workers all have the chunks `held`.
    pub fn one(held: &HeldChunks, workers: u32) -> Self {
        Self {
            of_worker: vec![0; workers as usize],
            chunks: held.iter().map(|held| held.map(|held| (0, held))).collect(),
        }
    }

    /// The hosts of workers that have the chunks `held`.
    ///
    /// # Errors
    /// If two workers have different chunks with the same number, which is a chunk of another graph.
    ///
    /// # Panics
    /// If there are no workers, or they have graphs with different numbers of chunks.
    pub fn of_workers(held: &[HeldChunks]) -> Result<Self> {
        let count = held[0].len();
        assert!(held.iter().all(|held| held.len() == count), "chunks of different graphs");
        let sets: Vec<Vec<usize>> = held
            .iter()
            .map(|held| -> Vec<usize> { (0..count).filter(|&chunk| held[chunk].is_some()).collect() })
            .collect();
        let hosts: BTreeSet<&Vec<usize>> = sets.iter().collect();
        let mut hosts = Self {
            of_worker: sets
                .iter()
                .map(|set| hosts.iter().position(|&other| other == set).expect("it is in the set"))
                .collect(),
            chunks: vec![None; count],
        };
        hosts.divide(held)?;
        Ok(hosts)
    }

    /// Gives each chunk to one of the hosts that have it.
    fn divide(&mut self, held: &[HeldChunks]) -> Result<()> {
        let mut work = vec![0u64; self.count()];
        for chunk in 0..self.chunks.len() {
            let mut with = (0..).zip(held).filter_map(|(worker, held)| Some((worker, held[chunk]?)));
            let Some((first, of_first)) = with.next() else { continue };
            let mut best = self.of_worker[first];
            for (worker, other) in with {
                if other != of_first {
                    return Err(Error::conflict(
                        format!(
                            "rank {first} and rank {worker} have a different chunk {chunk}: {of_first:?} and {other:?}"
                        ),
                        "use slices of the same store",
                    ));
                }
                let host = self.of_worker[worker];
                // Compares work / workers without a division.
                let [own, of_best] = [(host, best), (best, host)]
                    .map(|(host, other)| u128::from(work[host]) * self.workers_of(other).count() as u128);
                if own < of_best {
                    best = host;
                }
            }
            work[best] = work[best].saturating_add(of_first.work());
            self.chunks[chunk] = Some((best, of_first));
        }
        Ok(())
    }

    /// Number of hosts.
    pub fn count(&self) -> usize {
        self.of_worker.iter().max().map_or(0, |last| last + 1)
    }

    /// The workers of a host, ascending.
    fn workers_of(&self, host: usize) -> impl Iterator<Item = u32> + '_ {
        let workers = (0..).zip(&self.of_worker);
        workers.filter_map(move |(worker, &other)| (other == host).then_some(worker))
    }

    /// The share of a worker in work that all workers divide, such as the partitions of a step: the partitions of a host are
    /// next to each other.
    pub fn share(&self, worker: u32) -> Share {
        let host = self.of_worker[worker as usize];
        let before = self.of_worker.iter().filter(|&&other| other < host).count() as u32;
        let workers = self.of_worker.len() as u32;
        Share::new(before + self.share_within(worker).worker(), workers)
    }

    /// The share of a worker in work that the workers of each host divide.
    pub fn share_within(&self, worker: u32) -> Share {
        let host = self.of_worker[worker as usize];
        let before = self.workers_of(host).take_while(|&other| other < worker);
        Share::new(before.count() as u32, self.workers_of(host).count() as u32)
    }

    /// Whether the host of a worker trains a chunk.
    pub fn trains(&self, worker: u32, chunk: ChunkId) -> bool {
        let of_chunk = self.chunks[chunk.0 as usize].map(|(host, _)| host);
        of_chunk == Some(self.of_worker[worker as usize])
    }

    /// The chunks that some host trains, ascending.
    pub fn trained(&self) -> impl Iterator<Item = (ChunkId, HeldChunk)> + '_ {
        let chunks = (0..).map(ChunkId).zip(&self.chunks);
        chunks.filter_map(|(chunk, held)| Some((chunk, (*held)?.1)))
    }

    /// Number of chunks of the graph.
    pub fn chunks(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Whether some host trains each chunk of the graph.
    pub fn has_all(&self) -> bool {
        self.chunks.iter().all(Option::is_some)
    }

    /// The most partitions that each worker can serve in every step, so that each of them has a chunk.
    pub fn partitions_of_worker_max(&self) -> u32 {
        let of_host = |host: usize| most_chunks(&self.chunks_of(host)) / self.workers_of(host).count();
        (0..self.count()).map(of_host).min().unwrap_or(0) as u32
    }

    /// The chunks that a host trains, by node type: their numbers, and the work of each.
    fn chunks_of(&self, host: usize) -> Vec<Vec<(usize, u64)>> {
        let mut of_types: Vec<Vec<(usize, u64)>> = Vec::new();
        for (chunk, held) in self.chunks.iter().enumerate() {
            let Some((_, held)) = held.filter(|(other, _)| *other == host) else { continue };
            let node_type = held.node_type as usize;
            of_types.resize(of_types.len().max(node_type + 1), Vec::new());
            of_types[node_type].push((chunk, held.work()));
        }
        of_types
    }

    /// Assigns chunks to the partitions of a super-epoch, as generation `generation`. The chunks of each node type are dealt on their own. `concurrent` is the number of
    /// partitions of a step. With one host, this is [`assign`](super::assign).
    ///
    /// # Errors
    /// If a host has no partition, or more partitions than chunks.
    ///
    /// # Panics
    /// If `options` has no super-epoch.
    pub fn assign(&self, options: &RepartitionOptions, concurrent: u32, generation: u64) -> Result<Assignment> {
        let partitions = options.partitions;
        let super_epoch = options.super_epoch.expect("the caller sets the super-epoch");
        if partitions == 0 || concurrent == 0 {
            return Err(Error::out_of_range("the number of partitions", "at least 1", 0));
        }
        let mut owners = vec![ABSENT; self.chunks.len()];
        for host in 0..self.count() {
            let of_types = self.chunks_of(host);
            let served = self.served_by(host, partitions, concurrent);
            self.check(host, most_chunks(&of_types), served.len(), partitions)?;
            for of_type in of_types {
                let (chunks, sizes): (Vec<usize>, Vec<u64>) = of_type.into_iter().unzip();
                let dealt = owners_of(options.schedule, &sizes, served.len() as u32, options.seed, super_epoch);
                for (chunk, mut of_chunk) in chunks.into_iter().zip(dealt) {
                    of_chunk.base = served[of_chunk.base.0 as usize];
                    of_chunk.variable = of_chunk.variable.map(|partition| served[partition.0 as usize]);
                    owners[chunk] = of_chunk;
                }
            }
        }
        let name = options.schedule.name();
        Ok(Assignment::from_owners(generation, partitions, name, &owners))
    }

    /// The partitions that the workers of a host serve, ascending.
    fn served_by(&self, host: usize, partitions: u32, concurrent: u32) -> Vec<PartitionId> {
        let shares: Vec<Share> = self.workers_of(host).map(|worker| self.share(worker)).collect();
        let all = (0..partitions).map(PartitionId);
        all.filter(|&partition| {
            shares.iter().any(|share| share.serves(partition, partitions as usize, concurrent as usize))
        })
        .collect()
    }

    fn check(&self, host: usize, chunks: usize, served: usize, partitions: u32) -> Result<()> {
        if (1..=chunks).contains(&served) {
            return Ok(());
        }
        if self.count() == 1 {
            return Err(too_few_chunks(chunks, partitions));
        }
        let ranks: Vec<String> = self.workers_of(host).map(|rank| rank.to_string()).collect();
        let workers = self.of_worker.len();
        let contradiction = format!(
            "the host of rank {} has {chunks} chunks of its own, and serves {served} of the {partitions} partitions",
            ranks.join(", "),
        );
        Err(match served {
            0 => Error::conflict(
                contradiction,
                format!("use --partitions and --concurrent of at least {workers}, the number of ranks"),
            ),
            _ => Error::conflict(
                contradiction,
                "use fewer --partitions, or place more chunks there (grappa-store place)",
            ),
        })
    }

    /// Number of seeds of each partition of an assignment that [`Hosts::assign`] made.
    pub fn seeds(&self, assignment: &Assignment) -> Vec<u64> {
        let mut seeds = vec![0; assignment.partitions() as usize];
        for (chunk, held) in self.trained() {
            let base = assignment.owners(chunk).base.expect("every chunk is in a base");
            seeds[base.0 as usize] += held.seeds;
        }
        seeds
    }
}
