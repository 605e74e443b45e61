//! Minibatches and their blocks.

use std::ops::Range;

use grappa_formats::NodeId;

/// The nodes and edges of one training step: seeds and their sampled neighborhoods.
///
/// The nodes of all hops are in one list without duplicates, in the order in which they were first reached: the seeds,
/// then the nodes that the first hop added, and so on. The destinations of block `h` are the first
/// `blocks[h].destinations` of [`Minibatch::nodes`]. Its sources are the first `blocks[h].sources`; they are the
/// destinations of block `h + 1`. So destinations are a prefix of sources.
///
/// In a joined minibatch ([`Minibatch::join`]), a node is a destination once for each of its parts. With
/// [`Join::SharedInput`](super::Join), the destinations of the last block are then not the first of its sources; see
/// [`Block::own`]. With [`Join::Apart`](super::Join), the list has such nodes several times. It also has a seed as often as it
/// was given.
///
/// A minibatch is a reusable buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Minibatch {
    /// The nodes whose features the step needs. The first [`Minibatch::seeds`] are the seeds, in the given order.
    pub nodes: Vec<NodeId>,
    /// The number of seeds.
    pub seeds: usize,
    /// One block per hop, from the seeds outwards. A model applies its layers in the opposite order, to the last block
    /// first.
    pub blocks: Vec<Block>,
    /// The part of each node, if the minibatch was joined of several parts that share no input. Otherwise empty.
    pub parts: Vec<u32>,
    /// The time of each part, if seeds have times. Otherwise empty.
    pub part_times: Vec<i64>,
    /// The pairs of a minibatch of [links](crate::links). Otherwise empty.
    pub links: LinkPairs,
}

/// The pairs of a minibatch of links: source and destination of each, as indices of the rows that a model makes of the
/// minibatch. These are the seeds, or in a joined minibatch the seeds of each part. In a graph with types, the minibatch of the
/// destinations' type has the pairs.
///
/// In a joined minibatch, the positives of the first part come first, and so do its negatives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkPairs {
    /// The positives.
    pub positives: Vec<[u32; 2]>,
    /// The negatives. With [`Negatives::Destinations`](crate::links::Negatives::Destinations), the negatives of the first
    /// positive come first. With [`Negatives::Shared`](crate::links::Negatives::Shared), each has the source of the first
    /// positive of its part, and is for all of them.
    pub negatives: Vec<[u32; 2]>,
    /// With [`Negatives::Shared`](crate::links::Negatives::Shared): for each positive and each negative of its part, whether
    /// there is no edge from its source. Otherwise empty.
    pub is_negative: Vec<bool>,
    /// The node type of sources.
    pub source_type: usize,
}

impl LinkPairs {
    /// Empties the lists and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.positives.clear();
        self.negatives.clear();
        self.is_negative.clear();
    }

    /// Bytes of memory, including unused capacity.
    pub(crate) fn bytes(&self) -> u64 {
        let pairs = self.positives.capacity() + self.negatives.capacity();
        (pairs * size_of::<[u32; 2]>() + self.is_negative.capacity()) as u64
    }

    /// Adds the pairs of a part. The indices map its rows, of sources and of destinations, to the rows of the joined minibatch.
    pub(super) fn append(&mut self, part: &Self, [sources, destinations]: [&[u32]; 2]) {
        let lists = [(&mut self.positives, &part.positives), (&mut self.negatives, &part.negatives)];
        for (to, from) in lists {
            let rows = |&[source, target]: &[u32; 2]| [sources[source as usize], destinations[target as usize]];
            to.extend(from.iter().map(rows));
        }
        self.is_negative.extend_from_slice(&part.is_negative);
        self.source_type = part.source_type;
    }
}

