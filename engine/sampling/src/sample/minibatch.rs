//! Minibatches and their blocks.

use std::ops::Range;

use grappa_formats::NodeId;

/// The nodes and edges of one training step: seeds and their sampled neighborhoods.
///
/// The nodes of all hops are in one list without duplicates, in the order in which they were first reached: the seeds,
/// then the nodes that the first hop added, and so on. The destinations of block `h` are the first
/// `blocks[h].destinations` of [`Minibatch::nodes`]. Its sources are the first `blocks[h].sources`; they are the
/// destinations of block `h + 1`. So destinations are a prefix of sources, as layers require.
///
/// Only a joined minibatch ([`Minibatch::join`]) may have a node several times, once for each of its parts.
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
    /// Of a joined minibatch: the number of nodes that each level has of each part, level after level. Otherwise empty. The seeds are
    /// level 0, and the nodes that hop `h` added are level `h + 1`.
    pub part_nodes: Vec<u32>,
}

/// The edges of one hop as CSR: the sampled in-neighbors of each destination.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The number of destinations. They are a prefix of [`Minibatch::nodes`].
    pub destinations: usize,
    /// The number of sources. They are a prefix of [`Minibatch::nodes`].
    pub sources: usize,
    /// Where the edges of each destination start, then the number of edges; `destinations + 1` entries.
    pub offsets: Vec<u32>,
    /// The source of each edge, as an index into [`Minibatch::nodes`].
    pub indices: Vec<u32>,
    /// The weight of each edge, if edges differ (the visits of random walks); otherwise empty.
    pub edge_weights: Vec<f32>,
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

    /// For each node, its part and its index among the nodes of the part. A minibatch that was not joined is one part.
    pub fn origins(&self) -> Vec<(usize, u64)> {
        let whole = [self.nodes.len() as u32];
        let (counts, levels) = match &self.part_nodes[..] {
            [] => (&whole[..], 1),
            counts => (counts, self.blocks.len() + 1),
        };
        let parts = counts.len() / levels;
        let mut next = vec![0; parts];
        let mut origins = Vec::with_capacity(self.nodes.len());
        for (at, &count) in counts.iter().enumerate() {
            let part = at % parts;
            let first = next[part];
            next[part] += u64::from(count);
            origins.extend((first..next[part]).map(|index| (part, index)));
        }
        origins
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.seeds = 0;
        self.part_nodes.clear();
        self.blocks.iter_mut().for_each(Block::clear);
    }
}

impl Block {
    /// The edges of a destination, as a range of [`Block::indices`].
    #[inline]
    pub fn edges_of(&self, destination: usize) -> Range<usize> {
        self.offsets[destination] as usize..self.offsets[destination + 1] as usize
    }

    /// Prepares an empty block for `destinations`.
    pub(super) fn begin(&mut self, destinations: usize) {
        self.destinations = destinations;
        self.offsets.reserve(destinations + 1);
        self.offsets.push(0);
        self.visible.reserve(destinations);
        self.global.reserve(destinations);
        self.halo.reserve(destinations);
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.destinations = 0;
        self.sources = 0;
        self.offsets.clear();
        self.indices.clear();
        self.edge_weights.clear();
        self.visible.clear();
        self.global.clear();
        self.halo.clear();
    }
}
