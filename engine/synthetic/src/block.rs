//! The stochastic block model: nodes have classes, and edges prefer nodes of the same class.

use grappa_formats::random::scale;
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    patterns::{check_homophily, check_noise},
    poisson::{MEAN_MAX, Poisson},
    random::{Purpose, Source, Stream},
};

/// Number of levels of expected in-degree. The last level has one node in 2^19.
const LEVELS: u32 = 20;

/// A stochastic block model: nodes have classes, and prefer sources of their own class.
///
/// The class of label l is l mod `classes`. With probability `homophily`, the source of an in-edge has the class of the
/// destination; otherwise it has one of the other classes, all equally likely. All nodes of the class are equally likely.
/// Expected in-degrees are equal, or spread by `degree_growth`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockModel {
    /// Number of nodes.
    pub nodes: u64,
    /// Expected number of edges per node.
    pub edge_factor: f64,
    /// Number of classes.
    pub classes: u32,
    /// Probability that a source has its destination's class.
    pub homophily: f64,
    /// Ratio of the expected in-degrees of successive levels, at least 1 and below 2. One half of the nodes, chosen by the
    /// hash of their labels, are in the lowest level, a quarter in the next, an eighth in the one after that, and so on. 1
    /// makes all in-degrees equal. A ratio g above 1 gives in-degrees a power-law tail with exponent 1 + ln 2 / ln g; the
    /// square root of 2 gives exponent 3.
    pub degree_growth: f64,
    /// Standard deviation of a feature value around the mean of its class, in units of the standard deviation of the class
    /// means.
    pub noise: f64,
}

impl BlockModel {
    /// Ten classes, homophily 0.7, equal expected in-degrees, and features that a network can hardly classify without the
    /// edges (see [`super::Features`]).
    pub fn new(nodes: u64, edge_factor: f64) -> Self {
        Self { nodes, edge_factor, classes: 10, homophily: 0.7, degree_growth: 1.0, noise: 5.0 }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.classes == 0 || u64::from(self.classes) > self.nodes {
            return Err(Error::out_of_range(
                "the number of classes",
                format!("1 to {}, the number of nodes", self.nodes),
                self.classes,
            ));
        }
        check_homophily(self.homophily)?;
        if !(1.0..2.0).contains(&self.degree_growth) {
            return Err(Error::out_of_range("degree growth", "at least 1 and below 2", self.degree_growth));
        }
        check_noise(self.noise)?;
        let largest = self.means().into_iter().fold(0.0, f64::max);
        if largest > MEAN_MAX {
            return Err(Error::limit(
                format!("the largest adjacency lists would have {largest:.3e} edges"),
                format!("{MEAN_MAX:.3e}"),
                "choose a smaller edge factor or degree growth",
            ));
        }
        Ok(())
    }

    /// The expected in-degree at each level.
    fn means(&self) -> Vec<f64> {
        if self.degree_growth == 1.0 {
            return vec![self.edge_factor];
        }
        // Share of the nodes and relative in-degree of each level. The last level includes all that would follow.
        let mut levels = vec![(0.5, 1.0)];
        for level in 1..LEVELS {
            let (share, relative): (f64, f64) = levels[level as usize - 1];
            let share = if level + 1 < LEVELS { share / 2.0 } else { share };
            levels.push((share, relative * self.degree_growth));
        }
        let mean: f64 = levels.iter().map(|(share, relative)| share * relative).sum();
        levels.iter().map(|(_, relative)| self.edge_factor * relative / mean).collect()
    }
}

/// Draws the sources of a [`BlockModel`].
#[derive(Debug, Clone)]
pub(super) struct BlockSampler {
    nodes: u64,
    classes: u64,
    /// If 32 uniform bits are below this, the source has the same class.
    same_class: u64,
    /// In-degrees by level.
    pub(super) degrees: Vec<Poisson>,
    levels: Source,
}

impl BlockSampler {
    /// Random numbers per source: one for the class, one for the node of the class.
    pub(super) const NUMBERS_PER_EDGE: u64 = 2;

    pub(super) fn new(model: &BlockModel, seed: u64) -> Self {
        let same_class = if model.classes == 1 { 1.0 } else { model.homophily };
        Self {
            nodes: model.nodes,
            classes: u64::from(model.classes),
            same_class: (same_class * 2f64.powi(32)).round() as u64,
            degrees: model.means().into_iter().map(Poisson::new).collect(),
            levels: Source::new(seed, Purpose::DegreeLevel),
        }
    }

    pub(super) fn class(&self, label: u64) -> u32 {
        (label % self.classes) as u32
    }

    pub(super) fn degree(&self, label: u64) -> &Poisson {
        let level = self.levels.at(label).trailing_zeros() as usize;
        &self.degrees[level.min(self.degrees.len() - 1)]
    }

    pub(super) fn draw(&self, label: u64, degree: u64, stream: &mut Stream, out: &mut Vec<u64>) {
        let own = label % self.classes;
        // The first `larger` classes have one node more than the others.
        let (members, larger) = (self.nodes / self.classes, self.nodes % self.classes);
        out.extend((0..degree).map(|_| {
            let choice = stream.next_number();
            let class = if choice >> 32 < self.same_class {
                own
            } else {
                let other = ((choice & u64::from(u32::MAX)) * (self.classes - 1)) >> 32;
                other + u64::from(other >= own)
            };
            class + self.classes * scale(stream.next_number(), members + u64::from(class < larger))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_keep_the_mean_in_degree() {
        for growth in [1.0, 1.2, 2f64.sqrt(), 1.5] {
            let model = BlockModel { degree_growth: growth, ..BlockModel::new(1 << 20, 10.0) };
            let sampler = BlockSampler::new(&model, 5);
            let means = model.means();
            let sum: f64 = (0..model.nodes)
                .map(|label| means[(sampler.levels.at(label).trailing_zeros() as usize).min(means.len() - 1)])
                .sum();
            let error = (sum / model.nodes as f64 - 10.0).abs();
            assert!(error < 0.2, "growth {growth}: off by {error}");
        }
    }
}
