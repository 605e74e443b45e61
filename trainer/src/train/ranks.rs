//! The processes that train together, and the chunks that each has.
//!
//! Usually each rank has the whole store. If ranks have different slices of a graph, they tell each other at the start which chunks they
//! have, with the number of training nodes in each. Then all know the partitions of all hosts ([`Hosts`]), and need no more than that
//! during training.
//!
//! All ranks must make the same decisions. So no decision depends on what one rank has open. Ranks sum their counts and unite their sets
//! ([`Processes::sum`], [`Processes::united`]), or rank 0 decides ([`Processes::broadcast`]). If work that training can do without fails
//! on one rank for lack of memory or disk space, it fails on all ([`Processes::agree`]). Any other error ends the run on all ranks.

use std::{collections::BTreeSet, sync::Arc};

use grappa_formats::{ChunkId, random};
use grappa_io::{
    progress::{Progress, Silent},
    size::count,
    text,
};
use grappa_run::config::Auto;
use grappa_sampling::{
    NodeSet,
    partition::{Hosts, RepartitionOptions, Schedule, Share, check_concurrent, held_chunks},
};
use grappa_storage::Graph;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Resource, Result, distributed::ProcessGroup};

/// The name of the split of training nodes.
pub(crate) const TRAIN: &str = "train";

/// This process and the others that it trains with.
pub(crate) struct Processes {
    /// The processes; none if there is only this one.
    pub group: Option<Arc<ProcessGroup>>,
    /// The chunks that each of them has.
    pub hosts: Hosts,
    /// The smallest `--memory` of all ranks, for decisions that all must take alike.
    pub least_memory: u64,
}

impl Processes {
    /// Tells the other ranks of `group` which chunks of a graph this one has, with the training nodes of the type `target`, and how much
    /// `memory` it may take. All ranks must call it.
    pub fn meet(graph: &Graph, target: usize, group: Option<Arc<ProcessGroup>>, memory: u64) -> Result<Self> {
        let first = graph.positions().range(target).start;
        let train = graph.node_types()[target].split(TRAIN)?.unwrap_or_default();
        let chunk_counts = held_chunks(graph, &train.iter().map(|node| first + node).collect());
        // Ranks that have the whole store have compared its digest.
        let hosts = match &group {
            Some(group) if !graph.is_whole() => Hosts::of_workers(&group.gather_all("chunks", chunk_counts)?)?,
            Some(group) => Hosts::one(&chunk_counts, group.place().ranks),
            None => Hosts::one(&chunk_counts, 1),
        };
        let least_memory = match &group {
            Some(group) => group.gather_all("memory", memory)?.into_iter().fold(memory, u64::min),
            None => memory,
        };
        Ok(Self { group, hosts, least_memory })
    }

    /// The number of this process.
    pub fn rank(&self) -> u32 {
        self.group.as_ref().map_or(0, |group| group.place().rank)
    }

    /// The number of processes.
    pub fn count(&self) -> u32 {
        self.group.as_ref().map_or(1, |group| group.place().ranks)
    }

