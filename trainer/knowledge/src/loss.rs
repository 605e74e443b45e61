//! Losses of the scores of a query: its positive, and candidates that are negatives.
//!
//! Scores come in segments, which fit the first cache. A loss sees each segment twice: when it is computed ([`QueryLoss::observe`]), and when
//! its scores become factors of gradients ([`QueryLoss::replace`]).

use grappa_kernels::exp_of_negative;

use crate::similarity::Similarity;

/// Values that a loop over scores handles at a time.
const LANES: usize = 16;

/// A loss of triples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TripleLoss {
    /// Cross-entropy of the positive among all candidates.
    Softmax,
    /// Logistic loss of the positive and of the weighted negatives, half each, with a margin that is added to scores.
    ///
    /// Weights are even, or, with `adversarial` above 0, a softmax of the scores times `adversarial`, without a gradient
    /// (self-adversarial negatives of Sun et al. 2019).
    Logistic {
        /// Added to all scores.
        margin: f32,
        /// Factor of scores in the softmax of weights; 0 for even weights.
        adversarial: f32,
    },
}

/// The loss of a query.
#[derive(Debug, Clone, Copy)]
pub struct QueryLoss {
    loss: TripleLoss,
    similarity: Similarity,
    /// The factor of the loss.
    weight: f32,
    /// The score of the positive.
    own: f32,
    /// Negatives: all candidates but the positive.
    negatives: usize,
    /// The largest score so far, and the sum of the exponentials of scores less the largest one.
    largest: f32,
    sum: f32,
    /// The loss of negatives, by [`QueryLoss::replace`].
    of_negatives: f32,
}

impl QueryLoss {
    /// The loss of a query with some candidates, times `weight`. `apart` is the score of the positive if it is no candidate.
    pub fn new(loss: TripleLoss, similarity: Similarity, weight: f32, candidates: usize, apart: Option<f32>) -> Self {
        let counts_own = loss == TripleLoss::Softmax && apart.is_some();
        let own = apart.unwrap_or(f32::NEG_INFINITY);
        Self {
            loss,
            similarity,
            weight,
            own,
            negatives: candidates - usize::from(apart.is_none()),
            largest: if counts_own { own } else { f32::NEG_INFINITY },
            sum: if counts_own { 1.0 } else { 0.0 },
            of_negatives: 0.0,
        }
    }

    /// Takes a segment of scores. `positive` is the place of the positive, if it is here.
    pub fn observe(&mut self, scores: &mut [f32], positive: Option<usize>) {
        if let Some(place) = positive {
            self.own = scores[place];
        }
        let factor = match self.loss {
            TripleLoss::Softmax => 1.0,
            TripleLoss::Logistic { adversarial, .. } => {
                if let Some(place) = positive {
                    scores[place] = f32::NEG_INFINITY;
                }
                adversarial
            }
        };
        if factor == 0.0 {
            return;
        }
        let largest = max(scores);
        if largest > self.largest {
            if self.sum > 0.0 {
                self.sum *= exp_of_negative(factor * (self.largest - largest));
            }
            self.largest = largest;
        }
        if self.largest > f32::NEG_INFINITY {
            let all = self.largest;
            self.sum += sum_of(scores, |score| exp_of_negative((factor * (score - all)).min(0.0)));
        }
    }

    /// Replaces a segment of scores by the factors of [`Similarity::factor`], after all segments were observed.
    pub fn replace(&mut self, scores: &mut [f32], positive: Option<usize>) {
        let largest = self.largest;
        match self.loss {
            TripleLoss::Softmax => {
                let factor = self.weight / self.sum;
                self.similarity.replace(scores, |score| factor * exp_of_negative((score - largest).min(0.0)));
            }
            TripleLoss::Logistic { margin, adversarial } if adversarial > 0.0 => {
                let factor = self.weight / 2.0 / self.sum.max(f32::MIN_POSITIVE);
                let share = |score: f32| factor * exp_of_negative((adversarial * (score - largest)).min(0.0));
                self.of_negatives += sum_of(scores, |score| share(score) * softplus(margin + score));
                self.similarity.replace(scores, |score| share(score) * sigmoid(margin + score));
            }
            TripleLoss::Logistic { margin, .. } => {
                let share = self.weight / 2.0 / self.negatives.max(1) as f32;
                self.of_negatives += sum_of(scores, |score| share * softplus(margin + score));
                self.similarity.replace(scores, |score| share * sigmoid(margin + score));
            }
        }
        if let Some(place) = positive {
            scores[place] = self.similarity.factor(self.own, self.gradient());
        }
    }

    /// The gradient of the positive's score, after all segments were observed.
    pub fn gradient(&self) -> f32 {
        match self.loss {
            TripleLoss::Softmax => self.weight * (self.share_of_own() - 1.0),
            TripleLoss::Logistic { margin, .. } => -self.weight / 2.0 * sigmoid(-margin - self.own),
        }
    }

    fn share_of_own(&self) -> f32 {
        exp_of_negative((self.own - self.largest).min(0.0)) / self.sum
    }

    /// The loss, after all segments were replaced.
    pub fn value(&self) -> f64 {
        match self.loss {
            TripleLoss::Softmax => {
                let loss = f64::from(self.sum.ln()) - f64::from(self.own - self.largest);
                loss * f64::from(self.weight)
            }
            TripleLoss::Logistic { margin, .. } => {
                f64::from(self.of_negatives) + f64::from(self.weight / 2.0 * softplus(-margin - self.own))
            }
        }
    }
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

#[inline(always)]
fn larger(one: f32, other: f32) -> f32 {
    if other > one { other } else { one }
}

fn max(scores: &[f32]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let chunks = scores.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], chunk[lane]);
        }
    }
    rest.iter().fold(reduce(largest, larger), |one, other| larger(one, *other))
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
    reduce(sums, |one, other| one + other) + rest.iter().map(|&score| term(score)).sum::<f32>()
}

/// Combines lanes in pairs, which takes four operations on vectors.
#[inline(always)]
fn reduce(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}
