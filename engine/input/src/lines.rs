//! Lines of text into edges, at more than half a gigabyte a second and thread.
//!
//! A line is `source target` or `source target weight`, separated by blanks, tabs or one comma; `#` and `%` begin a
//! comment line; a line ends in LF or CRLF. Nearly every line of nearly every file is digits, a separator, digits, a
//! line end, so that is what the fast path takes, eight digits at a time:
//!
//! ```text
//! word   = the next eight bytes, first byte lowest
//! digits = how many of them, from the first, are '0'..='9'      (one add, two masks, count trailing zeros)
//! number = those digits shifted to the top, so that what is missing reads as leading zeros;
//!          then pairs, fours and eights are combined by three multiplications
//! ```
//!
//! Whatever does not fit goes to the slow path, which takes the line apart field by field and knows why it is bad. A
//! bad line costs nothing until there is one.

use std::borrow::Cow;

use grappa_formats::dictionary::KEY_BYTES_MAX;
use grappa_io::Result;
use memchr::memchr;

use super::{
    batch::{EdgeBatch, TextBatch},
    file::{LINE_BYTES_MAX, long_line, shown},
};

/// So many readable bytes follow the last line of a block, so that words can be loaded without looking where it ends.
pub(super) const PADDING: usize = 32;

/// Below which ids must be, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdLimit {
    /// Dense ids: below 2^40.
    Dense,
    /// `--nodes`: dense ids below this.
    Nodes(u64),
    /// Sparse ids: anything in 64 bits but the last number.
    Sparse,
}

impl IdLimit {
    /// The least id that is too large.
    pub fn exclusive(self) -> u64 {
        match self {
            Self::Dense => grappa_formats::NODES_MAX,
            Self::Nodes(nodes) => nodes.min(grappa_formats::NODES_MAX),
            Self::Sparse => u64::MAX,
        }
    }
}

/// Why a line or row is no edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEdge {
    /// Not as many columns as the first line.
    Columns {
        /// As in the first line.
        expected: usize,
        /// In this one.
        found: usize,
    },
    /// An id without a character.
    EmptyId,
    /// An id of more bytes than a dictionary takes.
    LongId,
    /// An id that is not an integer.
    NotInteger,
    /// An id with a fraction or an exponent.
    Decimal,
    /// An id below zero.
    Negative,
    /// An id at or beyond the limit.
    TooLarge(IdLimit),
    /// A weight that is not a number.
    Weight,
    /// A weight that is NaN or infinite.
    WeightNotFinite,
    /// A quoted field that does not end, or has something after its end.
    Quote,
    /// A NUL byte.
    Nul,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A missing value in a column (Parquet).
    Null,
}

impl BadEdge {
    /// What is wrong in one sentence, without the line and the remedy.
    pub fn reason(self) -> String {
        match self {
            Self::Columns { expected, found } => {
                let columns = if expected == 2 {
                    "source, target"
                } else {
                    "source, target, weight"
                };
                format!("expected {expected} columns ({columns}), found {found}")
            }
            Self::EmptyId => "a node id is empty".to_owned(),
            Self::LongId => format!("a node id is longer than {KEY_BYTES_MAX} bytes"),
            Self::NotInteger => "a node id is not an integer".to_owned(),
            Self::Decimal => "a node id is a decimal number, not an integer".to_owned(),
            Self::Negative => "a node id is negative".to_owned(),
            Self::TooLarge(IdLimit::Dense) => "a node id is too large: dense ids are below 2^40".to_owned(),
            Self::TooLarge(IdLimit::Nodes(nodes)) => {
                format!("a node id is not below the number of nodes, {nodes}")
            }
            Self::TooLarge(IdLimit::Sparse) => "a node id is too large for 64 bits".to_owned(),
            Self::Weight => "the weight is not a number".to_owned(),
            Self::WeightNotFinite => "the weight is not finite".to_owned(),
            Self::Quote => "a quoted field is not closed, or does not end at a comma".to_owned(),
            Self::Nul => "the line holds a NUL byte".to_owned(),
            Self::NotUtf8 => "the line is not UTF-8".to_owned(),
            Self::Null => "a value is missing".to_owned(),
        }
    }

