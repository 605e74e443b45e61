//! Rows in Elias-Fano code over the universe of all nodes.
//!
//! A source `x` is cut into its low `l` bits, which are stored as they are, and the rest `h = x >> l`, stored in unary:
//! source number `i` sets bit `h + i` of the upper bits. (Elias, "Efficient Storage and Retrieval by Content and
//! Address of Static Files", 1974; Fano, 1971.) `l` follows from the degree and the universe, so the size of a row does
//! too.
//!
//! Size: within 0.6 bits an edge of the information bound for a uniformly random row. Reading one source scans the
//! upper bits, 64 per instruction, from the nearest hint (one every 256 sources), and loads the low bits: about 150
//! instructions and 10 to 14 ns on a processor of 4 GHz, if all is in its cache.

use std::hint::select_unpredictable;

use super::{
    bits::{BitWriter, LOAD_BITS, bit_length, load, load_word, mask, partition_point, select_in_word},
    ones::{One, Ones},
};

/// Number of sources per hint.
pub(super) const HINT_EVERY: u64 = 256;

/// Bytes that one lookup reads at once.
const WORD_BYTES: u64 = 8;

/// Bits that one write puts at once.
const WORD_BITS: u64 = LOAD_BITS as u64 - 1;

/// Layout of a row: a function of its degree and the largest possible source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Length of the upper bits; 0 if sources are stored whole.
    upper_bits: u64,
    /// Low bits per source.
    low_bits: u8,
    /// Bits of a hint: the upper position of source 256, 512, ...
    hint_bits: u8,
}

impl Shape {
    /// The layout of a row of `degree` sources of at most `source_max`.
    #[inline(always)]
    pub(super) fn for_degree(degree: u64, source_max: u64) -> Self {
        let whole_bits = bit_length(source_max);
        // Let u = source_max >> l. With one more low bit, the unary part loses ceil(u / 2) zeros, and each source grows
        // by a bit. So the best l is the smallest with u <= 2 * degree - 2. (A tie goes to the shorter unary part.)
        let zeros_max = (2 * degree).saturating_sub(2);
        let mut low_bits = whole_bits.saturating_sub(bit_length(zeros_max));
        low_bits += u32::from(source_max >> low_bits > zeros_max);
        let upper_bits = degree + (source_max >> low_bits);
        let size = degree * u64::from(low_bits) + upper_bits;
        if whole_bits > 0 && degree * u64::from(whole_bits) <= size {
            return Self { upper_bits: 0, low_bits: whole_bits as u8, hint_bits: 0 };
        }
        Self {
            upper_bits,
            low_bits: low_bits as u8,
            hint_bits: select_unpredictable(degree > HINT_EVERY, bit_length(upper_bits.wrapping_sub(1)) as u8, 0),
        }
    }

    /// The layout of a row whose sources are stored whole, in any order.
    #[inline(always)]
    pub(super) fn whole(source_max: u64) -> Self {
        Self { upper_bits: 0, low_bits: bit_length(source_max).max(1) as u8, hint_bits: 0 }
    }

    /// The size of the hints of a row in bits.
    #[inline(always)]
    fn all_hint_bits(self, degree: u64) -> u64 {
        hints(degree) * u64::from(self.hint_bits)
    }

    /// Size of the part that a lookup of any source reads first: the hints of a row, or its upper bits if it has no
    /// hints.
    #[inline(always)]
    pub(super) fn head_bits(self, degree: u64) -> u64 {
        select_unpredictable(self.hint_bits > 0, self.all_hint_bits(degree), self.upper_bits)
    }

    /// The size of a row in bits.
    #[inline(always)]
    pub(super) fn row_bits(self, degree: u64) -> u64 {
        self.all_hint_bits(degree) + self.upper_bits + degree * u64::from(self.low_bits)
    }
}

/// Number of hints of a row whose sources are not stored whole.
#[inline(always)]
fn hints(degree: u64) -> u64 {
    degree.saturating_sub(1) / HINT_EVERY
}

