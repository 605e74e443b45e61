//! Rows in Elias-Fano code over the universe of all nodes.
//!
//! A source `x` is cut into its low `l` bits, which are stored as they are, and the rest `h = x >> l`, stored in unary:
//! source number `i` sets bit `h + i` of the upper bits. (Elias, "Efficient Storage and Retrieval by Content and Address
//! of Static Files", 1974; Fano, 1971.) `l` follows from the degree and the universe, so the size of a row does too.
//!
//! Size: within 0.6 bits an edge of the information bound for a uniformly random row. One source costs a scan of the
//! upper bits, 64 of them an instruction, from the nearest hint (one every 256 sources), and one load.

use std::ops::Range;

use super::bits::{BitWriter, LOAD_BITS, bit_length, load, load_word, mask, select_in_word};

/// One hint every so many sources.
pub(super) const HINT_EVERY: u64 = 256;

/// Bits that are put at once.
const WORD_BITS: u64 = LOAD_BITS as u64 - 1;

/// How a row is laid out, a function of its degree and the highest possible source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Hints: the upper position of sources 256, 512, ...
    hints: u64,
    hint_bits: u32,
    /// Length of the upper bits; 0 if sources are stored whole.
    upper_bits: u64,
    /// Low bits a source.
    low_bits: u32,
}

impl Shape {
    /// The layout of a row of `degree` sources of at most `source_max`.
    #[inline]
    pub(super) fn of(degree: u64, source_max: u64) -> Self {
        let whole_bits = bit_length(source_max);
        // With one low bit more, the unary part loses ceil(u / 2) zeros for u = source_max >> l and each source grows by
        // a bit: the best l is the smallest with u <= 2 * degree - 2. (A tie goes to the shorter unary part.)
        let zeros_max = (2 * degree).saturating_sub(2);
        let mut low_bits = whole_bits.saturating_sub(bit_length(zeros_max));
        low_bits += u32::from(source_max >> low_bits > zeros_max);
        let upper_bits = degree + (source_max >> low_bits);
        let size = degree * u64::from(low_bits) + upper_bits;
        if whole_bits > 0 && degree * u64::from(whole_bits) <= size {
            return Self {
                hints: 0,
                hint_bits: 0,
                upper_bits: 0,
                low_bits: whole_bits,
            };
        }
        let hints = degree.saturating_sub(1) / HINT_EVERY;
        Self {
            hints,
            hint_bits: if hints > 0 { bit_length(upper_bits - 1) } else { 0 },
            upper_bits,
            low_bits,
        }
    }

    /// The size of a row in bits.
    #[inline]
    pub(super) fn row_bits(self, degree: u64) -> u64 {
        self.hints * u64::from(self.hint_bits) + self.upper_bits + degree * u64::from(self.low_bits)
    }
}

