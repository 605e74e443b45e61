//! Parsing and display of sizes, and display of counts and durations.

use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes. Parses `512MiB`, `1.5 GB` or `4096`; displays `512.0 MiB`.
///
/// Units are binary (`KiB`, `MiB`, `GiB`, `TiB`, `PiB`) or decimal (`kB`, `MB`, ...), in upper or lower case. A single
/// letter (`2G`) is binary, as in systemd and cgroups. Fractions round down to whole bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// In whole MiB, rounded up, so that the result is never less than the size: `120 MiB`. It parses.
    pub fn rounded_up(self) -> String {
        format!("{} MiB", self.0.div_ceil(1 << 20))
    }

    /// The shortest text that parses to the same number of bytes: `4GiB`, `1536MiB`, `1000000001`.
    pub fn exact(self) -> String {
        let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let fitting = units.iter().find(|(bits, _)| self.0 > 0 && self.0.is_multiple_of(1 << bits));
        match fitting {
            Some((bits, unit)) => format!("{}{unit}", self.0 >> bits),
            None => self.0.to_string(),
        }
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    /// It does not start with a number.
    #[error("expected a size such as 512MiB, 2GiB, 1.5GB or 4096, found `{0}`")]
    Number(String),
    /// The number is followed by an unknown unit.
    #[error(
        "unknown unit `{0}`: use KiB, MiB, GiB, TiB, PiB (powers of 1024), kB, MB, GB, TB, PB (powers of 1000) or none"
    )]
    Unit(String),
    /// 2^64 bytes or more.
    #[error("`{0}` is more bytes than 64 bits count")]
    TooLarge(String),
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let no_number = ByteSizeError::Number(text.to_owned());
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let unit_bytes = unit_bytes(unit.trim())?;

        // The whole part and the fraction are parsed separately, so that large sizes are exact.
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
            return Err(no_number);
        }
        let whole_bytes = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit_bytes));
        let fraction: f64 = format!("0.{fraction}0").parse().map_err(|_| no_number)?;
        let fraction_bytes = (fraction * unit_bytes as f64) as u64;
        let bytes = whole_bytes.and_then(|whole| whole.checked_add(fraction_bytes));
        bytes.map(Self).ok_or_else(|| ByteSizeError::TooLarge(text.to_owned()))
    }
}

fn unit_bytes(unit: &str) -> Result<u64, ByteSizeError> {
    let lower = unit.to_ascii_lowercase();
    let (prefix, base) = match lower.as_str() {
        "" | "b" => return Ok(1),
        one if one.len() == 1 => (one, 1024_u64),
        other => match (other.strip_suffix("ib"), other.strip_suffix('b')) {
            (Some(prefix), _) => (prefix, 1024),
            (None, Some(prefix)) => (prefix, 1000),
            (None, None) => ("", 0),
        },
    };
    let power = match prefix {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(ByteSizeError::Unit(unit.to_owned())),
    };
    Ok(base.pow(power))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = scaled(self.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
        if unit == "B" { f.pad(&format!("{} B", self.0)) } else { f.pad(&format!("{value:.1} {unit}")) }
    }
}

/// A count of nodes, edges or lines: exact up to 99 999, then `67.1 M`, `1.10 T` and so on.
pub fn count(n: u64) -> String {
    if n < 100_000 {
        return n.to_string();
    }
    let (value, unit) = scaled(n, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
    let decimals = if value < 10.0 { 2 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

/// A duration with about three digits: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 03 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = seconds.round() as u64;
    if seconds < 9.995 {
        format!("{seconds:.2} s")
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        let minutes = (whole + 30) / 60;
        format!("{} h {:02} min", minutes / 60, minutes % 60)
    }
}

/// `n` in the largest unit in which it is at least 1.
fn scaled<'a>(n: u64, base: f64, units: &[&'a str]) -> (f64, &'a str) {
    let mut value = n as f64;
    let mut unit = 0;
    // 1023.96 KiB would print as 1024.0 KiB.
    while value >= base - 0.05 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    (value, units[unit])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<u64, String> {
        text.parse::<ByteSize>().map(|size| size.0).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096 B", 4096),
            ("512MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("1.5 GB", 1_500_000_000),
            ("1.5GiB", 3 << 29),
            (" 2g ", 2 << 30),
            ("64k", 64 << 10),
            ("7tb", 7_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused_with_an_example() {
        for text in ["", "GiB", "-1", "1.2.3", ".5GB", "1.", "MiB 2"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("expected a size") || error.contains("unknown unit"), "{text}: {error}");
        }
        assert!(parse("12 furlongs").unwrap_err().contains("unknown unit `furlongs`"));
        assert!(parse("5e3").unwrap_err().contains("unknown unit `e3`"));
        assert!(parse("20000 PiB").unwrap_err().contains("64 bits"));
        assert!(parse("18446744073709551616").unwrap_err().contains("64 bits"));
    }

    #[test]
    fn numbers_are_shown_short() {
        assert_eq!(ByteSize(1023).to_string(), "1023 B");
        assert_eq!(ByteSize(1024).to_string(), "1.0 KiB");
        assert_eq!(ByteSize((1 << 20) - 1).to_string(), "1.0 MiB");
        assert_eq!(ByteSize(512 << 20).to_string(), "512.0 MiB");
        assert_eq!(ByteSize(u64::MAX).to_string(), "16.0 EiB");
        assert_eq!(count(99_999), "99999");
        assert_eq!(count(67_108_864), "67.1 M");
        assert_eq!(count(1_099_511_627_776), "1.10 T");
        assert_eq!(duration(Duration::from_millis(420)), "0.42 s");
        assert_eq!(duration(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 05 s");
        assert_eq!(duration(Duration::from_secs(7380)), "2 h 03 min");
    }

    #[test]
    fn exact_sizes_read_back() {
        for (bytes, text) in [
            (0, "0"),
            (4 << 30, "4GiB"),
            (1536 << 20, "1536MiB"),
            (1_000_000_001, "1000000001"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(ByteSize(bytes).exact(), text);
            assert_eq!(parse(text), Ok(bytes));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_an_error(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_sizes_are_exact(whole in 0_u64..1 << 24) {
            prop_assert_eq!(parse(&format!("{whole}GiB")), Ok(whole << 30));
            prop_assert_eq!(parse(&format!("{whole} kB")), Ok(whole * 1000));
        }
    }
}
