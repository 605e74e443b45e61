//! The files `time-axis` and `node-time-axis`: the points in time that edges or nodes of a store have.
//!
//! Times are stored as *positions* on the axis, from 0 to N - 1, in adjacency lists of their own
//! (`formats/spec/times.md`). The axis says which time a position is. Either positions count units from the first time, or a table has the
//! distinct times. [`TimeAxis::of_times`] takes the form with fewer bits.

use std::fmt;

use crate::{
    FormatError, NODES_MAX, Result,
    bytes::{Fields, check_payload_length, check_payload_slice},
    container::{FileKind, HEADER_BYTES, Header, decode_file, encode_file},
    error::invalid_if,
};

/// The name of the file.
pub const FILE: &str = "time-axis";
/// The name of the file for the times of nodes.
pub const NODE_FILE: &str = "node-time-axis";

/// Bits of a time in the table.
const TIME_BITS: u64 = 64;

/// Names of units, which are stored as their index.
const UNITS: [(TimeUnit, &str); 6] = [
    (TimeUnit::Integer, "integer"),
    (TimeUnit::Seconds, "s"),
    (TimeUnit::Milliseconds, "ms"),
    (TimeUnit::Microseconds, "us"),
    (TimeUnit::Nanoseconds, "ns"),
    (TimeUnit::Days, "days"),
];

/// What a time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Anything, such as steps or years. Dates are not comparable with it.
    Integer,
    /// Seconds since 1970-01-01 in UTC.
    Seconds,
    /// Milliseconds since then.
    Milliseconds,
    /// Microseconds since then.
    Microseconds,
    /// Nanoseconds since then.
    Nanoseconds,
    /// Days since then.
    Days,
}

