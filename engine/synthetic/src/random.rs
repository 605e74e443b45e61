//! Random numbers as a function of (seed, purpose, index), independent of the order of calls.
//!
//! A [`Source`] has the numbers of a seed for one purpose. [`Source::at`] gives one number per index, and [`Source::stream`]
//! an endless sequence per index. The sequence is SplitMix64 with a gamma of its own (Steele, Lea and Flood, "Fast Splittable
//! Pseudorandom Number Generators", 2014, sections 3 to 5): number `i` is `mix(state + (i + 1) * gamma)`. Two streams that
//! have a number in common differ again in the next, because their gammas differ. All arithmetic is on integers, so the
//! numbers are the same on every machine. They must never change, because graphs on disk depend on them.

use grappa_formats::random::{GOLDEN, draw_at, hash, mix};

/// The use of random numbers. Each purpose has its own numbers, so that adding features does not change the edges. The values
/// are part of the format of generated graphs.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// In-degree and sources of a node, by label.
    Row = 1,
    /// Split of a node, by label.
    Split = 2,
    /// Noise of features, by label.
    Feature = 3,
    /// Mean features of classes, by class.
    ClassMean = 4,
    /// Level of expected in-degree, by label.
    DegreeLevel = 5,
    /// Groups of chunks for partitions, by super-epoch.
    Grouping = 6,
    /// Initial random projection of FastRP, by external id.
    Projection = 7,
    /// Classes of R-MAT's patterns; index 0 only.
    Pattern = 8,
    /// Seed of a node type of a graph, by its number.
    NodeType = 9,
    /// Seed of a relation of a graph, by its number.
    RelationSeed = 10,
    /// Seed of the permutation that joins the ends of a relation's edges; index 0 only.
    Relation = 11,
}

/// The random numbers of a seed for one purpose.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    base: u64,
}

impl Source {
    /// The numbers of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self { base: mix(hash(seed) ^ purpose as u64) }
    }

    /// The number of `index`: uniform over all `u64`, and different for different indices.
    #[inline]
    pub fn at(self, index: u64) -> u64 {
        draw_at(self.base, index)
    }

    /// The sequence of `index`.
    #[inline]
    pub fn stream(self, index: u64) -> Stream {
        let state = self.at(index);
        Stream { state, gamma: mix_gamma(state.wrapping_add(GOLDEN)) }
    }
}

/// A sequence of 2^64 uniform numbers.
#[derive(Debug, Clone)]
pub struct Stream {
    state: u64,
    gamma: u64,
}

impl Stream {
    /// The next number.
    #[inline]
    pub fn next_number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(self.gamma);
        mix(self.state)
    }

    /// Skips `count` numbers, in constant time.
    pub fn skip(&mut self, count: u64) {
        self.state = self.state.wrapping_add(self.gamma.wrapping_mul(count));
    }

    /// Number `i` from the current position, in constant time.
    #[inline]
    pub fn nth(&self, i: u64) -> u64 {
        mix(self.state.wrapping_add(self.gamma.wrapping_mul(i + 1)))
    }
}

/// Maps any number to a gamma: an odd number whose neighboring bits differ often (`mixGamma` of the paper).
#[inline(always)]
fn mix_gamma(mut z: u64) -> u64 {
    z = (z ^ z >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    z = (z ^ z >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    z = (z ^ z >> 33) | 1;
    if (z ^ z >> 1).count_ones() < 24 { z ^ 0xaaaa_aaaa_aaaa_aaaa } else { z }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_change() {
        // From another implementation of the description above. Changing them changes every generated graph.
        let mut stream = Source::new(42, Purpose::Row).stream(7);
        let expected = [0xf279_1439_432b_3757, 0xc490_a6e9_affe_15df, 0x62c0_41b8_d043_c1c2];
        assert_eq!(stream.nth(2), expected[2]);
        assert_eq!([(); 3].map(|()| stream.next_number()), expected);
        assert_eq!(Source::new(42, Purpose::Split).at(7), 0x794f_5340_c6a9_8e82);
    }

    #[test]
    fn bits_of_neighboring_streams_are_fair_and_independent() {
        // 2^16 streams, the first word of each: every bit is one half of the time, and so is the exclusive or of every
        // bit with the same bit of the next stream and of the next word. 5 sigma of a fair coin over n throws is 2.5 sqrt(n).
        let source = Source::new(0, Purpose::Row);
        let n = 1u64 << 16;
        let mut ones = [[0u64; 64]; 3];
        for i in 0..n {
            let (this, next) = (source.stream(i), source.stream(i + 1));
            let words = [this.nth(0), this.nth(0) ^ next.nth(0), this.nth(0) ^ this.nth(1)];
            for (ones, word) in ones.iter_mut().zip(words) {
                for (bit, ones) in ones.iter_mut().enumerate() {
                    *ones += word >> bit & 1;
                }
            }
        }
        for (bit, &ones) in ones.iter().flatten().enumerate() {
            assert!((ones as f64 - n as f64 / 2.0).abs() < 2.5 * (n as f64).sqrt(), "bit {bit}: {ones} of {n}");
        }
    }
}
