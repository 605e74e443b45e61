//! Where minibatches come from.

use crate::{
    Result,
    sample::{Block, Minibatch},
};

/// Makes the minibatches of an epoch, any of them, on any thread, any number of times: always the same ones.
pub trait BatchSource: Send + Sync + 'static {
    /// What a thread samples with.
    type Scratch: Send;

    /// Number of minibatches.
    fn batches(&self) -> u64;

    /// The most nodes that a minibatch can have: seeds times the product of fanouts, or the number of nodes of the graph.
    fn nodes_max(&self) -> u64;

    /// What a thread samples with.
    fn scratch(&self) -> Self::Scratch;

    /// Fills `out` with minibatch `index`, whatever it held before.
    fn sample(&self, index: u64, scratch: &mut Self::Scratch, out: &mut Minibatch) -> Result<()>;
}

/// How large the minibatches of a source are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Number of minibatches.
    pub batches: u64,
    /// Nodes, and so rows, of a minibatch.
    pub rows: usize,
    /// Of each block of a minibatch, destinations and edges.
    blocks: Vec<BlockSize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BlockSize {
    destinations: usize,
    edges: usize,
    weighted: bool,
}

impl Demand {
    /// Minibatches that are sampled to see how large they are, evenly spread.
    const PROBES: u64 = 5;

    /// Samples a few minibatches, and adds an eighth to the largest: those of 1024 seeds differ by a few per cent, and
    /// small ones, which differ by more, take little.
    pub fn measure(source: &impl BatchSource) -> Result<Self> {
        let batches = source.batches();
        let mut demand = Self {
            batches,
            ..Self::default()
        };
        let (mut scratch, mut minibatch) = (source.scratch(), Minibatch::default());
        let probes = Self::PROBES.min(batches);
        for probe in 0..probes {
            source.sample(probe * batches / probes, &mut scratch, &mut minibatch)?;
            demand.cover(&minibatch);
        }
        let more = |n: usize| n + n / 8 + 64;
        demand.rows = more(demand.rows).min(usize::try_from(source.nodes_max()).unwrap_or(usize::MAX));
        for block in &mut demand.blocks {
            block.destinations = more(block.destinations);
            block.edges = more(block.edges);
        }
        Ok(demand)
    }

    fn cover(&mut self, minibatch: &Minibatch) {
        self.rows = self.rows.max(minibatch.nodes.len());
        self.blocks
            .resize_with(self.blocks.len().max(minibatch.blocks.len()), BlockSize::default);
        for (size, block) in self.blocks.iter_mut().zip(&minibatch.blocks) {
            size.destinations = size.destinations.max(block.destinations);
            size.edges = size.edges.max(block.indices.len());
            size.weighted |= !block.weights.is_empty();
        }
    }

    /// An empty minibatch that need not grow.
    pub fn minibatch(&self) -> Minibatch {
        Minibatch {
            nodes: Vec::with_capacity(self.rows),
            seeds: 0,
            blocks: self.blocks.iter().map(BlockSize::block).collect(),
        }
    }

    /// Bytes of [`Demand::minibatch`].
    pub fn minibatch_bytes(&self) -> u64 {
        bytes_of(&self.minibatch())
    }
}

impl BlockSize {
    fn block(&self) -> Block {
        Block {
            destinations: 0,
            sources: 0,
            offsets: Vec::with_capacity(self.destinations + 1),
            indices: Vec::with_capacity(self.edges),
            weights: Vec::with_capacity(if self.weighted { self.edges } else { 0 }),
            visible: Vec::with_capacity(self.destinations),
            global: Vec::with_capacity(self.destinations),
            halo: Vec::with_capacity(self.destinations),
        }
    }
}

/// Bytes that a minibatch takes, used or not.
pub(super) fn bytes_of(minibatch: &Minibatch) -> u64 {
    fn bytes<T>(vec: &Vec<T>) -> u64 {
        (vec.capacity() * size_of::<T>()) as u64
    }
    let block = |block: &Block| {
        bytes(&block.offsets)
            + bytes(&block.indices)
            + bytes(&block.weights)
            + bytes(&block.visible)
            + bytes(&block.global)
            + bytes(&block.halo)
            + size_of::<Block>() as u64
    };
    bytes(&minibatch.nodes) + minibatch.blocks.iter().map(block).sum::<u64>()
}
