//! The fields of a line: integer ids, string ids, weights.
//!
//! This is the slow path of parsing. It finds out why a line is bad.

use std::borrow::Cow;

use grappa_formats::dictionary::KEY_BYTES_MAX;
use memchr::{memchr, memchr3};

use super::{BadEdge, IdLimit, TextBatch};
use crate::{
    columns::EdgeColumns,
    separator::{Field, Separator, is_blank, trim, unquoted},
};

/// A parsed line or field, or why it is bad.
pub(super) type Checked<T> = Result<T, BadEdge>;

/// Whether a trimmed line begins as a comment does. Comments are read before the first line of data only.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'#' | b'%'))
}

/// The form of all lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineForm {
    pub separator: Separator,
    pub columns: EdgeColumns,
    pub width: usize,
    /// The number of last columns that are empty in all lines.
    pub empty_columns: usize,
    /// Whether a line with a comma, semicolon or bar contradicts the separator: it is spaces, and nobody said so.
    pub guards_spaces: bool,
}

impl LineForm {
    /// Lines of source, target and perhaps a weight.
    pub fn plain(separator: Separator, weighted: bool) -> Self {
        Self {
            separator,
            columns: EdgeColumns { source: 0, target: 1, weight: weighted.then_some(2), features: Vec::new() },
            width: if weighted { 3 } else { 2 },
            empty_columns: 0,
            guards_spaces: false,
        }
    }

    pub fn weighted(&self) -> bool {
        self.columns.weight.is_some()
    }

    pub fn values(&self) -> usize {
        self.columns.values().count()
    }

    /// Whether the first two columns have the ids, and the third one the weight, if there are more. Such lines are parsed fast.
    pub fn is_plain(&self) -> bool {
        let EdgeColumns { source, target, weight, ref features } = self.columns;
        features.is_empty()
            && source + target == 1
            && (weight, self.width) == if weight.is_some() { (Some(2), 3) } else { (None, 2) }
    }

    /// Whether the first column has the targets of plain lines.
    pub fn targets_first(&self) -> bool {
        self.columns.source > self.columns.target
    }

    /// The fields of source and target in a trimmed line. Appends the values of the edge to `values`; if the line is bad, some
    /// of them.
    fn selected<'a>(&self, line: &'a [u8], values: &mut Vec<f32>) -> Checked<[Field<'a>; 2]> {
        let mut fields = [const { Cow::Borrowed(&[] as &[u8]) }; 2];
        let start = values.len();
        values.resize(start + self.values(), 0.0);
        let mut bad = None;
        let mut found = 0;
        for field in self.separator.split(line) {
            let field = field?;
            if found == self.columns.source {
                fields[0] = field;
            } else if found == self.columns.target {
                fields[1] = field;
            } else if let Some(at) = self.columns.values().position(|column| column == found) {
                let feature = match self.columns.weight {
                    None => Some(at + 1),
                    Some(_) => (at > 0).then_some(at),
                };
                match number(&field, feature) {
                    Ok(value) => values[start + at] = value,
                    Err(fault) => bad = bad.or(Some(fault)),
                }
            } else if found + self.empty_columns >= self.width && !field.is_empty() && found < self.width {
                return Err(BadEdge::LastColumn);
            }
            found += 1;
        }
        if found != self.width {
            return Err(BadEdge::Columns { expected: self.width, found });
        }
        bad.map_or(Ok(fields), Err)
    }
}

/// The edge on a line. None on a blank line. `form` is plain.
pub(super) fn edge_of(line: &[u8], form: &LineForm, limit: IdLimit) -> Checked<Option<(u64, u64, f32)>> {
    let line = trim(line);
    if line.is_empty() {
        return Ok(None);
    }
    if is_comment(line) {
        return Err(BadEdge::Comment);
    }
    if memchr(0, line).is_some() {
        return Err(BadEdge::Nul);
    }
    let mut fields = NumberFields::of(line, form.separator);
    let columns = [fields.next(), fields.next(), fields.next()];
    let expected = form.width;
    let found = columns.iter().flatten().count() + fields.count();
    if found != expected {
        return Err(BadEdge::Columns { expected, found });
    }
    let [source, target, third] = columns;
    Ok(Some((
        integer(source.unwrap_or_default(), limit).map_err(|bad| bad.of_end(0))?,
        integer(target.unwrap_or_default(), limit).map_err(|bad| bad.of_end(1))?,
        third.map_or(Ok(1.0), |field| number(field, None))?,
    )))
}

