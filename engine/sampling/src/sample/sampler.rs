//! Samplers: fill minibatches hop by hop.

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    fanouts::Fanouts,
    group::{Group, GroupScratch},
    minibatch::{Block, Minibatch},
    neighbors::NeighborHop,
    random::BatchKey,
    relabel::{Direct, Hashed, MINIBATCH_NODES_MAX, Relabel},
    walks::{RandomWalks, WalkHop, WalkScratch},
};
use crate::view::{
    PartitionView,
    adjacency::{AdjacencyLists, ViewLists},
};

/// The maximum number of nodes of a graph for which the direct table is faster than hashing. The table then takes 8
/// MiB, which fits into a core's own caches and its share of the last-level cache.
const DIRECT_NODES_MAX: u64 = 1 << 21;

/// How neighbors are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    method: Method,
}

#[derive(Debug, Clone, PartialEq)]
enum Method {
    Neighbors {
        fanouts: Fanouts,
        replace: bool,
        by_weight: bool,
    },
    Walks(RandomWalks),
}

impl Sampler {
    /// Draws in-neighbors uniformly: without replacement, at most as many as the fanout; with replacement, exactly as
    /// many if there are any. A fanout of -1 keeps all in-edges in either case.
    pub fn uniform(fanouts: Fanouts, replace: bool) -> Self {
        let by_weight = false;
        Self {
            method: Method::Neighbors {
                fanouts,
                replace,
                by_weight,
            },
        }
    }

    /// Draws in-neighbors with probabilities proportional to edge weights; without replacement, among the remaining
    /// edges. Edges of weight 0 are never drawn, not even if the fanout is -1.
    pub fn by_weight(fanouts: Fanouts, replace: bool) -> Self {
        let by_weight = true;
        Self {
            method: Method::Neighbors {
                fanouts,
                replace,
                by_weight,
            },
        }
    }

    /// Takes the nodes that random walks visit most often. The edge weights of blocks are the numbers of visits.
    ///
    /// # Errors
    /// If a number of `walks` is 0, or the probability is not in 0 to 1.
    pub fn random_walks(walks: RandomWalks) -> Result<Self> {
        walks.check()?;
        Ok(Self {
            method: Method::Walks(walks),
        })
    }