    /// What the user can do about it, besides mending the line or skipping it.
    fn remedy(self) -> &'static str {
        match self {
            Self::NotInteger => "names need --ids string, a header line needs --format csv; else ",
            Self::Negative => "arbitrary keys need --ids string; else ",
            Self::TooLarge(IdLimit::Dense) => "large scattered ids need --ids sparse; else ",
            Self::TooLarge(IdLimit::Nodes(_)) => {
                "raise or omit --nodes (without it, features and labels have a row for each node there is), or "
            }
            Self::TooLarge(IdLimit::Sparse) => "arbitrary keys need --ids string; else ",
            Self::Nul => "a binary file needs --format (npy, u32, u64 or parquet), UTF-16 must become UTF-8; else ",
            Self::NotUtf8 => "convert the file (iconv -t utf-8), or ",
            Self::Columns { .. }
            | Self::EmptyId
            | Self::LongId
            | Self::Decimal
            | Self::Weight
            | Self::WeightNotFinite
            | Self::Quote
            | Self::Null => "",
        }
    }

    /// The whole message about `line`.
    pub(super) fn message(self, line: &[u8]) -> String {
        format!(
            "{}: {}; {}mend it or leave it out with --on-bad-line skip",
            self.reason(),
            shown(line),
            self.remedy()
        )
    }
}

/// Hears of bad lines: the line's offset in the block's bytes, its text, and what is wrong. An error ends the block.
pub(super) type OnBad<'a> = dyn FnMut(usize, &[u8], BadEdge) -> Result<()> + 'a;

/// Hears of a line that is too long to be one.
pub(super) type OnLong<'a> = dyn Fn(usize, String) -> grappa_io::Error + 'a;

/// Whole lines, each ended by LF, followed by [`PADDING`] readable bytes.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> Block<'a> {
    /// The lines in `bytes[start..end]`.
    pub fn new(bytes: &'a [u8], start: usize, end: usize) -> Self {
        assert!(bytes.len() >= end + PADDING, "a block needs padding behind it");
        assert!(
            start == end || bytes[end - 1] == b'\n',
            "a block's last line must be ended"
        );
        Self { bytes, start, end }
    }

    /// How many lines there are at most.
    fn lines(&self) -> usize {
        memchr::memchr_iter(b'\n', &self.bytes[self.start..self.end]).count()
    }
}

/// What came of a line or field, or why it is bad.
type Checked<T> = std::result::Result<T, BadEdge>;

/// Parses integer ids.
pub(super) fn parse_edges(
    block: Block<'_>,
    weighted: bool,
    limit: IdLimit,
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
    on_long: &OnLong<'_>,
) -> Result<()> {
    // Counting first costs a thirtieth of the parsing, and keeps the batch as small as its edges.
    into.reserve(block.lines(), weighted);
    if weighted {
        parse_integers::<true>(block, limit, into, on_bad, on_long)
    } else {
        parse_integers::<false>(block, limit, into, on_bad, on_long)
    }
}

fn parse_integers<const WEIGHTED: bool>(
    block: Block<'_>,
    limit: IdLimit,
    into: &mut EdgeBatch,
    on_bad: &mut OnBad<'_>,
    on_long: &OnLong<'_>,
) -> Result<()> {
    let Block { bytes, start, end } = block;
    let exclusive = limit.exclusive();
    let mut at = start;
    while at < end {
        if let Some((source, target, weight, next)) = fast_line::<WEIGHTED>(bytes, at)
            && source.max(target) < exclusive
        {
            into.sources.push(source);
            into.targets.push(target);
            if WEIGHTED {
                into.weights.push(weight);
            }
            at = next;
            continue;
        }
        let (line, next) = line_at(bytes, at, end, on_long)?;
        match edge_of(line, WEIGHTED, limit) {
            Ok(None) => {}
            Ok(Some((source, target, weight))) => {
                into.sources.push(source);
                into.targets.push(target);
                if WEIGHTED {
                    into.weights.push(weight);
                }
            }
            Err(bad) => on_bad(at, line, bad)?,
        }
        at = next;
    }
    Ok(())
}

