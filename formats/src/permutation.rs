//! The node permutation as a formula: a keyed bijection from dense ids to nodes that takes no space.
//!
//! It spreads neighboring dense ids over all chunks. It is a Feistel network over the smallest power of two that is at
//! least the size of the domain. A result outside the domain is permuted again until it is inside ("cycle walking";
//! Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The result is a bijection for any round function,
//! has an exact inverse, and works up to 2^40. It is a shuffle, not a cipher.
//!
//! Cost: about 15 instructions per round and value. Values are independent, so loops over many of them vectorize.

use crate::{NODES_MAX, random::SplitMix64};

/// Number of Feistel rounds. Four suffice for a pseudo-random permutation with good round functions (Luby and Rackoff
/// 1988). Our round function is cheap and domains can be tiny, so there are six.
const ROUNDS: usize = 6;
/// Numbers that are permuted at a time.
const WALK_BLOCK: usize = 512;

/// A keyed bijection of `0..size`. It permutes plain numbers, because it also shuffles things other than nodes.
///
/// ```
/// use grappa_formats::permutation::Feistel;
///
/// let permutation = Feistel::new(10, 42);
/// let node = permutation.forward(7);
/// assert!(node < 10);
/// assert_eq!(permutation.inverse(node), 7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feistel {
    size: u64,
    low_bits: u32,
    low_mask: u32,
    high_mask: u32,
    keys: [u32; ROUNDS],
}

impl Feistel {
    /// The permutation of `0..size` with this seed.
    ///
    /// # Panics
    /// If `size` is above 2^40.
    pub fn new(size: u64, seed: u64) -> Self {
        assert!(size <= NODES_MAX, "a permutation of {size} numbers");
        // Each half gets 1 to 20 bits.
        let bits = (64 - size.saturating_sub(1).leading_zeros()).max(2);
        let (low_bits, high_bits) = (bits / 2, bits - bits / 2);
        let mut random = SplitMix64::new(seed);
        let keys = std::array::from_fn(|_| (random.draw() >> 32) as u32);
        Self { size, low_bits, low_mask: (1 << low_bits) - 1, high_mask: (1 << high_bits) - 1, keys }
    }

    /// The size of the domain.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The result for `number`: of a dense id, its node.
    ///
    /// # Panics
    /// In debug builds, if `number` is not in the domain. In release builds, it may then never return.
    #[inline]
    pub fn forward(&self, number: u64) -> u64 {
        self.walk(number, |value| self.rounds(value))
    }

    /// The inverse of [`Feistel::forward`]: of a node, its dense id.
    #[inline]
    pub fn inverse(&self, number: u64) -> u64 {
        self.walk(number, |value| self.rounds_back(value))
    }

    /// Applies `rounds` to a number until it is in the domain.
    #[inline(always)]
    fn walk(&self, number: u64, rounds: impl Fn(u64) -> u64) -> u64 {
        debug_assert!(number < self.size);
        let mut value = rounds(number);
        while value >= self.size {
            value = rounds(value);
        }
        value
    }

    /// Replaces each number by its result. Faster than one call per number.
    pub fn forward_all(&self, numbers: &mut [u64]) {
        self.walk_all(numbers, |value| self.rounds(value));
    }

    /// The inverse of [`Feistel::forward_all`].
    pub fn inverse_all(&self, numbers: &mut [u64]) {
        self.walk_all(numbers, |value| self.rounds_back(value));
    }

    /// Replaces each number by `rounds` of it, again and again until it is in the domain. Values outside of it are
    /// gathered for the next step, so that no loop has a branch, and the loops over `rounds` vectorize.
    #[inline(always)]
    fn walk_all(&self, numbers: &mut [u64], rounds: impl Fn(u64) -> u64) {
        let (mut values, mut outside) = ([0; WALK_BLOCK], [0u16; WALK_BLOCK]);
        for block in numbers.chunks_mut(WALK_BLOCK) {
            block.iter_mut().for_each(|value| *value = rounds(*value));
            let mut left = 0;
            for (index, &value) in (0..).zip(&*block) {
                outside[left] = index;
                left += usize::from(value >= self.size);
            }
            while left > 0 {
                let values = &mut values[..left];
                for (value, &index) in values.iter_mut().zip(&outside) {
                    *value = block[usize::from(index)];
                }
                values.iter_mut().for_each(|value| *value = rounds(*value));
                left = 0;
                for (at, &value) in values.iter().enumerate() {
                    let index = outside[at];
                    block[usize::from(index)] = value;
                    outside[left] = index;
                    left += usize::from(value >= self.size);
                }
            }
        }
    }

