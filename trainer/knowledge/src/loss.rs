//! Losses of the scores of a query: its positive, and candidates that are negatives.

use grappa_kernels::exp_of_negative;

use crate::similarity::Similarity;

/// Values that a loop over scores handles at a time.
const LANES: usize = 16;

/// A loss of triples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TripleLoss {
    /// Cross-entropy of the positive among all candidates.
    Softmax,
    /// Logistic loss of the positive and of the weighted negatives, with a margin that is added to scores.
    ///
    /// Weights are even, or, if `adversarial` is above 0, a softmax of the scores times this number, which counts as constant
    /// (self-adversarial negatives of Sun et al. 2019).
    Logistic {
        /// Added to all scores.
        margin: f32,
        /// Divisor of the temperature of weights; 0 for even weights.
        adversarial: f32,
    },
}

/// The place of the positive of a query.
#[derive(Debug, Clone, Copy)]
pub enum Positive {
    /// It is a candidate: the number of its segment, and its place there.
    Among(usize, usize),
    /// It is none. Its score.
    Apart(f32),
}

impl TripleLoss {
    /// Computes the loss of a query, times `weight`, from the `segments` of its scores, and replaces the scores by the factors of
    /// [`Similarity::factor`]. Returns the loss, and the gradient of the positive's score if it is no candidate.
    pub fn of_query(
        self,
        similarity: Similarity,
        segments: &mut [&mut [f32]],
        positive: Positive,
        weight: f32,
    ) -> (f64, f32) {
        match self {
            Self::Softmax => softmax(similarity, segments, positive, weight),
            Self::Logistic { margin, adversarial } => {
                logistic(similarity, segments, positive, weight, [margin, adversarial])
            }
        }
    }
}

fn softmax(similarity: Similarity, segments: &mut [&mut [f32]], positive: Positive, weight: f32) -> (f64, f32) {
    let own = match positive {
        Positive::Among(segment, place) => segments[segment][place],
        Positive::Apart(score) => score,
    };
    let largest = segments.iter().fold(own, |largest, segment| largest.max(max(segment)));
    let of_own = exp_of_negative(own - largest);
    let apart = if matches!(positive, Positive::Apart(_)) { of_own } else { 0.0 };
    let sum = apart + segments.iter().map(|segment| sum_of_exponentials(segment, 1.0, largest)).sum::<f32>();
    let factor = weight / sum;
    for segment in segments.iter_mut() {
        similarity.replace(segment, |score| factor * exp_of_negative(score - largest));
    }
    let loss = f64::from(sum.ln()) - f64::from(own - largest);
    let gradient = factor * of_own - weight;
    if let Positive::Among(segment, place) = positive {
        segments[segment][place] = similarity.factor(own, gradient);
    }
    (loss * f64::from(weight), gradient)
}

fn logistic(
    similarity: Similarity,
    segments: &mut [&mut [f32]],
    positive: Positive,
    weight: f32,
    [margin, adversarial]: [f32; 2],
) -> (f64, f32) {
    let mut negatives: usize = segments.iter().map(|segment| segment.len()).sum();
    let own = match positive {
        Positive::Apart(score) => score,
        Positive::Among(segment, place) => {
            negatives -= 1;
            std::mem::replace(&mut segments[segment][place], f32::NEG_INFINITY)
        }
    };
    // Of the positive and of the negatives, half each.
    let half = weight / 2.0;
    let mut loss = 0.0;
    if adversarial > 0.0 {
        let largest = segments.iter().fold(f32::NEG_INFINITY, |largest, segment| largest.max(max(segment)));
        let sum: f32 = segments.iter().map(|segment| sum_of_exponentials(segment, adversarial, largest)).sum();
        let factor = half / sum.max(f32::MIN_POSITIVE);
        for segment in segments.iter_mut() {
            let share = |score: f32| factor * exp_of_negative((adversarial * (score - largest)).min(0.0));
            loss += sum_of(segment, |score| share(score) * softplus(margin + score));
            similarity.replace(segment, |score| share(score) * sigmoid(margin + score));
        }
    } else {
        let share = half / negatives.max(1) as f32;
        for segment in segments.iter_mut() {
            loss += sum_of(segment, |score| share * softplus(margin + score));
            similarity.replace(segment, |score| share * sigmoid(margin + score));
        }
    }
    loss += half * softplus(-margin - own);
    let gradient = -half * sigmoid(-margin - own);
    if let Positive::Among(segment, place) = positive {
        segments[segment][place] = similarity.factor(own, gradient);
    }
    (f64::from(loss), gradient)
}

/// 1 / (1 + e^-x), without branches.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let small = exp_of_negative(-x.abs());
    let of_positive = 1.0 / (1.0 + small);
    if x >= 0.0 { of_positive } else { small * of_positive }
}

/// ln(1 + e^x), without branches, to about 1e-6.
#[inline(always)]
fn softplus(x: f32) -> f32 {
    let small = exp_of_negative(-x.abs());
    // ln(1 + s) = 2 artanh(s / (2 + s)), and the argument is at most 1/3.
    let z = small / (2.0 + small);
    let square = z * z;
    let mut series = 1.0 / 11.0;
    for divisor in [9.0, 7.0, 5.0, 3.0, 1.0] {
        series = square.mul_add(series, 1.0 / divisor);
    }
    (2.0 * z).mul_add(series, x.max(0.0))
}

fn max(scores: &[f32]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let chunks = scores.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            largest[lane] = if chunk[lane] > largest[lane] { chunk[lane] } else { largest[lane] };
        }
    }
    largest.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, f32::max)
}

fn sum_of_exponentials(scores: &[f32], factor: f32, largest: f32) -> f32 {
    sum_of(scores, |score| exp_of_negative((factor * (score - largest)).min(0.0)))
}

#[inline(always)]
fn sum_of(scores: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    let chunks = scores.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += term(chunk[lane]);
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|&score| term(score)).sum::<f32>()
}
