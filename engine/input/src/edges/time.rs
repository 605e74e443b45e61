//! Times of edges and nodes: exact integers in a unit.

use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{
        Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
        UInt64Type,
    },
};
use arrow_schema::{DataType, TimeUnit as ArrowUnit};
use grappa_formats::time_axis::TimeUnit;

use super::bad_edge::{BadEdge, Checked};
use crate::{
    columnar::values::{numbers, text},
    table::{Moment, is_missing, moment_of},
};

/// Integers from here on are not exact as floats.
const EXACT_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A time of an edge or a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeValue {
    /// The time in the unit of the store; 0 if it is not known.
    pub value: i64,
    /// The coarsest unit in which the value is whole: the unit of its type, or of the digits of its text.
    pub unit: TimeUnit,
}

impl TimeValue {
    /// The time that an integer says, which counts units of the store.
    fn from_integer(value: i64) -> Checked<Self> {
        match value {
            // The sort of distinct times has no room for it.
            i64::MAX => Err(BadEdge::TimeTooLarge),
            value => Ok(Self { value, unit: TimeUnit::Integer }),
        }
    }

    /// The time that a count of `own` units since 1970 says.
    fn from_count(count: i64, own: TimeUnit, unit: Option<TimeUnit>) -> Checked<Self> {
        let Some(unit) = unit else { return Ok(Self { value: 0, unit: own }) };
        let Some((of_own, of_unit)) = own.nanoseconds().zip(unit.nanoseconds()) else {
            return Err(BadEdge::TimeIsDate);
        };
        let nanoseconds = i128::from(count) * i128::from(of_own);
        if nanoseconds % i128::from(of_unit) != 0 {
            return Err(BadEdge::TimeNotWhole(unit));
        }
        match i64::try_from(nanoseconds / i128::from(of_unit)) {
            Ok(value) if value < i64::MAX => Ok(Self { value, unit: own }),
            _ => Err(BadEdge::TimeTooLarge),
        }
    }

    /// The time that a float says.
    fn from_float(value: f64) -> Checked<Self> {
        match value {
            _ if value.is_nan() => Err(BadEdge::NoTime),
            _ if value.fract() != 0.0 => Err(BadEdge::TimeFraction),
            _ if value.abs() >= EXACT_MAX => Err(BadEdge::TimeTooLarge),
            _ => Self::from_integer(value as i64),
        }
    }

    /// The time that a text says: an integer, a date, or a date and a time of the day.
    pub fn from_text(text: &str, unit: Option<TimeUnit>) -> Checked<Self> {
        let text = text.trim();
        if is_missing(text) {
            return Err(BadEdge::NoTime);
        }
        if let Ok(value) = text.parse() {
            return Self::from_integer(value);
        }
        if let Some(Moment { nanoseconds, unit: own }) = moment_of(text) {
            let count = nanoseconds / i128::from(own.nanoseconds().expect("moments have a unit of time"));
            return Self::from_count(i64::try_from(count).map_err(|_| BadEdge::TimeTooLarge)?, own, unit);
        }
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadEdge::TimeTooLarge);
        }
        // pandas writes integers with a point where a value of the column is missing.
        if let Some((whole, zeros)) = text.split_once('.')
            && zeros.bytes().all(|byte| byte == b'0')
            && let Ok(value) = whole.parse()
        {
            return Self::from_integer(value);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Self::from_float(value),
            _ => Err(BadEdge::Time),
        }
    }
}

/// Calls `each` with the time of each row of a column.
pub(crate) fn times_of(array: &ArrayRef, unit: Option<TimeUnit>, mut each: impl FnMut(usize, Checked<TimeValue>)) {
    let integers: Vec<Checked<TimeValue>> = match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::Int16 => array.as_primitive::<Int16Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::Int32 => array.as_primitive::<Int32Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::Int64 => array.as_primitive::<Int64Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().values().iter().map(|&v| integer(v)).collect(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            numbers(array).into_iter().map(TimeValue::from_float).collect()
        }
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().values();
            days.iter().map(|&days| TimeValue::from_count(days.into(), TimeUnit::Days, unit)).collect()
        }
        DataType::Date64 => {
            let counts = array.as_primitive::<Date64Type>().values();
            counts.iter().map(|&count| TimeValue::from_count(count, TimeUnit::Milliseconds, unit)).collect()
        }
        DataType::Timestamp(..) => {
            let (counts, own) = timestamps(array).expect("an array of timestamps");
            counts.iter().map(|&count| TimeValue::from_count(count, own, unit)).collect()
        }
        // Other types are texts, or were refused when the column was found.
        _ => (0..array.len())
            .map(|row| match text(array, row).map(str::from_utf8) {
                None => Err(BadEdge::NoTime),
                Some(Ok(text)) => TimeValue::from_text(text, unit),
                Some(Err(_)) => Err(BadEdge::BinaryValue),
            })
            .collect(),
    };
    for (row, time) in integers.into_iter().enumerate() {
        each(row, if array.is_null(row) { Err(BadEdge::NoTime) } else { time });
    }
}

/// The counts of an array of timestamps, and what they count. None if the array has other values.
pub(crate) fn timestamps(array: &ArrayRef) -> Option<(&[i64], TimeUnit)> {
    let DataType::Timestamp(own, _) = array.data_type() else { return None };
    Some(match own {
        ArrowUnit::Second => (array.as_primitive::<TimestampSecondType>().values(), TimeUnit::Seconds),
        ArrowUnit::Millisecond => (array.as_primitive::<TimestampMillisecondType>().values(), TimeUnit::Milliseconds),
        ArrowUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().values(), TimeUnit::Microseconds),
        ArrowUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().values(), TimeUnit::Nanoseconds),
    })
}

