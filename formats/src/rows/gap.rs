//! Rows in gap code: differences between successive sources, and lengths of runs of consecutive sources.
//!
//! For graphs whose order has locality, such as web pages in URL order, where most sources directly follow the previous
//! one. All numbers are in Exp-Golomb code, which is Elias' gamma code of all but the lowest `k` bits: `k` is chosen
//! per file and kind of number, to fit the file's own distribution.
//!
//! ```text
//! degree - 1
//! in rows of more than 128 sources:
//!   6 bits: p, the width of a position
//!   for each block of 128 sources after the first: its position (p bits, from the end of this table), its first
//!   source (as many bits as the largest node id)
//! for each block:
//!   the first block: its first source, as such or as zigzag(source - the row's own node)
//!   until the block is full:
//!     the number of sources that follow each other, each the one before plus 1
//!     unless the block is now full: the gap to the next source, which is not 1; as 0 or gap - 1
//! ```
//!
//! Reading a source decodes all sources before it in its block.

use super::bits::{BitCursor, BitWriter, LOAD_BITS, bit_length, load, mask, partition_point};

/// Sources per block.
pub(super) const BLOCK: u64 = 128;

/// Width of the field that holds the width of a position.
const WIDTH_BITS: u32 = 6;

/// An upper bound on the bits of a code: 41 zeros, a one, and 41 bits, rounded up.
const CODE_BITS_MAX: u64 = 96;

/// The parameters of a file in gap code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GapCode {
    /// Whether a row's first source is coded as its distance from the row's own node. Otherwise it is coded as it is.
    pub first_is_relative: bool,
    /// Exp-Golomb parameter of first sources.
    pub first_k: u8,
    /// Exp-Golomb parameter of degrees.
    pub degree_k: u8,
    /// Exp-Golomb parameter of gaps.
    pub gap_k: u8,
    /// Exp-Golomb parameter of run lengths.
    pub run_k: u8,
}

impl GapCode {
    /// Exp-Golomb parameters are below this.
    pub const K_END: u8 = 32;

    fn first_code(&self, source: u64, node: u64) -> u64 {
        if self.first_is_relative { zigzag(source.wrapping_sub(node)) } else { source }
    }

    fn first_source(&self, code: u64, node: u64) -> u64 {
        if self.first_is_relative { node.wrapping_add((code >> 1) ^ (code & 1).wrapping_neg()) } else { code }
    }
}

/// 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The length of the Exp-Golomb code of `value`.
#[inline(always)]
pub(super) fn code_bits(value: u64, k: u32) -> u32 {
    2 * bit_length((value >> k) + 1) - 1 + k
}

/// Writes `z` zeros, a one, and the lowest `z + k` bits of the rest. `z` is one less than the number of bits of `(value
/// >> k) + 1`.
#[inline(always)]
fn put_code(cursor: &mut BitCursor<'_>, value: u64, k: u32) {
    let zeros = bit_length((value >> k) + 1) - 1;
    let rest = value - (mask(zeros) << k);
    if 2 * zeros + 1 + k < LOAD_BITS {
        cursor.put((rest << 1 | 1) << zeros, 2 * zeros + 1 + k);
    } else {
        cursor.put(1 << zeros, zeros + 1);
        cursor.put(rest, zeros + k);
    }
}

/// Reads a code and advances. A damaged code gives a number that is too large.
#[inline(always)]
fn read_code(payload: &[u8], at: &mut u64, k: u32) -> u64 {
    let word = load(payload, *at);
    let zeros = word.trailing_zeros();
    let bits = 2 * zeros + 1 + k;
    if bits <= LOAD_BITS {
        *at += u64::from(bits);
        return (word >> zeros >> 1 & mask(zeros + k)) + (mask(zeros) << k);
    }
    read_long_code(payload, at, zeros, k)
}

#[cold]
fn read_long_code(payload: &[u8], at: &mut u64, zeros: u32, k: u32) -> u64 {
    if zeros + k >= LOAD_BITS {
        return u64::MAX >> 8;
    }
    let rest = load(payload, *at + u64::from(zeros) + 1) & mask(zeros + k);
    *at += u64::from(2 * zeros + 1 + k);
    rest + (mask(zeros) << k)
}

/// A part of a block after its first source, as the number that is coded.
pub(super) enum Token {
    /// Number of sources that follow each other.
    Run(u64),
    /// The distance to the next source, which is not 1: 0, or the distance - 1.
    Gap(u64),
}

/// Cuts a block into tokens.
#[inline(always)]
pub(super) fn tokenize(block: &[u64], mut on_token: impl FnMut(Token)) {
    let mut at = 1;
    while at < block.len() {
        let run_at = at;
        while at < block.len() && block[at] == block[at - 1] + 1 {
            at += 1;
        }
        on_token(Token::Run((at - run_at) as u64));
        if at < block.len() {
            on_token(Token::Gap((block[at] - block[at - 1]).saturating_sub(1)));
            at += 1;
        }
    }
}

