//! Select: finds the k-th one among some hundred bits, for several k at a time.

use std::hint::select_unpredictable;

use super::bits::{load_word, mask, select_in_word};

/// Four lanes of 16 bits: a one in each, and the highest bit of each.
const LANES: u64 = 0x0001_0001_0001_0001;
const HIGHS: u64 = 0x8000_8000_8000_8000;

/// Counts of ones up to each word of some bits. One number holds the counts of four words.
///
/// No branch depends on the counts, because a processor could not predict it. So lookups overlap: while one waits for
/// memory or multiplies, the next ones continue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ones<'a, const FOURS: usize> {
    /// Start of the first word in the payload.
    byte: usize,
    words: &'a [[u8; 32]; FOURS],
    /// For each four words, the number of ones up to and including each word, in lanes of 16 bits.
    sums: [u64; FOURS],
}

impl<'a, const FOURS: usize> Ones<'a, FOURS> {
    /// Number of bytes that are read.
    pub(super) const BYTES: u64 = 32 * FOURS as u64;
    /// Number of bits from any bit of the first byte on that these bytes contain.
    pub(super) const BITS: u64 = 8 * Self::BYTES - 7;

    /// The ones from the byte of bit `at` on. None if fewer than [`Self::BYTES`] bytes follow in the payload.
    #[inline(always)]
    pub(super) fn at(payload: &'a [u8], at: u64) -> Option<Self> {
        let byte = (at >> 3) as usize;
        let words = payload.get(byte..byte + Self::BYTES as usize)?.as_chunks().0.first_chunk()?;
        let sums = words.map(|four: [u8; 32]| {
            (ones_of(&four, 0) | ones_of(&four, 1) << 16 | ones_of(&four, 2) << 32 | ones_of(&four, 3) << 48)
                .wrapping_mul(LANES)
        });
        Some(Self { byte, words, sums })
    }

    /// Total number of ones.
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        self.sums.iter().map(|sums| sums >> 48).sum()
    }

    /// Ones before bit `at`, which is in the first byte.
    #[inline(always)]
    pub(super) fn before(&self, at: u64) -> u64 {
        (u64::from(self.words[0][0]) & mask((at & 7) as u32)).count_ones().into()
    }

    /// Ones from bit `at` on, which is in the last byte or follows it.
    #[inline(always)]
    pub(super) fn after(&self, at: u64) -> u64 {
        let before = at - 8 * (self.byte as u64 + Self::BYTES - 1);
        (u64::from(self.words[FOURS - 1][31]) >> before).count_ones().into()
    }

    /// The one with number `rank`. None if there are at most `rank` ones.
    #[inline(always)]
    pub(super) fn find(&self, mut rank: u64) -> Option<One> {
        let (mut sums, mut byte) = (self.sums[0], self.byte);
        for &next in &self.sums[1..] {
            let count = sums >> 48;
            let is_further = rank >= count;
            rank = rank.wrapping_sub(select_unpredictable(is_further, count, 0));
            sums = select_unpredictable(is_further, next, sums);
            byte += select_unpredictable(is_further, 32, 0);
        }
        if rank >= sums >> 48 {
            return None;
        }
        // A lane keeps its high bit if the ones up to and including its word are at most `rank`: then the wanted one is
        // in a later word.
        let further = ((rank * LANES) | HIGHS) - sums;
        let words = (further & HIGHS).count_ones();
        let before = sums << 16 >> (16 * words) & 0xffff;
        Some(One { byte: byte + 8 * words as usize, rank: (rank - before) as u32 })
    }
}

/// Number of ones of a word of some bytes.
#[inline(always)]
fn ones_of(bytes: &[u8; 32], word: usize) -> u64 {
    load_word(bytes, 8 * word).count_ones().into()
}

/// A one of a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct One {
    /// Start of the word in the payload.
    byte: usize,
    /// Number of the one within the word.
    rank: u32,
}

impl One {
    /// Its bit position in the payload.
    #[inline(always)]
    pub(super) fn bit(self, payload: &[u8]) -> u64 {
        8 * self.byte as u64 + u64::from(select_in_word(load_word(payload, self.byte), self.rank))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits of `payload` that are ones, from byte `byte` on, of `bytes` bytes.
    fn naive(payload: &[u8], byte: usize, bytes: usize) -> Vec<u64> {
        let bits = 8 * byte as u64..8 * (byte + bytes) as u64;
        bits.filter(|&bit| payload[bit as usize / 8] >> (bit % 8) & 1 == 1).collect()
    }

    fn finds_every_one<const FOURS: usize>(payload: &[u8], at: u64) {
        let (byte, bytes) = ((at / 8) as usize, Ones::<FOURS>::BYTES as usize);
        let Some(ones) = Ones::<FOURS>::at(payload, at) else {
            assert!(byte + bytes > payload.len());
            return;
        };
        let expected = naive(payload, byte, bytes);
        assert_eq!(ones.count(), expected.len() as u64);
        for (rank, &bit) in (0..).zip(&expected) {
            assert_eq!(ones.find(rank).unwrap().bit(payload), bit);
        }
        for beyond in [expected.len() as u64, expected.len() as u64 + 1, 1 << 20, u64::MAX] {
            assert!(ones.find(beyond).is_none(), "{beyond}");
        }
        assert_eq!(ones.before(at), expected.iter().filter(|&&bit| bit < at).count() as u64);
        let end = at + Ones::<FOURS>::BITS;
        assert_eq!(ones.after(end), expected.iter().filter(|&&bit| bit >= end).count() as u64);
    }

    proptest! {
        #[test]
        fn every_one_is_found(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            thin in prop::collection::vec(any::<u8>(), 200),
            at in 0..1600u64,
        ) {
            let thinned: Vec<u8> = payload.iter().zip(&thin).map(|(a, b)| a & b).collect();
            for payload in [payload.clone(), thinned, vec![0xff; payload.len()], vec![0; payload.len()]] {
                finds_every_one::<1>(&payload, at);
                finds_every_one::<2>(&payload, at);
            }
        }
    }
}