/// Appends a row: ascending `sources` of at most `source_max`. Returns its size in bits.
pub(super) fn encode(writer: &mut BitWriter, sources: &[u64], source_max: u64) -> u64 {
    let degree = sources.len() as u64;
    let shape = Shape::of(degree, source_max);
    let row_bits = shape.row_bits(degree);
    let low_bits = shape.low_bits;
    let mut cursor = writer.cursor(row_bits);
    if shape.upper_bits > 0 {
        let every = HINT_EVERY as usize;
        for (i, &source) in sources.iter().enumerate().skip(every).step_by(every) {
            cursor.put((source >> low_bits) + i as u64, shape.hint_bits);
        }
        // Upper bits are collected in a word, which is put when the next one lies behind it.
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
    let low = |source: u64| source & mask(low_bits);
    if low_bits <= WORD_BITS as u32 / 2 {
        let pairs = sources.chunks_exact(2);
        let last = pairs.remainder();
        for pair in pairs {
            cursor.put(low(pair[0]) | low(pair[1]) << low_bits, 2 * low_bits);
        }
        for &source in last {
            cursor.put(low(source), low_bits);
        }
    } else {
        for &source in sources {
            cursor.put(low(source), low_bits);
        }
    }
    let written = cursor.written();
    writer.advance(written);
    row_bits
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
    /// The row at bit `at` of the payload, which holds all of it.
    #[inline]
    pub(super) fn new(payload: &'a [u8], at: u64, degree: u64, source_max: u64) -> Self {
        let shape = Shape::of(degree, source_max);
        let upper_at = at + shape.hints * u64::from(shape.hint_bits);
        Self {
            payload,
            degree,
            source_max,
            hints_at: at,
            upper_at,
            lower_at: upper_at + shape.upper_bits,
            shape,
        }
    }

    #[inline(always)]
    pub(super) fn degree(&self) -> u64 {
        self.degree
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

    /// The bytes of the hint and of the low bits of source `k`, and where the walk over upper bits starts and ends if
    /// sources are spread evenly.
    #[inline]
    pub(super) fn touches(&self, k: u64) -> [u64; 4] {
        let low = self.lower_at + k * u64::from(self.shape.low_bits);
        let hint = self.hints_at + (k / HINT_EVERY).saturating_sub(1) * u64::from(self.shape.hint_bits);
        let upper_bits = self.shape.upper_bits as f64 / self.degree as f64;
        let upper = |k: u64| self.upper_at + (k as f64 * upper_bits) as u64;
        [hint / 8, upper(k / HINT_EVERY * HINT_EVERY) / 8, upper(k) / 8, low / 8]
    }

    /// The sources at ascending positions.
    #[inline]
    pub(super) fn get_many(&self, positions: &[u64], out: &mut Vec<u64>) {
        if self.shape.upper_bits == 0 {
            out.extend(positions.iter().map(|&k| self.join(0, k)));
            return;
        }
        let mut upper = self.upper_before(0);
        out.extend(positions.iter().map(|&k| {
            if k - upper.ones >= HINT_EVERY {
                upper = self.upper_before(k);
            }
            let high = upper.select(k);
            self.join(high, k)
        }));
    }

    /// Appends all sources to `out`.
    ///
    /// A loop per word of upper bits, over as many sources as it has ones: the number of rounds is known when it starts,
    /// and nothing in it depends on the sources before but the position in the word.
    #[inline]
    pub(super) fn decode_into(&self, out: &mut Vec<u64>) {
        let low_bits = self.shape.low_bits;
        let low_mask = mask(low_bits);
        let (payload, source_max) = (self.payload, self.source_max);
        let mut lower_at = self.lower_at;
        let mut low = || {
            let low = load(payload, lower_at) & low_mask;
            lower_at += u64::from(low_bits);
            low
        };
        // The degree is that of a row which fits the payload.
        out.reserve(self.degree as usize);
        if self.shape.upper_bits == 0 {
            out.extend((0..self.degree).map(|_| low().min(source_max)));
            return;
        }
        let mut upper = self.upper_before(0);
        let mut missing = self.degree;
        loop {
            let ones = u64::from(upper.word.count_ones()).min(missing);
            let mut word = upper.word;
            // The high part of the next source, were its one at bit 0 of this word.
            let mut base = upper.base.wrapping_sub(upper.ones);
            out.extend((0..ones).map(|_| {
                let high = base.wrapping_add(u64::from(word.trailing_zeros()));
                word &= word.wrapping_sub(1);
                base = base.wrapping_sub(1);
                (high << low_bits | low()).min(source_max)
            }));
            missing -= ones;
            if missing == 0 {
                return;
            }
            if !upper.next_word() {
                // Damaged: fewer ones than sources.
                out.extend((0..missing).map(|_| source_max));
                return;
            }
        }
    }

    /// The index of the first source that is at least `x`; `degree` if none is.
    pub(super) fn lower_bound(&self, x: u64) -> u64 {
        if x > self.source_max {
            return self.degree;
        }
        let low_bits = self.shape.low_bits;
        if self.shape.upper_bits == 0 {
            return self.partition(0..self.degree, |k| self.join(0, k) < x);
        }
        let high = x >> low_bits;
        let (first, after) = self.first_of_high(high);
        // Those with the same high part are the run of ones that follows.
        let last = first.saturating_add(self.ones_from(after)).min(self.degree);
        let low = x & mask(low_bits);
        self.partition(first..last, |k| self.low(k) < low)
    }

    /// The sources from the first on.
    pub(super) fn iter(&self) -> EliasFanoIter<'a> {
        EliasFanoIter {
            row: *self,
            upper: self.upper_before(0),
            next: 0,
        }
    }

    #[inline(always)]
    fn low(&self, k: u64) -> u64 {
        let low_bits = self.shape.low_bits;
        load(self.payload, self.lower_at + k * u64::from(low_bits)) & mask(low_bits)
    }

    /// A source from its parts. Damaged bytes must not name a node that does not exist.
    #[inline(always)]
    fn join(&self, high: u64, k: u64) -> u64 {
        (high << self.shape.low_bits | self.low(k)).min(self.source_max)
    }

    fn hint(&self, j: u64) -> u64 {
        let hint_bits = self.shape.hint_bits;
        load(self.payload, self.hints_at + j * u64::from(hint_bits)) & mask(hint_bits)
    }

    /// The upper bits from the last hint at or before source `k` on.
    #[inline]
    fn upper_before(&self, k: u64) -> Upper<'a> {
        let hint = k / HINT_EVERY;
        let (skip, ones) = match hint {
            0 => (0, 0),
            _ => (self.hint(hint - 1), hint * HINT_EVERY),
        };
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
        // What is sought is the zero number `high - 1`: before it are the ones of all smaller high parts. Hint `j` says
        // where source `256 * (j + 1)` is, so what its high part is.
        let hint = self.partition(0..self.shape.hints, |j| {
            self.hint(j).saturating_sub((j + 1) * HINT_EVERY) < high
        });
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

    /// The first of a range of positions that `is_before` does not hold for.
    #[inline]
    fn partition(&self, range: Range<u64>, is_before: impl Fn(u64) -> bool) -> u64 {
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
}

/// A walk over the upper bits, a word at a time.
#[derive(Debug, Clone, Copy)]
struct Upper<'a> {
    payload: &'a [u8],
    /// Where the word is, and where the upper bits end (rounded up).
    byte: usize,
    byte_end: usize,
    /// Eight bytes, without the bits before the start.
    word: u64,
    /// How many bits before the start the first word has.
    word_start: u32,
    /// The upper position of the word's bit 0 (for the first word, it may lie before the start).
    base: u64,
    /// Ones before the word's first one.
    ones: u64,
}

impl Upper<'_> {
    /// Goes to the next word; false at the end of the upper bits. (The lowest of the lower bits may be in the last word,
    /// but after all ones.)
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

/// The sources of a row, one by one.
#[derive(Debug, Clone)]
pub(super) struct EliasFanoIter<'a> {
    row: EliasFanoRow<'a>,
    upper: Upper<'a>,
    next: u64,
}

impl Iterator for EliasFanoIter<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let k = self.next;
        if k == self.row.degree {
            return None;
        }
        self.next += 1;
        if self.row.shape.upper_bits == 0 {
            return Some(self.row.join(0, k));
        }
        while self.upper.word == 0 {
            if !self.upper.next_word() {
                return Some(self.row.source_max); // damaged: fewer ones than sources
            }
        }
        let position = self
            .upper
            .base
            .wrapping_add(u64::from(self.upper.word.trailing_zeros()));
        self.upper.word &= self.upper.word - 1;
        Some(self.row.join(position.wrapping_sub(k), k))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = (self.row.degree - self.next) as usize;
        (rest, Some(rest))
    }
}
