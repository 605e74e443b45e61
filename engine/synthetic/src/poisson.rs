//! Poisson-distributed numbers from one uniform `u64` each, exact to 2^-64, for means from 0 to [`MEAN_MAX`].
//!
//! A model has few distinct means: R-MAT has one per number of one bits of a label. So each mean gets a table of the inverse
//! of its distribution function. The table has 64-bit thresholds around the mode, and a guide that says where to begin the
//! search (Chen and Asau, "On Generating Random Variates from an Empirical Distribution", 1974):
//!
//! ```text
//! draw(uniform):
//!     i = guide[leading bits of uniform]
//!     while thresholds[i] <= uniform: i += 1      at most a few steps
//!     return first + i
//! ```
//!
//! A draw takes a few ns for any mean. A table takes about 20 sqrt(mean) + 20 words of 8 bytes, and its guide up to twice as
//! much.
//!
//! The table is made with additions, multiplications and divisions only. IEEE 754 defines these to the last bit. Logarithms
//! and exponentials differ between system libraries, and would make graphs depend on the machine.

/// The maximum mean. Its table and guide take 28 MB.
pub(super) const MEAN_MAX: f64 = 4_294_967_296.0;

/// Outcomes whose probability is below this times the probability of the mode are left out. Together they have a probability below
/// 2^-64.
const NEGLIGIBLE: f64 = 1.0 / (1u128 << 80) as f64;

/// Draws from one Poisson distribution.
#[derive(Debug, Clone)]
pub(super) struct Poisson {
    /// The smallest outcome of the table.
    first: u64,
    /// Uniform numbers below `thresholds[i]` give outcomes of at most `first + i`. The largest outcome has no threshold, because
    /// it would be 2^64.
    thresholds: Vec<u64>,
    /// For each value of the leading bits of a uniform number: the number of thresholds that all numbers with these bits
    /// reach.
    guide: Vec<u32>,
    guide_shift: u32,
}

impl Poisson {
    /// Makes the table of a mean.
    ///
    /// # Panics
    /// If `mean` is not in `0..=MEAN_MAX`.
    pub(super) fn new(mean: f64) -> Self {
        assert!((0.0..=MEAN_MAX).contains(&mean), "a mean of {mean}");
        // Probabilities relative to the mode, from the ratios of neighbors: P(k) / P(k - 1) = mean / k. Beginning at the mode,
        // no factor over- or underflows, and e^-mean is not needed.
        let mode = mean as u64;
        let mut below = Vec::new();
        let mut weight = 1.0;
        for k in (1..=mode).rev() {
            weight *= k as f64 / mean;
            if weight < NEGLIGIBLE {
                break;
            }
            below.push(weight);
        }
        let mut above = Vec::new();
        weight = 1.0;
        for k in mode + 1.. {
            weight *= mean / k as f64;
            if weight < NEGLIGIBLE {
                break;
            }
            above.push(weight);
        }
        // Smallest first, so that small terms are not lost to rounding.
        let total = 1.0 + below.iter().rev().sum::<f64>() + above.iter().rev().sum::<f64>();
        // Probabilities as multiples of 2^-64. They fall on either side of the mode, so outcomes that round to 0 are at the ends
        // and are left out.
        let [mut below, above] = [below, above].map(|weights| {
            let masses = weights.iter().map(|weight| (weight / total * 2f64.powi(64)).round() as u128);
            masses.take_while(|&mass| mass > 0).collect::<Vec<_>>()
        });
        below.reverse();
        // The mode gets the rest, so that the masses add up to exactly 2^64. It is the largest, so its relative error is the
        // smallest.
        let of_mode = (1u128 << 64) - below.iter().sum::<u128>() - above.iter().sum::<u128>();

        let mut passed = 0u128;
        let thresholds: Vec<u64> = below
            .iter()
            .chain([&of_mode])
            .chain(&above)
            .map_while(|mass| {
                passed += mass;
                u64::try_from(passed).ok()
            })
            .collect();
        // Two to four entries per threshold: most draws take one or two comparisons.
        let guide_bits = (thresholds.len() + 1).ilog2() + 2;
        let guide_shift = 64 - guide_bits;
        let mut guide = Vec::with_capacity(1 << guide_bits);
        let mut passed = 0;
        for leading in 0..1u64 << guide_bits {
            while thresholds.get(passed).is_some_and(|&t| t <= leading << guide_shift) {
                passed += 1;
            }
            guide.push(passed as u32);
        }
        Self { first: mode - below.len() as u64, thresholds, guide, guide_shift }
    }

