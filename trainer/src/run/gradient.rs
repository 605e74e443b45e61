//! Keeping gradients short.

/// Scales a gradient down to the Euclidean norm `limit`, if it is longer; a limit of 0 is none. Returns the norm it had.
///
/// The norm is the same for any number of threads, since one thread adds it up, in f64. A norm that is no finite number
/// changes nothing: what to do then is the caller's decision.
pub fn clip(gradient: &mut [f32], limit: f64) -> f64 {
    let norm = norm(gradient);
    if limit > 0.0 && norm.is_finite() && norm > limit {
        let scale = (limit / norm) as f32;
        gradient.iter_mut().for_each(|value| *value *= scale);
    }
    norm
}

/// The Euclidean norm.
pub fn norm(gradient: &[f32]) -> f64 {
    // Partial sums that don't depend on each other, which the compiler keeps in a vector register.
    let mut sums = [0.0_f64; 8];
    let chunks = gradient.chunks_exact(sums.len());
    let rest: f64 = chunks.remainder().iter().map(|&value| f64::from(value).powi(2)).sum();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    (sums.iter().sum::<f64>() + rest).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gradient_is_scaled_to_the_limit_and_keeps_its_direction() {
        let mut gradient: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.37).sin()).collect();
        let before = gradient.clone();
        let length = clip(&mut gradient, 2.5);
        let naive = before.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        assert!((length - naive).abs() < 1e-9 * naive, "{length} instead of {naive}");
        assert!((norm(&gradient) - 2.5).abs() < 1e-5);
        for (after, before) in gradient.iter().zip(&before) {
            assert!((f64::from(*after) - f64::from(*before) * 2.5 / naive).abs() < 1e-6);
        }
    }

    #[test]
    fn a_short_gradient_and_one_without_limit_stay_as_they_are() {
        let mut gradient = [3.0, 4.0];
        assert_eq!(clip(&mut gradient, 5.0), 5.0);
        assert_eq!(clip(&mut gradient, 0.0), 5.0);
        assert_eq!(gradient, [3.0, 4.0]);
        assert_eq!(clip(&mut [], 1.0), 0.0);
    }

    #[test]
    fn what_is_no_number_is_reported_and_left_alone() {
        let mut gradient = [1.0, f32::NAN];
        assert!(clip(&mut gradient, 0.1).is_nan());
        assert_eq!(gradient[0], 1.0);
        let mut gradient = [1.0, f32::INFINITY];
        assert_eq!(clip(&mut gradient, 0.1), f64::INFINITY);
        assert_eq!(gradient[0], 1.0);
        // The square of it is no f32.
        assert!((clip(&mut [f32::MAX], 1.0) - f64::from(f32::MAX)).abs() < 1e30);
    }
}
