//! Random numbers that are a function of (seed, purpose, index), whoever asks for them and in which order.
//!
//! A [`Source`] is what a seed means for one purpose; [`Source::stream`] is the endless sequence that belongs to one
//! index in it, and [`Source::at`] a single number. The sequence is SplitMix64 with a gamma of its own (Steele, Lea and
//! Flood, "Fast Splittable Pseudorandom Number Generators", 2014, sections 3 to 5): number `i` is
//! `mix(state + (i + 1) * gamma)`, so two streams that happen to meet part again at once. All of it is integer
//! arithmetic: the numbers are the same on every machine, and graphs on disk depend on their never changing.

use grappa_formats::random::{GOLDEN, draw_at, hash, mix};

/// What numbers are for. Each purpose has numbers of its own, so that adding features does not change the edges. The
/// values are part of the format of generated graphs.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// In-degree and sources of a row; indexed by label.
    Row = 1,
    /// Into which split a node falls; indexed by label.
    Split = 2,
    /// Noise of features; indexed by label.
    Feature = 3,
    /// Mean features of classes; indexed by class.
    ClassMean = 4,
    /// Which nodes have many in-edges; indexed by label.
    DegreeLevel = 5,
    /// Which chunks are grouped into partitions; indexed by super-epoch.
    Grouping = 6,
    /// The random projection that embeddings of a graph start from; indexed by external id.
    Projection = 7,
}

/// The numbers a seed has for one purpose.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    base: u64,
}

impl Source {
    /// The numbers of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self {
            base: mix(hash(seed) ^ purpose as u64),
        }
    }

    /// The number at `index`: uniform over all u64, and different for different indices.
    #[inline]
    pub fn at(self, index: u64) -> u64 {
        draw_at(self.base, index)
    }

    /// The sequence at `index`.
    #[inline]
    pub fn stream(self, index: u64) -> Stream {
        let state = self.at(index);
        Stream {
            state,
            gamma: mix_gamma(state.wrapping_add(GOLDEN)),
        }
    }
}

/// An endless sequence of uniform numbers.
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

    /// Leaves out the next `count` numbers.
    pub fn skip(&mut self, count: u64) {
        self.state = self.state.wrapping_add(self.gamma.wrapping_mul(count));
    }

    /// Number `i` of the sequence, without walking there.
    #[inline]
    pub fn nth(&self, i: u64) -> u64 {
        mix(self.state.wrapping_add(self.gamma.wrapping_mul(i + 1)))
    }
}

/// An odd number with many changes between neighbouring bits, from any number (`mixGamma` of the paper).
#[inline(always)]
fn mix_gamma(mut z: u64) -> u64 {
    z = (z ^ z >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    z = (z ^ z >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    z = (z ^ z >> 33) | 1;
    if (z ^ z >> 1).count_ones() < 24 {
        z ^ 0xaaaa_aaaa_aaaa_aaaa
    } else {
        z
    }
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
    fn bits_of_neighbouring_streams_are_fair_and_independent() {
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
            assert!(
                (ones as f64 - n as f64 / 2.0).abs() < 2.5 * (n as f64).sqrt(),
                "bit {bit}: {ones} of {n}"
            );
        }
    }
}