/// Appends a row in the layout `shape`. Unless it stores them whole, `sources` ascend.
pub(super) fn encode(writer: &mut BitWriter, sources: &[u64], shape: Shape) {
    let degree = sources.len() as u64;
    let (low_bits, hint_bits) = (u32::from(shape.low_bits), u32::from(shape.hint_bits));
    writer.write(shape.row_bits(degree), |cursor| {
        if shape.upper_bits > 0 {
            let every = HINT_EVERY as usize;
            for (i, &source) in sources.iter().enumerate().skip(every).step_by(every) {
                cursor.put((source >> low_bits) + i as u64, hint_bits);
            }
            // Upper bits are collected in a word. It is written when the next bit lies beyond it.
            let (mut word, mut base) = (0, 0);
            for (i, &source) in (0..).zip(sources) {
                let position = (source >> low_bits) + i;
                while position - base >= WORD_BITS {
                    cursor.put(word, WORD_BITS as u32);
                    (word, base) = (0, base + WORD_BITS);
                }
                word |= 1 << (position - base);
            }
            while shape.upper_bits - base > WORD_BITS {
                cursor.put(word, WORD_BITS as u32);
                (word, base) = (0, base + WORD_BITS);
            }
            cursor.put(word, (shape.upper_bits - base) as u32);
        }
        let low_mask = mask(low_bits);
        let mut rest = sources;
        if low_bits <= WORD_BITS as u32 / 2 {
            let (pairs, last) = sources.as_chunks();
            for [first, second] in pairs {
                cursor.put(first & low_mask | (second & low_mask) << low_bits, 2 * low_bits);
            }
            rest = last;
        }
        for &source in rest {
            cursor.put(source & low_mask, low_bits);
        }
    });
}

/// A row in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct EliasFanoRow<'a> {
    payload: &'a [u8],
    degree: u64,
    source_max: u64,
    hints_at: u64,
    upper_at: u64,
    lower_at: u64,
    shape: Shape,
}

impl<'a> EliasFanoRow<'a> {
    /// The row at bit `at` of the payload, which holds all of it. Its layout follows from its degree, unless it is empty.
    #[inline(always)]
    pub(super) fn new(payload: &'a [u8], at: u64, degree: u64, shape: Shape, source_max: u64) -> Self {
        let upper_at = at + shape.all_hint_bits(degree);
        Self { payload, degree, source_max, hints_at: at, upper_at, lower_at: upper_at + shape.upper_bits, shape }
    }

    #[inline(always)]
    pub(super) fn degree(&self) -> u64 {
        self.degree
    }

    #[inline(always)]
    fn low_bits(&self) -> u32 {
        self.shape.low_bits.into()
    }

    /// Source `k < degree`.
    #[inline]
    pub(super) fn get(&self, k: u64) -> u64 {
        if self.shape.upper_bits == 0 {
            return self.join(0, k);
        }
        let mut upper = self.upper_before(k);
        let high = upper.select(k);
        self.join(high, k)
    }

    /// The first and last bytes that a lookup of source `k` touches: of its low bits, and of the upper bits that it
    /// counts. Reads the nearest hint. (In a short row, more upper bits are counted.)
    #[inline(always)]
    pub(super) fn touches(&self, k: u64) -> [u64; 4] {
        let low = (self.lower_at + k * u64::from(self.shape.low_bits)) / 8;
        let upper = self.near(k).at / 8;
        [low, low + WORD_BYTES - 1, upper, upper + Ones::<2>::BYTES - 1]
    }

    /// Appends `make(source)` of the sources at `positions`.
    #[inline(always)]
    pub(super) fn get_many<T: Copy>(self, positions: &[u64], out: &mut Vec<T>, make: impl Fn(u64) -> T) {
        let start = out.len();
        out.resize(start + positions.len(), make(0));
        let out = &mut out[start..];
        if self.shape.upper_bits == 0 {
            for (out, &k) in out.iter_mut().zip(positions) {
                *out = make(self.join(0, k));
            }
        } else if self.shape.upper_bits <= Ones::<1>::BITS {
            let ones = Ones::<1>::at(self.payload, self.upper_at);
            for (out, &k) in out.iter_mut().zip(positions) {
                let one = ones.and_then(|ones| ones.find(k + ones.before(self.upper_at)));
                *out = make(self.source(one, k));
            }
        } else {
            // In short steps, so that the processor works on several sources at a time.
            const STEP: usize = 8;
            for (out, positions) in out.chunks_mut(STEP).zip(positions.chunks(STEP)) {
                let mut nears = [Near::default(); STEP];
                for (near, &k) in nears.iter_mut().zip(positions) {
                    *near = self.near(k);
                }
                let mut ones = [None; STEP];
                for ((one, near), &k) in ones.iter_mut().zip(&nears).zip(positions) {
                    *one = self.find(k, near);
                }
                for ((out, &one), &k) in out.iter_mut().zip(&ones).zip(positions) {
                    *out = make(self.source(one, k));
                }
            }
        }
    }

    /// Source `k`. `one` is its one in the upper bits, if it was found.
    #[inline(always)]
    fn source(&self, one: Option<One>, k: u64) -> u64 {
        match one {
            Some(one) => {
                let high = one.bit(self.payload).wrapping_sub(self.upper_at).wrapping_sub(k);
                self.join(high, k)
            }
            None => self.get(k),
        }
    }

