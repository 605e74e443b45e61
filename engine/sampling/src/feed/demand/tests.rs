//! Tests of `demand`.

use super::*;

/// Small minibatches of 16 partitions that take turns. Those of the last partition are larger.
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

    fn scratch_bytes(&self, (): &(), nodes: usize) -> u64 {
        8 * nodes as u64
    }

    fn sample(&self, index: u64, (): &mut (), out: &mut [Minibatch]) -> Result<()> {
        let out = &mut out[0];
        let nodes = if index % 16 == 15 { 2000 } else { 1000 };
        out.nodes.resize(nodes, NodeId(0));
        Ok(())
    }
}

#[test]
fn minibatches_of_every_partition_are_measured() {
    let demands = MinibatchDemand::measure(&Turns, None).unwrap();
    let rows = demands.each_ref().map(|demand| demand.nodes[0]);
    assert_eq!(rows, [2000 + 250 + 64, 2000 + 125 + 64, 2000 + 62 + 64, 2000]);
    for demand in demands {
        assert_eq!((demand.held_bytes, demand.scratch_bytes), (77, 8 * demand.nodes[0] as u64));
    }
}

/// Minibatches of 20,000 nodes. Half of them are in a small part of the graph, which all minibatches need.
struct Overlapping;

impl BatchSource for Overlapping {
    type Scratch = ();

    fn batches(&self) -> u64 {
        50
    }

    fn nodes_max(&self) -> u64 {
        u64::MAX
    }

    fn scratch_bytes(&self, (): &(), _: usize) -> u64 {
        0
    }

    fn sample(&self, index: u64, (): &mut (), out: &mut [Minibatch]) -> Result<()> {
        let out = &mut out[0];
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
fn a_sample_of_the_nodes_estimates_the_number_of_distinct_rows() {
    let distinct = |kept_nodes| MinibatchDemand::measure_keeping(&Overlapping, None, kept_nodes).unwrap()[0].distinct;
    let (all, part) = (distinct(usize::MAX), distinct(1 << 13));
    assert!((0.5..0.95).contains(&all.growth), "{all:?}");
    assert!((part.each / all.each - 1.0).abs() < 0.05, "{part:?}, {all:?}");
    assert!((part.growth - all.growth).abs() < 0.02, "{part:?}, {all:?}");
}

#[test]
fn distinct_rows_are_extrapolated_from_a_few_minibatches() {
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
    // No row twice; always the same rows; and between, 6 distinct rows of 4 minibatches with 3 rows each.
    assert_eq!(DistinctRows::from_nodes(nodes(&[1, 2, 3, 4, 5, 6]), 2).growth, 1.0);
    assert_eq!(DistinctRows::from_nodes(nodes(&[1, 2, 1, 2, 2, 1]), 3).growth, 0.0);
    let distinct = DistinctRows::from_nodes(nodes(&[1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2, 6]), 4);
    assert_eq!(distinct.each, 3.0);
    let demand = MinibatchDemand { distinct, ..MinibatchDemand::default() };
    assert_eq!([1, 4, 16].map(|batches| demand.distinct_rows(batches)), [3, 6, 12]);
    assert_eq!(DistinctRows::from_nodes(Vec::new(), 3).growth, 1.0);
    assert_eq!(DistinctRows::from_nodes(nodes(&[1]), 1).growth, 1.0);
}

#[test]
fn probes_are_spread_over_all_minibatches() {
    for batches in [6, 100, 205, 1 << 40] {
        let probes: Vec<u64> = (0..MinibatchDemand::PROBES_MAX.min(batches))
            .map(|probe| MinibatchDemand::spread(probe, batches))
            .collect();
        assert!(probes.iter().all(|&probe| probe < batches));
        for quarter in 0..4 {
            let has = |probe: &&u64| u128::from(**probe) * 4 / u128::from(batches) == quarter;
            assert!(probes.iter().filter(has).count() >= probes.len() / 6, "{batches}: {probes:?}");
        }
    }
}
