//! The expected size of minibatches in a random graph.
//!
//! ```text
//! for each hop:
//!     edges = sum over classes: reached nodes of the class * E[min(fanout, in-degree)]
//!     for each class: its share of the edges hits its nodes at random
//! ```

#[cfg(test)]
mod tests;

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
        nodes.map(|(reached, class)| reached * drawn(class.mean, Some(fanout))).sum()
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
        Self { hops, nodes, ..self.clone() }
    }

    /// The number of different nodes of several minibatches, without the `pooled` ones that are used most.
    pub fn missing(&self, reach: &Reach, minibatches: f64, pooled: f64) -> f64 {
        let mut classes: Vec<_> = self
            .reached
            .iter()
            .zip(&reach.classes)
            .map(|(reached, class)| (reached / class.nodes, class.nodes))
            .zip(self.distinct_by_class(reach, minibatches))
            .collect();
        classes.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
        let mut room = pooled;
        let mut missing = 0.0;
        for ((_, nodes), distinct) in classes {
            let pooled = room.min(nodes);
            room -= pooled;
            missing += distinct * (1.0 - pooled / nodes);
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
        Self { classes, edges, present }
    }

    /// A minibatch of `seeds` random nodes. Of the other nodes only the share `owned` is expanded, and none that a
    /// slice lacks. Those are all different: their graph is much larger.
    pub fn sample(&self, seeds: f64, fanouts: &[Option<u32>], owned: f64) -> Minibatch {
        let nodes: f64 = self.classes.iter().map(|class| class.nodes).sum();
        let share = seeds / nodes;
        let seeds = self.classes.iter().map(|class| share * class.nodes);
        self.expand(seeds.collect(), fanouts, owned)
    }

    /// As [`Self::sample`], a minibatch of the different ends of some random edges, and of `drawn` random nodes. High in-degrees and
    /// out-degrees meet in the same nodes.
    pub fn sample_ends(&self, edges: f64, drawn: f64, fanouts: &[Option<u32>], owned: f64) -> Minibatch {
        let nodes: f64 = self.classes.iter().map(|class| class.nodes).sum();
        let hit = |class: &DegreeClass| {
            let draws_of_a_node = 2.0 * edges * class.mean / self.edges + drawn / nodes;
            -(-draws_of_a_node).exp_m1() * class.nodes
        };
        self.expand(self.classes.iter().map(hit).collect(), fanouts, owned)
    }

    /// The share of the edges that are in the lists of the destinations of some random edges.
    pub fn share_of_lists(&self, edges: f64) -> f64 {
        let listed = |class: &DegreeClass| class.nodes * class.mean * -(-edges * class.mean / self.edges).exp_m1();
        self.classes.iter().map(listed).sum::<f64>() / self.edges
    }

    /// A minibatch of a number of seeds of each class.
    fn expand(&self, seeds: Vec<f64>, fanouts: &[Option<u32>], owned: f64) -> Minibatch {
        let all_seeds: f64 = seeds.iter().sum();
        let mut reached = seeds.clone();
        let (mut hops, mut expanded, mut absent) = (Vec::new(), 0.0, 0.0);
        for fanout in fanouts {
            let present: f64 = reached.iter().sum();
            let destinations = present + absent;
            expanded = all_seeds + owned * (present - all_seeds);
            let edges: f64 = reached
                .iter()
                .zip(&seeds)
                .zip(&self.classes)
                .map(|((reached, seeds), class)| (seeds + owned * (reached - seeds)) * drawn(class.mean, *fanout))
                .sum();
            absent += edges * (1.0 - self.present);
            for (reached, class) in reached.iter_mut().zip(&self.classes) {
                let draws_of_a_node = self.present * edges * class.mean / self.edges;
                let hit = -(-draws_of_a_node).exp_m1();
                *reached += hit * (class.nodes - *reached).max(0.0);
            }
            hops.push(Hop { destinations, edges, sources: absent + reached.iter().sum::<f64>() });
        }
        Minibatch { nodes: absent + reached.iter().sum::<f64>(), hops, expanded, reached }
    }
}

/// The expected number of in-neighbors that are drawn of a node, whose in-degree is a Poisson number.
fn drawn(mean: f64, fanout: Option<u32>) -> f64 {
    match fanout {
        None => mean,
        Some(fanout) => expected(mean, |degree| (degree.min(u64::from(fanout)) as f64, 0.0)).0,
    }
}
