//! The age of an edge or node as inputs of a model.

use grappa_formats::time_axis::TimeUnit;
use serde::{Deserialize, Serialize};

/// The encoding of an age by cosines and sines, as in TGAT (Xu et al., "Inductive Representation Learning on Temporal Graphs", 2020),
/// with fixed periods: each is a quarter of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeEncoding {
    /// Number of values.
    pub values: usize,
    /// The longest period, in the unit.
    pub period: f64,
    /// The unit of times.
    #[serde(with = "unit_name")]
    pub unit: TimeUnit,
}

impl TimeEncoding {
    /// Each period is this part of the one before.
    const RATIO: f64 = 0.25;

    /// An encoding of ages up to `span`.
    pub fn of_span(values: usize, span: f64, unit: TimeUnit) -> Self {
        Self { values, period: 4.0 * span.max(1.0), unit }
    }

    /// Appends the values of an age.
    pub fn append(self, age: i64, out: &mut Vec<f32>) {
        let mut turns = age as f64 / self.period;
        for at in 0..self.values {
            // Whole turns are left out before the angle loses digits.
            let angle = (turns.fract() as f32) * std::f32::consts::TAU;
            if at % 2 == 0 {
                out.push(angle.cos());
            } else {
                out.push(angle.sin());
                turns /= Self::RATIO;
            }
        }
    }
}

/// A unit as its name.
mod unit_name {
    use grappa_formats::time_axis::TimeUnit;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(unit: &TimeUnit, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(unit.name())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<TimeUnit, D::Error> {
        let name = String::deserialize(deserializer)?;
        TimeUnit::from_name(&name).ok_or_else(|| D::Error::custom(format!("{name} is no unit of time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(encoding: TimeEncoding, age: i64) -> Vec<f32> {
        let mut values = Vec::new();
        encoding.append(age, &mut values);
        values
    }

    #[test]
    fn values_are_cosines_and_sines_with_periods_of_a_quarter_of_the_one_before() {
        let encoding = TimeEncoding::of_span(5, 1000.0, TimeUnit::Seconds);
        for age in [0, 1, 250, 999, 1_000_000_007] {
            let angle = |period: f64| std::f64::consts::TAU * (age as f64 / period);
            let expected = [
                angle(4000.0).cos(),
                angle(4000.0).sin(),
                angle(1000.0).cos(),
                angle(1000.0).sin(),
                angle(250.0).cos(),
            ];
            for (value, expected) in values(encoding, age).into_iter().zip(expected) {
                assert!((f64::from(value) - expected).abs() < 1e-5, "{age}: {value} {expected}");
            }
        }
        assert_eq!(values(encoding, 7).len(), 5);
    }

    #[test]
    fn within_the_span_the_first_value_tells_ages_apart_and_no_age_is_undefined() {
        let encoding = TimeEncoding::of_span(2, 1000.0, TimeUnit::Days);
        let first: Vec<f32> = (0..=1000).map(|age| values(encoding, age)[0]).collect();
        assert!(first.is_sorted_by(|a, b| a > b));
        // All times of a store may be the same.
        assert!(
            values(TimeEncoding::of_span(64, 0.0, TimeUnit::Integer), i64::MAX).iter().all(|value| value.is_finite())
        );
    }
}
