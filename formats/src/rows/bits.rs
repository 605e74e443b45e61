//! Reads and writes bits, and finds the k-th one in a word.
//!
//! Bit `b` of a payload is bit `b % 8` (counted from the least significant) of byte `b / 8`, so that eight bytes read
//! as a little-endian integer hold their bits in order. A read is one unaligned load and a shift. It never fails: bits
//! beyond the end are zero.

use std::ops::Range;

/// Zero bytes after the last bit of a payload of rows. With them, a load at any bit stays inside.
pub const PADDING_BYTES: usize = 8;

/// Minimum number of bits that a single load returns, at any position.
pub(super) const LOAD_BITS: u32 = 57;

/// Number of bits of `value`: 0 for 0, and the position of the highest one plus 1 for others.
#[inline(always)]
pub(super) fn bit_length(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// The number with the lowest `bits` bits set, for `bits < 64`.
#[inline(always)]
pub(super) fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The eight bytes at `at` as an integer; zero if they are not all inside.
#[inline(always)]
pub(super) fn load_word(bytes: &[u8], at: usize) -> u64 {
    // This is one comparison, because the compiler knows that the end does not overflow.
    match bytes.get(at..at.wrapping_add(8)) {
        Some(word) => u64::from_le_bytes(word.try_into().expect("eight bytes")),
        None => 0,
    }
}

/// The bits from `at` on, at least [`LOAD_BITS`] of them; zero if the eight bytes are not all inside.
#[inline(always)]
pub(super) fn load(bytes: &[u8], at: u64) -> u64 {
    load_word(bytes, (at >> 3) as usize) >> (at & 7)
}

/// The first number of a range for which `is_before` is false.
#[inline]
pub(super) fn partition_point(range: Range<u64>, is_before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Writes bits to a buffer that grows. Whole bytes can be taken out at any time.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    /// The first `len` bytes are finished; the rest is spare room.
    bytes: Vec<u8>,
    len: usize,
    /// Fewer than eight bits, to become the next byte.
    pending: u64,
    pending_bits: u32,
    taken_bytes: u64,
}

impl BitWriter {
    /// All bits written since the start.
    pub(super) fn bits(&self) -> u64 {
        (self.taken_bytes + self.len as u64) * 8 + u64::from(self.pending_bits)
    }

    /// Finished bytes that have not been taken.
    pub(super) fn finished_bytes(&self) -> usize {
        self.len
    }

    /// Takes the finished bytes.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        let room = self.bytes.len();
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; room]);
        bytes.truncate(self.len);
        self.taken_bytes += self.len as u64;
        self.len = 0;
        bytes
    }

    /// The bytes not yet taken, the unfinished one included, and the padding.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        if self.pending_bits > 0 {
            self.bytes.push(self.pending as u8);
        }
        self.bytes.extend_from_slice(&[0; PADDING_BYTES]);
        self.bytes
    }

    /// Appends what `put` writes: at most `bits_max` bits.
    #[inline(always)]
    pub(super) fn write(&mut self, bits_max: u64, put: impl FnOnce(&mut BitCursor<'_>)) {
        let end = self.len + (bits_max / 8) as usize + 16;
        if self.bytes.len() < end {
            self.bytes.resize(end.max(self.bytes.len() * 2), 0);
        }
        let mut cursor = BitCursor {
            room: &mut self.bytes[self.len..end],
            at: 0,
            pending: self.pending,
            pending_bits: self.pending_bits,
        };
        put(&mut cursor);
        let BitCursor { at, pending, pending_bits, .. } = cursor;
        self.len += at;
        (self.pending, self.pending_bits) = (pending, pending_bits);
    }
}

/// A write position whose state fits in registers.
pub(super) struct BitCursor<'a> {
    room: &'a mut [u8],
    at: usize,
    pending: u64,
    pending_bits: u32,
}

impl BitCursor<'_> {
    /// Writes the lowest `bits < 57` bits of `value`; those above must be zero.
    ///
    /// Every call stores eight bytes and keeps the bits of the last incomplete byte. It takes a fixed number of
    /// instructions and no branch.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits < LOAD_BITS && bit_length(value) <= bits);
        self.pending |= value << self.pending_bits;
        self.pending_bits += bits;
        if let Some(room) = self.room.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            *room = self.pending.to_le_bytes();
        } else {
            unreachable!("the cursor was made with room for all bits");
        }
        self.at += (self.pending_bits >> 3) as usize;
        self.pending >>= self.pending_bits & !7;
        self.pending_bits &= 7;
    }
}

/// The position of the `rank`-th one (from 0) of `word`, which must have more than `rank` ones.
///
/// Sums of ones per byte, multiplied into prefix sums, compared with the rank in all bytes at once, name the byte; a
/// table finishes there (Vigna, "Broadword Implementation of Rank/Select Queries", 2008). One `pdep` would do the same,
/// but calling it takes `unsafe`.
#[inline(always)]
pub(super) fn select_in_word(word: u64, rank: u32) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let sums = ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(ONES);
    let rank = u64::from(rank);
    // A byte keeps its high bit if the ones up to and including it are at most `rank`: then the wanted one is in a
    // later byte.
    let before = ((rank.wrapping_mul(ONES) | HIGHS).wrapping_sub(sums) & HIGHS).count_ones();
    let place = (before * 8) & 63;
    let rank_in_byte = rank.wrapping_sub(sums << 8 >> place & 0xff);
    let byte = word >> place & 0xff;
    place + u32::from(SELECT_IN_BYTE[(rank_in_byte << 8 & 0x700 | byte) as usize])
}

/// The position of the one number `i / 256` of the byte `i % 256`.
static SELECT_IN_BYTE: [u8; 2048] = {
    let mut table = [0; 2048];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut rank) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[rank << 8 | byte] = bit;
                rank += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn select_finds_every_one_of_a_word(word in any::<u64>(), thin in any::<u64>()) {
            for word in [word, word & thin, word | thin, u64::MAX, 1 << 63] {
                let mut rest = word;
                for rank in 0..word.count_ones() {
                    prop_assert_eq!(select_in_word(word, rank), rest.trailing_zeros());
                    rest &= rest - 1;
                }
            }
        }

        #[test]
        fn values_read_back_as_written(values in prop::collection::vec((any::<u64>(), 0..LOAD_BITS), 0..200)) {
            let mut writer = BitWriter::default();
            let mut bytes = Vec::new();
            for &(value, bits) in &values {
                writer.write(u64::from(bits), |cursor| cursor.put(value & mask(bits), bits));
                if value % 5 == 0 {
                    bytes.extend(writer.take_bytes());
                }
            }
            let total: u64 = values.iter().map(|v| u64::from(v.1)).sum();
            prop_assert_eq!(writer.bits(), total);
            bytes.extend(writer.finish());
            prop_assert_eq!(bytes.len(), total.div_ceil(8) as usize + PADDING_BYTES);
            let mut at = 0;
            for (value, bits) in values {
                prop_assert_eq!(load(&bytes, at) & mask(bits), value & mask(bits));
                at += u64::from(bits);
            }
            prop_assert_eq!(load(&bytes, at), 0);
            prop_assert_eq!(load(&bytes, u64::MAX), 0);
        }
    }
}
