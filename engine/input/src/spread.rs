//! Whether different numbers stay different as 32-bit floats.
//!
//! **Cost**: two different numbers of ordinary data show that a column is wide. Then a number costs one load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use grappa_formats::features::ElementType;

/// Rounding numbers to 32 bits must cost less than this part of their range.
const PARTS: f64 = 1e3;

/// The magnitude of the numbers of a wide column, at most, as a multiple of their range. Rounding costs 2^-24 of the magnitude, which
/// is half of a range over [`PARTS`], so no number that comes later makes a wide column lose its differences.
const WIDE: f64 = (1 << 23) as f64 / PARTS;

/// Columns that warnings name. A matrix may have millions.
const WARNINGS_MAX: usize = 5;

/// The smallest and the largest number of a column, and the largest error of rounding one to 32 bits. Threads share it.
#[derive(Debug)]
pub(crate) struct Spread {
    /// The bits of floats.
    min: AtomicU64,
    max: AtomicU64,
    error: AtomicU64,
    /// Whether the numbers so far differ enough. Then others are not added.
    is_wide: AtomicBool,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            min: AtomicU64::new(f64::INFINITY.to_bits()),
            max: AtomicU64::new(f64::NEG_INFINITY.to_bits()),
            error: AtomicU64::new(0.0_f64.to_bits()),
            is_wide: AtomicBool::new(false),
        }
    }
}

impl Spread {
    /// The spreads of columns without numbers.
    pub fn columns(count: usize) -> Vec<Self> {
        std::iter::repeat_with(Self::default).take(count).collect()
    }

    /// Adds a number. NaN is none.
    #[inline]
    pub fn add(&self, number: f64) {
        if !self.is_wide() && !number.is_nan() {
            self.extend(number, number, (f64::from(number as f32) - number).abs());
        }
    }

    /// Parses a number and adds it. Returns the nearest 32-bit float of the text: to round to 64 bits first may give another.
    #[inline]
    pub fn parse(&self, text: &str) -> Option<f32> {
        let number = text.parse().ok()?;
        if !self.is_wide()
            && let Ok(exact) = text.parse()
        {
            self.add(exact);
        }
        Some(number)
    }

    /// Adds the rows of an array, with an element for each of `columns`.
    pub fn add_rows(columns: &[Self], element: ElementType, rows: &[u8]) {
        if !matches!(
            element,
            ElementType::F64 | ElementType::I64 | ElementType::U64 | ElementType::I32 | ElementType::U32
        ) {
            // Exact in 32 bits.
            return;
        }
        let bytes = element.bytes();
        for (column, spread) in columns.iter().enumerate() {
            let numbers = rows.chunks_exact(columns.len() * bytes).map(|row| &row[column * bytes..][..bytes]);
            numbers.take_while(|_| !spread.is_wide()).for_each(|number| spread.add(element.to_f64(number)));
        }
    }

    /// Adds the numbers of another spread of the same column.
    pub fn merge(&self, other: &Self) {
        let [min, max, error] = other.numbers();
        self.extend(min, max, error);
        self.is_wide.fetch_or(other.is_wide(), Relaxed);
    }

    fn extend(&self, min: f64, max: f64, error: f64) {
        let replace = |bound: &AtomicU64, number: f64, is_beyond: fn(f64, f64) -> bool| {
            let update = |bits| is_beyond(number, f64::from_bits(bits)).then_some(number.to_bits());
            bound.fetch_update(Relaxed, Relaxed, update).is_ok()
        };
        let (below, above) = (|a, b| a < b, |a, b| a > b);
        replace(&self.error, error, above);
        // Not a lazy or: a number may be both.
        if replace(&self.min, min, below) | replace(&self.max, max, above) {
            let [min, max, _] = self.numbers();
            let range = max - min;
            // Numbers below the smallest normal one lose more than a part of their magnitude.
            let is_wide = range >= f64::from(f32::MIN_POSITIVE) && range * WIDE >= min.abs().max(max.abs());
            self.is_wide.fetch_or(is_wide, Relaxed);
        }
    }

    fn is_wide(&self) -> bool {
        self.is_wide.load(Relaxed)
    }

    /// The smallest number, the largest one, and the largest error.
    fn numbers(&self) -> [f64; 3] {
        [&self.min, &self.max, &self.error].map(|bits| f64::from_bits(bits.load(Relaxed)))
    }

    /// Warnings about the columns that lose their differences in 32 bits, with the remedy. `name` returns the name of a column.
    pub fn warnings(columns: &[Self], name: impl Fn(usize) -> String) -> Vec<String> {
        let losses = columns.iter().enumerate().filter_map(|(column, spread)| Some((column, spread.loss()?)));
        let mut warnings: Vec<String> = losses.map(|(column, loss)| loss.warning(&name(column))).collect();
        let more = warnings.len().saturating_sub(WARNINGS_MAX);
        if more > 0 {
            warnings.truncate(WARNINGS_MAX);
            warnings.push(format!("{more} more columns lose differences as 32-bit floats"));
        }
        warnings
    }

    /// What is lost in 32 bits. None if it is little.
    pub fn loss(&self) -> Option<Loss> {
        let [min, max, error] = self.numbers();
        (!self.is_wide() && min < max && error > (max - min) / PARTS).then_some(Loss { min, max, error })
    }
}