impl TimeUnit {
    /// All units.
    pub const ALL: [Self; 6] =
        [Self::Integer, Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds, Self::Days];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        UNITS[self as usize].1
    }

    /// The unit of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        UNITS.iter().find(|(_, known)| *known == name).map(|&(unit, _)| unit)
    }

    /// Nanoseconds of the unit; none if it is no unit of time.
    pub fn nanoseconds(self) -> Option<i64> {
        match self {
            Self::Integer => None,
            Self::Nanoseconds => Some(1),
            Self::Microseconds => Some(1_000),
            Self::Milliseconds => Some(1_000_000),
            Self::Seconds => Some(1_000_000_000),
            Self::Days => Some(86_400_000_000_000),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The meta of the file.
///
/// ```text
/// offset  bytes  content
///      0      1  unit
///      1      1  1 if the payload has a table of the distinct times, 0 if position p is the first time plus p
///      2      6  zeros
///      8      8  the first time, an i64; 0 if there are no positions
///     16      8  N: number of positions
/// ```
///
/// The payload of a table has N times, each an i64, ascending.
const META_BYTES: usize = 24;

/// The points in time of a store.
///
/// ```
/// use grappa_formats::time_axis::{TimeAxis, TimeUnit};
///
/// // Three edges a year apart: a table is smaller than positions among 63072001 seconds.
/// let axis = TimeAxis::of_times(TimeUnit::Seconds, 300, &[0, 31_536_000, 63_072_000]);
/// assert_eq!((axis.positions(), axis.time(2)), (3, 63_072_000));
/// assert_eq!((axis.not_later(31_536_000), axis.earlier(31_536_000)), (2, 1));
/// assert_eq!(TimeAxis::decode(&axis.encode().0)?, axis);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeAxis {
    /// What times count.
    pub unit: TimeUnit,
    times: AxisTimes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AxisTimes {
    Span { first: i64, positions: u64 },
    Table(Vec<i64>),
}

/// Whether a table of `distinct` times takes fewer bits than positions among `span` units: positions in the table are shorter, but the table
/// has 64 bits for each time.
pub fn is_table_smaller(edges: u64, span: u128, distinct: u64) -> bool {
    if span > u128::from(NODES_MAX) {
        return true;
    }
    let bits = |positions: u64| u64::from(64 - positions.saturating_sub(1).leading_zeros());
    let saved = u128::from(edges) * u128::from(bits(span as u64) - bits(distinct));
    u128::from(TIME_BITS) * u128::from(distinct) < saved
}

/// The number of units from the first to the last of some times, with both.
pub fn span_of(first: i64, last: i64) -> u128 {
    (i128::from(last) - i128::from(first) + 1).unsigned_abs()
}

impl TimeAxis {
    /// An axis on which position p is `first` plus p.
    ///
    /// # Panics
    /// If there are more than 2^40 positions, or the last one is no i64.
    pub fn of_span(unit: TimeUnit, first: i64, positions: u64) -> Self {
        assert!(is_span(first, positions), "{positions} positions from {first} on");
        Self { unit, times: AxisTimes::Span { first, positions } }
    }

    /// The axis of `edges` edges with these distinct times, ascending, in the form with fewer bits.
    ///
    /// # Panics
    /// If times do not ascend, or are more than 2^40.
    pub fn of_times(unit: TimeUnit, edges: u64, distinct: &[i64]) -> Self {
        assert!(distinct.is_sorted_by(|a, b| a < b) && distinct.len() as u64 <= NODES_MAX, "distinct times ascend");
        let (Some(&first), Some(&last)) = (distinct.first(), distinct.last()) else {
            return Self::of_span(unit, 0, 0);
        };
        let span = span_of(first, last);
        match is_table_smaller(edges, span, distinct.len() as u64) {
            true => Self { unit, times: AxisTimes::Table(distinct.to_vec()) },
            false => Self::of_span(unit, first, span as u64),
        }
    }

    /// Number of positions.
    pub fn positions(&self) -> u64 {
        match &self.times {
            AxisTimes::Span { positions, .. } => *positions,
            AxisTimes::Table(times) => times.len() as u64,
        }
    }

    /// Whether a table has the times.
    pub fn is_table(&self) -> bool {
        matches!(self.times, AxisTimes::Table(_))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        match &self.times {
            AxisTimes::Span { .. } => 0,
            AxisTimes::Table(times) => 8 * times.capacity() as u64,
        }
    }

    /// The time of a position.
    ///
    /// # Panics
    /// If there is no such position.
    #[inline]
    pub fn time(&self, position: u64) -> i64 {
        match &self.times {
            AxisTimes::Span { first, positions } => {
                assert!(position < *positions, "position {position} of {positions}");
                first.wrapping_add_unsigned(position)
            }
            AxisTimes::Table(times) => times[position as usize],
        }
    }

    /// Number of positions whose time is at most `time`.
    #[inline]
    pub fn not_later(&self, time: i64) -> u64 {
        match time.checked_add(1) {
            Some(next) => self.earlier(next),
            None => self.positions(),
        }
    }

    /// Number of positions whose time is before `time`.
    #[inline]
    pub fn earlier(&self, time: i64) -> u64 {
        match &self.times {
            AxisTimes::Span { first, positions } => {
                let before = i128::from(time) - i128::from(*first);
                before.clamp(0, i128::from(*positions)) as u64
            }
            AxisTimes::Table(times) => times.partition_point(|&other| other < time) as u64,
        }
    }

    /// The position of a time. None if no position has it.
    pub fn position(&self, time: i64) -> Option<u64> {
        let position = self.earlier(time);
        (position < self.positions() && self.time(position) == time).then_some(position)
    }

    /// The file, and its digest.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        let first = if self.positions() == 0 { 0 } else { self.time(0) };
        let mut meta = vec![self.unit as u8, u8::from(self.is_table()), 0, 0, 0, 0, 0, 0];
        meta.extend_from_slice(&first.to_le_bytes());
        meta.extend_from_slice(&self.positions().to_le_bytes());
        let payload = match &self.times {
            AxisTimes::Span { .. } => Vec::new(),
            AxisTimes::Table(times) => times.iter().flat_map(|time| time.to_le_bytes()).collect(),
        };
        encode_file(FileKind::TIME_AXIS, meta, &payload)
    }

    /// Decodes the file and checks all of it.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let (header, payload) = decode_file(file, FileKind::TIME_AXIS)?;
        Self::from_payload(&header, payload)
    }

    /// Decodes a payload whose checksums were compared, and checks it.
    pub fn from_payload(header: &Header, payload: &[u8]) -> Result<Self> {
        let at = HEADER_BYTES as u64;
        let mut fields = Fields::from_header(header, META_BYTES)?;
        let (unit, form) = (fields.u8(), fields.u8());
        let Some(&(unit, _)) = UNITS.get(usize::from(unit)) else {
            return Err(FormatError::invalid(at, format!("there is no unit of time {unit}")));
        };
        invalid_if!(form > 1, at + 1, "there is no form {form} of an axis of time");
        fields.zeros::<6>()?;
        let first = fields.u64() as i64;
        let positions = fields.node_count("points in time")?;
        check_payload_length(header, Some(if form == 1 { 8 * positions } else { 0 }))?;
        check_payload_slice(header, payload)?;
        if form == 0 {
            invalid_if!(!is_span(first, positions), at + 8, "{positions} points in time from {first} on exceed an i64");
            return Ok(Self { unit, times: AxisTimes::Span { first, positions } });
        }
        let times: Vec<i64> = payload.as_chunks().0.iter().map(|time| i64::from_le_bytes(*time)).collect();
        if let Some(at) = times.windows(2).position(|pair| pair[0] >= pair[1]) {
            let offset = header.payload_offset + 8 * (at as u64 + 1);
            return Err(FormatError::invalid(offset, "the times of the table do not ascend"));
        }
        let first_of_table = times.first().copied().unwrap_or(0);
        invalid_if!(
            positions == 0 || first != first_of_table,
            at + 8,
            "the meta has the first time {first}, the table {first_of_table}"
        );
        Ok(Self { unit, times: AxisTimes::Table(times) })
    }
}

