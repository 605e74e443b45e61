//! Tests of `minibatch`.

use super::*;
use crate::plan::degrees::{Degrees, degree_classes};

fn reach(degrees: Degrees) -> Reach {
    Reach::new(degree_classes(1 << 22, 1 << 26, degrees), 1.0)
}

/// A run on R-MAT 22 with 209,715 training nodes in 206 steps sampled 32,240,650 edges, and 6,927,435 with two
/// hops.
#[test]
fn minibatches_are_those_that_were_measured() {
    for (fanouts, measured) in
        [(&[Some(15), Some(10), Some(5)][..], 32_240_650.0), (&[Some(15), Some(10)], 6_927_435.0)]
    {
        let edges = 206.0 * reach(Degrees::Rmat).sample(209_715.0 / 206.0, fanouts, 1.0).edges();
        assert!((edges / measured - 1.0).abs() < 0.05, "{edges}, {measured}");
    }
}

/// Batches of 1024 edges of R-MAT 22 with fanouts 10, 10 had 182,763 edges with 1 uniform negative of each edge, 1,378,272 with 100, and
/// 166,455 with 100 that all edges shared (record of 2026-11-28, links).
#[test]
fn minibatches_of_links_are_those_that_were_measured() {
    let fanouts = [Some(10), Some(10)];
    for (negatives, measured) in [(1024.0, 182_763.0), (102_400.0, 1_378_272.0), (100.0, 166_455.0)] {
        let edges = reach(Degrees::Rmat).sample_ends(1024.0, negatives, &fanouts, 1.0).edges();
        assert!((edges / measured - 1.0).abs() < 0.25, "{edges}, {measured}");
    }
}

#[test]
fn all_in_neighbors_of_all_nodes_are_all_edges() {
    for degrees in [Degrees::Rmat, Degrees::Even] {
        let all = reach(degrees).sample((1 << 22) as f64, &[None], 1.0);
        assert!((all.edges() / (1 << 26) as f64 - 1.0).abs() < 1e-9);
        assert!(all.nodes <= (1 << 22) as f64 * (1.0 + 1e-9));
    }
}

#[test]
fn a_slice_expands_only_the_sources_that_it_has() {
    let classes = || degree_classes(1 << 22, 1 << 26, Degrees::Rmat);
    let edges = |present, fanouts: &[u32]| {
        let fanouts: Vec<Option<u32>> = fanouts.iter().copied().map(Some).collect();
        Reach::new(classes(), present).sample(1024.0, &fanouts, 1.0).edges()
    };
    assert_eq!(edges(0.0, &[15, 10]), edges(1.0, &[15]) + edges(1.0, &[10]));
    assert!(edges(0.0, &[15, 10]) < edges(0.5, &[15, 10]) && edges(0.5, &[15, 10]) < edges(1.0, &[15, 10]));
}

#[test]
fn sizes_grow_with_seeds_fanouts_and_owned_nodes() {
    let reach = reach(Degrees::Rmat);
    let sampled = |seeds, fanout, owned| reach.sample(seeds, &[Some(fanout), Some(fanout)], owned);
    let base = sampled(100.0, 5, 0.5);
    for larger in [sampled(200.0, 5, 0.5), sampled(100.0, 6, 0.5), sampled(100.0, 5, 0.6)] {
        assert!(larger.edges() > base.edges() && larger.nodes > base.nodes);
    }
    // Several minibatches share nodes, and those that are used most are kept first.
    let together = base.missing(&reach, 10.0, 0.0);
    assert!(together > base.nodes && together < 10.0 * base.nodes);
    assert!((base.missing(&reach, 1.0, 0.0) / base.nodes - 1.0).abs() < 1e-3);
    let missing = base.missing(&reach, 10.0, 10_000.0);
    assert!(missing < together && missing > together - 10_000.0);
    assert!(base.missing(&reach, 10.0, 5e6) < 1e-6 * together);
}

#[test]
fn minibatches_of_a_step_share_nodes_and_no_edges() {
    for present in [1.0, 0.25] {
        let reach = Reach::new(degree_classes(1 << 22, 1 << 26, Degrees::Rmat), present);
        let alone = reach.sample(64.0, &[Some(15), Some(10)], 1.0);
        assert_eq!(alone.sharing(&reach, 1.0), alone);
        let shared = |minibatches| alone.sharing(&reach, minibatches);
        let mut last = alone.nodes;
        for minibatches in [2.0, 4.0, 16.0] {
            let of_step = shared(minibatches);
            assert_eq!(of_step.edges(), alone.edges());
            assert_eq!(of_step.hops.last().map(|hop| hop.sources), Some(of_step.nodes));
            assert!(of_step.nodes < last, "more minibatches share more nodes");
            last = of_step.nodes;
        }
        // All of a step together have no fewer nodes than one, and none that the graph lacks.
        assert!(16.0 * last > alone.nodes);
        let absent = alone.nodes - alone.present();
        let graph = (1u64 << 22) as f64;
        assert!(1e9 * (shared(1e9).nodes - absent) <= graph * (1.0 + 1e-6));
    }
}
