//! Procedural features: values that are computed when they are read, and take no disk space.

use super::{
    Model, Rmat,
    patterns::PatternClasses,
    random::{Purpose, Source},
};

/// Computes feature rows.
///
/// Let `g(purpose, index, i)` be an approximately Gaussian number, made from number `i` of the stream of `purpose` and
/// `index`. Then feature `i` of label l is
///
/// ```text
/// without classes:  g(Feature, l, i)
/// with classes:     (g(ClassMean, class of l, i) + noise * g(Feature, l, i)) / sqrt(1 + noise^2)
/// ```
///
/// All steps are in f32. The two factors are computed in f64 and rounded once. So all features have mean 0 and variance 1,
/// and those without classes carry no information. `g` is the sum of the four 16-bit parts of the number, minus the mean
/// 131070, divided by the standard deviation. Its distribution is bell-shaped, without values beyond 3.47.
///
/// A value costs one 64-bit hash. One thread computes 4 GB/s of f32.
///
/// With the defaults of [`super::BlockModel`] (10 classes, homophily 0.7, noise 5), a network can hardly classify a node by
/// its own features, but well by its neighborhood. The table shows the accuracy on the split `test` of a scikit-learn 1.9
/// `MLPClassifier` with 128 hidden units, trained on `train`, with 64 features, edge factor 10 and seed 1. X is the feature
/// matrix and A the row-normalized matrix of in-edges.
///
/// | nodes | X | X, AX | X, AX, AAX |
/// |---|---|---|---|
/// | 20 000 | 51.6 % | 90.9 % | 97.6 % |
/// | 100 000 | 53.6 % | 91.7 % | 98.0 % |
#[derive(Debug, Clone)]
pub struct Features {
    dim: usize,
    noise: Source,
    noise_factor: f32,
    /// The mean of each class, `dim` values each, already multiplied by its factor.
    class_means: Vec<f32>,
    class_of: ClassOf,
}

/// The class of a label.
#[derive(Debug, Clone)]
enum ClassOf {
    /// The remainder of a division by the number of classes.
    Remainder(u64),
    Pattern(PatternClasses),
}

impl Features {
    pub(super) fn new(model: &Model, seed: u64, dim: usize) -> Self {
        let noise = Source::new(seed, Purpose::Feature);
        let (count, spread, class_of) = match model {
            Model::Sbm(block) => (block.classes, block.noise, ClassOf::Remainder(block.classes.into())),
            Model::Rmat(Rmat { classes: Some(classes), scale, .. }) => {
                let class_of = PatternClasses::new(classes.count, *scale, seed);
                (classes.count, classes.noise, ClassOf::Pattern(class_of))
            }
            Model::Rmat(_) | Model::Er(_) | Model::Relation(_) => {
                return Self {
                    dim,
                    noise,
                    noise_factor: 1.0,
                    class_means: vec![0.0; dim],
                    class_of: ClassOf::Remainder(1),
                };
            }
        };
        let scale = 1.0 / (1.0 + spread * spread).sqrt();
        let means = Source::new(seed, Purpose::ClassMean);
        let mut class_means = vec![0.0; dim * count as usize];
        for (class, row) in class_means.chunks_exact_mut(dim).enumerate() {
            let stream = means.stream(class as u64);
            for (i, mean) in row.iter_mut().enumerate() {
                *mean = gaussian(stream.nth(i as u64)) * scale as f32;
            }
        }
        Self { dim, noise, noise_factor: (spread * scale) as f32, class_means, class_of }
    }

    /// Number of values per feature row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Writes the feature row of `label` to `out`.
    ///
    /// # Panics
    /// If the length of `out` is not [`Features::dim`].
    #[inline]
    pub fn row(&self, label: u64, out: &mut [f32]) {
        assert_eq!(out.len(), self.dim, "room for one feature row");
        let class = match &self.class_of {
            ClassOf::Remainder(classes) => (label % classes) as usize,
            ClassOf::Pattern(classes) => classes.class(label) as usize,
        };
        let means = &self.class_means[class * self.dim..][..self.dim];
        let stream = self.noise.stream(label);
        for (i, (value, mean)) in out.iter_mut().zip(means).enumerate() {
            *value = mean + self.noise_factor * gaussian(stream.nth(i as u64));
        }
    }
}