/// Whether an axis of `positions` times may begin with `first`: the last time must be an i64, and an empty axis begins with 0.
fn is_span(first: i64, positions: u64) -> bool {
    positions <= NODES_MAX
        && match positions.checked_sub(1) {
            Some(last) => first.checked_add_unsigned(last).is_some(),
            None => first == 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_form_is_taken() {
        for (edges, distinct, is_table) in [
            // Positions of 21 and of 1 bits: 100 bits saved of 10 edges, and 128 bits of table.
            (5, [0, 1 << 20].as_slice(), false),
            (7, &[0, 1 << 20], true),
            // Further apart than positions can be.
            (2, &[i64::MIN, i64::MAX], true),
            (1000, &[5, 6, 7], false),
            (1, &[-3], false),
        ] {
            let axis = TimeAxis::of_times(TimeUnit::Seconds, edges, distinct);
            assert_eq!(axis.is_table(), is_table, "{edges} {distinct:?}");
            for &time in distinct {
                let position = axis.position(time).unwrap();
                assert_eq!(
                    (axis.time(position), axis.earlier(time), axis.not_later(time)),
                    (time, position, position + 1)
                );
            }
        }
    }

    #[test]
    fn times_off_the_axis_are_before_or_after_it() {
        for axis in
            [TimeAxis::of_span(TimeUnit::Days, -2, 4), TimeAxis::of_times(TimeUnit::Days, 900, &[-2, 90, 1 << 30])]
        {
            let positions = axis.positions();
            assert_eq!((axis.earlier(i64::MIN), axis.not_later(i64::MIN)), (0, 0));
            assert_eq!((axis.earlier(i64::MAX), axis.not_later(i64::MAX)), (positions, positions));
            assert_eq!(axis.position(-3), None);
        }
    }

    #[test]
    fn an_axis_without_times_has_no_positions() {
        let axis = TimeAxis::of_times(TimeUnit::Integer, 0, &[]);
        assert_eq!((axis.positions(), axis.not_later(5)), (0, 0));
        assert_eq!(TimeAxis::decode(&axis.encode().0).unwrap(), axis);
    }
}
