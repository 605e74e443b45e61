//! The fields of a line: integer ids, string ids, weights.
//!
//! This is the slow path of parsing. It finds out why a line is bad.

use std::borrow::Cow;

use grappa_formats::dictionary::KEY_BYTES_MAX;
use memchr::memchr;

use super::{BadEdge, IdLimit, TextBatch};

/// A parsed line or field, or why it is bad.
pub(super) type Checked<T> = Result<T, BadEdge>;

/// A field without quotes.
pub(crate) type Field<'a> = Cow<'a, [u8]>;

/// Removes blanks and tabs from both ends.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&b| !is_blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|&b| !is_blank(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Whether a trimmed line is empty or a comment.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b'#' | b'%'))
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The edge on a line. None on a blank or comment line.
pub(super) fn edge_of(line: &[u8], weighted: bool, limit: IdLimit) -> Checked<Option<(u64, u64, f32)>> {
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

/// Parses one integer id.
pub(crate) fn integer(field: &[u8], limit: IdLimit) -> Checked<u64> {
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
    if field[0] == b'+' && field.len() > 1 && field[1..].iter().all(u8::is_ascii_digit) {
        return Err(BadEdge::Plus);
    }
    // "nan" and "inf" parse as floats too. As ids they are names.
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(BadEdge::Decimal);
    }
    Err(BadEdge::NotInteger)
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

pub(super) fn float(field: &[u8]) -> Checked<f32> {
    std::str::from_utf8(field)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(BadEdge::Weight)
}

pub(super) fn unquoted(field: &[u8]) -> &[u8] {
    field
        .strip_prefix(b"\"")
        .and_then(|field| field.strip_suffix(b"\""))
        .unwrap_or(field)
}

/// Splits a line into fields at blanks, or at a comma that may have blanks around it.
pub(super) struct NumberFields<'a> {
    pub rest: Option<&'a [u8]>,
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

/// The separator of string ids. Unlike numbers, string ids may contain the separators of other formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySeparator {
    /// A comma. A field may be in double quotes, with quotes inside doubled.
    Comma,
    /// One tab.
    Tab,
    /// A run of blanks or tabs.
    Blanks,
}

impl KeySeparator {
    /// Splits a trimmed line into trimmed and unquoted fields. It stops after four, which is one more than an edge has.
    pub(super) fn fields<'a>(self, line: &'a [u8]) -> Checked<Fields<'a>> {
        let mut fields = Fields {
            fields: [const { Cow::Borrowed(&[]) }; FIELDS_MAX],
            count: 0,
        };
        let mut rest = Some(line);
        while let Some(text) = rest
            && fields.count < FIELDS_MAX
        {
            let (field, after) = self.first(text)?;
            fields.push(field);
            rest = after;
        }
        Ok(fields)
    }

    /// The first field of `text`, trimmed and without quotes, and what follows its separator.
    pub fn first(self, text: &[u8]) -> Checked<(Field<'_>, Option<&[u8]>)> {
        // Two tabs in a row enclose an empty column; two blanks are one gap.
        let text = if self == Self::Tab { text } else { trim(text) };
        if self == Self::Comma && text.first() == Some(&b'"') {
            let (field, after) = quoted(text)?;
            return match after {
                [] => Ok((field, None)),
                [b',', after @ ..] => Ok((field, Some(after))),
                _ => Err(BadEdge::Quote),
            };
        }
        let end = match self {
            Self::Comma => memchr(b',', text),
            Self::Tab => memchr(b'\t', text),
            Self::Blanks => memchr::memchr2(b' ', b'\t', text),
        };
        Ok(match end {
            Some(end) => (trim(&text[..end]).into(), Some(&text[end + 1..])),
            None => (trim(text).into(), None),
        })
    }
}

/// The most fields that a line is split into: one more than an edge with a weight has.
const FIELDS_MAX: usize = 4;

/// The fields of a line. An array and not a vector, because allocating would take longer than splitting the line.
pub(super) struct Fields<'a> {
    fields: [Field<'a>; FIELDS_MAX],
    count: usize,
}

impl<'a> Fields<'a> {
    fn push(&mut self, field: Field<'a>) {
        self.fields[self.count] = field;
        self.count += 1;
    }
}

impl<'a> std::ops::Deref for Fields<'a> {
    type Target = [Field<'a>];

    fn deref(&self) -> &Self::Target {
        &self.fields[..self.count]
    }
}

/// Parses the quoted field at the start of `text`. Returns it and the rest, trimmed.
fn quoted(text: &[u8]) -> Checked<(Field<'_>, &[u8])> {
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

/// Parses a trimmed line with string ids and adds the edge. `plain`: the line is known to be UTF-8 without NUL bytes.
pub(super) fn keys_of(
    line: &[u8],
    weighted: bool,
    separator: KeySeparator,
    plain: bool,
    into: &mut TextBatch,
) -> Checked<()> {
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