/// The edges of one hop as CSR: the sampled in-neighbors of each destination.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The number of destinations; [`Minibatch::destination`] has their nodes.
    pub destinations: usize,
    /// The number of sources: the destinations of the next block, or all of [`Minibatch::nodes`].
    pub sources: usize,
    /// Where the edges of each destination start, then the number of edges; `destinations + 1` entries.
    pub offsets: Vec<u32>,
    /// The source of each edge, from 0 to [`Block::sources`].
    pub indices: Vec<u32>,
    /// The index of each destination among the sources. Empty if the destinations are the first sources.
    pub own: Vec<u32>,
    /// The weight of each edge: the visits of random walks, or the weights of the store, if the sampler
    /// [keeps](super::Sampler::with_edge_weights) them. Otherwise empty.
    pub edge_weights: Vec<f32>,
    /// The id of each edge, if the sampler [keeps](super::Sampler::with_edge_ids) them: its place in the store, counting the
    /// edges of all adjacency lists in the order of nodes. Otherwise empty.
    pub edge_ids: Vec<u64>,
    /// The time of each edge, or of its source, in the unit of the store, if the sampler [keeps](super::Sampler::with_edge_times) them and one
    /// of both has times. Otherwise empty.
    pub edge_times: Vec<i64>,
    /// The features of each edge, row by row, if the feed delivers them. Otherwise empty.
    pub edge_features: Vec<f32>,
    /// The number of in-neighbors of each destination that the view owns.
    pub visible: Vec<u64>,
    /// The in-degree of each destination in the whole graph. Coverage is visible / global.
    pub global: Vec<u64>,
    /// Whether each destination is a halo node. The view does not have its in-edges, so it has no edges, and both
    /// degrees are 0.
    pub halo: Vec<bool>,
}

impl Minibatch {
    /// The number of edges of all blocks.
    pub fn edges(&self) -> usize {
        self.blocks.iter().map(|block| block.indices.len()).sum()
    }

    /// The node of destination `index`. It is the same for all blocks that have this destination.
    #[inline]
    pub fn destination(&self, index: usize) -> NodeId {
        let own = self.blocks.last().and_then(|last| last.own.get(index));
        self.nodes[own.map_or(index, |&own| own as usize)]
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.seeds = 0;
        self.parts.clear();
        self.part_times.clear();
        self.blocks.iter_mut().for_each(Block::clear);
        self.links.clear();
    }
}

impl Block {
    /// The edges of a destination, as a range of [`Block::indices`].
    #[inline]
    pub fn edges_of(&self, destination: usize) -> Range<usize> {
        self.offsets[destination] as usize..self.offsets[destination + 1] as usize
    }

    /// Keeps the edges for which `keep` is true, given source and destination as indices, and the time if the block has times. Degrees stay
    /// as they are. The features of edges are gathered later.
    pub fn retain(&mut self, keep: impl Fn(u32, u32, Option<i64>) -> bool) {
        let (mut kept, mut start) = (0, 0);
        for target in 0..self.destinations {
            let end = self.offsets[target + 1] as usize;
            for edge in start..end {
                if keep(self.indices[edge], target as u32, self.edge_times.get(edge).copied()) {
                    self.indices[kept] = self.indices[edge];
                    if let Some(&weight) = self.edge_weights.get(edge) {
                        self.edge_weights[kept] = weight;
                    }
                    if let Some(&id) = self.edge_ids.get(edge) {
                        self.edge_ids[kept] = id;
                    }
                    if let Some(&time) = self.edge_times.get(edge) {
                        self.edge_times[kept] = time;
                    }
                    kept += 1;
                }
            }
            start = end;
            self.offsets[target + 1] = kept as u32;
        }
        self.indices.truncate(kept);
        self.edge_weights.truncate(kept);
        self.edge_ids.truncate(kept);
        self.edge_times.truncate(kept);
    }

    /// Prepares an empty block for `destinations`.
    pub(crate) fn begin(&mut self, destinations: usize) {
        self.destinations = destinations;
        self.offsets.reserve(destinations + 1);
        self.offsets.push(0);
        self.visible.reserve(destinations);
        self.global.reserve(destinations);
        self.halo.reserve(destinations);
    }

    /// Gives the first `destinations` no edges and no degrees.
    pub(crate) fn skip(&mut self, destinations: usize) {
        self.offsets.resize(destinations + 1, 0);
        self.visible.resize(destinations, 0);
        self.global.resize(destinations, 0);
        self.halo.resize(destinations, false);
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.destinations = 0;
        self.sources = 0;
        self.offsets.clear();
        self.indices.clear();
        self.own.clear();
        self.edge_weights.clear();
        self.edge_ids.clear();
        self.edge_times.clear();
        self.edge_features.clear();
        self.visible.clear();
        self.global.clear();
        self.halo.clear();
    }
}