/// The line at `at` without its end, and where the next one starts.
fn line_at<'a>(bytes: &'a [u8], at: usize, end: usize, on_long: &OnLong<'_>) -> Result<(&'a [u8], usize)> {
    let length = memchr(b'\n', &bytes[at..end]).expect("a block's last line is ended");
    if length > LINE_BYTES_MAX {
        return Err(on_long(at, long_line(LINE_BYTES_MAX)));
    }
    let line = &bytes[at..at + length];
    Ok((line.strip_suffix(b"\r").unwrap_or(line), at + length + 1))
}

/// Takes a plain line, or says none: not that it is bad, only that it wants a closer look.
#[inline(always)]
fn fast_line<const WEIGHTED: bool>(bytes: &[u8], at: usize) -> Option<(u64, u64, f32, usize)> {
    let (source, mut at) = number(bytes, at)?;
    at = separator(bytes, at)?;
    let (target, mut at) = number(bytes, at)?;
    let mut weight = 1.0;
    if WEIGHTED {
        at = separator(bytes, at)?;
        let field = &bytes[at..];
        let length = field
            .iter()
            .take(32)
            .position(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t' | b','))?;
        weight = float(&field[..length]).ok().filter(|weight| weight.is_finite())?;
        at += length;
    }
    if *bytes.get(at)? == b'\r' {
        at += 1;
    }
    (*bytes.get(at)? == b'\n').then_some((source, target, weight, at + 1))
}

/// Skips a blank, tab or comma, and blanks after it.
#[inline(always)]
fn separator(bytes: &[u8], at: usize) -> Option<usize> {
    if !matches!(bytes.get(at)?, b'\t' | b' ' | b',') {
        return None;
    }
    let mut at = at + 1;
    while is_blank(*bytes.get(at)?) {
        at += 1;
    }
    Some(at)
}

/// The number whose digits start at `at`, and where they end; none if there is no digit, or it exceeds 64 bits.
#[inline(always)]
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let (value, digits) = up_to_eight_digits(bytes, at)?;
    match digits {
        0 => None,
        8 => long_number(bytes, at + 8, value),
        _ => Some((value, at + digits)),
    }
}

/// Goes on with a number of which eight digits are read.
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

/// The value of the leading digits among the next eight bytes, and how many they are.
#[inline(always)]
fn up_to_eight_digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().expect("eight bytes"));
    let digits = word ^ 0x3030_3030_3030_3030;
    // The top bit of a byte is set where it is above 9. A carry out of a byte only disturbs bytes after one that is set.
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

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Blanks at both ends removed.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&b| !is_blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|&b| !is_blank(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Whether a line holds nothing to parse. `line` is trimmed.
pub(super) fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b'#' | b'%'))
}

fn float(field: &[u8]) -> Checked<f32> {
    std::str::from_utf8(field)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(BadEdge::Weight)
}

/// Parses a weight, which must be finite.
fn weight(field: &[u8]) -> Checked<f32> {
    let weight = float(unquoted(field))?;
    if weight.is_finite() {
        Ok(weight)
    } else {
        Err(BadEdge::WeightNotFinite)
    }
}

fn unquoted(field: &[u8]) -> &[u8] {
    field
        .strip_prefix(b"\"")
        .and_then(|field| field.strip_suffix(b"\""))
        .unwrap_or(field)
}

/// The edge on a line, none on a blank or comment line.
fn edge_of(line: &[u8], weighted: bool, limit: IdLimit) -> Checked<Option<(u64, u64, f32)>> {
    let line = trim(line);
    if is_comment(line) {
        return Ok(None);
    }
    if memchr(0, line).is_some() {
        return Err(BadEdge::Nul);
    }
    let mut fields = NumberFields { rest: Some(line) };
    let columns = [fields.next(), fields.next(), fields.next()];
    let expected = if weighted { 3 } else { 2 };
    let found = columns.iter().flatten().count() + fields.count();
    if found != expected {
        return Err(BadEdge::Columns { expected, found });
    }
    let [source, target, third] = columns;
    Ok(Some((
        integer(source.unwrap_or_default(), limit)?,
        integer(target.unwrap_or_default(), limit)?,
        third.map_or(Ok(1.0), weight)?,
    )))
}