/// Maps a uniform number to one with mean 0, variance 1 and a bell-shaped distribution.
#[inline(always)]
fn gaussian(uniform: u64) -> f32 {
    /// One over the standard deviation: the sum's variance is (2^32 - 1) / 3.
    const SCALE: f32 = 1.0 / 37_837.227;
    // Adds the four 16-bit parts: two sums of two in one addition, then the two sums.
    let pairs = (uniform & 0x0000_ffff_0000_ffff) + (uniform >> 16 & 0x0000_ffff_0000_ffff);
    let sum = (pairs as u32).wrapping_add((pairs >> 32) as u32);
    (sum as i32 - 131_070) as f32 * SCALE
}

#[cfg(test)]
mod tests {
    use super::{
        super::{BlockModel, RmatClasses},
        *,
    };

    fn moments(values: impl Iterator<Item = f32> + Clone) -> [f64; 4] {
        let n = values.clone().count() as f64;
        [1, 2, 3, 4].map(|power| values.clone().map(|x| f64::from(x).powi(power)).sum::<f64>() / n)
    }

    /// The examples of `formats/spec/procedural.md`, computed by another implementation of what it says.
    #[test]
    fn values_are_those_of_the_specification() {
        let bits = |model: &Model, seed, label| {
            let mut row = [0.0; 4];
            Features::new(model, seed, 4).row(label, &mut row);
            row.map(f32::to_bits)
        };
        let rmat = Model::Rmat(Rmat::graph500(10, 16.0));
        assert_eq!(bits(&rmat, 42, 7), [0xbf2f_e797, 0xbe0a_3d44, 0xbf86_9dc0, 0x3f26_e63b]);
        let sbm = Model::Sbm(BlockModel { classes: 10, noise: 5.0, ..BlockModel::new(1000, 10.0) });
        assert_eq!(bits(&sbm, 1, 13), [0xbf4b_b0c1, 0xbfc1_cbbd, 0xbf8c_cf58, 0xbfa0_54c4]);
        let classes = Model::Rmat(Rmat { classes: Some(RmatClasses::new(16)), ..Rmat::graph500(20, 16.0) });
        assert_eq!(bits(&classes, 1, 123_456), [0x3f95_9e80, 0x3ffb_9d18, 0x3e98_b82b, 0x3fd1_fd3b]);
    }

    #[test]
    fn noise_is_nearly_gaussian() {
        let source = Source::new(9, Purpose::Feature);
        let n = 1u64 << 20;
        let [mean, variance, skewness, kurtosis] = moments((0..n).map(|i| gaussian(source.at(i))));
        assert!(mean.abs() < 0.005, "{mean}");
        assert!((variance - 1.0).abs() < 0.007, "{variance}");
        assert!(skewness.abs() < 0.012, "{skewness}");
        // That of a sum of four uniform numbers: 3 - 1.2 / 4.
        assert!((kurtosis - 2.7).abs() < 0.03, "{kurtosis}");
    }

    #[test]
    fn features_are_standardized_and_have_their_class_mean() {
        let block = BlockModel { noise: 2.0, classes: 4, ..BlockModel::new(1 << 16, 10.0) };
        let features = Features::new(&Model::Sbm(block.clone()), 1, 16);
        let mut rows = vec![0.0; 16 << 16];
        for (label, row) in rows.chunks_exact_mut(16).enumerate() {
            features.row(label as u64, row);
        }
        for class in 0..4usize {
            for i in 0..16 {
                let column = rows.chunks_exact(16).skip(class).step_by(4).map(|row| row[i]);
                let [mean, square, ..] = moments(column);
                let expected = f64::from(features.class_means[class * 16 + i]);
                assert!((mean - expected).abs() < 0.04, "class {class}, feature {i}: {mean}, expected {expected}");
                let variance = square - mean * mean;
                assert!((variance - 0.8).abs() < 0.05, "class {class}, feature {i}: {variance}");
            }
        }
    }
}
