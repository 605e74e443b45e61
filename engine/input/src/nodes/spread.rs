//! Whether different numbers stay different as 32-bit floats.

/// A part of the spread of numbers: rounding them to 32 bits must cost less.
const PARTS: f64 = 1e3;

/// The smallest and the largest of some numbers, and the largest error of rounding them to 32 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    min: f64,
    max: f64,
    error: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { min: f64::INFINITY, max: f64::NEG_INFINITY, error: 0.0 }
    }
}

impl Spread {
    /// Adds a number. NaN is none.
    pub fn add(&mut self, number: f64) {
        if !number.is_nan() {
            self.min = self.min.min(number);
            self.max = self.max.max(number);
            self.error = self.error.max((f64::from(number as f32) - number).abs());
        }
    }

    pub fn and(&mut self, other: Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.error = self.error.max(other.error);
    }

    /// Why numbers cannot be stored in 32 bits, with the remedy; None if they can.
    pub fn problem(&self) -> Option<String> {
        let Self { min, max, error } = *self;
        (min < max && error > (max - min) / PARTS).then(|| {
            format!(
                "numbers from {min} to {max} lose up to {error} as 32-bit floats, so that different numbers become equal or nearly so; \
                 subtract one number from all of them, such as {min}, and add it to predictions"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(numbers: impl Iterator<Item = f64>) -> Option<String> {
        let mut spread = Spread::default();
        let mut rest = Spread::default();
        for (at, number) in numbers.enumerate() {
            if at % 2 == 0 { spread.add(number) } else { rest.add(number) }
        }
        spread.and(rest);
        spread.problem()
    }

    #[test]
    fn numbers_that_would_become_equal_are_refused() {
        let offset = |start: f64, step: f64| problem((0..200).map(|k| start + f64::from(k) * step));
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
        ] {
            assert_eq!(offset(start, step).is_none(), is_kept, "{start} {step}");
        }
        let message = offset(1.7e9, 1.0).unwrap();
        assert!(message.contains("subtract one number from all of them, such as 1700000000"), "{message}");
        // The remedy works.
        assert_eq!(problem((0..200).map(f64::from)), None);
        // Missing numbers, one number, and none.
        assert_eq!(problem([f64::NAN, 1e8 + 1.0, f64::NAN].into_iter()), None);
        assert_eq!(problem(std::iter::empty()), None);
    }
}