/// Parses one integer id, slowly.
pub(super) fn integer(field: &[u8], limit: IdLimit) -> Checked<u64> {
    let field = unquoted(field);
    if field.is_empty() {
        return Err(BadEdge::EmptyId);
    }
    let Ok(text) = std::str::from_utf8(field) else {
        return Err(BadEdge::NotUtf8);
    };
    if field.iter().all(u8::is_ascii_digit) {
        return match text.parse() {
            Ok(id) if id < limit.exclusive() => Ok(id),
            _ => Err(BadEdge::TooLarge(limit)),
        };
    }
    if field[0] == b'-' && field.len() > 1 && field[1..].iter().all(u8::is_ascii_digit) {
        return Err(BadEdge::Negative);
    }
    // "nan" and "inf" parse too; as ids they are names.
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(BadEdge::Decimal);
    }
    Err(BadEdge::NotInteger)
}

/// Fields separated by blanks, or a comma that may have blanks around it.
struct NumberFields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for NumberFields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let end = rest
            .iter()
            .position(|&byte| is_blank(byte) || byte == b',')
            .unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        let after = trim(after);
        self.rest = match after.strip_prefix(b",") {
            Some(after) => Some(trim(after)),
            None if after.is_empty() => None,
            None => Some(after),
        };
        Some(field)
    }
}

/// What separates string keys. Unlike numbers, keys may contain what separates them elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySeparator {
    /// A comma; a field may be in double quotes, with doubled quotes inside.
    Comma,
    /// One tab.
    Tab,
    /// A run of blanks or tabs.
    Blanks,
}

impl KeySeparator {
    /// Splits a trimmed line into its fields, each trimmed and unquoted. At most four are split off: more is too many.
    pub fn fields<'a>(self, line: &'a [u8]) -> Checked<Fields<'a>> {
        let mut fields = Fields {
            fields: [const { Cow::Borrowed(&[]) }; FIELDS_MAX],
            count: 0,
        };
        let mut rest = Some(line);
        while let Some(text) = rest
            && fields.count < FIELDS_MAX
        {
            // An empty column between two tabs is one, and not a wider gap.
            let text = if self == Self::Tab { text } else { trim(text) };
            if self == Self::Comma && text.first() == Some(&b'"') {
                let (field, after) = quoted(text)?;
                fields.push(field);
                rest = match after {
                    [] => None,
                    [b',', after @ ..] => Some(after),
                    _ => return Err(BadEdge::Quote),
                };
                continue;
            }
            let end = match self {
                Self::Comma => memchr(b',', text),
                Self::Tab => memchr(b'\t', text),
                Self::Blanks => memchr::memchr2(b' ', b'\t', text),
            };
            match end {
                Some(end) => {
                    fields.push(trim(&text[..end]).into());
                    rest = Some(&text[end + 1..]);
                }
                None => {
                    fields.push(trim(text).into());
                    rest = None;
                }
            }
        }
        Ok(fields)
    }
}

/// The most fields a line is split into: one more than an edge with a weight has.
const FIELDS_MAX: usize = 4;

/// The fields of a line. They are no vector, because allocating one would take longer than splitting the line.
pub(super) struct Fields<'a> {
    fields: [Cow<'a, [u8]>; FIELDS_MAX],
    count: usize,
}

impl<'a> Fields<'a> {
    fn push(&mut self, field: Cow<'a, [u8]>) {
        self.fields[self.count] = field;
        self.count += 1;
    }
}