/// Appends the row of `node`. Returns its size in bits.
pub(super) fn encode(writer: &mut BitWriter, code: &GapCode, node: u64, sources: &[u64], source_max: u64) -> u64 {
    let Some(&first) = sources.first() else {
        return 0;
    };
    let start = writer.bits();
    let degree = sources.len() as u64;
    let (gap_k, run_k) = (u32::from(code.gap_k), u32::from(code.run_k));
    let with_k = |token| match token {
        Token::Run(length) => (length, run_k),
        Token::Gap(gap) => (gap, gap_k),
    };
    let first = code.first_code(first, node);
    let first_k = u32::from(code.first_k);
    let mut room = (degree.min(BLOCK) + 2) * 2 * CODE_BITS_MAX;
    let mut ends = Vec::new();
    if degree > BLOCK {
        let mut bits = u64::from(code_bits(first, first_k));
        for block in sources.chunks(BLOCK as usize) {
            tokenize(block, |token| {
                let (number, k) = with_k(token);
                bits += u64::from(code_bits(number, k));
            });
            ends.push(bits);
        }
        room += bits + ends.len() as u64 * CODE_BITS_MAX;
    }
    writer.write(room, |cursor| {
        put_code(cursor, degree - 1, u32::from(code.degree_k));
        let starts = ends.split_last().map_or(&[][..], |(_, starts)| starts);
        if let Some(&last) = starts.last() {
            let (position_bits, source_bits) = (bit_length(last), bit_length(source_max));
            cursor.put(u64::from(position_bits), WIDTH_BITS);
            for (&position, block) in starts.iter().zip(sources.chunks(BLOCK as usize).skip(1)) {
                cursor.put(position, position_bits);
                cursor.put(block[0], source_bits);
            }
        }
        put_code(cursor, first, first_k);
        for block in sources.chunks(BLOCK as usize) {
            tokenize(block, |token| {
                let (number, k) = with_k(token);
                put_code(cursor, number, k);
            });
        }
    });
    writer.bits() - start
}

/// A row in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct GapRow<'a> {
    payload: &'a [u8],
    code: GapCode,
    node: u64,
    degree: u64,
    source_max: u64,
    table_at: u64,
    position_bits: u32,
    source_bits: u32,
    blocks_at: u64,
    end: u64,
}

impl<'a> GapRow<'a> {
    /// The row of `node` at bits `at..end` of the payload, which holds all of them. `degree_max` is an upper bound of
    /// all degrees. A damaged row is empty.
    #[inline]
    pub(super) fn new(
        payload: &'a [u8],
        code: GapCode,
        node: u64,
        source_max: u64,
        degree_max: u64,
        mut at: u64,
        end: u64,
    ) -> Self {
        let mut row = Self {
            payload,
            code,
            node,
            degree: 0,
            source_max,
            table_at: 0,
            position_bits: 0,
            source_bits: bit_length(source_max),
            blocks_at: 0,
            end,
        };
        if at == end {
            return row;
        }
        let degree = read_code(payload, &mut at, u32::from(code.degree_k)).saturating_add(1);
        if degree > degree_max {
            return row;
        }
        let mut blocks_at = at;
        if degree > BLOCK {
            row.position_bits = (load(payload, at) & mask(WIDTH_BITS)) as u32;
            row.table_at = at + u64::from(WIDTH_BITS);
            blocks_at = row.table_at.saturating_add(((degree - 1) / BLOCK).saturating_mul(row.entry_bits()));
            if row.position_bits >= LOAD_BITS {
                return row;
            }
        }
        if blocks_at < end {
            row.degree = degree;
            row.blocks_at = blocks_at;
        }
        row
    }

    #[inline(always)]
    pub(super) fn degree(&self) -> u64 {
        self.degree
    }

    /// Source `k < degree`.
    pub(super) fn get(&self, k: u64) -> u64 {
        let mut walker = self.walker(k / BLOCK);
        walker.advance_to(k);
        walker.source
    }

    /// The byte of the table entry of source `k`'s block, the byte where the block starts if blocks are equally long,
    /// and the cache lines after it.
    pub(super) fn touches(&self, k: u64) -> [u64; 4] {
        let entry = match k / BLOCK {
            0 => self.blocks_at,
            block => self.table_at + (block - 1) * self.entry_bits(),
        };
        let bits = self.end.saturating_sub(self.blocks_at);
        let block = self.blocks_at + ((k / BLOCK * BLOCK) as f64 * (bits as f64 / self.degree as f64)) as u64;
        [entry / 8, block / 8, block / 8 + 64, block / 8 + 128]
    }

    /// The sources at ascending positions.
    pub(super) fn get_many<T>(&self, positions: &[u64], out: &mut Vec<T>, make: impl Fn(u64) -> T) {
        let Some(&first) = positions.first() else {
            return;
        };
        let mut walker = self.walker(first / BLOCK);
        out.extend(positions.iter().map(|&k| {
            walker.advance_to(k);
            make(walker.source)
        }));
    }

