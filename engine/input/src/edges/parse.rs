//! Parses lines of text into edges, at more than 0.5 GB/s per thread.
//!
//! A line is `source target` or `source target weight`, separated by blanks, tabs or one comma (in other files, one semicolon
//! or bar). A line ends in LF or CRLF. Nearly every line is digits, a separator, digits and a line end. The fast
//! path takes such lines, eight digits at a time:
//!
//! ```text
//! word   = the next eight bytes, first byte lowest
//! digits = the number of leading bytes in '0'..='9'      (one add, two masks, count trailing zeros)
//! number = these digits shifted to the top, so that missing digits read as leading zeros;
//!          then three multiplications combine pairs, fours and eights
//! ```
//!
//! All other lines go to the slow path ([`fields`](super::fields)), which splits the line into fields and finds out why it
//! is bad. Line numbers are counted only once there is a bad line.

use grappa_io::Error;
use memchr::memchr;

use super::{
    BadEdge, EdgeBatch, IdLimit, TextBatch,
    fields::{LineForm, edge_of, float, is_zero, keys_of, selected_edge_of},
    matrix_market::Matrix,
    options::KeyForm,
    order::EdgePlace,
};
use crate::{
    line_reader::LINE_BYTES_MAX,
    separator::{is_blank, trim},
};

/// Readable bytes after the last line of a block. They let the parser load whole words without a check for the end.
pub(super) const PADDING: usize = 32;

/// Called for each bad line with its offset in the block's bytes, its text, and its fault. An error ends the block.
pub(super) type OnBad<'a> = dyn FnMut(usize, &[u8], BadEdge) -> grappa_io::Result<()> + 'a;

/// Why a block was not parsed to its end.
pub(super) enum Stop {
    /// The line at this offset is too long.
    LongLine(usize),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Whole lines, each ended by LF, followed by [`PADDING`] readable bytes.
#[derive(Clone, Copy)]
pub(super) struct BlockLines<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> BlockLines<'a> {
    pub fn new(bytes: &'a [u8], start: usize, end: usize) -> Self {
        assert!(bytes.len() >= end + PADDING, "a block needs padding behind it");
        assert!(start == end || bytes[end - 1] == b'\n', "a block's last line must be ended");
        Self { bytes, start, end }
    }

    /// Number of lines, comments included.
    fn count_lines(&self) -> usize {
        memchr::memchr_iter(b'\n', &self.bytes[self.start..self.end]).count()
    }
}

/// The lines without their line ends, and their offsets.
impl<'a> Iterator for BlockLines<'a> {
    type Item = Result<(usize, &'a [u8]), Stop>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.start;
        (at < self.end).then(|| {
            let (line, next) = line_at(self.bytes, at, self.end)?;
            self.start = next;
            Ok((at, line))
        })
    }
}

pub(super) fn parse_edges(
    block: BlockLines<'_>,
    form: &LineForm,
    limits: [IdLimit; 2],
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
) -> Result<(), Stop> {
    // Counting first costs a thirtieth of the parsing, and keeps the batch as small as its edges.
    into.reserve(block.count_lines(), form.values())?;
    match (form.is_plain(), form.weighted()) {
        (true, true) => parse_integers::<true>(block, form, limits, into, on_bad),
        (true, false) => parse_integers::<false>(block, form, limits, into, on_bad),
        (false, _) => parse_selected(block, form, limits, into, on_bad),
    }
}

fn parse_integers<const WEIGHTED: bool>(
    block: BlockLines<'_>,
    form: &LineForm,
    limits: [IdLimit; 2],
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
) -> Result<(), Stop> {
    let BlockLines { bytes, start, end } = block;
    // In the order of the columns.
    let limits = if form.targets_first() { [limits[1], limits[0]] } else { limits };
    let ([first_end, second_end], between) = (limits.map(IdLimit::exclusive), form.separator.byte_between_integers());
    let mut at = start;
    while at < end {
        if let Some((source, target, weight, next)) = fast_line::<WEIGHTED>(bytes, at, between)
            && source < first_end
            && target < second_end
        {
            into.push((source, target, weight), WEIGHTED);
            at = next;
            continue;
        }
        let (line, next) = line_at(bytes, at, end)?;
        match edge_of(line, form, limits) {
            Ok(None) => {}
            Ok(Some(edge)) => into.push(edge, WEIGHTED),
            Err(bad) => on_bad(at, line, bad)?,
        }
        at = next;
    }
    if form.targets_first() {
        std::mem::swap(&mut into.sources, &mut into.targets);
    }
    Ok(())
}

/// Parses lines whose columns have any order, or others among them.
fn parse_selected(
    block: BlockLines<'_>,
    form: &LineForm,
    limits: [IdLimit; 2],
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
) -> Result<(), Stop> {
    for line in block {
        let (at, line) = line?;
        let (values, places) = (into.values.len(), into.order.lengths());
        match selected_edge_of(line, form, limits, &mut into.values, &mut into.order) {
            Ok(None) => {}
            Ok(Some((source, target))) => {
                into.sources.push(source);
                into.targets.push(target);
            }
            Err(bad) => {
                into.values.truncate(values);
                into.order.truncate_to(places);
                on_bad(at, line, bad)?;
            }
        }
    }
    Ok(())
}

