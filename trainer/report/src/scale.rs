//! Axes: positions of values, and their labels.

use std::time::Duration;

use grappa_io::size::{ByteSize, count, duration};
use grappa_run::{config::Monitor, model::Task, percent};

/// The unit of values, which decides how they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Unit {
    #[default]
    /// No unit.
    Number,
    /// Fractions of 1, shown as percentages.
    Part,
    Seconds,
    Bytes,
    EdgesPerSecond,
}

/// Approximate number of labels of an axis.
const TICKS: f64 = 4.0;

/// Bounds values, so that their differences are finite. No measured value is as large.
const VALUE_MAX: f64 = 1e150;

/// A range of values, linear or logarithmic, with labels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    /// Whether equal distances are equal factors.
    pub is_log: bool,
    /// Values and labels, ascending.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis for the finite values; none if there are none. With `from_zero` it includes 0. With `may_be_log` it is logarithmic
    /// if values differ by orders of magnitude.
    pub(super) fn from_values(
        values: impl Iterator<Item = f64>,
        unit: Unit,
        from_zero: bool,
        may_be_log: bool,
    ) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            let value = value.clamp(-VALUE_MAX, VALUE_MAX);
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        if may_be_log && low > 0.0 && high / low > 50.0 {
            return Some(Self::log(low, high));
        }
        if from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        Some(Self::linear(low, high, unit))
    }

    /// The axis of the epochs 1 to `epochs`.
    pub(super) fn epochs(last: u64) -> Self {
        let step = nice_step(last as f64 / TICKS).max(1.0) as u64;
        let multiples = (1..=last / step).map(|k| k * step).filter(|&epoch| epoch > 1);
        let ticks = std::iter::once(1).chain(multiples).map(|epoch| (epoch as f64, epoch.to_string()));
        Self { low: 0.5, high: last.max(1) as f64 + 0.5, is_log: false, ticks: ticks.collect() }
    }

    /// The axis of times up to `last`, which is a number of seconds.
    pub(super) fn seconds(last: f64) -> Self {
        Self::linear(0.0, last.clamp(0.0, VALUE_MAX), Unit::Seconds)
    }

    /// A logarithmic axis of numbers of bytes: those above 0.
    pub(super) fn powers_of_bytes(bytes: impl Iterator<Item = f64>) -> Self {
        Self::powers(bytes, 16.0, |value| {
            let (factor, suffix) = Unit::Bytes.scaled(value);
            format!("{}{suffix}", value / factor)
        })
    }

    /// A logarithmic axis of numbers of seconds: those above 0.
    pub(super) fn powers_of_seconds(seconds: impl Iterator<Item = f64>) -> Self {
        Self::powers(seconds, 10.0, |value| match value < 0.5 {
            true => format!("{:.0} ms", value * 1e3),
            false => format!("{value:.0} s"),
        })
    }

    /// A logarithmic axis of the values above 0, from a power of `base` to another, with a label at each.
    fn powers(values: impl Iterator<Item = f64>, base: f64, label: fn(f64) -> String) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            let value = value.min(VALUE_MAX);
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            (low, high) = (1.0, base);
        }
        let (first, last) = ((low.ln() / base.ln()).floor() as i32, (high.ln() / base.ln()).ceil() as i32);
        let last = last.max(first + 1);
        let ticks = (first..=last).map(|exponent| {
            let value = base.powi(exponent);
            (value, label(value))
        });
        Self { low: base.powi(first), high: base.powi(last), is_log: true, ticks: ticks.collect() }
    }

    /// The axis of fractions of 1.
    pub(super) fn parts() -> Self {
        Self::linear(0.0, 1.0, Unit::Part)
    }

    fn linear(low: f64, high: f64, unit: Unit) -> Self {
        let (low, high) = if low < high {
            (low, high)
        } else {
            // A single value lies in the middle.
            let around = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (if low == 0.0 { 0.0 } else { low - around }, high + around)
        };
        let (factor, suffix) = unit.scaled(low.abs().max(high.abs()));
        let step = nice_step((high - low) / factor / TICKS);
        let (first, last) = ((low / factor / step).floor(), (high / factor / step).ceil());
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        // Bounded, even if rounding errors add a label.
        let ticks = (0..=(last - first).min(20.0) as u32).map(|k| {
            let value = (first + f64::from(k)) * step;
            let label = match (1e-6..1e7).contains(&step) {
                true => format!("{value:.decimals$}{suffix}"),
                false => format!("{value:.1e}{suffix}"),
            };
            (value * factor, label)
        });
        Self { low: first * step * factor, high: last * step * factor, is_log: false, ticks: ticks.collect() }
    }

    /// A logarithmic axis between powers of ten. `low` is above 0.
    fn log(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let step = (last - first + 4) / 5;
        let ticks = (first..=last).step_by(step.max(1) as usize).map(|exponent| {
            let value = 10_f64.powi(exponent);
            let label = match exponent {
                -4..=0 => format!("{value:.*}", exponent.unsigned_abs() as usize),
                1..=5 => format!("{value:.0}"),
                _ => format!("1e{exponent}"),
            };
            (value, label)
        });
        Self { low: 10_f64.powi(first), high: 10_f64.powi(last), is_log: true, ticks: ticks.collect() }
    }

    /// Position of a value, from 0 at the low end to 1 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(-VALUE_MAX, VALUE_MAX);
        let part = if self.is_log {
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    // The factors are slightly enlarged to absorb rounding errors.
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power * (1.0 + 1e-9) >= least);
    factor.unwrap_or(10.0) * power
}

