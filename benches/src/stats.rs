//! Statistics of several runs.

/// The median. For an even number of values, the mean of the two in the middle.
///
/// # Panics
/// If there are no values, or one is NaN.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values are numbers"));
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) }
}

/// The smallest and the largest value, such as `1.20-1.35`.
pub fn range(values: impl IntoIterator<Item = f64>) -> String {
    let (low, high) = values
        .into_iter()
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    format!("{low:.2}-{high:.2}")
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
}
