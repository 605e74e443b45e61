//! The search for the key of a given rank, by histograms: one step of a radix selection per round.

/// The search for the key below which a number of keys of a class lie.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// It is in a range of keys.
    Within {
        /// The first key of the range.
        low: u64,
        /// The range has 2^bits keys.
        bits: u32,
        /// Number of keys of the range below the cut.
        rank: u64,
    },
    /// It is this one. 2^64 is above all keys.
    At(u128),
}

impl Cut {
    /// The cut above `rank` keys.
    pub fn above(rank: u64) -> Self {
        Self::Within { low: 0, bits: u64::BITS, rank }
    }

    /// The count of a histogram of 2^`round_bits` counts that `key` adds to, if it is in the range.
    pub fn digit(&self, key: u64, round_bits: u32) -> Option<usize> {
        let Self::Within { low, bits, .. } = *self else {
            return None;
        };
        let offset = u128::from(key.checked_sub(low)?);
        (offset >> bits == 0).then(|| (offset >> bits.saturating_sub(round_bits)) as usize)
    }

    /// Continues with the part of the range that the histogram shows.
    pub fn narrow(&mut self, histogram: &[u64]) {
        let Self::Within { low, bits, rank } = *self else {
            return;
        };
        let part_bits = bits.saturating_sub(histogram.len().ilog2());
        let start = |part: usize| u128::from(low) + ((part as u128) << part_bits);
        let mut below = 0;
        for (part, &count) in histogram.iter().enumerate() {
            if below == rank {
                *self = Self::At(start(part));
                return;
            }
            if below + count > rank {
                *self = Self::Within { low: start(part) as u64, bits: part_bits, rank: rank - below };
                return;
            }
            below += count;
        }
        *self = Self::At(start(1 << (bits - part_bits)));
    }

    /// Whether a key is on the upper side.
    pub fn is_at_most(&self, key: u64) -> bool {
        match *self {
            Self::At(cut) => cut <= u128::from(key),
            Self::Within { .. } => unreachable!("the cut is known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use grappa_formats::random::draw_at;

    use super::*;

    fn search(keys: &[u64], rank: u64, round_bits: u32) -> Cut {
        let mut cut = Cut::above(rank);
        while matches!(cut, Cut::Within { .. }) {
            let mut histogram = vec![0; 1 << round_bits];
            for &key in keys {
                if let Some(digit) = cut.digit(key, round_bits) {
                    histogram[digit] += 1;
                }
            }
            cut.narrow(&histogram);
        }
        cut
    }

    #[test]
    fn a_cut_is_above_as_many_keys_as_its_rank() {
        let random: Vec<u64> = (0..100).map(|i| draw_at(7, i)).collect();
        // Keys that share all high bits, and the smallest and largest ones.
        let close: Vec<u64> = (0..100).map(|i| u64::MAX - i).chain([0, 1, 2]).collect();
        for keys in [random, close, vec![], vec![u64::MAX]] {
            for rank in 0..=keys.len() as u64 {
                for round_bits in [1, 3, 7, 16] {
                    let cut = search(&keys, rank, round_bits);
                    let below = keys.iter().filter(|&&key| !cut.is_at_most(key)).count() as u64;
                    assert_eq!(below, rank, "of {} keys, {round_bits} bits a round", keys.len());
                }
            }
        }
    }
}