/// Parses entries of a sparse matrix: numbers of row and column, from 1, and perhaps a value. Returns how many there
/// are, with those that are bad.
pub(super) fn parse_entries(
    block: BlockLines<'_>,
    form: &LineForm,
    matrix: Matrix,
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
) -> Result<u64, Stop> {
    let directions = if matrix.symmetric { 2 } else { 1 };
    into.reserve(directions * block.count_lines(), form.values())?;
    let mut entries = 0;
    for line in block {
        let (at, line) = line?;
        entries += u64::from(!trim(line).is_empty());
        match matrix.entry(line, form) {
            Ok(None) => {}
            Ok(Some((row, column, value))) => {
                let is_doubled = matrix.symmetric && row != column;
                into.push((row, column, value), form.weighted());
                if is_doubled {
                    into.push((column, row, value), form.weighted());
                }
                if form.columns.order.is_some() {
                    (0..=usize::from(is_doubled)).for_each(|_| into.order.push(EdgePlace::of_number(value.into())));
                }
            }
            Err(bad) => on_bad(at, line, bad)?,
        }
    }
    Ok(entries)
}

pub(super) fn parse_keys(
    block: BlockLines<'_>,
    form: &LineForm,
    ids: KeyForm,
    into: &mut TextBatch,
    on_bad: &mut OnBad<'_>,
) -> Result<(), Stop> {
    let BlockLines { bytes, start, end } = block;
    // One check of the whole block replaces nearly all checks of single lines.
    let plain = std::str::from_utf8(&bytes[start..end]).is_ok() && memchr(0, &bytes[start..end]).is_none();
    for line in block {
        let (at, line) = line?;
        let line_trimmed = trim(line);
        if !line_trimmed.is_empty()
            && let Err(bad) = keys_of(line_trimmed, form, ids, plain, into)
        {
            on_bad(at, line, bad)?;
        }
    }
    Ok(())
}

/// The line at `at` without its line end, and the start of the next line.
fn line_at(bytes: &[u8], at: usize, end: usize) -> Result<(&[u8], usize), Stop> {
    let length = memchr(b'\n', &bytes[at..end]).expect("a block's last line is ended");
    if length > LINE_BYTES_MAX {
        return Err(Stop::LongLine(at));
    }
    let line = &bytes[at..at + length];
    Ok((line.strip_suffix(b"\r").unwrap_or(line), at + length + 1))
}

/// Parses a plain line. None means that the slow path must look at the line, not that it is bad.
#[inline(always)]
fn fast_line<const WEIGHTED: bool>(bytes: &[u8], at: usize, between: u8) -> Option<(u64, u64, f32, usize)> {
    let (source, mut at) = number(bytes, at)?;
    at = separator(bytes, at, between)?;
    let (target, mut at) = number(bytes, at)?;
    let mut weight = 1.0;
    if WEIGHTED {
        at = separator(bytes, at, between)?;
        let field = &bytes[at..];
        let length =
            field.iter().take(32).position(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t' | b',' | b';' | b'|'))?;
        let field = &field[..length];
        weight = float(field).ok().filter(|&weight| weight.is_finite() && (weight != 0.0 || is_zero(field)))?;
        at += length;
    }
    if *bytes.get(at)? == b'\r' {
        at += 1;
    }
    (*bytes.get(at)? == b'\n').then_some((source, target, weight, at + 1))
}

/// The position after a blank, tab or the byte `between` integers, and any blanks that follow it.
#[inline(always)]
fn separator(bytes: &[u8], at: usize, between: u8) -> Option<usize> {
    let byte = *bytes.get(at)?;
    if !is_blank(byte) && byte != between {
        return None;
    }
    let mut at = at + 1;
    while is_blank(*bytes.get(at)?) {
        at += 1;
    }
    Some(at)
}

/// The number whose digits start at `at`, and the end of its digits. None if there is no digit, or more than 64 bits.
#[inline(always)]
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let (value, digits) = up_to_eight_digits(bytes, at)?;
    match digits {
        0 => None,
        8 => long_number(bytes, at + 8, value),
        _ => Some((value, at + digits)),
    }
}

/// Continues a number after its first eight digits, whose value is `first`.
fn long_number(bytes: &[u8], at: usize, first: u64) -> Option<(u64, usize)> {
    const TENS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let (value, digits) = up_to_eight_digits(bytes, at)?;
    let (both, at) = (first * TENS[digits] + value, at + digits);
    if digits < 8 {
        return Some((both, at));
    }
    let (value, digits) = up_to_eight_digits(bytes, at)?;
    let all = both.checked_mul(TENS[digits])?.checked_add(value)?;
    (digits < 8).then_some((all, at + digits))
}

/// The value and the count of the leading digits among the next eight bytes.
#[inline(always)]
fn up_to_eight_digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().expect("eight bytes"));
    let digits = word ^ 0x3030_3030_3030_3030;
    // Sets the top bit of each byte above 9. A carry can only spoil bytes after the first one that is set.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let bits = others.trailing_zeros() & !7;
    if bits == 0 {
        return Some((0, 0));
    }
    let value = digits << (64 - bits);
    let pairs = (value & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul((10 << 8) + 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul((100 << 16) + 1) >> 16;
    let eight = (fours & 0x0000_ffff_0000_ffff).wrapping_mul((10_000 << 32) + 1) >> 32;
    Some((eight, bits as usize / 8))
}