    /// All rounds of the network.
    #[inline(always)]
    fn rounds(&self, value: u64) -> u64 {
        let (mut low, mut high) = (value as u32 & self.low_mask, (value >> self.low_bits) as u32);
        for pair in self.keys.chunks_exact(2) {
            high ^= round_hash(low, pair[0]) & self.high_mask;
            low ^= round_hash(high, pair[1]) & self.low_mask;
        }
        u64::from(high) << self.low_bits | u64::from(low)
    }

    /// All rounds backwards: the inverse of `rounds`.
    #[inline(always)]
    fn rounds_back(&self, value: u64) -> u64 {
        let (mut low, mut high) = (value as u32 & self.low_mask, (value >> self.low_bits) as u32);
        for pair in self.keys.chunks_exact(2).rev() {
            low ^= round_hash(high, pair[1]) & self.low_mask;
            high ^= round_hash(low, pair[0]) & self.high_mask;
        }
        u64::from(high) << self.low_bits | u64::from(low)
    }
}

/// The round function: a 32-bit multiply-xorshift hash. Its low bits depend on all bits of `half` and `key`.
#[inline(always)]
fn round_hash(half: u32, key: u32) -> u32 {
    let mut x = (half ^ key).wrapping_mul(0x9e37_79b1);
    x ^= x >> 15;
    x = x.wrapping_mul(0x85eb_ca77);
    x ^ x >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dense_id_has_its_own_node_and_comes_back() {
        for nodes in [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4096, 10_007] {
            let permutation = Feistel::new(nodes, 42);
            let mut seen = vec![false; nodes as usize];
            let mut all: Vec<u64> = (0..nodes).collect();
            permutation.forward_all(&mut all);
            for id in 0..nodes {
                let node = permutation.forward(id);
                assert!(!std::mem::replace(&mut seen[node as usize], true), "node {node} twice of {nodes}");
                assert_eq!(permutation.inverse(node), id);
                assert_eq!(all[id as usize], node);
            }
            permutation.inverse_all(&mut all);
            assert!(all.into_iter().eq(0..nodes), "{nodes} nodes");
        }
    }

    #[test]
    fn forty_bit_dense_ids_come_back() {
        for nodes in [NODES_MAX, NODES_MAX - 1, NODES_MAX / 2 + 1] {
            let permutation = Feistel::new(nodes, 7);
            for id in (0..nodes).step_by((nodes / 10_007) as usize) {
                assert_eq!(permutation.inverse(permutation.forward(id)), id);
            }
        }
    }

    /// Neighboring dense ids must spread evenly over chunks: each of 64 chunks gets its share of 16,384 consecutive
    /// ids. The statistic of a random assignment has mean 63 and standard deviation 11.
    #[test]
    fn consecutive_dense_ids_spread_over_chunks() {
        for (nodes, seed) in [(1 << 20, 1), (1_000_003, 2), (1 << 40, 3), (123_456_789, 4)] {
            let permutation = Feistel::new(nodes, seed);
            let mut count = [0f64; 64];
            for id in 0..16_384 {
                count[(u128::from(permutation.forward(id)) * 64 / u128::from(nodes)) as usize] += 1.0;
            }
            let chi_square: f64 = count.iter().map(|n| (n - 256.0).powi(2) / 256.0).sum();
            assert!(chi_square < 63.0 + 5.0 * 11.3, "{chi_square} for {nodes} nodes");
        }
    }

    #[test]
    fn the_seed_selects_the_permutation() {
        let (a, b) = (Feistel::new(1 << 20, 1), Feistel::new(1 << 20, 2));
        let same = (0..1 << 20).filter(|&id| a.forward(id) == b.forward(id)).count();
        assert!(same < 20, "{same} dense ids map alike");
    }
}
