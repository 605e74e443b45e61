//! The edges to learn and to score, and what is drawn for them.

use std::sync::Arc;

use grappa_formats::{EdgePart, random};
use grappa_io::{progress::Progress, size::count};
use grappa_run::config::{ExcludeTargets, NegativeSampling, TrainConfig};
use grappa_sampling::{
    Loader,
    links::{Candidates, ExcludedEdges, KnownEdges, LinkTask, Negatives, Positives},
};
use grappa_storage::Store;

use super::super::processes::Processes;
use crate::{Error, Result};

/// Candidates of each edge that is scored.
pub const CANDIDATES: u32 = 100;
/// The lists of edges of a process take at most 1/LIST_SHARE of the memory.
const LIST_SHARE: u64 = 4;

/// The edges of a store as link prediction uses them.
pub struct LinkData {
    /// What is drawn for each minibatch.
    pub task: Arc<LinkTask>,
    /// Number of edges of the graph, for validation and for test.
    pub edges: [u64; 3],
    /// Edges that an epoch draws; none for all.
    edges_per_epoch: Option<u64>,
    seed: u64,
    memory: u64,
}

impl LinkData {
    /// Checks that the store has edges to learn and to score.
    pub fn open(store: &Arc<Store>, config: &TrainConfig) -> Result<Self> {
        let held_out = store.manifest().held_out();
        let path = store.path().display();
        if !store.manifest().is_whole() {
            return Err(Error::WrongStore(format!(
                "{path}: the store is a slice of its graph, and --task link scores edges between all nodes: give each host the whole store"
            )));
        }
        if held_out.is_empty() {
            return Err(Error::NoLabels(format!(
                "{path}: no edges are held out, so links cannot be scored; ingest the graph again with --edge-split 80/10/10"
            )));
        }
        let edges = EdgePart::ALL.map(|part| match part == EdgePart::Graph || held_out.contains(&part) {
            true => store.part_edges(part),
            false => Ok(0),
        });
        let [graph, val, test] = edges;
        let edges = [graph?, val?, test?];
        if edges[0] == 0 || edges[1..] == [0, 0] {
            return Err(Error::NoLabels(format!(
                "{path}: the edges are split into {} to learn, {} for validation and {} for test; ingest the graph again with another \
                 --edge-split, such as 80/10/10",
                count(edges[0]),
                count(edges[1]),
                count(edges[2])
            )));
        }
        let negatives = config.negatives();
        let task = LinkTask {
            store: store.clone(),
            negatives: match config.negative_sampling {
                NegativeSampling::Uniform | NegativeSampling::Degree => Negatives::Destinations(negatives),
                NegativeSampling::Shared | NegativeSampling::InBatch => Negatives::Shared(negatives),
                NegativeSampling::Pairs => Negatives::Pairs(negatives.into()),
            },
            candidates: match config.negative_sampling {
                NegativeSampling::Uniform | NegativeSampling::Shared | NegativeSampling::Pairs => Candidates::Uniform,
                NegativeSampling::Degree => Candidates::by_degree(store)?,
                NegativeSampling::InBatch => Candidates::InBatch,
            },
            // Training does not know the edges that are held out.
            known: Some(KnownEdges::default()),
            excluded: match config.exclude_targets() {
                ExcludeTargets::Both => ExcludedEdges::WithReverses,
                ExcludeTargets::Forward => ExcludedEdges::Positives,
                ExcludeTargets::None => ExcludedEdges::None,
            },
        };
        Ok(Self {
            task: Arc::new(task),
            edges,
            edges_per_epoch: (config.edges_per_epoch > 0).then_some(config.edges_per_epoch),
            seed: config.seed,
            memory: config.memory.0 / LIST_SHARE,
        })
    }

    /// A sentence about the edges.
    pub fn describe(&self) -> String {
        let [graph, val, test] = self.edges.map(count);
        format!(
            "links: {graph} edges to learn, {val} for validation and {test} for test, each ranked among {CANDIDATES} uniform candidates that \
             are no edges; evaluations are exact"
        )
    }

    /// Whether each epoch draws its edges.
    pub fn draws_edges(&self) -> bool {
        self.edges_per_epoch.is_some()
    }

    /// Gives the open partitions the edges of an epoch. All ranks must call it.
    ///
    /// # Errors
    /// If they need more memory than they may have, files cannot be read, or progress says to stop.
    pub fn give_positives(
        &self,
        loader: &mut Loader,
        partitions: u32,
        processes: &Processes,
        epoch: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let store = &self.task.store;
        let owned: Vec<_> = loader.served().map(|part| part.view.owned().clone()).collect();
        let mut counts = vec![0; partitions as usize];
        for owned in &owned {
            counts[owned.partition().0 as usize] = Positives::count(store, EdgePart::Graph, owned.base(), progress)?;
        }
        processes.sum(&mut counts, progress)?;
        let all = counts.iter().sum();
        let shares: Vec<u64> = match self.edges_per_epoch {
            Some(wanted) if wanted < all => shares(wanted, &counts),
            _ => counts.clone(),
        };
        let (mut positives, mut memory) = (Vec::with_capacity(owned.len()), self.memory);
        for owned in &owned {
            let partition = owned.partition().0;
            let key = [epoch, partition.into()]
                .into_iter()
                .fold(random::hash(self.seed), random::combine);
            let (edges, sample) = (counts[partition as usize], Some((shares[partition as usize], key)));
            let of_part = Positives::of_chunks(store, EdgePart::Graph, owned.base(), edges, sample, memory, progress)?;
            memory = memory.saturating_sub(of_part.bytes());
            positives.push(Arc::new(of_part));
        }
        loader.set_positives(positives, &shares);
        Ok(())
    }
}

/// Divides `wanted` edges among partitions in proportion to their numbers of edges.
fn shares(wanted: u64, counts: &[u64]) -> Vec<u64> {
    let all: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    let mut end = 0;
    let mut taken = 0;
    let share = |&count: &u64| {
        end += u128::from(count);
        let until = (u128::from(wanted) * end / all) as u64;
        until - std::mem::replace(&mut taken, until)
    };
    counts.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_draw_edges_in_proportion_to_what_they_have() {
        assert_eq!(shares(10, &[30, 0, 60, 10]), [3, 0, 6, 1]);
        let shares = shares(7, &[5, 5, 5]);
        assert_eq!(shares.iter().sum::<u64>(), 7);
        assert!(shares.iter().all(|share| (2..=3).contains(share)), "{shares:?}");
    }
}
