//! Samplers.

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    fanouts::Fanouts,
    group::{Group, GroupScratch},
    minibatch::{Block, Minibatch},
    neighbours::Hop,
    random::BatchKey,
    relabel::{Direct, Hashed, PLACES_MAX, Relabel},
    walks::{RandomWalks, WalkHop, WalkScratch},
};
use crate::view::{
    PartitionView,
    rows::{Rows, RowsIn},
};

/// The most nodes of a graph for which an entry each is faster than hashing: the table is then 8 MiB, which is among what
/// a core has for itself and its share of what all have together.
const DIRECT_NODES_MAX: u64 = 1 << 21;

/// How neighbours are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    method: Method,
}

#[derive(Debug, Clone, PartialEq)]
enum Method {
    Neighbours {
        fanouts: Fanouts,
        replace: bool,
        by_weight: bool,
    },
    Walks(RandomWalks),
}

impl Sampler {
    /// In-neighbours are drawn uniformly: without replacement, up to a fanout of them; or with replacement, as many as
    /// that, of any that there are. (Where the fanout is -1, all are kept, in either case.)
    pub fn uniform(fanouts: Fanouts, replace: bool) -> Self {
        let by_weight = false;
        Self {
            method: Method::Neighbours {
                fanouts,
                replace,
                by_weight,
            },
        }
    }

    /// In-neighbours are drawn with probabilities proportional to the weights of their edges; without replacement, to
    /// those of the edges that are left. Edges of weight 0 are never drawn, also where the fanout is -1.
    pub fn by_weight(fanouts: Fanouts, replace: bool) -> Self {
        let by_weight = true;
        Self {
            method: Method::Neighbours {
                fanouts,
                replace,
                by_weight,
            },
        }
    }

    /// Neighbours are the nodes that random walks visit most often. The blocks have weights: the numbers of visits.
    ///
    /// # Errors
    /// If a number makes no sense.
    pub fn random_walks(walks: RandomWalks) -> Result<Self> {
        walks.check()?;
        Ok(Self {
            method: Method::Walks(walks),
        })
    }

    /// Number of hops, which is that of a minibatch's blocks.
    pub fn hops(&self) -> usize {
        match &self.method {
            Method::Neighbours { fanouts, .. } => fanouts.hops(),
            Method::Walks(walks) => walks.hops,
        }
    }

    /// Whether views must have the weights of edges.
    pub fn needs_weights(&self) -> bool {
        matches!(self.method, Method::Neighbours { by_weight: true, .. })
    }

