//! Statistics of several runs.

/// The median. For an even number of values, the mean of the two in the middle.
///
/// # Panics
/// If there are no values, or one is NaN.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values are numbers"));
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        values[middle - 1].midpoint(values[middle])
    }
}

/// The smallest and the largest value, such as `1.20-1.35`.
pub fn range(values: impl IntoIterator<Item = f64>) -> String {
    let (low, high) = values
        .into_iter()
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
            (low.min(value), high.max(value))
        });
    format!("{low:.2}-{high:.2}")
}

/// The mean.
///
/// # Panics
/// If there are no values.
pub fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "a mean is of something");
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation; 0 for a single value.
///
/// # Panics
/// If there are no values.
pub fn standard_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1).max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 9.0]), 3.0);
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert_eq!(range([3.0, 1.0, 2.0]), "1.00-3.00");
    }

    #[test]
    fn deviations_are_of_samples() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(standard_deviation(&[1.0, 2.0, 6.0]), 7.0f64.sqrt());
        assert_eq!(standard_deviation(&[5.0]), 0.0);
    }
}
