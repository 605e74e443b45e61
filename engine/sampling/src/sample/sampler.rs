//! Samplers: fill minibatches hop by hop.

use std::slice;

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    fanouts::Fanouts,
    group::{Group, GroupScratch},
    minibatch::{Block, Minibatch},
    neighbors::NeighborHop,
    random::BatchKey,
    relabel::{Relabel, RelabelTable},
    size::check_size,
    walks::{RandomWalks, WalkHop, WalkScratch},
};
use crate::view::{EdgeData, PartitionView, ViewLists, adjacency::AdjacencyLists};

/// How neighbors are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    method: Method,
    /// Whether a node draws only at the hop after the one that reached it.
    draws_once: bool,
    /// Whether blocks have the weights of their edges.
    keeps_weights: bool,
    /// Whether blocks have the ids of their edges.
    keeps_ids: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Method {
    Neighbors { fanouts: Fanouts, replace: bool, by_weight: bool },
    Walks(RandomWalks),
}

impl Sampler {
    /// Draws in-neighbors uniformly: without replacement, at most as many as the fanout; with replacement, exactly as
    /// many if there are any. A fanout of -1 keeps all in-edges in either case.
    pub fn uniform(fanouts: Fanouts, replace: bool) -> Self {
        Self::with_method(Method::Neighbors { fanouts, replace, by_weight: false })
    }

    /// Draws in-neighbors with probabilities proportional to edge weights; without replacement, among the remaining
    /// edges. Edges of weight 0 are never drawn, not even if the fanout is -1.
    pub fn by_weight(fanouts: Fanouts, replace: bool) -> Self {
        Self::with_method(Method::Neighbors { fanouts, replace, by_weight: true })
    }

    /// Takes the nodes that random walks visit most often. The edge weights of blocks are the numbers of visits.
    ///
    /// # Errors
    /// If a number of `walks` is 0, or the probability is not in 0 to 1.
    pub fn random_walks(walks: RandomWalks) -> Result<Self> {
        walks.check()?;
        Ok(Self::with_method(Method::Walks(walks)))
    }

    fn with_method(method: Method) -> Self {
        Self { method, draws_once: false, keeps_weights: false, keeps_ids: false }
    }

    /// The same sampler for minibatches as in PyTorch Geometric: a node draws in-neighbors only at the hop after the one that
    /// reached it, and has no edges in later blocks.
    ///
    /// # Panics
    /// If it takes random walks, which start at each destination of a hop.
    #[must_use]
    pub fn drawing_once(self) -> Self {
        Self { draws_once: true, ..self.drawing_edges() }
    }

    /// The same sampler, with [`Block::edge_weights`] of the store. Without lists of the whole graph in memory, sampling then reads the weights
    /// of whole adjacency lists.
    ///
    /// # Panics
    /// If it takes random walks: their edges have other weights.
    #[must_use]
    pub fn with_edge_weights(self) -> Self {
        Self { keeps_weights: true, ..self.drawing_edges() }
    }

    /// The same sampler, with [`Block::edge_ids`], by which edges have features.
    ///
    /// # Panics
    /// If it takes random walks, which have no edges.
    #[must_use]
    pub fn with_edge_ids(self) -> Self {
        Self { keeps_ids: true, ..self.drawing_edges() }
    }

    fn drawing_edges(self) -> Self {
        let draws_edges = matches!(self.method, Method::Neighbors { .. });
        assert!(draws_edges, "random walks start at each destination, and have visits instead of edges");
        self
    }

