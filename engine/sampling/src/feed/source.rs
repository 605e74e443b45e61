//! Where minibatches come from.

use grappa_formats::{NodeId, random};
use grappa_io::Result;

use crate::sample::{Block, Minibatch};

/// Makes the minibatches of an epoch, any of them, on any thread, any number of times: always the same ones.
pub trait BatchSource: Send + Sync + 'static {
    /// What a thread samples with.
    type Scratch: Send;

    /// Number of minibatches.
    fn batches(&self) -> u64;

    /// The most nodes that a minibatch can have: seeds times the product of fanouts, or the number of nodes of the graph.
    fn nodes_max(&self) -> u64;

    /// Bytes of memory that it takes itself, such as lists of seeds.
    fn bytes(&self) -> u64;

    /// A number of nodes that the largest minibatch has at least: its seeds. Known without sampling.
    fn nodes_min(&self) -> u64;

    /// What a thread samples with.
    fn scratch(&self) -> Self::Scratch;

    /// Bytes of memory that `scratch`, with which a few minibatches were sampled, takes once there was one of `nodes` nodes.
    fn scratch_bytes(&self, scratch: &Self::Scratch, nodes: usize) -> u64;

    /// Fills `out` with minibatch `index`, whatever it held before.
    fn sample(&self, index: u64, scratch: &mut Self::Scratch, out: &mut Minibatch) -> Result<()>;
}

/// How large the minibatches of a source are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Demand {
    /// Number of minibatches.
    pub batches: u64,
    /// Nodes, and so rows, of a minibatch.
    pub rows: usize,
    /// Bytes that are held all the time: what the source takes itself, and the checksums of files.
    pub held_bytes: u64,
    /// Bytes that a thread samples with.
    pub scratch_bytes: u64,
    /// How many rows minibatches want.
    distinct: Distinct,
    /// Of each block of a minibatch, destinations and edges.
    blocks: Vec<BlockSize>,
}

/// How many different rows several minibatches want, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Distinct {
    /// Those of one, on average.
    each: f64,
    /// With which power of the number of minibatches they grow: 1 if none is wanted twice.
    growth: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BlockSize {
    destinations: usize,
    edges: usize,
    weighted: bool,
}

impl Demand {
    /// Minibatches that are sampled to see how large they are, evenly spread: so many,
    const PROBES: u64 = 5;
    /// and, of small ones, which differ more and of which more wait, as many as have so many nodes,
    const PROBE_NODES: usize = 1 << 18;
    /// but no more than this.
    const PROBES_MAX: u64 = 100;
    /// About as many nodes of the probes are kept, to see how many of them differ.
    const KEPT_NODES: usize = 1 << 20;

    /// What minibatches of nothing but seeds would take. Unlike [`Demand::measure`], which may take minutes where adjacency
    /// lists are mapped, this samples nothing.
    pub fn of_seeds(source: &impl BatchSource) -> Self {
        Self {
            batches: source.batches(),
            rows: usize::try_from(source.nodes_min()).unwrap_or(usize::MAX),
            held_bytes: source.bytes(),
            ..Self::default()
        }
    }

    /// Samples a few minibatches, and adds an eighth to the largest: those of 1024 seeds differ by a few per cent.
    pub fn measure(source: &impl BatchSource) -> Result<Self> {
        Self::measure_keeping(source, Self::KEPT_NODES)
    }