    /// The one of source `k`. None unless it is near the place that evenly spread sources give, and not next to the end
    /// of the payload.
    #[inline(always)]
    fn find(&self, k: u64, near: &Near) -> Option<One> {
        let ones = Ones::<2>::at(self.payload, near.at)?;
        let from_start = k.wrapping_sub(near.ones).wrapping_add(ones.before(near.at));
        let before_end = ones.count() - ones.after(near.at + Ones::<2>::BITS);
        let from_end = before_end.wrapping_sub(near.ones.wrapping_sub(k));
        ones.find(select_unpredictable(near.is_end, from_end, from_start))
    }

    /// Where to look for source `k`: after or before the nearest position of known rank.
    #[inline(always)]
    fn near(&self, k: u64) -> Near {
        // The ranks at the start, at hints and at the end are known. A branch on the nearest one would be
        // unpredictable. So a hint is always read, even if other bits are at its place.
        let number = (k + HINT_EVERY / 2) / HINT_EVERY;
        let hint = self.hint(number.saturating_sub(1));
        let position = select_unpredictable(number > hints(self.degree), self.shape.upper_bits, hint);
        let position = select_unpredictable(number > 0, position, 0);
        let ones = (number * HINT_EVERY).min(self.degree);
        let is_end = k < ones && position >= Ones::<2>::BITS;
        let is_start = k < ones && !is_end;
        let at = self.upper_at + select_unpredictable(is_start, 0, position);
        Near {
            at: at - select_unpredictable(is_end, Ones::<2>::BITS, 0),
            ones: select_unpredictable(is_start, 0, ones),
            is_end,
        }
    }

    /// Appends all sources to `out`.
    ///
    /// One loop per word of upper bits, over as many sources as the word has ones. The number of rounds is known when
    /// it starts. Only the position in the word depends on earlier sources.
    #[inline]
    pub(super) fn decode_into(&self, out: &mut Vec<u64>) {
        let low_bits = self.low_bits();
        let low_mask = mask(low_bits);
        let (payload, source_max) = (self.payload, self.source_max);
        let mut lower_at = self.lower_at;
        let mut low = || {
            let low = load(payload, lower_at) & low_mask;
            lower_at += u64::from(low_bits);
            low
        };
        let start = out.len();
        // A row with this degree fits the payload.
        out.resize(start + self.degree as usize, 0);
        let mut missing = &mut out[start..];
        if self.shape.upper_bits == 0 {
            for source in missing {
                *source = low().min(source_max);
            }
            return;
        }
        let mut upper = self.upper_before(0);
        loop {
            let ones = (upper.word.count_ones() as usize).min(missing.len());
            let (sources, rest) = missing.split_at_mut(ones);
            let mut word = upper.word;
            // The high part that the next source would have if its one were bit 0 of this word.
            let mut base = upper.base.wrapping_sub(upper.ones);
            for source in sources {
                let high = base.wrapping_add(u64::from(word.trailing_zeros()));
                word &= word.wrapping_sub(1);
                base = base.wrapping_sub(1);
                *source = (high << low_bits | low()).min(source_max);
            }
            missing = rest;
            if missing.is_empty() {
                return;
            }
            if !upper.next_word() {
                // Damaged: fewer ones than sources.
                return missing.fill(source_max);
            }
        }
    }

    /// The index of the first source that is at least `x`; `degree` if none is.
    pub(super) fn lower_bound(&self, x: u64) -> u64 {
        if x > self.source_max {
            return self.degree;
        }
        let low_bits = self.low_bits();
        if self.shape.upper_bits == 0 {
            return partition_point(0..self.degree, |k| self.join(0, k) < x);
        }
        let high = x >> low_bits;
        let (first, after) = self.first_of_high(high);
        // Those with the same high part are the run of ones that follows.
        let last = first.saturating_add(self.ones_from(after)).min(self.degree);
        let low = x & mask(low_bits);
        partition_point(first..last, |k| self.low(k) < low)
    }