    /// Fills `out` with the minibatch of `seeds`, whatever it held before.
    ///
    /// # Errors
    /// If a seed is not a node that the view owns, or comes twice; if the minibatch has 2^32 edges and nodes in a block, or
    /// 2^31 nodes; if the sampler draws by weights and meets one that is negative; or if a file of the store is damaged so that
    /// it is noticed. `out` is then of no use.
    ///
    /// # Panics
    /// If the sampler draws by weights and the view was opened without.
    pub fn sample(
        &self,
        view: &PartitionView,
        seeds: &[NodeId],
        key: BatchKey,
        scratch: &mut Scratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        assert!(
            view.has_weights() || !self.needs_weights(),
            "a view without weights for a sampler by weight"
        );
        let Scratch { hashed, direct, hop } = scratch;
        if view.nodes() > DIRECT_NODES_MAX {
            return self.sample_with(view, seeds, key, hashed, hop, out);
        }
        let direct = match direct {
            Some(direct) if direct.nodes() == view.nodes() => direct,
            _ => direct.insert(Direct::new(view.nodes())),
        };
        self.sample_with(view, seeds, key, direct, hop, out)
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
        match &view.rows() {
            RowsIn::WholeNarrow(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
            RowsIn::WholeWide(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
            RowsIn::PartNarrow(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
            RowsIn::PartWide(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
            RowsIn::MappedWhole(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
            RowsIn::MappedPart(rows) => self.sample_rows(view, rows, key, relabel, scratch, out),
        }
    }

    fn sample_rows<R: Rows, L: Relabel>(
        &self,
        view: &PartitionView,
        rows: &R,
        key: BatchKey,
        relabel: &mut L,
        scratch: &mut HopScratch,
        out: &mut Minibatch,
    ) -> Result<()> {
        let hops = self.hops();
        let group = &mut Group::new(rows, &mut scratch.group);
        let Minibatch { nodes, blocks, .. } = out;
        for (number, block) in blocks.iter_mut().enumerate() {
            let (key, draws_halo) = (key.hop(number), view.halo().is_drawn(number, hops));
            match &self.method {
                Method::Neighbours {
                    fanouts,
                    replace,
                    by_weight,
                } => {
                    let hop = Hop {
                        key,
                        fanout: fanouts.at(number),
                        replace: *replace,
                        by_weight: *by_weight,
                        draws_halo,
                        ids: view.ids(),
                    };
                    hop.sample(group, relabel, nodes, block)?;
                }
                Method::Walks(walks) => {
                    let hop = WalkHop { key, walks, draws_halo };
                    hop.sample(group, relabel, &mut scratch.walks, nodes, block)?;
                }
            }
        }
        Ok(())
    }
}

/// Checks the seeds and makes them the first nodes.
fn begin<L: Relabel>(
    view: &PartitionView,
    seeds: &[NodeId],
    relabel: &mut L,
    hops: usize,
    places: &mut Vec<u32>,
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
            format!(
                "seed {seed} is not in partition {}, which has its features at most",
                view.owned().partition()
            ),
            "give seeds that the partition owns",
        ));
    }
    check_size(0, seeds.len())?;
    relabel.begin();
    places.clear();
    places.resize(seeds.len(), 0);
    relabel.relabel(seeds, &mut out.nodes, places);
    if out.nodes.len() < seeds.len() {
        let second = (0..).zip(&*places).position(|(seed, &place): (u32, _)| place < seed);
        let second = second.expect("a seed has the place of an earlier one");
        return Err(Error::conflict(
            format!(
                "seed {} is number {} and number {second} of the batch",
                seeds[second], places[second]
            ),
            "give each seed of a batch once",
        ));
    }
    Ok(())
}

/// Fails if a minibatch is larger than its numbers can say: by the edges of its largest block, and by the nodes it has at
/// most. Layers that give each destination an edge to itself number edges and destinations together.
#[inline(always)]
pub(super) fn check_size(edges: usize, nodes: usize) -> Result<()> {
    if edges + nodes > u32::MAX as usize || nodes > PLACES_MAX {
        return Err(too_large(edges, nodes));
    }
    Ok(())
}

#[cold]
fn too_large(edges: usize, nodes: usize) -> Error {
    Error::limit(
        format!("a minibatch has a block with {edges} edges and up to {nodes} nodes"),
        "2^31 nodes, and fewer than 2^32 edges and nodes together in a block",
        "sample smaller batches, or fewer neighbours",
    )
}

/// Memory that a thread samples with, reused from batch to batch. Any sampler and any view may be used with it, in turn.
#[derive(Debug, Default)]
pub struct Scratch {
    hashed: Hashed,
    direct: Option<Direct>,
    hop: HopScratch,
}

#[derive(Debug, Default)]
struct HopScratch {
    /// The places of the seeds.
    seeds: Vec<u32>,
    group: GroupScratch,
    walks: WalkScratch,
}

impl Scratch {
    /// Bytes of memory that it takes once it has sampled a minibatch of `nodes` nodes, like those that it sampled before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let HopScratch { seeds, group, walks } = &self.hop;
        // Rows that are kept whole are decoded beside the scratch.
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
        for (edges, nodes) in [(0, 0), (EDGES_MAX, 0), (EDGES_MAX - PLACES_MAX, PLACES_MAX)] {
            check_size(edges, nodes).unwrap();
        }
        for (edges, nodes) in [
            (EDGES_MAX + 1, 0),
            (EDGES_MAX, 1),
            (0, PLACES_MAX + 1),
            (1 << 40, 1 << 40),
        ] {
            let error = check_size(edges, nodes).unwrap_err().to_string();
            assert!(error.contains("smaller batches"), "{error}");
        }
    }
}