    /// How many edges away from a seed nodes are expanded, plus one.
    pub(crate) fn edges_from_seeds(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts.hops(),
            Method::Walks(walks) => walks.hops * walks.steps as usize,
        }
    }

    /// The number of hops. A minibatch has one block per hop.
    pub fn hops(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts.hops(),
            Method::Walks(walks) => walks.hops,
        }
    }

    /// Whether views must have edge weights.
    pub fn needs_edge_weights(&self) -> bool {
        matches!(self.method, Method::Neighbors { by_weight: true, .. })
    }

    /// Fills `out` with the minibatch of `seeds`. Its previous content is discarded.
    ///
    /// # Errors
    /// If the view does not own a seed, a seed is repeated, the edges and nodes of a block reach 2^32, the minibatch
    /// has more than 2^31 nodes, the sampler draws by weight and reads a weight that is negative or not finite, or a
    /// file of the store is damaged. The content of `out` is then undefined.
    ///
    /// # Panics
    /// If the sampler draws by weight and the view has no edge weights.
    pub fn sample(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        assert!(
            view.has_edge_weights() || !self.needs_edge_weights(),
            "a sampler by weight needs a view with edge weights"
        );
        let Scratch { hashed, direct, hop } = scratch;
        match view.nodes() > DIRECT_NODES_MAX {
            true => self.sample_with(view, seeds, key, hashed, hop, out),
            false => self.sample_with(view, seeds, key, direct_for(direct, view.nodes()), hop, out),
        }
    }

    fn sample_with<L: Relabel>(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        relabel: &mut L,
        scratch: &mut HopScratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        begin(view, seeds, relabel, self.hops(), &mut scratch.seeds, out)?;
        match &view.lists() {
            ViewLists::WholeNarrow(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::WholeWide(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::PartitionNarrow(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::PartitionWide(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::MappedWhole(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::MappedPartition(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::HaloNarrow(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::HaloWide(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::HaloMapped(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
        }
    }

    fn sample_lists<A: AdjacencyLists, L: Relabel>(
        &self,
        view: &PartitionView,
        lists: &A,
        key: BatchKey,
        relabel: &mut L,
        scratch: &mut HopScratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        let group = &mut Group::new(lists, &mut scratch.group);
        let Minibatch { nodes, blocks, .. } = out;
        for (number, block) in blocks.iter_mut().enumerate() {
            let key = key.hop(number);
            match &self.method {
                Method::Neighbors {
                    fanouts,
                    replace,
                    by_weight,
                } => {
                    let hop = NeighborHop {
                        key,
                        fanout: fanouts.at(number),
                        replace: *replace,
                        by_weight: *by_weight,
                        ids: view.ids(),
                    };
                    hop.sample(group, relabel, nodes, block)?;
                }
                Method::Walks(walks) => {
                    let hop = WalkHop { key, walks };
                    hop.sample(group, relabel, &mut scratch.walks, nodes, block)?;
                }
            }
        }
        Ok(())
    }
}

/// Checks the seeds and makes them the first nodes of the minibatch.
fn begin<L: Relabel>(
    view: &PartitionView,
    seeds: &[NodeId],
    relabel: &mut L,
    hops: usize,
    indices: &mut Vec<u32>,
    out: &mut Minibatch,
) -> Result<()> {
    out.clear();
    out.blocks.resize_with(hops, Block::default);
    out.seeds = seeds.len();
    if let Some(seed) = seeds.iter().find(|seed| seed.0 >= view.nodes()) {
        return Err(Error::conflict(
            format!("seed {seed} is not a node of the graph, which has {}", view.nodes()),
            "give node ids of the store, not external ids",
        ));
    }
    if let Some(seed) = seeds.iter().find(|seed| !view.owned().contains(**seed)) {
        return Err(Error::conflict(
            format!("seed {seed} is not owned by partition {}", view.owned().partition()),
            "give seeds that the partition owns",
        ));
    }
    check_size(0, seeds.len())?;
    relabel.begin();
    indices.clear();
    indices.resize(seeds.len(), 0);
    relabel.relabel(seeds, &mut out.nodes, indices);
    if out.nodes.len() < seeds.len() {
        let second = (0..).zip(&*indices).position(|(seed, &index): (u32, _)| index < seed);
        let second = second.expect("a repeated seed has the local index of the first one");
        return Err(Error::conflict(
            format!(
                "seed {} is number {} and number {second} of the batch",
                seeds[second], indices[second]
            ),
            "give each seed of a batch once",
        ));
    }
    Ok(())
}

/// Fails if a minibatch is too large for 32-bit indices. `edges` are those of a block, and `nodes` an upper bound of
/// the minibatch's nodes. They count together, because some layers add a self-loop to each destination.
#[inline(always)]
pub(super) fn check_size(edges: usize, nodes: usize) -> Result<()> {
    if edges + nodes > u32::MAX as usize || nodes > MINIBATCH_NODES_MAX {
        return Err(too_large(edges, nodes));
    }
    Ok(())
}

#[cold]
fn too_large(edges: usize, nodes: usize) -> Error {
    Error::limit(
        format!("a minibatch has a block with {edges} edges and up to {nodes} nodes"),
        "2^31 nodes, and fewer than 2^32 edges and nodes together in a block",
        "sample smaller batches, or fewer neighbors",
    )
}

/// Reusable memory of a thread that samples. It may be used with any samplers and views in turn.
#[derive(Debug, Default)]
pub struct Scratch {
    hashed: Hashed,
    direct: Option<Direct>,
    hop: HopScratch,
}

/// The direct table for a graph of `nodes` nodes.
fn direct_for(table: &mut Option<Direct>, nodes: u64) -> &mut Direct {
    if table.as_ref().is_none_or(|table| table.nodes() != nodes) {
        *table = Some(Direct::new(nodes));
    }
    table.as_mut().expect("it was made above")
}

#[derive(Debug, Default)]
struct HopScratch {
    /// The local indices of the seeds.
    seeds: Vec<u32>,
    group: GroupScratch,
    walks: WalkScratch,
}

impl Scratch {
    /// The faster table for the nodes of a graph.
    pub(super) fn table(&mut self, graph_nodes: u64) -> &mut dyn Relabel {
        match graph_nodes > DIRECT_NODES_MAX {
            true => &mut self.hashed,
            false => direct_for(&mut self.direct, graph_nodes),
        }
    }

    /// Bytes of memory after a minibatch of `nodes` nodes, if it is otherwise like those that were sampled before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let HopScratch { seeds, group, walks } = &self.hop;
        // Lists that are taken whole are decoded into a buffer outside of the scratch.
        let decoded = group.sources.capacity() * size_of::<NodeId>();
        let table = match &self.direct {
            Some(direct) => direct.bytes(),
            None => self.hashed.bytes(nodes + group.sources.capacity()),
        };
        let hop = seeds.capacity() * size_of::<u32>() + decoded;
        table + hop as u64 + group.bytes() + walks.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minibatches_end_where_their_numbers_do() {
        const EDGES_MAX: usize = u32::MAX as usize;
        for (edges, nodes) in [
            (0, 0),
            (EDGES_MAX, 0),
            (EDGES_MAX - MINIBATCH_NODES_MAX, MINIBATCH_NODES_MAX),
        ] {
            check_size(edges, nodes).unwrap();
        }
        for (edges, nodes) in [
            (EDGES_MAX + 1, 0),
            (EDGES_MAX, 1),
            (0, MINIBATCH_NODES_MAX + 1),
            (1 << 40, 1 << 40),
        ] {
            let error = check_size(edges, nodes).unwrap_err().to_string();
            assert!(error.contains("smaller batches"), "{error}");
        }
    }
}