    /// A walk over all upper bits, for [`EliasFanoRow::next`].
    #[inline]
    pub(super) fn upper(&self) -> Upper<'a> {
        self.upper_before(0)
    }

    /// Source `k`, the one after the last source that was read with `upper`.
    #[inline(always)]
    pub(super) fn next(&self, upper: &mut Upper<'_>, k: u64) -> u64 {
        if self.shape.upper_bits == 0 {
            return self.join(0, k);
        }
        while upper.word == 0 {
            if !upper.next_word() {
                return self.source_max; // damaged: fewer ones than sources
            }
        }
        let position = upper.base.wrapping_add(u64::from(upper.word.trailing_zeros()));
        upper.word &= upper.word - 1;
        self.join(position.wrapping_sub(k), k)
    }

    #[inline(always)]
    fn low(&self, k: u64) -> u64 {
        let low_bits = self.low_bits();
        load(self.payload, self.lower_at + k * u64::from(low_bits)) & mask(low_bits)
    }

    /// A source from its parts. Damaged bytes must not name a node that does not exist.
    #[inline(always)]
    fn join(&self, high: u64, k: u64) -> u64 {
        (high << self.low_bits() | self.low(k)).min(self.source_max)
    }

    fn hint(&self, j: u64) -> u64 {
        let hint_bits = u32::from(self.shape.hint_bits);
        load(self.payload, self.hints_at + j * u64::from(hint_bits)) & mask(hint_bits)
    }

    /// The upper position that the last hint at or before source `k` names, and the number of ones before it.
    #[inline(always)]
    fn hint_before(&self, k: u64) -> (u64, u64) {
        let hint = k / HINT_EVERY;
        // Always read, and dropped if there is no hint: a branch on that would be unpredictable.
        let position = self.hint(hint.saturating_sub(1));
        (select_unpredictable(hint > 0, position, 0), hint * HINT_EVERY)
    }

    /// The upper bits from the last hint at or before source `k` on.
    #[inline]
    fn upper_before(&self, k: u64) -> Upper<'a> {
        let (skip, ones) = self.hint_before(k);
        let at = self.upper_at + skip;
        let (byte, bit) = ((at >> 3) as usize, at & 7);
        Upper {
            payload: self.payload,
            byte,
            byte_end: self.lower_at.div_ceil(8) as usize,
            word: load_word(self.payload, byte) & !mask(bit as u32),
            word_start: bit as u32,
            base: skip.wrapping_sub(bit),
            ones,
        }
    }

    /// The first source whose high part is at least `high`, and the upper position where its one is if there is one.
    fn first_of_high(&self, high: u64) -> (u64, u64) {
        if high == 0 {
            return (0, 0);
        }
        // Find the zero with number `high - 1`: before it are the set bits of all smaller high parts. Hint `j` gives the
        // position of source `256 * (j + 1)`, and so its high part.
        let hint = partition_point(0..hints(self.degree), |j| self.hint(j).saturating_sub((j + 1) * HINT_EVERY) < high);
        let mut upper = self.upper_before(hint * HINT_EVERY);
        let walked = upper.base.wrapping_add(u64::from(upper.word_start));
        let mut rank = (high - 1).saturating_sub(walked.saturating_sub(upper.ones));
        let mut zeros = !upper.word & !mask(upper.word_start);
        while rank >= u64::from(zeros.count_ones()) {
            rank -= u64::from(zeros.count_ones());
            if !upper.next_word() {
                return (self.degree, self.shape.upper_bits); // damaged: too few zeros
            }
            zeros = !upper.word;
        }
        let position = upper.base.wrapping_add(u64::from(select_in_word(zeros, rank as u32)));
        (position.saturating_sub(high - 1).min(self.degree), position + 1)
    }

    /// The number of ones that follow each other from an upper position on.
    fn ones_from(&self, position: u64) -> u64 {
        let mut ones = 0;
        while position + ones < self.shape.upper_bits {
            let run = load(self.payload, self.upper_at + position + ones).trailing_ones();
            ones += u64::from(run);
            if run < LOAD_BITS {
                break;
            }
        }
        ones
    }
}

/// A range of upper bits that contains the one of a source.
#[derive(Debug, Clone, Copy, Default)]
struct Near {
    /// The first of [`Ones::BITS`] bits of the payload.
    at: u64,
    /// Number of sources before these bits. If the rank of their end is known instead: before the bits that follow
    /// them.
    ones: u64,
    is_end: bool,
}

/// A walk over the upper bits, a word at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upper<'a> {
    payload: &'a [u8],
    /// Position of the word, and end of the upper bits (rounded up).
    byte: usize,
    byte_end: usize,
    /// Eight bytes, without the bits before the start.
    word: u64,
    /// Number of bits of the first word before the start.
    word_start: u32,
    /// The upper position of the word's bit 0 (for the first word, it may lie before the start).
    base: u64,
    /// Ones before the word's first one.
    ones: u64,
}

impl Upper<'_> {
    /// Moves to the next word. False at the end of the upper bits. (The last word may contain some lower bits, but
    /// after all ones.)
    #[inline(always)]
    fn next_word(&mut self) -> bool {
        self.byte += 8;
        if self.byte >= self.byte_end {
            return false;
        }
        self.ones += u64::from(self.word.count_ones());
        self.base = self.base.wrapping_add(64);
        self.word = load_word(self.payload, self.byte);
        true
    }

    /// The high part of source `k`, which is not before the word.
    #[inline(always)]
    fn select(&mut self, k: u64) -> u64 {
        loop {
            let rank = k - self.ones;
            if rank < u64::from(self.word.count_ones()) {
                let bit = select_in_word(self.word, rank as u32);
                return self.base.wrapping_add(u64::from(bit)).wrapping_sub(k);
            }
            if !self.next_word() {
                return 0; // damaged: fewer ones than sources
            }
        }
    }
}
