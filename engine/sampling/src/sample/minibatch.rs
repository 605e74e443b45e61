//! One training step's part of the graph.

use std::ops::Range;

use grappa_formats::NodeId;

/// The nodes and edges of one training step: seeds, and the neighbourhoods sampled for them hop by hop.
///
/// The nodes of all hops are in one list without repetitions, in the order in which they were first met: seeds, then
/// what the first hop added, and so on. So the destinations of a block are a prefix of its sources, as layers need it:
/// block `h` has as destinations the first `blocks[h].destinations` of [`Minibatch::nodes`] and as sources the first
/// `blocks[h].sources`, which are the destinations of block `h + 1`.
///
/// A minibatch is a buffer that is filled again and again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Minibatch {
    /// The nodes whose features the step needs, unique; the first [`Minibatch::seeds`] are the seeds, in their order.
    pub nodes: Vec<NodeId>,
    /// Number of seeds.
    pub seeds: usize,
    /// One block a hop, from the seeds outwards. A model applies its layers in the opposite order, the last block first.
    pub blocks: Vec<Block>,
}

/// The edges of one hop as CSR: for each destination, its sampled in-neighbours.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Number of destinations: the first so many of [`Minibatch::nodes`].
    pub destinations: usize,
    /// Number of sources: the first so many of [`Minibatch::nodes`].
    pub sources: usize,
    /// Where the edges of each destination start, and last the number of edges; `destinations + 1` entries.
    pub offsets: Vec<u32>,
    /// The source of each edge, as an index into [`Minibatch::nodes`].
    pub indices: Vec<u32>,
    /// What each edge counts for, where edges are not alike (visits of random walks); else empty.
    pub weights: Vec<f32>,
    /// In-degree of each destination in the part of the graph that the view can expand.
    pub visible: Vec<u64>,
    /// In-degree of each destination in the whole graph. Coverage is visible / global.
    pub global: Vec<u64>,
    /// Of each destination, whether it is a halo node, whose in-edges are out of reach. It then has no edges, and both
    /// degrees are 0.
    pub halo: Vec<bool>,
}

impl Minibatch {
    /// Number of edges of all blocks.
    pub fn edges(&self) -> usize {
        self.blocks.iter().map(|block| block.indices.len()).sum()
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.seeds = 0;
        self.blocks.iter_mut().for_each(Block::clear);
    }
}

impl Block {
    /// The edges of a destination, as a range of [`Block::indices`].
    #[inline]
    pub fn edges_of(&self, destination: usize) -> Range<usize> {
        self.offsets[destination] as usize..self.offsets[destination + 1] as usize
    }

    /// Makes an emptied block ready for so many destinations.
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
        self.weights.clear();
        self.visible.clear();
        self.global.clear();
        self.halo.clear();
    }
}
