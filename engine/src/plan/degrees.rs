//! Distributions of degrees, as classes of nodes with the same mean degree.

use std::ops::RangeInclusive;

use serde::Serialize;

/// Means from here on stand for the degree itself: the spread around them changes nothing.
const MEAN_EXACT_MAX: f64 = 1000.0;
/// The share of ones among the bits of an end of an edge: b + d of Graph500.
const ONES: f64 = 0.24;

/// The distribution of in-degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Degrees {
    /// As in R-MAT with the parameters of Graph500: 24 % of the bits of a destination are ones, and the number of ones
    /// determines the mean degree of a node.
    Rmat,
    /// As in a uniformly random graph: Poisson.
    Even,
}

/// Nodes with the same mean degree, of in-edges as of out-edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DegreeClass {
    /// Number of nodes.
    pub nodes: f64,
    /// Mean degree. Degrees are Poisson numbers.
    pub mean: f64,
}

/// The classes of a graph.
pub(super) fn degree_classes(nodes: u64, edges: u64, degrees: Degrees) -> Vec<DegreeClass> {
    let (nodes, edges, scale) = (nodes as f64, edges as f64, nodes.max(1).ilog2());
    if degrees == Degrees::Even {
        let mean = edges / nodes.max(1.0);
        return vec![DegreeClass { nodes, mean }];
    }
    let mut ln_choose = 0.0;
    (0..=scale)
        .map(|ones| {
            // The probabilities that a node and that the end of an edge have this many ones among its bits.
            let share_of_nodes = (ln_choose - f64::from(scale) * 2f64.ln()).exp();
            let share_of_edges =
                (ln_choose + f64::from(ones) * ONES.ln() + f64::from(scale - ones) * (1.0 - ONES).ln()).exp();
            ln_choose += f64::from(scale - ones).ln() - f64::from(ones + 1).ln();
            DegreeClass { nodes: nodes * share_of_nodes, mean: edges / nodes * share_of_edges / share_of_nodes }
        })
        .collect()
}

/// The expected values of two functions of a Poisson number.
pub(super) fn expected(mean: f64, value: impl Fn(u64) -> (f64, f64)) -> (f64, f64) {
    if mean > MEAN_EXACT_MAX {
        return value(mean as u64);
    }
    // Ten standard deviations away, the probability is negligible.
    let spread = 10.0 * mean.sqrt() + 10.0;
    let degrees: RangeInclusive<u64> = 0..=(mean + spread) as u64;
    let (mut sum, mut ln_factorial) = ((0.0, 0.0), 0.0);
    for degree in degrees {
        if degree > 1 {
            ln_factorial += (degree as f64).ln();
        }
        // Without edges, all probability is on 0.
        let ln_power = if degree == 0 { 0.0 } else { degree as f64 * mean.ln() };
        let probability = (ln_power - mean - ln_factorial).exp();
        let (first, second) = value(degree);
        sum.0 += probability * first;
        sum.1 += probability * second;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_values_are_those_of_poisson_numbers() {
        for mean in [0.0, 0.3, 1.0, 16.0, 700.0, 1e6] {
            let (first, second) = expected(mean, |degree| (degree as f64, (degree as f64).powi(2)));
            assert!((first - mean).abs() <= 1e-6 * mean, "{first} of {mean}");
            let square = mean * mean + mean;
            assert!((second - square).abs() <= 2e-3 * square, "{second} of {square}");
        }
    }

    #[test]
    fn classes_have_all_nodes_and_all_edges() {
        for degrees in [Degrees::Rmat, Degrees::Even] {
            for (nodes, edges) in [(1 << 20, 1 << 24), (1 << 36, 1 << 40)] {
                let classes = degree_classes(nodes, edges, degrees);
                let sum = |value: fn(&DegreeClass) -> f64| classes.iter().map(value).sum::<f64>();
                assert!((sum(|class| class.nodes) / nodes as f64 - 1.0).abs() < 1e-9);
                assert!((sum(|class| class.nodes * class.mean) / edges as f64 - 1.0).abs() < 1e-9);
            }
        }
    }
}