impl Unit {
    /// The unit of the score of a task.
    pub(super) fn for_task(task: Task) -> Self {
        match task {
            Task::MultiClass | Task::MultiLabel => Self::Part,
            Task::Regression | Task::Links => Self::Number,
        }
    }

    /// The unit of what a run monitors.
    pub(super) fn of_monitor(monitor: Monitor, task: Task) -> Self {
        match monitor {
            Monitor::Score => Self::for_task(task),
            Monitor::Accuracy | Monitor::MacroF1 | Monitor::MicroF1 => Self::Part,
            Monitor::Auc | Monitor::AveragePrecision | Monitor::HitsAt10 | Monitor::RecallAt20 => Self::Part,
            Monitor::Loss | Monitor::Rmse | Monitor::Mae | Monitor::R2 => Self::Number,
            Monitor::Mrr | Monitor::MapAt20 | Monitor::NdcgAt20 => Self::Number,
        }
    }

    /// The unit prefix with which values up to `most` are short: a factor, and the text after the number.
    fn scaled(self, most: f64) -> (f64, &'static str) {
        let units: &[(f64, &str)] = match self {
            Self::Number => &[(1.0, "")],
            Self::Part => &[(0.01, " %")],
            Self::Seconds => &[(1e-3, " ms"), (1.0, " s"), (60.0, " min"), (3600.0, " h")],
            Self::Bytes => &[
                (1.0, " B"),
                (1024.0, " KiB"),
                (1_048_576.0, " MiB"),
                (1_073_741_824.0, " GiB"),
                (1_099_511_627_776.0, " TiB"),
                (1_125_899_906_842_624.0, " PiB"),
            ],
            Self::EdgesPerSecond => &[(1.0, ""), (1e3, " k"), (1e6, " M"), (1e9, " G")],
        };
        let fitting = units.iter().rev().find(|(factor, _)| most >= *factor);
        *fitting.unwrap_or(&units[0])
    }

