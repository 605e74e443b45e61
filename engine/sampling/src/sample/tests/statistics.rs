//! Chi-square tests of counts.

/// Fails if chi-square is more than five standard deviations above its mean. A correct distribution exceeds that once
/// in a million runs. Seeds fix the samples, so a test always passes or always fails. Expected counts must be at least
/// 5.
pub fn assert_fits(counts: &[u64], expected: &[f64], name: &str) {
    assert_eq!(counts.len(), expected.len());
    let total: u64 = counts.iter().sum();
    let sum: f64 = expected.iter().sum();
    assert!((total as f64 - sum).abs() < 1e-6 * sum, "{name}: {total} counts of {sum} expected");
    assert!(expected.iter().all(|&e| e >= 5.0), "{name}: too few draws for a test");
    let chi_square: f64 = counts.iter().zip(expected).map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
    let freedom = counts.len() as f64 - 1.0;
    assert!(
        chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(),
        "{name}: chi-square {chi_square:.1} with {freedom} degrees of freedom: {counts:?}, expected {expected:?}"
    );
}

/// As [`assert_fits`], with equal expected counts.
pub fn assert_uniform(counts: &[u64], name: &str) {
    let each = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert_fits(counts, &vec![each; counts.len()], name);
}
