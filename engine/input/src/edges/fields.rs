//! The fields of a line: integer ids, string ids, weights.
//!
//! This is the slow path of parsing. It finds out why a line is bad.

use std::{borrow::Cow, sync::Arc};

use grappa_formats::dictionary::KEY_BYTES_MAX;
use memchr::{memchr, memchr3};

use super::{
    IdKind, IdLimit, TextBatch,
    bad_edge::{BadEdge, Checked},
    batch::EdgeOrder,
    encoded::EdgeEncoder,
    options::KeyForm,
    order::EdgePlace,
    time::TimeValue,
};
use crate::{
    columns::{EdgeColumns, TimeColumn},
    separator::{Field, Separator, is_blank, trim, unquoted},
    spread::Spread,
    table::Cell,
};

/// Whether a trimmed line begins as a comment does. Comments are read before the first line of data only.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'#' | b'%'))
}

/// The form of all lines of a file.
#[derive(Debug, Clone)]
pub(super) struct LineForm {
    pub separator: Separator,
    pub columns: EdgeColumns,
    /// What makes numbers of the features. None: they are numbers.
    pub encoder: Option<Arc<EdgeEncoder>>,
    /// The spread of each feature so far. None if there is an encoder, which has its own.
    spreads: Arc<[Spread]>,
    pub width: usize,
    /// The number of last columns that are empty in all lines.
    pub empty_columns: usize,
    /// Whether a line with a comma, semicolon or bar contradicts the separator: it is spaces, and nobody said so.
    pub guards_spaces: bool,
}

impl LineForm {
    /// Lines of fields that a separator divides, with values in `columns`.
    pub fn new(
        separator: Separator,
        columns: EdgeColumns,
        encoder: Option<Arc<EdgeEncoder>>,
        width: usize,
        empty_columns: usize,
    ) -> Self {
        let features = if encoder.is_none() { columns.features.len() } else { 0 };
        let spreads = Spread::columns(features).into();
        Self { separator, columns, encoder, spreads, width, empty_columns, guards_spaces: false }
    }

    /// Lines of source, target and perhaps a weight.
    pub fn plain(separator: Separator, weighted: bool) -> Self {
        let weight = weighted.then_some(2);
        let (source, target) = (0, 1);
        let columns =
            EdgeColumns { source, target, weight, features: Vec::new(), order: None, time: None, relation: None };
        Self::new(separator, columns, None, if weighted { 3 } else { 2 }, 0)
    }

    /// The spread of each column of features that are numbers.
    pub fn spreads(&self) -> &[Spread] {
        self.encoder.as_ref().map_or(&self.spreads, |encoder| encoder.spreads())
    }

    pub fn weighted(&self) -> bool {
        self.columns.weight.is_some()
    }

    /// Values of an edge: its weight and its features.
    pub fn values(&self) -> usize {
        let features = self.encoder.as_ref().map_or(self.columns.features.len(), |encoder| encoder.dim());
        usize::from(self.weighted()) + features
    }

    /// Whether the first two columns have the ids, and the third one the weight, if there are more. Such lines are parsed fast.
    pub fn is_plain(&self) -> bool {
        let EdgeColumns { source, target, weight, ref features, order, time, ref relation } = self.columns;
        features.is_empty()
            && order.is_none()
            && time.is_none()
            && relation.is_none()
            && source + target == 1
            && (weight, self.width) == if weight.is_some() { (Some(2), 3) } else { (None, 2) }
    }

    /// Whether the first column has the targets of plain lines.
    pub fn targets_first(&self) -> bool {
        self.columns.source > self.columns.target
    }

