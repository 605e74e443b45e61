//! Samples in-neighbors of the halo nodes that minibatches can reach.
//!
//! A partition has the features of halo nodes but not their in-edges. With sampled in-neighbors it can expand them:
//! each has up to a few in-neighbors, drawn uniformly, and the partition has the features of these. They are drawn
//! again at each repartition. In expectation, minibatches have the neighbors of the whole graph; within a super-epoch,
//! a halo node has the same few in-neighbors.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use grappa_formats::NodeId;
use grappa_io::{Error, Result, progress::Progress, workers};
use grappa_storage::MappedChunks;

use crate::{
    InNeighbors, ListScratch, NeighborSample, NodeSet, Pieces,
    node_set::GrowingSet,
    partition::{Owned, SeedNodes},
    view::{Given, HaloLists, HaloPiece},
};

/// Which in-neighbors are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HaloNeighbors<'a> {
    pub chunks: &'a MappedChunks,
    /// The maximum number of in-neighbors of a node.
    pub per_node: u32,
    /// How many edges away from seeds nodes are expanded.
    pub hops: usize,
    pub seed: u64,
    /// The maximum number of bytes of the lists, and of the sets of nodes that are needed to find them.
    pub memory: u64,
    pub threads: usize,
}

impl HaloNeighbors<'_> {
    /// Draws in-neighbors of all halo nodes that minibatches of `partitions` may expand.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or progress says to stop.
    pub(crate) fn draw(&self, partitions: &[(&Owned, &SeedNodes)], progress: &dyn Progress) -> Result<HaloLists> {
        let nodes = self.chunks.map().nodes();
        self.check_memory(NodeSet::bytes_of(nodes).saturating_mul(partitions.len() as u64))?;
        let mut lists = self.lists_of(NodeSet::of(nodes, []), progress)?;
        let seeds = partitions.iter().map(|(_, seeds)| NodeSet::of(nodes, seeds.iter()));
        let mut reached: Vec<NodeSet> = seeds.collect();
        for _ in 1..self.hops {
            let mut halo = lists.nodes().clone();
            for (reached, (owned, _)) in reached.iter_mut().zip(partitions) {
                let (expanded, outside) = reached.split(owned.runs());
                let (with_neighbors, _) =
                    InNeighbors::all(self.chunks).with_sources(&expanded, self.threads, progress)?;
                let (sampled, _) = self.sources_of(&lists, &outside, progress)?;
                *reached = reached.union(&with_neighbors).union(&sampled);
                halo = halo.union(&reached.split(owned.runs()).1);
            }
            lists = self.lists_of(halo, progress)?;
        }
        let mut given = Given::default();
        for (reached, (owned, _)) in reached.iter().zip(partitions) {
            let (_, outside) = reached.split(owned.runs());
            let (sources, listed) = self.sources_of(&lists, &outside, progress)?;
            given.listed += outside.len() + listed;
            given.rows += sources.split(owned.runs()).1.len();
        }
        Ok(lists.with_given(given))
    }

    /// The nodes in the lists of some nodes, and the length of all these lists.
    fn sources_of(&self, lists: &HaloLists, nodes: &NodeSet, progress: &dyn Progress) -> Result<(NodeSet, u64)> {
        let found = GrowingSet::new(nodes.universe());
        // Not `Pieces`, which reads the adjacency lists of the store ahead.
        let (next, listed) = (AtomicU64::new(0), AtomicU64::new(0));
        workers::run(self.threads, |worker| {
            let mut members = Vec::new();
            while worker.goes_on() {
                if progress.is_stopped() {
                    return Err(Error::Stopped);
                }
                let first = next.fetch_add(Pieces::NODES, Ordering::Relaxed).min(nodes.len());
                let end = (first + Pieces::NODES).min(nodes.len());
                if first == end {
                    break;
                }
                members.clear();
                nodes.nodes_at(first..end, &mut members);
                let sources = members.iter().flat_map(|&node| lists.sources(node));
                let count = sources.inspect(|source| found.add(source.0)).count();
                listed.fetch_add(count as u64, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok((found.finish(), listed.into_inner()))
    }

    fn check_memory(&self, bytes: u64) -> Result<()> {
        if bytes <= self.memory {
            return Ok(());
        }
        Err(Error::Budget {
            what: "the sampled in-neighbors of halo nodes".into(),
            given: self.memory,
            least: bytes,
            remedy: "raise --memory, sample fewer in-neighbors, or choose another halo mode",
        })
    }

    /// In-neighbors of each node of a set. Those of a node depend on the node and the seed only.
    fn lists_of(&self, nodes: NodeSet, progress: &dyn Progress) -> Result<HaloLists> {
        self.check_memory(HaloLists::drawing_bytes_max(
            nodes.universe(),
            self.chunks.edges(),
            nodes.len(),
            self.per_node,
        ))?;
        let drawn: Vec<_> = (0..nodes.len().div_ceil(Pieces::NODES))
            .map(|_| Mutex::new(None))
            .collect();
        let pieces = Pieces::new(&nodes, 0..nodes.len(), self.chunks);
        workers::run(self.threads, |worker| {
            let (mut scratch, mut members) = (ListScratch::default(), Vec::new());
            while worker.goes_on()
                && let Some(positions) = pieces.next(&mut members)
            {
                if progress.is_stopped() {
                    return Err(Error::Stopped);
                }
                let piece = self.piece(&nodes, &members, &mut scratch)?;
                let number = positions.start / Pieces::NODES;
                *drawn[number as usize].lock().expect("no thread panics") = Some(piece);
                self.chunks.release(&members);
            }
            Ok(())
        })?;
        let drawn = drawn
            .into_iter()
            .map(|piece| piece.into_inner().expect("no thread panics"));
        let drawn: Vec<HaloPiece> = drawn.map(|piece| piece.expect("all pieces are drawn")).collect();
        Ok(HaloLists::of(nodes, drawn))
    }

    fn piece(&self, nodes: &NodeSet, members: &[NodeId], scratch: &mut ListScratch) -> Result<HaloPiece> {
        let (mut piece, mut sources) = (HaloPiece::new(nodes), Vec::new());
        let sample = NeighborSample {
            per_node: self.per_node,
            replace: false,
            seed: self.seed,
        };
        InNeighbors::sampled(self.chunks, Some(sample)).each(members, scratch, |_, list| {
            sources.clear();
            list.decode_into(&mut sources);
            piece.push(list.degree(), &sources);
            Ok(())
        })?;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use grappa_io::progress::Silent;
    use grappa_storage::Store;

    use super::*;
    use crate::{
        Loader, LoaderOptions, Seeds,
        feed::BatchSource,
        partition::{RepartitionOptions, Schedule, assign},
        sample::{Minibatch, RandomWalks, Sampler, tests::statistics::assert_uniform},
        view::{
            Halo, ViewKind,
            tests::graph::{Graph, TestStore},
        },
    };

    const PARTITIONS: u32 = 3;

    fn options(sampler: Sampler) -> LoaderOptions {
        LoaderOptions {
            batch: 64,
            features: false,
            halo: Halo::Neighbors,
            memory: 256 << 20,
            threads: 2,
            ..LoaderOptions::new(sampler)
        }
    }

    fn shared(store: &TestStore) -> Arc<Store> {
        Arc::new(Store::open(store.store.path()).unwrap())
    }

    /// A loader whose partitions are open.
    fn opened(store: &Arc<Store>, options: LoaderOptions, partitions: u32, super_epoch: u64) -> Result<Loader> {
        let repartition = RepartitionOptions {
            partitions,
            schedule: Schedule::Shuffle,
            seed: 5,
            super_epoch: Some(super_epoch),
        };
        let assignment = assign(store.manifest(), &repartition, super_epoch + 1)?;
        let mut loader = Loader::new(store, options);
        loader.partition(&assignment, &Seeds::All, &Silent)?;
        Ok(loader)
    }

    fn minibatches(loader: &Loader) -> Vec<Minibatch> {
        let batches = loader.all_batches(0);
        let mut scratch = batches.scratch();
        let sampled = (0..batches.batches()).map(|index| {
            let mut minibatch = Minibatch::default();
            batches.sample(index, &mut scratch, &mut minibatch).unwrap();
            minibatch
        });
        sampled.collect()
    }

    /// The edges of each hop of each seed, as pairs of nodes with their multiplicity.
    fn edges(minibatch: &Minibatch) -> Vec<Vec<(NodeId, NodeId)>> {
        let of = |block: &crate::sample::Block| {
            let to = |destination: usize| {
                let sources = &block.indices[block.edges_of(destination)];
                let pair = move |&source: &u32| (minibatch.nodes[destination], minibatch.nodes[source as usize]);
                sources.iter().map(pair)
            };
            let mut edges: Vec<_> = (0..block.destinations).flat_map(to).collect();
            edges.sort_unstable();
            edges
        };
        minibatch.blocks.iter().map(of).collect()
    }

    #[test]
    fn with_all_in_neighbors_minibatches_are_those_of_the_whole_graph() {
        let graph = Graph::mixed(600);
        let kept = graph.store(9);
        let store = shared(&kept);
        for hops in ["-1", "-1,-1", "-1,-1,-1"] {
            for view in [ViewKind::Memory, ViewKind::Mapped] {
                let options = LoaderOptions {
                    // More than there are, which takes no more memory than all edges.
                    halo_neighbors: u32::MAX,
                    memory: 4 << 20,
                    view,
                    ..options(Sampler::uniform(hops.parse().unwrap(), false))
                };
                let loader = opened(&store, options, PARTITIONS, 0).unwrap();
                let mut seeds = 0;
                for minibatch in minibatches(&loader) {
                    assert!(minibatch.blocks.iter().all(|block| !block.halo.contains(&true)));
                    seeds += minibatch.seeds;
                    // From the definition, hop by hop.
                    let mut reached: BTreeSet<NodeId> = minibatch.nodes[..minibatch.seeds].iter().copied().collect();
                    for (hop, found) in edges(&minibatch).into_iter().enumerate() {
                        let to = |node: &NodeId| {
                            let node = *node;
                            graph.sources(node.0).map(move |source| (node, NodeId(source)))
                        };
                        let mut expected: Vec<_> = reached.iter().flat_map(to).collect();
                        expected.sort_unstable();
                        assert!(found == expected, "hop {hop} of {hops}, {view:?}");
                        reached.extend(expected.iter().map(|(_, source)| *source));
                        let block = &minibatch.blocks[hop];
                        let degree = |&node: &NodeId| graph.sources(node.0).count() as u64;
                        let degrees: Vec<_> = minibatch.nodes[..block.destinations].iter().map(degree).collect();
                        assert_eq!(block.global, degrees);
                    }
                }
                assert_eq!(seeds, 600);
            }
        }
    }

    #[test]
    fn a_halo_node_has_a_few_of_its_in_neighbors_and_others_after_a_repartition() {
        let graph = Graph::mixed(600);
        let kept = graph.store(9);
        let store = shared(&kept);
        let drawn = |threads, super_epoch| {
            let options = LoaderOptions {
                halo_neighbors: 4,
                threads,
                ..options(Sampler::uniform("5,5,5".parse().unwrap(), false))
            };
            let loader = opened(&store, options, PARTITIONS, super_epoch).unwrap();
            loader.halo_lists().unwrap().clone()
        };
        let first = drawn(1, 0);
        let (mut nodes, mut differ) = (0, 0);
        let (again, later) = (drawn(3, 0), drawn(1, 1));
        for node in first.nodes().iter() {
            let of = |lists: &HaloLists| lists.sources(node).map(|source| source.0).collect::<Vec<_>>();
            let (drawn, all) = (of(&first), graph.sources(node.0).collect::<Vec<_>>());
            assert_eq!(drawn.len(), all.len().min(4));
            let mut left = all.iter();
            assert!(
                drawn.iter().all(|source| left.any(|other| other == source)),
                "{drawn:?} of {all:?}"
            );
            assert_eq!(drawn, of(&again), "for any number of threads");
            nodes += 1;
            differ += u64::from(all.len() > 8 && later.nodes().contains(node) && drawn != of(&later));
        }
        assert!(nodes > 100 && differ > 50, "{differ} of {nodes}");
        let given = first.given();
        // Three partitions, each without a third of the nodes, and up to 4 in-neighbors of each of these.
        assert!(given.listed > nodes && given.listed <= 3 * 400 * 5, "{given:?}");
        assert!(given.rows > 0 && given.rows <= 3 * 400, "{given:?}");
    }

    #[test]
    fn every_in_neighbor_is_equally_likely() {
        let graph = Graph::new(60, |node| if node == 0 { (8..48).collect() } else { vec![] });
        let store = graph.store(4);
        let chunks = MappedChunks::open(&store.store).unwrap();
        let mut counts = vec![0; 40];
        for seed in 0..4000 {
            let neighbors = HaloNeighbors {
                chunks: &chunks,
                per_node: 3,
                hops: 2,
                seed,
                memory: u64::MAX,
                threads: 1,
            };
            let lists = neighbors
                .lists_of(NodeSet::of(60, [NodeId(0), NodeId(1)]), &Silent)
                .unwrap();
            assert_eq!(lists.sources(NodeId(1)).count(), 0);
            lists
                .sources(NodeId(0))
                .for_each(|source| counts[source.0 as usize - 8] += 1);
        }
        assert_uniform(&counts, "3 of 40");
    }

    #[test]
    fn random_walks_go_on_at_halo_nodes() {
        // A ring, so that a walk of many steps leaves any partition.
        let graph = Graph::new(300, |node| vec![(node + 1) % 300]);
        let kept = graph.store(9);
        let store = shared(&kept);
        let walks = RandomWalks {
            hops: 2,
            walks: 1,
            steps: 40,
            termination: 0.0,
            neighbors: 1000,
        };
        let loader = opened(&store, options(Sampler::random_walks(walks).unwrap()), PARTITIONS, 0).unwrap();
        for minibatch in minibatches(&loader) {
            for block in &minibatch.blocks {
                assert!((0..block.destinations).all(|destination| block.edges_of(destination).len() == 40));
            }
        }
    }

    #[test]
    fn weights_and_too_little_memory_are_refused() {
        let kept = Graph::mixed(600).store(9);
        let store = shared(&kept);
        let refused = |options, partitions| {
            opened(&store, options, partitions, 0)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        let by_weight = Sampler::by_weight("5,5".parse().unwrap(), false);
        assert!(refused(options(by_weight), PARTITIONS).contains("no edge weights"));
        let small = LoaderOptions {
            memory: 16 << 10,
            ..options(Sampler::uniform("5,5".parse().unwrap(), false))
        };
        let error = refused(small.clone(), PARTITIONS);
        assert!(error.contains("in-neighbors of halo nodes"), "{error}");
        // One partition has no halo nodes, so nothing is drawn.
        opened(&store, small, 1, 0).unwrap();
    }
}