impl<'a> std::ops::Deref for Fields<'a> {
    type Target = [Cow<'a, [u8]>];

    fn deref(&self) -> &Self::Target {
        &self.fields[..self.count]
    }
}

/// Takes the quoted field that `text` starts with; what follows it is trimmed on the left.
fn quoted(text: &[u8]) -> Checked<(Cow<'_, [u8]>, &[u8])> {
    let mut field = Vec::new();
    let mut rest = &text[1..];
    loop {
        let end = memchr(b'"', rest).ok_or(BadEdge::Quote)?;
        field.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.first() {
            Some(b'"') => {
                field.push(b'"');
                rest = &rest[1..];
            }
            _ => return Ok((field.into(), trim(rest))),
        }
    }
}

/// Parses string keys.
pub(super) fn parse_keys(
    block: Block<'_>,
    weighted: bool,
    separator: KeySeparator,
    into: &mut TextBatch,
    on_bad: &mut OnBad<'_>,
    on_long: &OnLong<'_>,
) -> Result<()> {
    let Block { bytes, start, end } = block;
    // One check of the block spares nearly all checks of lines.
    let plain = std::str::from_utf8(&bytes[start..end]).is_ok() && memchr(0, &bytes[start..end]).is_none();
    let mut at = start;
    while at < end {
        let (line, next) = line_at(bytes, at, end, on_long)?;
        let line_trimmed = trim(line);
        if !is_comment(line_trimmed) {
            match keys_of(line_trimmed, weighted, separator, plain, into) {
                Ok(()) => {}
                Err(bad) => on_bad(at, line, bad)?,
            }
        }
        at = next;
    }
    Ok(())
}

/// `plain`: the line is known to be UTF-8 without NUL bytes.
fn keys_of(line: &[u8], weighted: bool, separator: KeySeparator, plain: bool, into: &mut TextBatch) -> Checked<()> {
    if !plain && memchr(0, line).is_some() {
        return Err(BadEdge::Nul);
    }
    if !plain && std::str::from_utf8(line).is_err() {
        return Err(BadEdge::NotUtf8);
    }
    let fields = separator.fields(line)?;
    let expected = if weighted { 3 } else { 2 };
    if fields.len() != expected {
        return Err(BadEdge::Columns {
            expected,
            found: fields.len(),
        });
    }
    if fields[0].is_empty() || fields[1].is_empty() {
        return Err(BadEdge::EmptyId);
    }
    if fields[0].len().max(fields[1].len()) > KEY_BYTES_MAX {
        return Err(BadEdge::LongId);
    }
    if weighted {
        into.weights.push(weight(&fields[2])?);
    }
    into.sources.push(&fields[0]);
    into.targets.push(&fields[1]);
    Ok(())
}

/// What the first lines of a file say about the rest.
pub(super) struct Sniffed {
    /// 2, or 3 with a weight.
    pub columns: usize,
    pub separator: KeySeparator,
}

/// What columns of sources are called, most telling first.
pub(super) const SOURCE_NAMES: [&str; 10] = [
    "source",
    "src",
    "from",
    "source_id",
    "src_id",
    "from_id",
    "u",
    "head",
    "subject",
    "start",
];

/// What columns of targets are called.
pub(super) const TARGET_NAMES: [&str; 11] = [
    "target",
    "dst",
    "dest",
    "to",
    "target_id",
    "dst_id",
    "to_id",
    "v",
    "tail",
    "object",
    "end",
];

/// Whether `line` (trimmed, not a comment) is a header: in CSV no field is a number; anywhere the first two are names that
/// columns of sources and targets go by.
pub(super) fn is_header(line: &[u8], csv: bool, strings: bool) -> bool {
    let fields: Vec<&[u8]> = NumberFields { rest: Some(line) }.collect();
    if fields.len() < 2 {
        return false;
    }
    let is_one_of = |field: &[u8], names: &[&str]| {
        let field = unquoted(field);
        names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    };
    if is_one_of(fields[0], &SOURCE_NAMES) && is_one_of(fields[1], &TARGET_NAMES) {
        return true;
    }
    csv && !strings
        && fields
            .iter()
            .all(|field| std::str::from_utf8(unquoted(field)).is_ok_and(|text| text.parse::<f64>().is_err()))
        && fields.iter().take(2).all(|field| !field.is_empty())
}

/// Tells columns and separator from a data line, or why it is bad under either number of columns.
pub(super) fn sniff(line: &[u8], csv: bool, strings: bool, limit: IdLimit) -> Checked<Sniffed> {
    let separator = if csv {
        KeySeparator::Comma
    } else if memchr(b'\t', line).is_some() {
        KeySeparator::Tab
    } else {
        KeySeparator::Blanks
    };
    let columns = if strings {
        separator.fields(line)?.len()
    } else {
        NumberFields { rest: Some(line) }.count()
    };
    let weighted = columns >= 3;
    if strings {
        keys_of(line, weighted, separator, false, &mut TextBatch::default())?;
    } else {
        edge_of(line, weighted, limit)?;
    }
    Ok(Sniffed {
        columns: if weighted { 3 } else { 2 },
        separator,
    })
}
