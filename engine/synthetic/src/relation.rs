//! Edges between two types of nodes, which can be generated from either end.
//!
//! The edges of a relation are numbered. Each node has a range of the numbers, its *slots*, in the order of labels: at both ends. A
//! permutation of the numbers joins them: slot e of the destinations belongs to slot p(e) of the sources. So the in-edges of a node are
//! computed from its slots, and so are its out-edges, by the inverse of p. A relation and its reverse have the same edges, and each chunk of
//! both is generated alone.

use grappa_formats::{NODES_MAX, permutation::Feistel};
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::random::{Purpose, Source};

/// Edges from the nodes of one type to the nodes of another, or of the same.
///
/// Unlike in other models, the number of edges is exact, and in-degrees are no random numbers. Parallel edges occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationModel {
    /// Number of nodes of the type of sources.
    pub sources: u64,
    /// Number of nodes of the type of destinations.
    pub nodes: u64,
    /// Number of edges.
    pub edges: u64,
    /// The degrees at both ends.
    pub degrees: Degrees,
    /// Whether these are the edges of the relation from the destinations to the sources, in the other direction.
    pub is_reverse: bool,
}

/// How degrees are spread over the nodes of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Degrees {
    /// As even as whole numbers allow.
    Even,
    /// The first n of N nodes have the share sqrt(n / N) of the edges: a power law with exponent 3. The least degree is half of the mean.
    Skewed,
}

impl RelationModel {
    pub(crate) fn check(&self) -> Result<()> {
        for (end, nodes) in [("sources", self.sources), ("destinations", self.nodes)] {
            if nodes == 0 || nodes > NODES_MAX {
                let range = format!("1 to {NODES_MAX} {end} (2^40)");
                return Err(Error::out_of_range("a relation", range, nodes));
            }
        }
        if self.edges > NODES_MAX {
            return Err(Error::out_of_range("a relation", format!("at most {NODES_MAX} edges (2^40)"), self.edges));
        }
        Ok(())
    }
}

/// Draws the edges of a relation.
#[derive(Debug, Clone)]
pub struct RelationSampler {
    sources: Slots,
    destinations: Slots,
    joined: Feistel,
    is_reverse: bool,
}

impl RelationSampler {
    pub fn new(model: &RelationModel, seed: u64) -> Self {
        let RelationModel { sources, nodes, edges, degrees, is_reverse } = *model;
        let slots = |nodes| Slots { nodes, edges, degrees };
        let joined = Feistel::new(edges, Source::new(seed, Purpose::Relation).at(0));
        Self { sources: slots(sources), destinations: slots(nodes), joined, is_reverse }
    }

    /// The in-degree of `label`.
    pub fn degree(&self, label: u64) -> u64 {
        self.destinations.start(label + 1) - self.destinations.start(label)
    }

    /// A bound of all in-degrees.
    pub fn largest_degree(&self) -> u64 {
        // The first node has the most, but for a difference of one by rounding.
        self.degree(0) + 1
    }

    /// Appends `count` sources of `label` after the first `skipped`.
    pub fn draw(&self, label: u64, skipped: u64, count: u64, out: &mut Vec<u64>) {
        let first = self.destinations.start(label) + skipped;
        let begin = out.len();
        out.extend(first..first + count);
        let slots = &mut out[begin..];
        match self.is_reverse {
            false => self.joined.forward_all(slots),
            true => self.joined.inverse_all(slots),
        }
        slots.iter_mut().for_each(|slot| *slot = self.sources.node(*slot));
    }
}

/// The division of slots among the nodes of an end.
#[derive(Debug, Clone, Copy)]
struct Slots {
    nodes: u64,
    edges: u64,
    degrees: Degrees,
}

impl Slots {
    /// The first slot of a node: E n / N for even degrees, and E sqrt(n / N) for skewed ones, rounded down.
    fn start(&self, node: u64) -> u64 {
        let [node, nodes, edges] = [node, self.nodes, self.edges].map(u128::from);
        let start = match self.degrees {
            Degrees::Even => edges * node / nodes,
            Degrees::Skewed => (edges * edges * node / nodes).isqrt(),
        };
        start as u64
    }

    /// The node with a slot: the last one that starts at or before it.
    fn node(&self, slot: u64) -> u64 {
        let [after, nodes, edges] = [slot + 1, self.nodes, self.edges].map(u128::from);
        match self.degrees {
            Degrees::Even => ((after * nodes - 1) / edges) as u64,
            Degrees::Skewed => {
                // Products of 128 bits decide. A guess in floating point saves their division.
                let starts_before = |node: u64| edges * edges * u128::from(node) < after * after * nodes;
                let share = after as f64 / edges as f64;
                let mut node = ((nodes as f64 * share * share) as u64).min(self.nodes - 1);
                while !starts_before(node) {
                    node -= 1;
                }
                while node + 1 < self.nodes && starts_before(node + 1) {
                    node += 1;
                }
                node
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(sampler: &RelationSampler, nodes: u64) -> Vec<(u64, u64)> {
        let (mut edges, mut list) = (Vec::new(), Vec::new());
        for label in 0..nodes {
            list.clear();
            sampler.draw(label, 0, sampler.degree(label), &mut list);
            edges.extend(list.iter().map(|&source| (source, label)));
        }
        edges
    }

    #[test]
    fn a_reverse_has_the_edges_of_its_relation() {
        for degrees in [Degrees::Even, Degrees::Skewed] {
            for (sources, nodes, count) in [(7, 1000, 5000), (1000, 7, 5000), (300, 300, 1), (5, 900, 0), (1, 1, 50)] {
                let model = RelationModel { sources, nodes, edges: count, degrees, is_reverse: false };
                let reverse = RelationModel { sources: nodes, nodes: sources, is_reverse: true, ..model.clone() };
                let mut forward = edges(&RelationSampler::new(&model, 3), nodes);
                let backward = edges(&RelationSampler::new(&reverse, 3), sources);
                let mut turned: Vec<_> = backward.into_iter().map(|(source, target)| (target, source)).collect();
                assert_eq!(forward.len() as u64, count);
                forward.sort_unstable();
                turned.sort_unstable();
                assert_eq!(forward, turned, "{model:?}");
            }
        }
    }

    #[test]
    fn degrees_are_those_of_the_slots_at_any_size() {
        for (nodes, edges) in [(10, 3), (1000, 10_000), (1 << 40, 1 << 40), ((1 << 40) - 7, 12_345), (3, 1 << 40)] {
            for degrees in [Degrees::Even, Degrees::Skewed] {
                let slots = Slots { nodes, edges, degrees };
                assert_eq!([slots.start(0), slots.start(nodes)], [0, edges]);
                for slot in [0, 1, edges / 3, edges / 2, edges - 2, edges - 1] {
                    let node = slots.node(slot);
                    assert!((slots.start(node)..slots.start(node + 1)).contains(&slot), "{slots:?}, slot {slot}");
                }
            }
        }
        let slots = Slots { nodes: 10_000, edges: 1_000_000, degrees: Degrees::Skewed };
        assert_eq!([slots.start(1), slots.start(100)], [10_000, 100_000], "1 % of the nodes have 10 % of the edges");
    }
}