    /// The fields of source and target in a trimmed line. Appends the values of the edge to `values`, and its place to `order`; if
    /// the line is bad, some of them.
    fn selected<'a>(&self, line: &'a [u8], values: &mut Vec<f32>, order: &mut EdgeOrder) -> Checked<[Field<'a>; 2]> {
        let EdgeColumns { source, target, weight, ref features, order: order_column, time, ref relation } =
            self.columns;
        let mut ends = [const { Cow::Borrowed(&[] as &[u8]) }; 2];
        let mut encoded = match self.encoder {
            Some(_) => vec![Cow::Borrowed(&[] as &[u8]); features.len()],
            None => Vec::new(),
        };
        let start = values.len();
        let first_feature = start + usize::from(self.weighted());
        values.resize(if encoded.is_empty() { first_feature + features.len() } else { first_feature }, 0.0);
        let mut bad = None;
        let mut found = 0;
        for field in self.separator.split(line) {
            let field = field?;
            if let Some((column, name)) = relation
                && *column == found
                && *field != *name.as_bytes()
            {
                return Err(BadEdge::OtherRelation);
            }
            if order_column == Some(found) {
                match EdgePlace::from_cell(cell_of(&field)?) {
                    Ok(place) => order.push(place),
                    Err(fault) => bad = bad.or(Some(fault)),
                }
            }
            if let Some(TimeColumn { column, unit }) = time
                && column == found
            {
                let text = std::str::from_utf8(unquoted(&field)).map_err(|_| BadEdge::NotUtf8)?;
                match TimeValue::from_text(text, unit) {
                    Ok(time) => order.push_time(time),
                    Err(fault) => bad = bad.or(Some(fault)),
                }
            }
            if found == source {
                ends[0] = field;
            } else if found == target {
                ends[1] = field;
            } else if weight == Some(found) {
                match weight_of(&field) {
                    Ok(value) => values[start] = value,
                    Err(fault) => bad = bad.or(Some(fault)),
                }
            } else if let Some(at) = features.iter().position(|&column| column == found) {
                if self.encoder.is_some() {
                    encoded[at] = field;
                } else {
                    match feature_of(&field, at + 1, &self.spreads[at]) {
                        Ok(value) => values[first_feature + at] = value,
                        Err(fault) => bad = bad.or(Some(fault)),
                    }
                }
            } else if found + self.empty_columns >= self.width && !field.is_empty() && found < self.width {
                return Err(BadEdge::LastColumn);
            }
            found += 1;
        }
        if found != self.width {
            return Err(BadEdge::Columns { expected: self.width, found });
        }
        if let Some(encoder) = &self.encoder {
            for (at, field) in encoded.iter().enumerate() {
                if let Err(fault) = encoder.value(at, cell_of(field)?, values) {
                    bad = bad.or(Some(fault));
                }
            }
        }
        bad.map_or(Ok(ends), Err)
    }
}

/// The cell that a field is.
pub(super) fn cell_of<'a>(field: &'a Field<'_>) -> Checked<Cell<'a>> {
    std::str::from_utf8(unquoted(field)).map(Cell::Raw).map_err(|_| BadEdge::NotUtf8)
}

/// The edge on a line: the ids of its first two columns, with these limits. None on a blank line. `form` is plain.
pub(super) fn edge_of(line: &[u8], form: &LineForm, limits: [IdLimit; 2]) -> Checked<Option<(u64, u64, f32)>> {
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
    let mut fields = NumberFields::from_line(line, form.separator);
    let columns = [fields.next(), fields.next(), fields.next()];
    let expected = form.width;
    let found = columns.iter().flatten().count() + fields.count();
    if found != expected {
        return Err(BadEdge::Columns { expected, found });
    }
    let [source, target, third] = columns;
    Ok(Some((
        integer(source.unwrap_or_default(), limits[0]).map_err(|bad| bad.of_end(0))?,
        integer(target.unwrap_or_default(), limits[1]).map_err(|bad| bad.of_end(1))?,
        third.map_or(Ok(1.0), weight_of)?,
    )))
}