    /// Appends all sources to `out`.
    #[inline]
    pub(super) fn decode_into(&self, out: &mut Vec<u64>) {
        if self.degree == 0 {
            return;
        }
        let start = out.len();
        out.resize(start + self.degree as usize, 0);
        let out = &mut out[start..];
        let mut at = self.blocks_at;
        let first = self.read_first(&mut at);
        let mut blocks = out.chunks_mut(BLOCK as usize);
        if let Some(block) = blocks.next() {
            self.decode_block(&mut at, first, block);
        }
        for (index, block) in blocks.enumerate() {
            let (_, first) = self.entry(index as u64);
            self.decode_block(&mut at, first, block);
        }
    }

    /// The index of the first source that is at least `x`; `degree` if none is.
    pub(super) fn lower_bound(&self, x: u64) -> u64 {
        if self.degree == 0 {
            return 0;
        }
        // The blocks after the first whose first source is less than `x`.
        let block = partition_point(0..(self.degree - 1) / BLOCK, |index| self.entry(index).1 < x);
        let mut walker = self.walker(block);
        loop {
            if walker.source >= x {
                return walker.index;
            }
            if x - walker.source <= walker.run {
                return walker.index + (x - walker.source);
            }
            let next = walker.index + walker.run + 1;
            if next >= walker.block_end {
                return walker.block_end;
            }
            walker.next_token();
        }
    }

    #[inline(always)]
    fn entry_bits(&self) -> u64 {
        u64::from(self.position_bits + self.source_bits)
    }

    /// Position and first source of block `index + 1`.
    #[inline]
    fn entry(&self, index: u64) -> (u64, u64) {
        let at = self.table_at + index * self.entry_bits();
        let position = load(self.payload, at) & mask(self.position_bits);
        let source = load(self.payload, at + u64::from(self.position_bits)) & mask(self.source_bits);
        (position, source.min(self.source_max))
    }

    #[inline(always)]
    fn read_first(&self, at: &mut u64) -> u64 {
        let code = read_code(self.payload, at, u32::from(self.code.first_k));
        self.code.first_source(code, self.node).min(self.source_max)
    }

    #[inline(always)]
    fn read_run(&self, at: &mut u64) -> u64 {
        read_code(self.payload, at, u32::from(self.code.run_k))
    }

    /// Reads a gap and returns the source after it.
    #[inline(always)]
    fn read_gap(&self, at: &mut u64, source: u64) -> u64 {
        let code = read_code(self.payload, at, u32::from(self.code.gap_k));
        (source + code + u64::from(code > 0)).min(self.source_max)
    }

    #[inline(always)]
    fn decode_block(&self, at: &mut u64, first: u64, block: &mut [u64]) {
        let Some((place, mut rest)) = block.split_first_mut() else {
            return;
        };
        *place = first;
        let mut source = first;
        while !rest.is_empty() {
            let run = self.read_run(at).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(run as usize);
            for (place, next) in now.iter_mut().zip(source + 1..) {
                *place = next;
            }
            source += run;
            if source > self.source_max {
                now.fill(self.source_max); // damaged
                source = self.source_max;
            }
            let Some((place, later)) = later.split_first_mut() else {
                return;
            };
            source = self.read_gap(at, source);
            *place = source;
            rest = later;
        }
    }

    /// A walker at the first source of a block.
    #[inline]
    pub(super) fn walker(&self, block: u64) -> Walker<'a> {
        let mut walker = Walker { row: *self, at: 0, index: 0, source: 0, run: 0, block_end: 0 };
        walker.start_block(block);
        walker
    }
}

/// A place in a row.
#[derive(Debug, Clone)]
pub(super) struct Walker<'a> {
    row: GapRow<'a>,
    at: u64,
    index: u64,
    /// Source number `index`.
    pub source: u64,
    /// Number of sources that follow it directly.
    run: u64,
    /// The index after the last source of the block.
    block_end: u64,
}

impl Walker<'_> {
    fn start_block(&mut self, block: u64) {
        self.at = self.row.blocks_at;
        if block == 0 {
            self.source = self.row.read_first(&mut self.at);
        } else {
            let (position, source) = self.row.entry(block - 1);
            self.at += position;
            self.source = source;
        }
        self.index = block * BLOCK;
        self.block_end = (self.index + BLOCK).min(self.row.degree);
        self.read_run();
    }

    #[inline(always)]
    fn read_run(&mut self) {
        let rest = self.block_end - self.index - 1;
        self.run = 0;
        if rest > 0 {
            let run = self.row.read_run(&mut self.at);
            self.run = run.min(rest).min(self.row.source_max - self.source);
        }
    }

    /// Moves past the run and the gap after it. Both must be in the block.
    #[inline(always)]
    fn next_token(&mut self) {
        self.index += self.run + 1;
        self.source = self.row.read_gap(&mut self.at, self.source + self.run);
        self.read_run();
    }

    /// Moves to index `k`, which is not before the current one.
    #[inline]
    pub(super) fn advance_to(&mut self, k: u64) {
        if k >= self.block_end {
            self.start_block(k / BLOCK);
        }
        while k - self.index > self.run {
            self.next_token();
        }
        let step = k - self.index;
        self.index = k;
        self.source += step;
        self.run -= step;
    }
}
