//! Edges that are held out of the graph for validation and test.
//!
//! The part of an edge is a function of the seed and its ends, in either order. So parallel edges and the reverse of an edge are in
//! its part, and no table of edges is needed: not for random access, nor to continue a killed run. Each pair of nodes is drawn on
//! its own, so the shares are exact on average: of E pairs, a part with share p has about sqrt(p E) more or fewer.

use grappa_formats::{EdgePart, random};
use grappa_io::{Error, Result};

use crate::ingest::shares::Shares;

/// Separates the draws from others with the same seed.
const PURPOSE: u64 = u64::from_be_bytes(*b"edges\0\0\0");

/// How to hold edges out of the graph at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeSplit {
    shares: Shares,
    seed: u64,
    /// The parts end at these draws: train, val.
    ends: [u64; 2],
}

impl EdgeSplit {
    /// Holds these shares of the edges out for `val` and `test`.
    ///
    /// # Errors
    /// If the shares do not add up to 100 percent, or nothing is held out.
    pub fn new(shares: Shares, seed: u64) -> Result<Self> {
        let [train, val, test] = shares.of(u64::MAX);
        if !shares.are_whole() {
            return Err(Error::conflict(
                format!(
                    "the shares {shares} of the edges add up to less than 100 percent, so some edges would be in no part"
                ),
                "raise the first share: edges of the graph are all that are not held out",
            ));
        }
        if val + test == 0 {
            return Err(Error::conflict(
                format!("the shares {shares} hold no edges out"),
                "omit --edge-split, or give 80/10/10, for example",
            ));
        }
        Ok(Self {
            shares,
            seed,
            ends: [train, train + val],
        })
    }

    /// The parts that edges are held out for.
    pub fn held_out(&self) -> Vec<EdgePart> {
        let [_, val, test] = self.shares.fractions();
        let parts = EdgePart::HELD_OUT.into_iter().zip([val, test]);
        parts.filter(|&(_, share)| share > 0.0).map(|(part, _)| part).collect()
    }

    /// The split as the manifest's `writer` records it.
    pub fn describe(&self) -> String {
        format!("{}, seed {}", self.shares, self.seed)
    }

    /// The part of the edges between two nodes.
    pub fn part_of(&self, source: u64, target: u64) -> EdgePart {
        let ends = [source.min(target), source.max(target)];
        let draw = ends
            .into_iter()
            .fold(random::combine(PURPOSE, self.seed), random::combine);
        let [train, val] = self.ends;
        let has_test = val < u64::MAX;
        match draw {
            draw if draw < train => EdgePart::Graph,
            draw if draw < val || !has_test => EdgePart::Val,
            _ => EdgePart::Test,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(shares: &str) -> EdgeSplit {
        EdgeSplit::new(shares.parse().unwrap(), 7).unwrap()
    }

    #[test]
    fn both_directions_are_in_a_part_and_parts_have_their_shares() {
        for (shares, expected) in [
            ("80/10/10", [80_000, 10_000, 10_000]),
            ("90/10/0", [90_000, 10_000, 0]),
            ("95/0/5", [95_000, 0, 5_000]),
        ] {
            let split = split(shares);
            let mut counts = [0i64; 3];
            for pair in 0..100_000 {
                let (source, target) = (pair % 1000, pair / 1000 + (1 << 39));
                let part = split.part_of(source, target);
                assert_eq!(part, split.part_of(target, source));
                counts[part as usize] += 1;
            }
            for (count, expected) in counts.into_iter().zip(expected) {
                let deviation = 5.0 * f64::sqrt(expected as f64);
                assert!((count - expected).abs() as f64 <= deviation, "{shares}: {counts:?}");
            }
        }
    }

    #[test]
    fn shares_that_lose_edges_or_hold_none_out_are_refused() {
        let refusal = |text: &str| EdgeSplit::new(text.parse().unwrap(), 0).unwrap_err().to_string();
        assert!(refusal("80/10/5").contains("add up to less than 100 percent"));
        assert!(refusal("100/0/0").contains("hold no edges out"));
    }
}