    /// How many edges away from a seed nodes are expanded, plus one.
    pub(crate) fn edges_from_seeds(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts.hops(),
            Method::Walks(walks) => walks.hops * walks.steps as usize,
        }
    }

    /// The most in-neighbors that a node draws at once after `hops` hops or later. None is all.
    pub(crate) fn draws_after(&self, hops: usize) -> Option<u32> {
        match &self.method {
            Method::Neighbors { fanouts, .. } => {
                let mut later = (hops..fanouts.hops()).map(|hop| fanouts.at(hop));
                later.try_fold(0, |most: u32, fanout| Some(fanout?.max(most)))
            }
            Method::Walks(walks) => Some(walks.walks),
        }
    }

    /// The number of hops. A minibatch has one block per hop.
    pub fn hops(&self) -> usize {
        match &self.method {
            Method::Neighbors { fanouts, .. } => fanouts.hops(),
            Method::Walks(walks) => walks.hops,
        }
    }

    /// What views must have of edges.
    pub fn edge_data(&self) -> EdgeData {
        EdgeData { weights: self.keeps_weights || self.draws_by_weight(), ids: self.keeps_ids }
    }

    /// Whether probabilities of in-neighbors are proportional to edge weights.
    pub(crate) fn draws_by_weight(&self) -> bool {
        matches!(self.method, Method::Neighbors { by_weight: true, .. })
    }

    /// Fills `out` with the minibatch of `seeds`. Its previous content is discarded.
    ///
    /// # Errors
    /// If the view does not own a seed, the edges and nodes of a block reach 2^32, the minibatch
    /// has more than 2^31 nodes, the sampler draws by weight and reads a weight that is negative or not finite, or a
    /// file of the store is damaged. The content of `out` is then undefined.
    ///
    /// # Panics
    /// If the sampler needs weights or ids of edges and the view has none.
    pub fn sample(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        if let Some(seed) = seeds.iter().find(|seed| seed.0 < view.nodes() && !view.owned().contains(**seed)) {
            return Err(Error::conflict(
                format!("seed {seed} is not owned by partition {}", view.owned().partition()),
                "give seeds that the partition owns",
            ));
        }
        self.sample_ends(view, seeds, key, scratch, out)
    }

    /// As [`Sampler::sample`], and seeds may be halo nodes: these have the edges that [`HaloLists`](crate::view::HaloLists) give them.
    pub(crate) fn sample_ends(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        let needed = self.edge_data();
        assert!(view.edge_data().weights || !needed.weights, "the sampler needs a view with edge weights");
        assert!(view.edge_data().ids || !needed.ids, "the sampler needs a view with ids of edges");
        let Scratch { table, hop: scratch } = scratch;
        let relabel = table.table_for(view.nodes());
        begin(view, seeds, relabel, self.hops(), &mut scratch.seeds, out)?;
        match &view.lists() {
            ViewLists::Whole(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::Partition(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::Mapped(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::Halo(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
            ViewLists::MappedHalo(lists) => self.sample_lists(view, lists, key, relabel, scratch, out),
        }
    }

    fn sample_lists<A: AdjacencyLists>(
        &self,
        view: &PartitionView,
        lists: &A,
        key: BatchKey,
        relabel: &mut dyn Relabel,
        scratch: &mut HopScratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        let group = &mut Group::new(lists, &mut scratch.group);
        let Minibatch { nodes, blocks, .. } = out;
        let mut reached = 0;
        for (number, block) in blocks.iter_mut().enumerate() {
            let first_drawing = if self.draws_once { reached } else { 0 };
            reached = nodes.len();
            let key = key.hop(number);
            match &self.method {
                Method::Neighbors { fanouts, replace, by_weight } => {
                    let hop = NeighborHop {
                        key,
                        fanout: fanouts.at(number),
                        replace: *replace,
                        by_weight: *by_weight,
                        keeps_weights: self.keeps_weights,
                        keeps_ids: self.keeps_ids,
                        first: first_drawing,
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
fn begin(
    view: &PartitionView,
    seeds: &[NodeId],
    relabel: &mut dyn Relabel,
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
    check_size(0, seeds.len())?;
    relabel.begin();
    indices.clear();
    indices.resize(seeds.len(), 0);
    relabel.relabel(seeds, &mut out.nodes, indices);
    if out.nodes.len() < seeds.len() {
        // Some seeds are repeated. Each has its place, and is known by the first one.
        relabel.begin();
        out.nodes.clear();
        for (place, seed) in seeds.iter().enumerate() {
            relabel.relabel(slice::from_ref(seed), &mut out.nodes, &mut indices[..1]);
            if out.nodes.len() == place {
                out.nodes.push(*seed);
            }
        }
    }
    Ok(())
}

/// Reusable memory of a thread that samples. It may be used with any samplers and views in turn.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) table: RelabelTable,
    hop: HopScratch,
}

#[derive(Debug, Default)]
struct HopScratch {
    /// The local indices of the seeds.
    seeds: Vec<u32>,
    group: GroupScratch,
    walks: WalkScratch,
}

impl Scratch {
    /// Bytes of memory after a minibatch of `nodes` nodes, if it is otherwise like those that were sampled before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let HopScratch { seeds, group, walks } = &self.hop;
        // Lists that are taken whole are decoded into a buffer outside of the scratch.
        let decoded = group.sources.capacity() * size_of::<NodeId>();
        let hop = seeds.capacity() * size_of::<u32>() + decoded;
        let table = self.table.bytes(nodes + group.sources.capacity());
        table + hop as u64 + group.bytes() + walks.bytes()
    }
}