/// The ends of the edge on a line whose columns are any. None on a blank line. Appends the values of the edge to `values`, and its
/// place to `order`; if the line is bad, some of them.
pub(super) fn selected_edge_of(
    line: &[u8],
    form: &LineForm,
    limits: [IdLimit; 2],
    values: &mut Vec<f32>,
    order: &mut EdgeOrder,
) -> Checked<Option<(u64, u64)>> {
    let line = trim(line);
    if line.is_empty() {
        return Ok(None);
    }
    if is_comment(line) {
        return Err(BadEdge::Comment);
    }
    let [source, target] = form.selected(line, values, order)?;
    Ok(Some((
        integer(&source, limits[0]).map_err(|bad| bad.of_end(0))?,
        integer(&target, limits[1]).map_err(|bad| bad.of_end(1))?,
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
        return Err(BadEdge::NullId);
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
        _ if value.is_nan() => Err(BadEdge::NullId),
        _ if value < 0.0 => Err(BadEdge::Negative),
        _ if value >= (1_u64 << digits) as f64 => Err(BadEdge::Rounded),
        _ if value.fract() != 0.0 => Err(BadEdge::Decimal),
        _ => Ok(value as u64),
    }
}

/// Parses a weight. It must be finite, and zero only if its digits are.
fn weight_of(field: &[u8]) -> Checked<f32> {
    let field = unquoted(field);
    if field.is_empty() {
        return Err(BadEdge::EmptyWeight);
    }
    match float(field)? {
        0.0 if !is_zero(field) => Err(BadEdge::WeightTooSmall),
        weight if weight.is_finite() => Ok(weight),
        _ => Err(BadEdge::WeightNotFinite),
    }
}

/// Parses the feature with this number, which must be finite, and adds it to its spread.
fn feature_of(field: &[u8], number: usize, spread: &Spread) -> Checked<f32> {
    let field = unquoted(field);
    if field.is_empty() {
        return Err(BadEdge::EmptyFeature(number));
    }
    match std::str::from_utf8(field).ok().and_then(|text| spread.parse(text)) {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(BadEdge::FeatureNotFinite(number)),
        None => Err(BadEdge::Feature(number)),
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
    pub fn from_line(line: &'a [u8], separator: Separator) -> Self {
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
pub(super) fn keys_of(line: &[u8], form: &LineForm, ids: KeyForm, plain: bool, into: &mut TextBatch) -> Checked<()> {
    if !plain && memchr(0, line).is_some() {
        return Err(BadEdge::Nul);
    }
    if !plain && std::str::from_utf8(line).is_err() {
        return Err(BadEdge::NotUtf8);
    }
    if form.guards_spaces && memchr3(b',', b';', b'|', line).is_some() {
        return Err(BadEdge::OtherSeparator);
    }
    let (values, places) = (into.values.len(), into.order.lengths());
    let added = keys_and_values_of(line, form, ids, into);
    if added.is_err() {
        into.values.truncate(values);
        into.order.truncate_to(places);
    }
    added
}

fn keys_and_values_of(line: &[u8], form: &LineForm, ids: KeyForm, into: &mut TextBatch) -> Checked<()> {
    let [source, target] = form.selected(line, &mut into.values, &mut into.order)?;
    for (column, id) in [&source, &target].into_iter().enumerate() {
        if id.is_empty() {
            return Err(BadEdge::EmptyId.of_end(column));
        }
    }
    let KeyForm { kinds, limits } = ids;
    let mut integers = [None; 2];
    for (column, id) in [&source, &target].into_iter().enumerate() {
        match kinds[column] {
            IdKind::Integer => {
                let id = integer(id, limits[column]).map_err(|bad| bad.of_end(column))?;
                integers[column] = Some(id.to_be_bytes());
            }
            IdKind::String if id.len() > KEY_BYTES_MAX => return Err(BadEdge::LongId),
            IdKind::String => {}
        }
    }
    let [source_integer, target_integer] = &integers;
    into.sources.push(source_integer.as_ref().map_or(&source, |id| id.as_slice()));
    into.targets.push(target_integer.as_ref().map_or(&target, |id| id.as_slice()));
    Ok(())
}