    /// The outcome of a uniform number. It is monotone.
    #[inline]
    pub(super) fn draw(&self, uniform: u64) -> u64 {
        let mut passed = self.guide[(uniform >> self.guide_shift) as usize] as usize;
        while passed < self.thresholds.len() && self.thresholds[passed] <= uniform {
            passed += 1;
        }
        self.first + passed as u64
    }

    /// The largest outcome.
    #[inline]
    pub(super) fn largest(&self) -> u64 {
        self.first + self.thresholds.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::random::{Purpose, Source},
        *,
    };

    /// ln k! by Stirling's series, or summed where that is not exact.
    fn ln_factorial(k: u64) -> f64 {
        if k < 200 {
            return (2..=k).map(|i| (i as f64).ln()).sum();
        }
        let x = k as f64;
        x * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI * x).ln() + 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3))
    }

    fn mass(poisson: &Poisson, k: u64) -> f64 {
        let Some(i) = k.checked_sub(poisson.first) else {
            return 0.0;
        };
        let threshold = |i: u64| poisson.thresholds.get(i as usize).map_or(1u128 << 64, |&t| u128::from(t));
        let from = if i == 0 { 0 } else { threshold(i - 1) };
        (threshold(i) - from) as f64 / 2f64.powi(64)
    }

    #[test]
    fn probabilities_are_those_of_the_formula() {
        for mean in [1e-9, 1e-3, 0.1, 1.0, 3.5, 16.0, 100.0, 12_345.6, 1e6, 1e9, MEAN_MAX] {
            let poisson = Poisson::new(mean);
            let sigma = mean.sqrt();
            for step in -40..=40 {
                let k = (mean + f64::from(step) * sigma / 5.0).round();
                if k < 0.0 {
                    continue;
                }
                let expected = (k * mean.ln() - mean - ln_factorial(k as u64)).exp();
                let found = mass(&poisson, k as u64);
                // The formula itself cancels terms of the size of mean * ln(mean).
                let tolerance = 1e-10 + mean * mean.ln().abs() * 4e-16;
                assert!(
                    (found - expected).abs() <= expected * tolerance + 1e-18,
                    "mean {mean}, k {k}: {found:e}, expected {expected:e}"
                );
            }
        }
    }

    #[test]
    fn the_table_covers_all_uniforms_in_order() {
        for mean in [0.0, 1e-30, 1e-9, 0.7, 5.0, 300.0, 1e7] {
            let poisson = Poisson::new(mean);
            assert!(poisson.thresholds.is_sorted(), "mean {mean}");
            assert_eq!(poisson.draw(0), poisson.first);
            assert_eq!(poisson.draw(u64::MAX), poisson.largest());
            for (i, &threshold) in poisson.thresholds.iter().enumerate().step_by(1 + poisson.thresholds.len() / 100) {
                assert!(poisson.draw(threshold) > poisson.first + i as u64);
                assert!(poisson.draw(threshold - 1) <= poisson.first + i as u64);
            }
        }
        assert_eq!(Poisson::new(0.0).draw(u64::MAX), 0);
    }

    #[test]
    fn sample_moments_are_those_of_the_distribution() {
        let n = 200_000u64;
        for mean in [0.01, 0.9, 16.0, 1000.0, 5e7] {
            let (poisson, source) = (Poisson::new(mean), Source::new(3, Purpose::Row));
            let draws: Vec<f64> = (0..n).map(|i| poisson.draw(source.at(i)) as f64 - mean).collect();
            let first = draws.iter().sum::<f64>() / n as f64;
            let second = draws.iter().map(|x| x * x).sum::<f64>() / n as f64;
            // Standard errors of the sample mean, and of the sample variance (fourth moment 3 m^2 + m), times five.
            assert!(first.abs() < 5.0 * (mean / n as f64).sqrt(), "mean {mean}: off by {first}");
            let error = 5.0 * ((2.0 * mean * mean + mean) / n as f64).sqrt();
            assert!((second - mean).abs() < error, "mean {mean}: variance {second}");
        }
    }
}