    /// The same, with memory for about `kept_nodes` nodes of the probes.
    fn measure_keeping(source: &impl BatchSource, kept_nodes: usize) -> Result<Self> {
        let batches = source.batches();
        let mut demand = Self {
            batches,
            ..Self::default()
        };
        let (mut scratch, mut minibatch) = (source.scratch(), Minibatch::default());
        let (mut probes, mut nodes) = (0, 0);
        let (mut kept, mut kept_share) = (Vec::new(), 1);
        for probe in 0..Self::PROBES_MAX.min(batches) {
            if probe >= Self::PROBES && nodes >= Self::PROBE_NODES {
                break;
            }
            let batch = match batches <= Self::PROBES {
                true => probe,
                false => Self::spread(probe, batches),
            };
            source.sample(batch, &mut scratch, &mut minibatch)?;
            demand.cover(&minibatch);
            if probe == 0 {
                let expected = Self::PROBE_NODES.max(Self::PROBES as usize * minibatch.nodes.len());
                kept_share = expected.div_ceil(kept_nodes) as u64;
            }
            // Which nodes are kept depends on the node alone, so among these as many differ as among all.
            let is_kept = |node: &NodeId| random::hash(node.0).is_multiple_of(kept_share);
            kept.extend(minibatch.nodes.iter().copied().filter(is_kept));
            nodes += minibatch.nodes.len();
            probes += 1;
        }
        demand.distinct = Distinct::of(kept, probes);
        demand.distinct.each *= kept_share as f64;
        let more = |n: usize| n + n / 8 + 64;
        demand.rows = more(demand.rows).min(usize::try_from(source.nodes_max()).unwrap_or(usize::MAX));
        demand.held_bytes = source.bytes();
        demand.scratch_bytes = source.scratch_bytes(&scratch, demand.rows);
        for block in &mut demand.blocks {
            block.destinations = more(block.destinations);
            block.edges = more(block.edges);
        }
        Ok(demand)
    }

    /// Number `probe` of a series that soon has members everywhere below `end`, in each class of remainders (partitions take
    /// turns): multiples of the golden section, less whole numbers.
    fn spread(probe: u64, end: u64) -> u64 {
        random::scale(probe.wrapping_mul(random::GOLDEN), end)
    }

    fn cover(&mut self, minibatch: &Minibatch) {
        self.rows = self.rows.max(minibatch.nodes.len());
        self.blocks
            .resize_with(self.blocks.len().max(minibatch.blocks.len()), BlockSize::default);
        for (size, block) in self.blocks.iter_mut().zip(&minibatch.blocks) {
            size.destinations = size.destinations.max(block.destinations);
            size.edges = size.edges.max(block.indices.len());
            size.weighted |= !block.edge_weights.is_empty();
        }
    }