/// The coarsest unit of seconds, ms, us and ns in which a count of `own` units is whole.
pub(crate) fn coarsest_unit(count: i64, own: TimeUnit) -> TimeUnit {
    let coarser = [TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds].into_iter().filter_map(|unit| {
        let own_in_unit = unit.nanoseconds()? / own.nanoseconds()?;
        (own_in_unit > 0 && count % own_in_unit == 0).then_some(unit)
    });
    coarser.min_by_key(|unit| std::cmp::Reverse(unit.nanoseconds())).unwrap_or(own)
}

fn integer(value: impl TryInto<i64>) -> Checked<TimeValue> {
    value.try_into().map_err(|_| BadEdge::TimeTooLarge).and_then(TimeValue::from_integer)
}

/// The unit of a store for times whose texts and types have these units, as bits: the finest. None if there are none.
///
/// # Errors
/// If there are integers and dates.
pub(crate) fn unit_of(units: u8) -> Result<Option<TimeUnit>, &'static str> {
    let has = |unit: TimeUnit| units & bit_of(unit) != 0;
    if has(TimeUnit::Integer) && units != bit_of(TimeUnit::Integer) {
        return Err("the column of --time has both integers and dates; write all of its values in one way");
    }
    let finest_first = [
        TimeUnit::Integer,
        TimeUnit::Nanoseconds,
        TimeUnit::Microseconds,
        TimeUnit::Milliseconds,
        TimeUnit::Seconds,
        TimeUnit::Days,
    ];
    Ok(finest_first.into_iter().find(|&unit| has(unit)))
}

/// The bit of a unit in a set of units.
pub(crate) fn bit_of(unit: TimeUnit) -> u8 {
    1 << unit as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_in_the_unit_of_the_store() {
        use TimeUnit::{Days, Integer, Milliseconds, Nanoseconds, Seconds};
        for (text, unit, expected) in [
            ("1082040961", Some(Seconds), Ok(1_082_040_961)),
            ("-5", Some(Integer), Ok(-5)),
            // Beyond the integers that a float holds.
            ("9007199254740993", Some(Nanoseconds), Ok(9_007_199_254_740_993)),
            ("7.0", Some(Integer), Ok(7)),
            ("1e3", Some(Integer), Ok(1000)),
            ("2014-01-02", Some(Days), Ok(16_072)),
            ("2014-01-02", Some(Seconds), Ok(16_072 * 86_400)),
            ("1969-12-31T23:59:59.5", Some(Milliseconds), Ok(-500)),
            ("2014-01-02 00:00:00+01:00", Some(Seconds), Ok(16_072 * 86_400 - 3600)),
            ("2014-01-02T00:30+00:30", Some(Days), Ok(16_072)),
            ("2024-02-29T12:30:05.123456789Z", Some(Nanoseconds), Ok(1_709_209_805_123_456_789)),
            ("2014-01-02T12:00", Some(Days), Err(BadEdge::TimeNotWhole(Days))),
            ("2014-01-02", Some(Integer), Err(BadEdge::TimeIsDate)),
            ("1289241911.72836", Some(Seconds), Err(BadEdge::TimeFraction)),
            ("9223372036854775807", Some(Integer), Err(BadEdge::TimeTooLarge)),
            ("92233720368547758070", Some(Integer), Err(BadEdge::TimeTooLarge)),
            ("2500-01-01T00:00", Some(Nanoseconds), Err(BadEdge::TimeTooLarge)),
            ("", Some(Seconds), Err(BadEdge::NoTime)),
            ("NaN", Some(Seconds), Err(BadEdge::NoTime)),
            ("soon", Some(Seconds), Err(BadEdge::Time)),
            ("01/02/2024", Some(Days), Err(BadEdge::Time)),
        ] {
            assert_eq!(TimeValue::from_text(text, unit).map(|time| time.value), expected, "{text}");
        }
    }

    #[test]
    fn the_coarsest_unit_of_a_timestamp_keeps_it_whole() {
        use TimeUnit::{Milliseconds, Nanoseconds, Seconds};
        for (count, own, expected) in [
            (86_400, Seconds, Seconds),
            (-5_000_000_000, Nanoseconds, Seconds),
            (5_000_000, Nanoseconds, Milliseconds),
            (5_000_001, Nanoseconds, Nanoseconds),
            (0, Nanoseconds, Seconds),
            (1500, Milliseconds, Milliseconds),
        ] {
            assert_eq!(coarsest_unit(count, own), expected, "{count} {own}");
        }
    }

    #[test]
    fn the_finest_unit_of_the_values_is_that_of_the_store() {
        let units = |texts: &[&str]| {
            let units = texts.iter().map(|text| bit_of(TimeValue::from_text(text, None).unwrap().unit));
            unit_of(units.fold(0, |all, unit| all | unit))
        };
        assert_eq!(units(&["5", "-1"]), Ok(Some(TimeUnit::Integer)));
        assert_eq!(units(&["2024-01-01"]), Ok(Some(TimeUnit::Days)));
        assert_eq!(units(&["2024-01-01", "2024-01-01T12:00"]), Ok(Some(TimeUnit::Seconds)));
        assert_eq!(units(&["2024-01-01T12:00:00.250"]), Ok(Some(TimeUnit::Milliseconds)));
        assert_eq!(units(&["2024-01-01T12:00:00.2500"]), Ok(Some(TimeUnit::Microseconds)));
        assert!(units(&["2024-01-01", "5"]).unwrap_err().contains("both integers and dates"));
        assert_eq!(unit_of(0), Ok(None));
    }
}