/// The ends of the edge on a line whose columns are any. None on a blank line. Appends the values of the edge to `values`; if the
/// line is bad, some of them.
pub(super) fn selected_edge_of(
    line: &[u8],
    form: &LineForm,
    limit: IdLimit,
    values: &mut Vec<f32>,
) -> Checked<Option<(u64, u64)>> {
    let line = trim(line);
    if line.is_empty() {
        return Ok(None);
    }
    if is_comment(line) {
        return Err(BadEdge::Comment);
    }
    let [source, target] = form.selected(line, values)?;
    Ok(Some((
        integer(&source, limit).map_err(|bad| bad.of_end(0))?,
        integer(&target, limit).map_err(|bad| bad.of_end(1))?,
    )))
}

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
    if field[0] == b'+' && text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(BadEdge::Plus);
    }
    // What pandas, R and databases write where a value is missing.
    if ["NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"].contains(&text) {
        return Err(BadEdge::Null);
    }
    // pandas writes integers with a point where a value of the column is missing.
    if let Some((digits, zeros)) = text.split_once('.')
        && zeros.bytes().all(|byte| byte == b'0')
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return integer(digits.as_bytes(), limit);
    }
    // "nan" and "inf" parse as floats too. As ids they are names.
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => match id_of_float(value, f64::MANTISSA_DIGITS)? {
            id if id < limit.exclusive() => Ok(id),
            _ => Err(BadEdge::TooLarge(limit)),
        },
        _ => Err(BadEdge::NotInteger),
    }
}

/// The integer that a float is, of a type with `digits` binary digits. From 2^`digits` on, not every integer is a float, so an
/// id may have been rounded to another one.
pub(crate) fn id_of_float(value: f64, digits: u32) -> Checked<u64> {
    match value {
        _ if value.is_nan() => Err(BadEdge::Null),
        _ if value < 0.0 => Err(BadEdge::Negative),
        _ if value >= (1_u64 << digits) as f64 => Err(BadEdge::Rounded),
        _ if value.fract() != 0.0 => Err(BadEdge::Decimal),
        _ => Ok(value as u64),
    }
}

/// Parses a weight, or the feature with this number. It must be finite.
fn number(field: &[u8], feature: Option<usize>) -> Checked<f32> {
    let field = unquoted(field);
    if field.is_empty() {
        return Err(feature.map_or(BadEdge::EmptyWeight, BadEdge::EmptyFeature));
    }
    let value = float(field).map_err(|bad| feature.map_or(bad, BadEdge::Feature))?;
    if feature.is_none() && value == 0.0 && !is_zero(field) {
        return Err(BadEdge::WeightTooSmall);
    }
    match value.is_finite() {
        true => Ok(value),
        false => Err(feature.map_or(BadEdge::WeightNotFinite, BadEdge::FeatureNotFinite)),
    }
}

/// Whether a number has no digit but zeros before its exponent.
pub(super) fn is_zero(field: &[u8]) -> bool {
    let mantissa = field.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    !mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'))
}

pub(super) fn float(field: &[u8]) -> Checked<f32> {
    std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()).ok_or(BadEdge::Weight)
}

/// Splits a line into fields at blanks, or at a comma that may have blanks around it. Semicolons and bars take the place of the
/// comma if they separate the columns of the file.
pub(super) struct NumberFields<'a> {
    rest: Option<&'a [u8]>,
    byte: u8,
}

impl<'a> NumberFields<'a> {
    pub fn of(line: &'a [u8], separator: Separator) -> Self {
        Self { rest: Some(line), byte: separator.byte_between_integers() }
    }
}

impl<'a> Iterator for NumberFields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let end = rest.iter().position(|&byte| is_blank(byte) || byte == self.byte).unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        let after = trim(after);
        self.rest = match after.split_first() {
            Some((&byte, after)) if byte == self.byte => Some(trim(after)),
            None => None,
            Some(_) => Some(after),
        };
        Some(field)
    }
}

/// Parses a trimmed line with string ids and adds the edge. `plain`: the line is known to be UTF-8 without NUL bytes.
pub(super) fn keys_of(line: &[u8], form: &LineForm, plain: bool, into: &mut TextBatch) -> Checked<()> {
    if !plain && memchr(0, line).is_some() {
        return Err(BadEdge::Nul);
    }
    if !plain && std::str::from_utf8(line).is_err() {
        return Err(BadEdge::NotUtf8);
    }
    if form.guards_spaces && memchr3(b',', b';', b'|', line).is_some() {
        return Err(BadEdge::OtherSeparator);
    }
    let values = into.values.len();
    let added = keys_and_values_of(line, form, into);
    if added.is_err() {
        into.values.truncate(values);
    }
    added
}

fn keys_and_values_of(line: &[u8], form: &LineForm, into: &mut TextBatch) -> Checked<()> {
    let [source, target] = form.selected(line, &mut into.values)?;
    for (column, id) in [&source, &target].into_iter().enumerate() {
        if id.is_empty() {
            return Err(BadEdge::EmptyId.of_end(column));
        }
    }
    if source.len().max(target.len()) > KEY_BYTES_MAX {
        return Err(BadEdge::LongId);
    }
    into.sources.push(&source);
    into.targets.push(&target);
    Ok(())
}
