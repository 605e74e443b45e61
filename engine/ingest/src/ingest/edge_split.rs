//! Edges that are held out of the graph for validation and test.
//!
//! At random, the part of an edge is a function of the seed and its ends, in either order. So parallel edges and the reverse of an edge
//! are in its part, and no table of edges is needed: not for random access, nor to continue a killed run. Each pair of nodes is drawn on
//! its own, so the shares are exact on average: of E pairs, a part with share p has about sqrt(p E) more or fewer.
//!
//! If the part depends on the file of an edge or on a value of it, such as its time, the low bits of its key have the part. So an edge of
//! the graph that is also held out lies beside it after the sort, and is dropped.

use grappa_formats::{EdgePart, random};
use grappa_input::Input;
use grappa_io::{Error, Result, text::printable};

use crate::ingest::shares::Shares;

/// Separates the draws from others with the same seed.
const PURPOSE: u64 = u64::from_be_bytes(*b"edges\0\0\0");
/// Low bits of a source that say the part of its edge.
const PART_BITS: u32 = 2;

/// Which edges are held out of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeSplit {
    /// Edges that are drawn at random.
    Random(RandomEdges),
    /// The edges of files. The graph does not have them, even if its own files do.
    Files {
        /// Files, or folders of them, with the edges for validation.
        val: Vec<Input>,
        /// The same for test.
        test: Vec<Input>,
    },
    /// The edges with the largest values in a column: the last ones, if it has times. They may be weights or edge features, too.
    Column {
        /// The shares of train, val and test.
        shares: Shares,
        /// The column as the user calls it.
        name: String,
    },
}

/// Edges that are drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomEdges {
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
    pub fn random(shares: Shares, seed: u64) -> Result<Self> {
        let ends = ends_of(shares)?;
        Ok(Self::Random(RandomEdges { shares, seed, ends }))
    }

    /// As [`Self::random`], in the order of the values of a column.
    ///
    /// # Errors
    /// As [`Self::random`].
    pub fn by_column(shares: Shares, name: String) -> Result<Self> {
        ends_of(shares)?;
        Ok(Self::Column { shares, name })
    }

    /// The parts that edges are held out for.
    pub fn held_out(&self) -> Vec<EdgePart> {
        let has = match self {
            Self::Random(RandomEdges { shares, .. }) | Self::Column { shares, .. } => {
                let [_, val, test] = shares.fractions();
                [val > 0.0, test > 0.0]
            }
            Self::Files { val, test } => [!val.is_empty(), !test.is_empty()],
        };
        let parts = EdgePart::HELD_OUT.into_iter().zip(has);
        parts.filter(|&(_, has)| has).map(|(part, _)| part).collect()
    }

    /// The split as the manifest's `writer` records it. None for files.
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Random(RandomEdges { shares, seed, .. }) => Some(format!("{shares}, seed {seed}")),
            Self::Column { shares, name } => Some(format!("{shares} by {}", printable(name))),
            Self::Files { .. } => None,
        }
    }

    /// The files of each part that is held out.
    pub fn files(&self) -> [(EdgePart, &[Input]); 2] {
        match self {
            Self::Random(_) | Self::Column { .. } => [(EdgePart::Val, &[]), (EdgePart::Test, &[])],
            Self::Files { val, test } => [(EdgePart::Val, val), (EdgePart::Test, test)],
        }
    }
}

/// Where the parts of these shares end among all draws: train, val.
fn ends_of(shares: Shares) -> Result<[u64; 2]> {
    let [train, val, test] = shares.divide(u64::MAX);
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
    Ok([train, train + val])
}

impl RandomEdges {
    /// The part of the edges between two nodes.
    pub fn part_of(&self, source: u64, target: u64) -> EdgePart {
        let ends = [source.min(target), source.max(target)];
        let draw = ends.into_iter().fold(random::combine(PURPOSE, self.seed), random::combine);
        let [train, val] = self.ends;
        let has_test = val < u64::MAX;
        match draw {
            draw if draw < train => EdgePart::Graph,
            draw if draw < val || !has_test => EdgePart::Val,
            _ => EdgePart::Test,
        }
    }
}

/// How the part of an edge follows from the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyParts {
    /// From its file: first come the files of the graph, then those for validation, then those for test.
    Files {
        /// The first file for validation, and for test.
        starts: [u64; 2],
    },
    /// From its place in the order of a column. The part comes behind the values of the edge, as one more value.
    Order {
        /// The first place of validation, and of test.
        starts: [f64; 2],
    },
}

impl KeyParts {
    /// Bits that [`Self::join`] adds to a source.
    pub fn bits(parts: Option<Self>) -> u32 {
        parts.map_or(0, |_| PART_BITS)
    }

    /// Whether the part follows from the file of an edge.
    pub fn is_of_files(parts: Option<Self>) -> bool {
        matches!(parts, Some(Self::Files { .. }))
    }

    /// The number of values that follow the values of an edge: its part, until the key of the edge has the part.
    pub fn extra_values(parts: Option<Self>) -> usize {
        usize::from(matches!(parts, Some(Self::Order { .. })))
    }

    /// Puts the part of each edge, which has these places in the order, behind its `width` values.
    pub fn append(parts: Option<Self>, width: usize, order: &[f64], values: &mut Vec<f32>) {
        let Some(Self::Order { starts }) = parts else { return };
        let part = |place: f64| starts.into_iter().filter(|&start| place >= start).count() as f32;
        values.resize(order.len() * (width + 1), 0.0);
        for (edge, &place) in order.iter().enumerate().rev() {
            values.copy_within(edge * width..(edge + 1) * width, edge * (width + 1));
            values[edge * (width + 1) + width] = part(place);
        }
    }

    /// A source with the part of its edge, which comes from this file and has these values.
    #[inline]
    pub fn join(self, source: u64, file: u64, values: &[f32]) -> u64 {
        let part = match self {
            Self::Files { starts } => starts.into_iter().filter(|&start| file >= start).count() as u64,
            Self::Order { .. } => values[values.len() - 1] as u64,
        };
        source << PART_BITS | part
    }

    /// The source and the part that were joined.
    #[inline]
    pub fn divide(joined: u64) -> (u64, EdgePart) {
        (joined >> PART_BITS, EdgePart::ALL[(joined & ((1 << PART_BITS) - 1)) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(shares: &str) -> RandomEdges {
        match EdgeSplit::random(shares.parse().unwrap(), 7).unwrap() {
            EdgeSplit::Random(random) => random,
            _ => unreachable!("it is random"),
        }
    }

    #[test]
    fn both_directions_are_in_a_part_and_parts_have_their_shares() {
        for (shares, expected) in
            [("80/10/10", [80_000, 10_000, 10_000]), ("90/10/0", [90_000, 10_000, 0]), ("95/0/5", [95_000, 0, 5_000])]
        {
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
        let refusal = |text: &str| EdgeSplit::random(text.parse().unwrap(), 0).unwrap_err().to_string();
        assert!(refusal("80/10/5").contains("add up to less than 100 percent"));
        assert!(refusal("100/0/0").contains("hold no edges out"));
    }
}
