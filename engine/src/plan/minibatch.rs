//! The expected size of minibatches in a random graph.
//!
//! ```text
//! for each hop:
//!     edges = sum over classes: reached nodes of the class * E[min(fanout, in-degree)]
//!     for each class: its share of the edges hits its nodes at random
//! ```

use grappa_sampling::policy::SAMPLED_EDGE_WORK;

use super::degrees::{DegreeClass, expected};

/// The classes of a graph, and the shares of its edges.
pub(super) struct Reach {
    classes: Vec<DegreeClass>,
    edges: f64,
    /// The share of the edges whose sources the store has.
    present: f64,
}

/// The expected size of a minibatch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Minibatch {
    /// From the seeds outwards.
    pub hops: Vec<Hop>,
    /// Nodes whose features are needed.
    pub nodes: f64,
    /// Nodes whose adjacency lists at least one hop reads.
    pub expanded: f64,
    /// These, by class.
    reached: Vec<f64>,
}

/// A hop of a minibatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hop {
    /// Nodes that are expanded.
    pub destinations: f64,
    /// Sampled edges.
    pub edges: f64,
    /// Nodes that are reached: destinations and sources.
    pub sources: f64,
}

impl Minibatch {
    /// Edges of all hops.
    pub fn edges(&self) -> f64 {
        self.hops.iter().map(|hop| hop.edges).sum()
    }

    /// The work of training on it, in edges that an inference aggregates.
    pub fn work(&self) -> f64 {
        let seeds = self.hops.first().map_or(self.nodes, |hop| hop.destinations);
        SAMPLED_EDGE_WORK * (seeds + self.edges())
    }

    /// Edges that one more hop draws from the nodes.
    pub fn drawn(&self, reach: &Reach, fanout: u32) -> f64 {
        let nodes = self.reached.iter().zip(&reach.classes);
        nodes
            .map(|(reached, class)| reached * drawn(class.mean, Some(fanout)))
            .sum()
    }

    /// Number of nodes that the store has.
    pub fn present(&self) -> f64 {
        self.reached.iter().sum()
    }

    /// All in-edges of these nodes.
    pub fn in_edges(&self, reach: &Reach) -> f64 {
        let nodes = self.reached.iter().zip(&reach.classes);
        nodes.map(|(reached, class)| reached * class.mean).sum()
    }

    /// This minibatch as one of several in a step, with its part of the nodes that they share. Nodes that the store
    /// lacks count as not shared.
    pub fn sharing(&self, reach: &Reach, minibatches: f64) -> Self {
        if minibatches <= 1.0 {
            return self.clone();
        }
        let absent = self.nodes - self.present();
        let nodes = absent + self.missing(reach, minibatches, 0.0) / minibatches;
        let mut hops = self.hops.clone();
        if let Some(last) = hops.last_mut() {
            last.sources = nodes;
        }
        Self {
            hops,
            nodes,
            ..self.clone()
        }
    }

    /// The number of different nodes of several minibatches, without the `kept` ones that are used most.
    pub fn missing(&self, reach: &Reach, minibatches: f64, kept: f64) -> f64 {
        let mut classes: Vec<_> = self
            .reached
            .iter()
            .zip(&reach.classes)
            .map(|(reached, class)| (reached / class.nodes, class.nodes))
            .zip(self.distinct_by_class(reach, minibatches))
            .collect();
        classes.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
        let mut room = kept;
        let mut missing = 0.0;
        for ((_, nodes), distinct) in classes {
            let kept = room.min(nodes);
            room -= kept;
            missing += distinct * (1.0 - kept / nodes);
        }
        missing
    }

    fn distinct_by_class<'a>(&'a self, reach: &'a Reach, minibatches: f64) -> impl Iterator<Item = f64> + 'a {
        self.reached.iter().zip(&reach.classes).map(move |(reached, class)| {
            class.nodes * -(minibatches * (-(reached / class.nodes).min(0.999_999)).ln_1p()).exp_m1()
        })
    }
}

impl Reach {
    /// The store is a slice if it has the sources of a share `present` of its edges, and not of all.
    pub fn new(classes: Vec<DegreeClass>, present: f64) -> Self {
        let edges = classes.iter().map(|class| class.nodes * class.mean).sum();
        Self {
            classes,
            edges,
            present,
        }
    }

    /// A minibatch of `seeds` random nodes. Of the other nodes only the share `owned` is expanded, and none that a
    /// slice lacks. Those are all different: their graph is much larger.
    pub fn sample(&self, seeds: f64, fanouts: &[Option<u32>], owned: f64) -> Minibatch {
        let nodes: f64 = self.classes.iter().map(|class| class.nodes).sum();
        let share = seeds / nodes;
        let mut reached: Vec<f64> = self.classes.iter().map(|class| share * class.nodes).collect();
        let (mut hops, mut expanded, mut absent) = (Vec::new(), 0.0, 0.0);
        for fanout in fanouts {
            let present: f64 = reached.iter().sum();
            let destinations = present + absent;
            expanded = seeds + owned * (present - seeds);
            let edges: f64 = reached
                .iter()
                .zip(&self.classes)
                .map(|(reached, class)| {
                    let seeds = share * class.nodes;
                    (seeds + owned * (reached - seeds)) * drawn(class.mean, *fanout)
                })
                .sum();
            absent += edges * (1.0 - self.present);
            for (reached, class) in reached.iter_mut().zip(&self.classes) {
                let draws_of_a_node = self.present * edges * class.mean / self.edges;
                let hit = -(-draws_of_a_node).exp_m1();
                *reached += hit * (class.nodes - *reached).max(0.0);
            }
            hops.push(Hop {
                destinations,
                edges,
                sources: absent + reached.iter().sum::<f64>(),
            });
        }
        Minibatch {
            nodes: absent + reached.iter().sum::<f64>(),
            hops,
            expanded,
            reached,
        }
    }
}

/// The expected number of in-neighbors that are drawn of a node, whose in-degree is a Poisson number.
fn drawn(mean: f64, fanout: Option<u32>) -> f64 {
    match fanout {
        None => mean,
        Some(fanout) => expected(mean, |degree| (degree.min(u64::from(fanout)) as f64, 0.0)).0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::degrees::{Degrees, degree_classes};

    fn reach(degrees: Degrees) -> Reach {
        Reach::new(degree_classes(1 << 22, 1 << 26, degrees), 1.0)
    }

    /// A run on R-MAT 22 with 209,715 training nodes in 206 steps sampled 32,240,650 edges, and 6,927,435 with two
    /// hops.
    #[test]
    fn minibatches_are_those_that_were_measured() {
        for (fanouts, measured) in [
            (&[Some(15), Some(10), Some(5)][..], 32_240_650.0),
            (&[Some(15), Some(10)], 6_927_435.0),
        ] {
            let edges = 206.0 * reach(Degrees::Rmat).sample(209_715.0 / 206.0, fanouts, 1.0).edges();
            assert!((edges / measured - 1.0).abs() < 0.05, "{edges}, {measured}");
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
        let of = |seeds, fanout, owned| reach.sample(seeds, &[Some(fanout), Some(fanout)], owned);
        let base = of(100.0, 5, 0.5);
        for larger in [of(200.0, 5, 0.5), of(100.0, 6, 0.5), of(100.0, 5, 0.6)] {
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
}