    /// Whether this is rank 0, or the only process.
    pub fn is_first(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.is_first())
    }

    /// The group, if its hosts have different slices of the graph.
    pub fn with_slices(&self) -> Option<&ProcessGroup> {
        self.group.as_deref().filter(|_| self.hosts.count() > 1)
    }

    /// The number of processes on this host.
    pub fn processes_of_host(&self) -> u32 {
        self.group.as_ref().map_or(1, |group| group.place().local_ranks)
    }

    /// The partitions that this process serves.
    pub fn share(&self) -> Share {
        self.hosts.share(self.rank())
    }

    /// The part of this process in work that the ranks of its host divide.
    pub fn share_within(&self) -> Share {
        self.hosts.share_within(self.rank())
    }

    /// The process that serves each partition.
    pub fn of_partitions(&self, partitions: u32) -> Vec<u32> {
        let mut ranks = vec![0; partitions as usize];
        for rank in 0..self.count() {
            let own = self.hosts.share(rank).range(partitions.into());
            ranks[own.start as usize..own.end as usize].fill(rank);
        }
        ranks
    }

    /// Whether the host of this process trains a chunk.
    pub fn trains(&self, chunk: ChunkId) -> bool {
        self.hosts.trains(self.rank(), chunk)
    }

    /// The digest of what the run trains on: of the graph, or of the whole graph and the chunks that its hosts have.
    pub fn digest(&self, graph: &Graph) -> Result<u64> {
        if self.hosts.count() == 1 {
            return Ok(graph.digest()?);
        }
        let chunks = self.hosts.trained();
        let numbers = chunks.flat_map(|(chunk, chunk_counts)| {
            [chunk.0.into(), chunk_counts.nodes, chunk_counts.edges, chunk_counts.seeds]
        });
        Ok(numbers.fold(graph.node_types()[0].manifest().graph_digest(), random::combine))
    }

    /// Checks that each partition has a chunk, as far as the numbers of partitions are given.
    pub fn check_partitions(
        &self,
        partitions: Auto<u32>,
        concurrent: Auto<u32>,
        schedule: Schedule,
        seed: u64,
    ) -> Result<()> {
        let (partitions, concurrent) = match (partitions, concurrent) {
            (Auto::Value(partitions), Auto::Value(concurrent)) => (partitions, concurrent),
            // One host serves all partitions, however many are in a step.
            (Auto::Value(partitions), Auto::Auto) if self.hosts.count() == 1 => (partitions, partitions),
            (Auto::Auto, Auto::Value(concurrent)) => {
                return Ok(check_concurrent(self.hosts.trained().count(), concurrent)?);
            }
            _ => return Ok(()),
        };
        let options = RepartitionOptions { partitions, schedule, seed, super_epoch: Some(0) };
        self.hosts.assign(&options, concurrent, 1)?;
        Ok(())
    }

    /// Adds up counts of all hosts. All ranks must call it.
    pub fn sum_of_hosts<const N: usize>(&self, counts: [u64; N]) -> Result<[u64; N]> {
        let mut sum = counts;
        if let Some(group) = self.with_slices() {
            // The first rank of each host speaks for it.
            if self.share_within().worker() > 0 {
                sum = [0; N];
            }
            group.sum(&mut sum, &Silent)?;
        }
        Ok(sum)
    }

    /// Adds up counts of all ranks. All ranks must call it.
    pub fn sum(&self, counts: &mut [u64], progress: &dyn Progress) -> Result<()> {
        match &self.group {
            Some(group) => group.sum(counts, progress),
            None => Ok(()),
        }
    }

    /// A value that rank 0 computes and sends to the others. All ranks must call it.
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        value: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match &self.group {
            None => value(),
            Some(group) => group.share(name, value),
        }
    }

    /// The end of work that every rank does a part of, and that training can do without: if one rank lacks memory or disk space for its
    /// part, all get the error of the first such rank. All ranks must call it, unless they end with another error.
    pub fn agree<T>(&self, done: Result<T>, progress: &dyn Progress) -> Result<T> {
        let Some(group) = &self.group else { return done };
        let lack = match &done {
            Ok(_) => None,
            Err(error) if error.is_disk_full() => Some((Resource::Disk, error.to_string())),
            Err(error) if error.is_budget() => Some((Resource::Memory, error.to_string())),
            Err(_) => return done,
        };
        let mut lacks = [u64::from(lack.is_some())];
        group.sum(&mut lacks, progress)?;
        if lacks == [0] {
            return done;
        }
        let all_lacks = group.gather_all("lack", lack)?;
        let first = (0..).zip(all_lacks).find_map(|(rank, lack)| Some((rank, lack?)));
        let (rank, (resource, message)) = first.expect("a rank lacks something");
        match done {
            Err(error) if rank == group.place().rank => Err(error),
            _ => Err(Error::Lack { rank: Some(rank), resource, message }),
        }
    }

    /// The nodes that are in a set on any rank, for each set.
    pub fn united(&self, sets: &[NodeSet], progress: &dyn Progress) -> Result<Vec<NodeSet>> {
        let Some(group) = &self.group else {
            return Ok(sets.to_vec());
        };
        sets.iter()
            .map(|set| {
                let mut words = set.to_words();
                group.unite(&mut words, progress)?;
                Ok(NodeSet::of_words(set.universe(), &words))
            })
            .collect()
    }

    /// A sentence about the chunks of the hosts. None if there is one host, and it has the whole store.
    pub fn describe(&self) -> Option<String> {
        let hosts = self.hosts.count();
        if hosts == 1 && self.hosts.has_all() {
            return None;
        }
        let (mut nodes, mut edges) = (0, 0);
        for (_, chunk_counts) in self.hosts.trained() {
            nodes += chunk_counts.nodes;
            edges += chunk_counts.edges;
        }
        let absent = match self.hosts.has_all() {
            true => String::new(),
            false => {
                let trained: BTreeSet<u32> = self.hosts.trained().map(|(chunk, _)| chunk.0).collect();
                let absent: Vec<u32> = (0..self.hosts.chunks()).filter(|chunk| !trained.contains(chunk)).collect();
                format!("; no host has the chunks {}", text::ranges(&absent))
            }
        };
        if hosts == 1 {
            return Some(format!(
                "the store is a slice of its graph, with {} of {} chunks: training and scores are about its {} nodes and {} edges",
                self.hosts.trained().count(),
                self.hosts.chunks(),
                count(nodes),
                count(edges)
            ));
        }
        Some(format!(
            "{hosts} hosts train {} chunks with {} nodes and {} edges{absent}",
            self.hosts.trained().count(),
            count(nodes),
            count(edges)
        ))
    }
}

/// The digest that ranks compare before they train: of a whole graph, or of the graph of a slice.
pub(crate) fn comparable_digest(graph: &Graph) -> Result<String> {
    Ok(match graph.is_whole() {
        true => format!("{:016x}", graph.digest()?),
        false => format!("{:016x} (slice)", graph.node_types()[0].manifest().graph_digest()),
    })
}
