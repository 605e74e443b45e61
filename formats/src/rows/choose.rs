//! Choice of the codec for the rows of a chunk.

use super::{
    bits::bit_length,
    directory::{LINE_BYTES, LINE_ROWS},
    elias_fano_bits,
    gap::{BLOCK, GapCode, Token, code_bits, tokenize, zigzag},
    meta::RowCodec,
};

/// Gap code is chosen if it takes less than this many tenths of the size of Elias-Fano, because sampling from it is
/// slower.
const GAP_TENTHS: u64 = 8;

/// The codec for a chunk, given all its rows or a sample of them, each with its node.
///
/// Deterministic, so that the same rows always make the same file. Costs about ten nanoseconds per edge, so pass a
/// sample: a few hundred thousand edges are enough.
///
/// ```
/// use grappa_formats::rows::{RowCodec, choose_codec};
///
/// // Runs of neighbors compress well as gaps, random sources do not.
/// let runs: Vec<u64> = (500..600).collect();
/// assert!(matches!(choose_codec(1 << 20, [(550, &runs[..])]), RowCodec::Gap(_)));
/// let random: Vec<u64> = (0..100).map(|i| i * 10_007 + i * i % 5000).collect();
/// assert_eq!(choose_codec(1 << 20, [(550, &random[..])]), RowCodec::EliasFano);
/// ```
pub fn choose_codec<'a>(universe: u64, rows: impl IntoIterator<Item = (u64, &'a [u64])>) -> RowCodec {
    let mut estimator = SizeEstimator::new(universe);
    for (node, sources) in rows {
        estimator.add(node, sources);
    }
    let gap = RowCodec::Gap(estimator.gap_code());
    let is_smaller = estimator.bits(gap) * 10 < estimator.bits(RowCodec::EliasFano) * GAP_TENTHS;
    if is_smaller { gap } else { RowCodec::EliasFano }
}

/// Estimates the size of rows in each codec.
#[derive(Debug, Clone, Default)]
pub(super) struct SizeEstimator {
    universe: u64,
    rows: u64,
    elias_fano_bits: u64,
    /// Fields of fixed width in gap code.
    gap_fixed_bits: u64,
    first_relative: Lengths,
    first_absolute: Lengths,
    degrees: Lengths,
    gaps: Lengths,
    runs: Lengths,
}

impl SizeEstimator {
    /// An estimator for rows of a graph of `universe` nodes.
    pub(super) fn new(universe: u64) -> Self {
        Self { universe, ..Self::default() }
    }

    /// Adds the row of `node`, whose `sources` ascend.
    pub(super) fn add(&mut self, node: u64, sources: &[u64]) {
        self.rows += 1;
        let Some(&first) = sources.first() else {
            return;
        };
        let (degree, source_max) = (sources.len() as u64, self.universe.saturating_sub(1));
        self.elias_fano_bits += elias_fano_bits(degree, source_max);
        self.first_relative.add(zigzag(first.wrapping_sub(node)));
        self.first_absolute.add(first);
        self.degrees.add(degree - 1);
        let before = self.runs.bits[0] + self.gaps.bits[0];
        for block in sources.chunks(BLOCK as usize) {
            tokenize(block, |token| match token {
                Token::Run(length) => self.runs.add(length),
                Token::Gap(gap) => self.gaps.add(gap),
            });
        }
        if degree > BLOCK {
            let row_bits = self.runs.bits[0] + self.gaps.bits[0] - before;
            let entry_bits = bit_length(source_max) + bit_length(row_bits);
            self.gap_fixed_bits += 6 + (degree - 1) / BLOCK * u64::from(entry_bits);
        }
    }

    /// Bits of the rows so far in a codec, including their part of the directory.
    ///
    /// Exact for Elias-Fano. For gap code, positions in large rows and exceptions of the directory are estimated.
    pub(super) fn bits(&self, codec: RowCodec) -> u64 {
        let directory = (self.rows * LINE_BYTES as u64 * 8).div_ceil(LINE_ROWS);
        directory
            + match codec {
                RowCodec::EliasFano => self.elias_fano_bits,
                RowCodec::ByTime => unreachable!("the order of a chunk's rows is not chosen by their size"),
                RowCodec::Gap(code) => {
                    let first = if code.first_is_relative { &self.first_relative } else { &self.first_absolute };
                    self.gap_fixed_bits
                        + first.bits_with(code.first_k)
                        + self.degrees.bits_with(code.degree_k)
                        + self.gaps.bits_with(code.gap_k)
                        + self.runs.bits_with(code.run_k)
                }
            }
    }

    /// The best parameters for gap code.
    pub(super) fn gap_code(&self) -> GapCode {
        let first_is_relative = self.first_relative.best().1 <= self.first_absolute.best().1;
        let first = if first_is_relative { &self.first_relative } else { &self.first_absolute };
        GapCode {
            first_is_relative,
            first_k: first.best().0,
            degree_k: self.degrees.best().0,
            gap_k: self.gaps.best().0,
            run_k: self.runs.best().0,
        }
    }
}

/// The total length of numbers in Exp-Golomb code for each parameter.
#[derive(Debug, Clone, Default)]
struct Lengths {
    bits: [u64; GapCode::K_END as usize],
}

impl Lengths {
    fn add(&mut self, value: u64) {
        for (k, bits) in (0..).zip(&mut self.bits) {
            *bits += u64::from(code_bits(value, k));
        }
    }

    fn bits_with(&self, k: u8) -> u64 {
        self.bits[usize::from(k)]
    }

    /// The best parameter and the total length with it.
    fn best(&self) -> (u8, u64) {
        (0..).zip(self.bits).min_by_key(|&(_, bits)| bits).expect("there are parameters")
    }
}
