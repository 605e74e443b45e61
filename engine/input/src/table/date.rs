//! Dates and times of ISO 8601, as days since 1970-01-01 in UTC.

use grappa_formats::time_axis::TimeUnit;
use time::{Date, Month, UtcDateTime};

const DAY_SECONDS: f64 = 86_400.0;
const SECOND_NANOSECONDS: i128 = 1_000_000_000;
const DAY_NANOSECONDS: i128 = 86_400 * SECOND_NANOSECONDS;

/// The days since 1970-01-01 of `2024-02-29`, with a fraction for a time: `2024-02-29T12:30`, `2024-02-29 12:30:05.25+01:00`.
/// None if the text has another form, or there is no such day.
pub fn days_of(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let (date, time) = bytes.split_at_checked(10)?;
    let [_, _, _, _, b'-', _, _, b'-', _, _] = date else {
        return None;
    };
    let (year, month, day) = (digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..])?);
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.try_into().ok()?, month, day.try_into().ok()?).ok()?;
    let days = date.to_julian_day() - UtcDateTime::UNIX_EPOCH.to_julian_day();
    let fraction = match time {
        [] => 0.0,
        [b'T' | b't' | b' ', time @ ..] => fraction_of(time)?,
        _ => return None,
    };
    Some(f64::from(days) + fraction)
}

/// A moment, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970-01-01 in UTC.
    pub nanoseconds: i128,
    /// The coarsest unit that has the digits of the text: days for a date alone, seconds for a time, and ms, us or ns for fractions of a second.
    pub unit: TimeUnit,
}

/// The moment that a text says in the form of [`days_of`], with at most nine digits of a fraction of a second.
pub fn moment_of(text: &str) -> Option<Moment> {
    // It checks the form, and the numbers' ranges.
    days_of(text)?;
    let (date, time) = text.split_at_checked(10)?;
    let day = i128::from(days_of(date)? as i64) * DAY_NANOSECONDS;
    let Some(time) = time.get(1..) else {
        return Some(Moment { nanoseconds: day, unit: TimeUnit::Days });
    };
    let (clock, zone) = time.split_at(time.find(['Z', 'z', '+', '-']).unwrap_or(time.len()));
    let field = |text: &str| text.parse::<i128>().ok();
    let offset_minutes = match zone.split_at_checked(1) {
        Some((sign @ ("+" | "-"), zone)) => {
            let minutes = 60 * field(zone.get(..2)?)?
                + zone.get(2..).map_or(Some(0), |rest| {
                    let rest = rest.strip_prefix(':').unwrap_or(rest);
                    if rest.is_empty() { Some(0) } else { field(rest) }
                })?;
            if sign == "-" { -minutes } else { minutes }
        }
        _ => 0,
    };
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    let unit = match fraction.len() {
        0 => TimeUnit::Seconds,
        1..=3 => TimeUnit::Milliseconds,
        4..=6 => TimeUnit::Microseconds,
        7..=9 => TimeUnit::Nanoseconds,
        _ => return None,
    };
    let fraction = if fraction.is_empty() { 0 } else { field(&format!("{fraction:0<9}"))? };
    let mut fields = clock.split(':').map(field);
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next().unwrap_or(Some(0))?);
    let seconds = 3600 * hour + 60 * (minute - offset_minutes) + second;
    Some(Moment { nanoseconds: day + seconds * SECOND_NANOSECONDS + fraction, unit })
}

/// Whether a text is a date in another order or with other separators: `01/02/2024`, `31.12.24`, `2024/1/5`.
pub fn is_other_date(text: &str) -> bool {
    let date = text.split([' ', 'T']).next().unwrap_or_default();
    ['/', '.', '-'].into_iter().any(|separator| {
        let parts: Vec<&str> = date.split(separator).collect();
        let are_digits = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        are_digits && matches!(lengths[..], [1 | 2, 1 | 2, 2 | 4] | [4, 1 | 2, 1 | 2])
    })
}

/// The fraction of a day of `12:30`, `12:30:05` or `12:30:05.25`, less the offset from UTC behind it.
fn fraction_of(time: &[u8]) -> Option<f64> {
    let at = time.iter().position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-')).unwrap_or(time.len());
    let (time, zone) = time.split_at(at);
    let offset_seconds = match zone {
        [] | [b'Z' | b'z'] => 0.0,
        [sign, zone @ ..] => {
            let (hours, minutes) = match zone {
                [hours @ .., b':', _, _] if hours.len() == 2 => (hours, &zone[3..]),
                [_, _, _, _] => zone.split_at(2),
                [_, _] => (zone, &b"00"[..]),
                _ => return None,
            };
            let seconds = f64::from(3600 * digits(hours)? + 60 * digits(minutes)?);
            if *sign == b'-' { -seconds } else { seconds }
        }
    };
    let (clock, second) = match time {
        [_, _, b':', _, _] => (time, 0.0),
        [clock @ .., b':', _, _] if clock.len() == 5 => (clock, f64::from(digits(&time[6..])?)),
        _ => {
            let (whole, after) = (time.get(6..8)?, time.get(8..)?);
            let [b'.' | b',', fraction @ ..] = after else {
                return None;
            };
            if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let fraction: f64 = format!("0.{}", str::from_utf8(fraction).ok()?).parse().ok()?;
            (&time[..5], f64::from(digits(whole)?) + fraction)
        }
    };
    let [_, _, b':', _, _] = clock else { return None };
    let (hour, minute) = (digits(&clock[..2])?, digits(&clock[3..])?);
    if hour > 23 || minute > 59 || second >= 61.0 {
        return None;
    }
    Some((f64::from(3600 * hour + 60 * minute) + second - offset_seconds) / DAY_SECONDS)
}

fn digits(bytes: &[u8]) -> Option<u32> {
    let all = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    all.then(|| bytes.iter().fold(0, |number, byte| 10 * number + u32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_since_1970() {
        for (text, days) in [
            ("1970-01-01", 0.0),
            ("1969-12-31", -1.0),
            ("2000-02-29", 11_016.0),
            ("2000-03-01", 11_017.0),
            ("2024-01-01", 19_723.0),
            ("1900-03-01", -25_508.0),
            ("2024-01-01T12:00", 19_723.5),
            ("2024-01-01 06:00:00", 19_723.25),
            ("2024-01-01T00:00:00Z", 19_723.0),
            ("2024-01-01T01:00:00+01:00", 19_723.0),
            ("2024-01-01T18:00:00.000-0600", 19_724.0),
            ("2024-01-01 12:00:43.2+00", 19_723.500_5),
        ] {
            assert_eq!(days_of(text), Some(days), "{text}");
        }
        for text in [
            "2024-02-30",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-1-1",
            "01/02/2024",
            "20240101",
            "2024-01-01x",
            "2024-01-01T25:00",
            "2024-01-01T12",
            "2024-01-01T12:00:0a",
            "2024-01-01T12:00+1",
            "",
            "née-01-01",
        ] {
            assert_eq!(days_of(text), None, "{text}");
        }
    }

    #[test]
    fn dates_in_other_forms_are_known() {
        for (text, expected) in [
            ("01/02/2024", true),
            ("1.2.24", true),
            ("31-12-2024", true),
            ("2024/01/31 12:00", true),
            ("2024-1-5", true),
            ("1.2", false),
            ("192.168.0.1", false),
            ("a/b/c", false),
            ("555-1234", false),
        ] {
            assert_eq!(is_other_date(text), expected, "{text}");
        }
    }
}