/// Numbers that lose their differences as 32-bit floats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Loss {
    min: f64,
    max: f64,
    error: f64,
}

impl Loss {
    /// Why numbers to predict are refused, and the remedy.
    pub fn refusal(self) -> String {
        let Self { min, max, error } = self;
        format!(
            "numbers from {min} to {max} lose up to {error} as 32-bit floats, so that different numbers become equal or nearly so; \
             subtract one number from all of them, such as {min}, and add it to predictions"
        )
    }

    fn warning(self, column: &str) -> String {
        let Self { min, max, error } = self;
        format!(
            "the values of {column}, from {min} to {max}, lose up to {error} as 32-bit floats, so that different values become equal or \
             nearly so; subtract {min} from all of them"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(numbers: impl Iterator<Item = f64>) -> Option<Loss> {
        let (spread, rest) = (Spread::default(), Spread::default());
        for (at, number) in numbers.enumerate() {
            if at % 2 == 0 { spread.add(number) } else { rest.add(number) }
        }
        spread.merge(&rest);
        spread.loss()
    }

    #[test]
    fn numbers_that_would_become_equal_are_found() {
        let offset = |start: f64, step: f64| loss((0..200).map(|k| start + f64::from(k) * step));
        for (start, step, is_kept) in [
            (0.0, 1.0, true),
            (2000.0, 1.0, true),
            (0.1, 0.1, true),
            (1e300, 0.0, true),
            // Exact in 32 bits, whatever the spread.
            (16_777_000.0, 1.0, true),
            (f64::from(1u32 << 30), 128.0, true),
            // A year of Unix seconds.
            (1.7e9, 160_000.0, true),
            (1.7e9, 1.0, false),
            (1e8, 0.01, false),
            (-1.7e9, 1.0, false),
            (1.0, 1e-12, false),
            (1.7e18, 1e9, false),
            // Near the part of the range that rounding may cost.
            (1.7e9, 700.0, true),
            (1.7e9, 200.0, false),
            (1e-300, 1e-300, false),
        ] {
            assert_eq!(offset(start, step).is_none(), is_kept, "{start} {step}");
        }
        let message = offset(1.7e9, 1.0).unwrap().refusal();
        assert!(message.contains("subtract one number from all of them, such as 1700000000"), "{message}");
        // The remedy works.
        assert_eq!(loss((0..200).map(f64::from)), None);
        // Missing numbers, one number, and none.
        assert_eq!(loss([f64::NAN, 1e8 + 1.0, f64::NAN].into_iter()), None);
        assert_eq!(loss(std::iter::empty()), None);
        assert_eq!(loss([f64::INFINITY, 1.0, f64::INFINITY].into_iter()), None);
    }

    #[test]
    fn a_number_far_from_the_others_makes_a_column_wide_wherever_it_comes() {
        let seconds = || (0..200).map(|k| 1.7e9 + f64::from(k));
        for other in [0.0, -1.7e9, 1.0, 1e12] {
            assert_eq!(loss(seconds().chain([other])), None, "{other}");
            assert_eq!(loss([other].into_iter().chain(seconds())), None, "{other}");
        }
    }

    #[test]
    fn columns_of_arrays_are_measured_by_their_type() {
        let rows: Vec<f64> = (0..100).flat_map(|k| [f64::from(k), 1e8 + f64::from(k) / 100.0, 5.0]).collect();
        let bytes: Vec<u8> = rows.iter().flat_map(|number| number.to_le_bytes()).collect();
        let columns = Spread::columns(3);
        Spread::add_rows(&columns, ElementType::F64, &bytes);
        let lost: Vec<bool> = columns.iter().map(|spread| spread.loss().is_some()).collect();
        assert_eq!(lost, [false, true, false]);
        let integers: Vec<u8> = (1_700_000_000_u32..).take(100).flat_map(u32::to_le_bytes).collect();
        for (element, is_lost) in [(ElementType::U32, true), (ElementType::I32, true), (ElementType::F32, false)] {
            let column = Spread::columns(1);
            Spread::add_rows(&column, element, &integers);
            assert_eq!(column[0].loss().is_some(), is_lost, "{element:?}");
        }
    }

    #[test]
    fn a_matrix_of_lost_columns_has_a_few_warnings() {
        let columns = Spread::columns(9);
        columns.iter().for_each(|spread| (0..9).for_each(|k| spread.add(1e8 + f64::from(k))));
        let warnings = Spread::warnings(&columns, |column| format!("column {column}"));
        assert_eq!(warnings.len(), 6);
        assert!(
            warnings[4].starts_with("the values of column 4, from 100000000 to 100000008, lose up to 4 "),
            "{}",
            warnings[4]
        );
        assert_eq!(warnings[5], "4 more columns lose differences as 32-bit floats");
    }

    #[test]
    fn text_is_parsed_as_a_32_bit_float_and_measured_as_a_longer_one() {
        let spread = Spread::default();
        for text in ["100000000.5", "100000000.25", "1e8"] {
            assert_eq!(spread.parse(text), text.parse().ok());
        }
        assert_eq!(spread.parse("text"), None);
        assert_eq!(spread.loss(), Some(Loss { min: 1e8, max: 100_000_000.5, error: 0.5 }));
    }
}
