//! Percentages as text.

const DECIMALS_MAX: usize = 6;

/// A fraction of 1 as a percentage, with as few digits as leave an error of at most 5 % of its distance to 0 and to 100 %. So
/// 0.4 % is not shown as 0 %, and 99.96 % not as 100 %.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let distance = value.abs().min((100.0 - value).abs());
    let close = (0..DECIMALS_MAX).find(|decimals| {
        let shown: f64 = format!("{value:.decimals$}").parse().unwrap_or(value);
        (shown - value).abs() <= 0.05 * distance
    });
    let decimals = close.unwrap_or(DECIMALS_MAX);
    format!("{value:.decimals$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_percentages_have_enough_digits_and_large_ones_no_more_than_needed() {
        for (fraction, expected) in [
            (0.0, "0 %"),
            (0.004, "0.4 %"),
            (0.00037, "0.037 %"),
            (0.0000005, "0.00005 %"),
            (0.052, "5 %"),
            (0.047, "4.7 %"),
            (0.6, "60 %"),
            (0.994, "99.4 %"),
            (0.9996, "99.96 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(fraction), expected, "{fraction}");
        }
    }
}