    /// A value as text; a dash if it is not finite.
    pub(super) fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        let value = value.clamp(-VALUE_MAX, VALUE_MAX);
        match self {
            Self::Number if value == 0.0 => "0".to_owned(),
            Self::Number if !(1e-3..1e6).contains(&value.abs()) => format!("{value:.2e}"),
            // Four digits.
            Self::Number => {
                let before = value.abs().max(1.0).log10().floor() as usize;
                let decimals = if value.abs() < 0.1 { 5 } else { 3_usize.saturating_sub(before) };
                format!("{value:.decimals$}")
            }
            Self::Part if value.abs() >= 1e4 => format!("{:.1e} %", value * 100.0),
            // One digit would show these as 0.
            Self::Part if value > 0.0 && value < 0.001 => percent(value),
            Self::Part => format!("{:.1} %", value * 100.0),
            Self::Seconds if value < 0.1 => format!("{:.1} ms", value * 1e3),
            // Bounds the argument, because `Duration` panics on larger ones.
            Self::Seconds => duration(Duration::from_secs_f64(value.clamp(0.0, 1e18))),
            Self::Bytes => ByteSize(value as u64).to_string(),
            Self::EdgesPerSecond => format!("{}/s", count(value as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], unit: Unit, from_zero: bool) -> Vec<String> {
        let axis = Axis::from_values(values.iter().copied(), unit, from_zero, false).expect("values");
        axis.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn labels_are_round_numbers_in_a_unit_that_fits() {
        assert_eq!(labels(&[0.61, 0.784], Unit::Part, false), ["60 %", "65 %", "70 %", "75 %", "80 %"]);
        assert_eq!(labels(&[0.3, 1.7], Unit::Number, true), ["0.0", "0.5", "1.0", "1.5", "2.0"]);
        assert_eq!(labels(&[0.002, 0.004], Unit::Seconds, true), ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms"]);
        let mebibytes = [3.0 * 1048576.0, 9.0 * 1048576.0];
        assert_eq!(labels(&mebibytes, Unit::Bytes, true), ["0 MiB", "5 MiB", "10 MiB"]);
        assert_eq!(labels(&[2.1e6], Unit::EdgesPerSecond, true), ["0 M", "1 M", "2 M", "3 M"]);
    }

    #[test]
    fn every_value_has_a_place_on_the_axis_and_labels_are_few() {
        let sets: [&[f64]; 9] = [
            &[0.0],
            &[5.0],
            &[-3.0, 7.0],
            &[1e-300, 1e300],
            &[f64::MAX, -f64::MAX],
            &[f64::MIN_POSITIVE],
            &[f64::NAN, 1.0, f64::INFINITY],
            &[1.0, 1.0 + f64::EPSILON],
            &[1e15, 1e15 + 1.0],
        ];
        for values in sets {
            for unit in [Unit::Number, Unit::Part, Unit::Seconds, Unit::Bytes, Unit::EdgesPerSecond] {
                for (from_zero, may_be_log) in [(false, false), (true, false), (false, true)] {
                    let axis = Axis::from_values(values.iter().copied(), unit, from_zero, may_be_log).expect("values");
                    assert!((1..=22).contains(&axis.ticks.len()), "{values:?}: {axis:?}");
                    for value in values.iter().filter(|value| value.is_finite()) {
                        let place = axis.place(*value);
                        assert!((0.0..=1.0).contains(&place), "{value} at {place} of {axis:?}");
                        assert!(!unit.format(*value).is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn without_values_there_is_no_axis() {
        assert_eq!(Axis::from_values([].into_iter(), Unit::Number, true, true), None);
        assert_eq!(Axis::from_values([f64::NAN, f64::INFINITY].into_iter(), Unit::Number, true, true), None);
    }

    #[test]
    fn values_of_several_orders_of_magnitude_are_shown_by_their_logarithm() {
        let axis = Axis::from_values([0.02, 150.0].into_iter(), Unit::Number, false, true).unwrap();
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert!((axis.place(1.0) - 0.4).abs() < 1e-12);
    }

    #[test]
    fn epochs_are_labelled_by_whole_numbers_from_the_first() {
        let labels = |last| -> Vec<String> { Axis::epochs(last).ticks.into_iter().map(|(_, label)| label).collect() };
        assert_eq!(labels(1), ["1"]);
        assert_eq!(labels(3), ["1", "2", "3"]);
        assert_eq!(labels(50), ["1", "20", "40"]);
        assert_eq!(labels(10_000), ["1", "5000", "10000"]);
        assert_eq!(labels(0), ["1"]);
    }

    #[test]
    fn values_are_written_with_a_few_digits() {
        assert_eq!(Unit::Number.format(0.71234567), "0.712");
        assert_eq!(Unit::Number.format(12.3456), "12.35");
        assert_eq!(Unit::Number.format(0.00312), "0.00312");
        assert_eq!(Unit::Number.format(1e-7), "1.00e-7");
        assert_eq!(Unit::Part.format(0.76444), "76.4 %");
        assert_eq!(Unit::Seconds.format(0.0123), "12.3 ms");
        assert_eq!(Unit::Seconds.format(75.0), "75.0 s");
        assert_eq!(Unit::Bytes.format(1536.0), "1.5 KiB");
        assert_eq!(Unit::EdgesPerSecond.format(12.3e6), "12.3 M/s");
        assert_eq!(Unit::Seconds.format(f64::NAN), "–");
    }
}