    /// About how many different rows so many minibatches want.
    pub fn distinct_rows(&self, minibatches: u64) -> u64 {
        (self.distinct.each * (minibatches as f64).powf(self.distinct.growth)) as u64
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

impl Distinct {
    /// As in so many minibatches, which had these nodes.
    fn of(mut nodes: Vec<NodeId>, minibatches: u32) -> Self {
        let each = nodes.len() as f64 / f64::from(minibatches.max(1));
        nodes.sort_unstable();
        nodes.dedup();
        let growth = match minibatches {
            0 | 1 => 1.0,
            _ if nodes.is_empty() => 1.0,
            _ => ((nodes.len() as f64 / each).ln() / f64::from(minibatches).ln()).clamp(0.0, 1.0),
        };
        Self { each, growth }
    }
}

impl BlockSize {
    fn block(&self) -> Block {
        Block {
            destinations: 0,
            sources: 0,
            offsets: Vec::with_capacity(self.destinations + 1),
            indices: Vec::with_capacity(self.edges),
            edge_weights: Vec::with_capacity(if self.weighted { self.edges } else { 0 }),
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
            + bytes(&block.edge_weights)
            + bytes(&block.visible)
            + bytes(&block.global)
            + bytes(&block.halo)
            + size_of::<Block>() as u64
    };
    bytes(&minibatch.nodes) + minibatch.blocks.iter().map(block).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small minibatches of 16 partitions that take turns, of which the last has larger ones.
    struct Turns;

    impl BatchSource for Turns {
        type Scratch = ();

        fn batches(&self) -> u64 {
            3280
        }

        fn nodes_max(&self) -> u64 {
            u64::MAX
        }

        fn bytes(&self) -> u64 {
            77
        }

        fn nodes_min(&self) -> u64 {
            0
        }

        fn scratch(&self) {}

        fn scratch_bytes(&self, (): &(), nodes: usize) -> u64 {
            8 * nodes as u64
        }

        fn sample(&self, index: u64, (): &mut (), out: &mut Minibatch) -> Result<()> {
            let nodes = if index % 16 == 15 { 2000 } else { 1000 };
            out.nodes.resize(nodes, NodeId(0));
            Ok(())
        }
    }

    #[test]
    fn every_partition_is_asked_how_large_its_minibatches_are() {
        let demand = Demand::measure(&Turns).unwrap();
        assert_eq!(demand.rows, 2000 + 2000 / 8 + 64);
        assert_eq!((demand.held_bytes, demand.scratch_bytes), (77, 8 * demand.rows as u64));
    }

    /// Minibatches of 20,000 nodes, of which half are in a part of the graph that all want.
    struct Overlapping;

    impl BatchSource for Overlapping {
        type Scratch = ();

        fn batches(&self) -> u64 {
            50
        }

        fn nodes_max(&self) -> u64 {
            u64::MAX
        }

        fn bytes(&self) -> u64 {
            0
        }

        fn nodes_min(&self) -> u64 {
            0
        }

        fn scratch(&self) {}

        fn scratch_bytes(&self, (): &(), _: usize) -> u64 {
            0
        }

        fn sample(&self, index: u64, (): &mut (), out: &mut Minibatch) -> Result<()> {
            out.clear();
            let node = |i: u64| match i % 2 {
                0 => random::hash(index << 20 | i) % 15_000,
                _ => 15_000 + random::hash(index << 20 | i) % 1_000_000,
            };
            out.nodes.extend((0..20_000).map(node).map(NodeId));
            out.nodes.sort_unstable();
            out.nodes.dedup();
            Ok(())
        }
    }

    #[test]
    fn a_part_of_the_nodes_tells_how_many_rows_differ() {
        let all = Demand::measure_keeping(&Overlapping, usize::MAX).unwrap().distinct;
        let part = Demand::measure_keeping(&Overlapping, 1 << 13).unwrap().distinct;
        assert!((0.5..0.95).contains(&all.growth), "{all:?}");
        assert!((part.each / all.each - 1.0).abs() < 0.05, "{part:?}, {all:?}");
        assert!((part.growth - all.growth).abs() < 0.02, "{part:?}, {all:?}");
    }

    #[test]
    fn different_rows_grow_as_those_of_a_few_minibatches_do() {
        let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
        // None twice, all alike, and something between: 6 of 4 minibatches with 3 each.
        assert_eq!(Distinct::of(nodes(&[1, 2, 3, 4, 5, 6]), 2).growth, 1.0);
        assert_eq!(Distinct::of(nodes(&[1, 2, 1, 2, 2, 1]), 3).growth, 0.0);
        let distinct = Distinct::of(nodes(&[1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2, 6]), 4);
        assert_eq!(distinct.each, 3.0);
        let demand = Demand {
            distinct,
            ..Demand::default()
        };
        assert_eq!([1, 4, 16].map(|batches| demand.distinct_rows(batches)), [3, 6, 12]);
        assert_eq!(Distinct::of(Vec::new(), 3).growth, 1.0);
        assert_eq!(Distinct::of(nodes(&[1]), 1).growth, 1.0);
    }

    #[test]
    fn probes_are_spread_over_all_minibatches() {
        for batches in [6, 100, 205, 1 << 40] {
            let probes: Vec<u64> = (0..Demand::PROBES_MAX.min(batches))
                .map(|probe| Demand::spread(probe, batches))
                .collect();
            assert!(probes.iter().all(|&probe| probe < batches));
            for quarter in 0..4 {
                let has = |probe: &&u64| u128::from(**probe) * 4 / u128::from(batches) == quarter;
                assert!(
                    probes.iter().filter(has).count() >= probes.len() / 6,
                    "{batches}: {probes:?}"
                );
            }
        }
    }
}
