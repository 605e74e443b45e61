use super::{assert_close, values, with_threads};
use crate::{
    loss::TripleLoss,
    matrix::Matrix,
    side::{Positives, Side, SideGradients, SideMemory},
    similarity::Similarity,
};

const SIMILARITIES: [Similarity; 4] =
    [Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan, Similarity::Moduli];
const LOSSES: [TripleLoss; 3] = [
    TripleLoss::Softmax,
    TripleLoss::Logistic { margin: 1.5, adversarial: 0.0 },
    TripleLoss::Logistic { margin: 1.5, adversarial: 0.5 },
];
const DIM: usize = 10;
const QUERIES: usize = 5;
const CANDIDATES: usize = 7;
const WEIGHT: f64 = 0.25;

pub fn matrix(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut matrix = Matrix::zeros(rows, dim);
    let values = values(rows * dim, seed);
    matrix.fill_rows(|row, place| place[..dim].copy_from_slice(&values[row * dim..][..dim]));
    matrix
}

/// Queries, candidates and positives.
struct Case {
    queries: Matrix,
    candidates: Matrix,
    positives: Matrix,
    are_candidates: bool,
}

const AMONG: [u32; QUERIES] = [0, 6, 3, 3, 1];
/// The third candidate is the positive of the first query, twice.
const CLASHES: [(u32, u32); 2] = [(0, 2), (0, 5)];

impl Case {
    fn new(are_candidates: bool) -> Self {
        let [queries, candidates, positives] =
            [(QUERIES, 1), (CANDIDATES, 2), (QUERIES, 3)].map(|(rows, seed)| matrix(rows, DIM, seed));
        Self { queries, candidates, positives, are_candidates }
    }

    /// The loss in f64, by its definition. `weights` are the weights of self-adversarial negatives, which count as constant.
    fn loss(&self, similarity: Similarity, loss: TripleLoss, weights: Option<&[Vec<f64>]>) -> f64 {
        let score = |query: &[f32], row: &[f32]| -> f64 {
            let pairs = query[..DIM].iter().zip(&row[..DIM]);
            let pairs: Vec<(f64, f64)> = pairs.map(|(q, r)| (f64::from(*q), f64::from(*r))).collect();
            match similarity {
                Similarity::Dot => pairs.iter().map(|(q, r)| q * r).sum(),
                Similarity::Euclidean => -pairs.iter().map(|(q, r)| (q - r).powi(2)).sum::<f64>().sqrt(),
                Similarity::Manhattan => -pairs.iter().map(|(q, r)| (q - r).abs()).sum::<f64>(),
                Similarity::Moduli => {
                    let (real, imaginary) = pairs.split_at(DIM / 2);
                    let moduli = real.iter().zip(imaginary).map(|(a, b)| (a.0 - a.1).hypot(b.0 - b.1));
                    -moduli.sum::<f64>()
                }
            }
        };
        let softplus = |x: f64| x.exp().ln_1p();
        let of_query = |query: usize| {
            let row = self.queries.row(query);
            let is_positive = |candidate: usize| match self.are_candidates {
                true => AMONG[query] as usize == candidate,
                false => CLASHES.contains(&(query as u32, candidate as u32)),
            };
            let negatives = (0..CANDIDATES).filter(|&candidate| !is_positive(candidate));
            let negatives: Vec<f64> = negatives.map(|candidate| score(row, self.candidates.row(candidate))).collect();
            let positive = match self.are_candidates {
                true => score(row, self.candidates.row(AMONG[query] as usize)),
                false => score(row, self.positives.row(query)),
            };
            match loss {
                TripleLoss::Softmax => {
                    let sum: f64 = negatives.iter().map(|score| (score - positive).exp()).sum();
                    (1.0 + sum).ln()
                }
                TripleLoss::Logistic { margin, .. } => {
                    let even = (CANDIDATES - usize::from(self.are_candidates)) as f64;
                    let of_negative = |(place, score): (usize, &f64)| {
                        let weight = weights.map_or(1.0 / even, |weights| weights[query][place]);
                        weight * softplus(f64::from(margin) + score)
                    };
                    let sum: f64 = negatives.iter().enumerate().map(of_negative).sum();
                    (sum + softplus(-f64::from(margin) - positive)) / 2.0
                }
            }
        };
        WEIGHT * (0..QUERIES).map(of_query).sum::<f64>()
    }

    /// The weights of self-adversarial negatives, in f64.
    fn weights(&self, similarity: Similarity, alpha: f64) -> Vec<Vec<f64>> {
        let of_query = |query: usize| {
            let is_positive = |candidate: usize| match self.are_candidates {
                true => AMONG[query] as usize == candidate,
                false => CLASHES.contains(&(query as u32, candidate as u32)),
            };
            let negatives = (0..CANDIDATES).filter(|&candidate| !is_positive(candidate));
            let scores = negatives.map(|candidate| {
                let score = similarity.score(&self.queries.row(query)[..DIM], &self.candidates.row(candidate)[..DIM]);
                (alpha * f64::from(score)).exp()
            });
            let scores: Vec<f64> = scores.collect();
            let sum: f64 = scores.iter().sum();
            scores.into_iter().map(|score| score / sum).collect()
        };
        (0..QUERIES).map(of_query).collect()
    }

    /// The loss, and the gradients of queries, candidates and positives.
    fn backward(&self, similarity: Similarity, loss: TripleLoss) -> (f64, [Matrix; 3]) {
        let side = Side {
            similarity,
            loss,
            weight: WEIGHT as f32,
            dim: DIM,
            queries: &self.queries,
            candidates: &self.candidates,
            positives: match self.are_candidates {
                true => Positives::Among(&AMONG),
                false => Positives::Apart(&self.positives, &CLASHES),
            },
        };
        let mut gradients = SideGradients::default();
        let mut of_candidates = Matrix::zeros(CANDIDATES, DIM);
        let value = side.backward(&mut SideMemory::default(), &mut gradients, &mut of_candidates.data);
        let mut of_positives = Matrix::zeros(QUERIES, DIM);
        if !self.are_candidates {
            let stride = of_positives.stride;
            for query in 0..QUERIES {
                let (score, gradient) = gradients.positives[query];
                let of_query = &mut gradients.queries.data[query * stride..][..DIM];
                let of_positive = &mut of_positives.data[query * stride..][..DIM];
                let rows = [&self.queries.row(query)[..DIM], &self.positives.row(query)[..DIM]];
                similarity.backward(rows, score, gradient, [of_query, of_positive]);
            }
        }
        (value, [gradients.queries, of_candidates, of_positives])
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_definition() {
    const STEP: f32 = 1e-3;
    for similarity in SIMILARITIES {
        for loss in LOSSES {
            for are_candidates in [false, true] {
                let name = format!("{similarity:?} {loss:?} {are_candidates}");
                let case = Case::new(are_candidates);
                let weights = match loss {
                    TripleLoss::Logistic { adversarial, .. } if adversarial > 0.0 => {
                        Some(case.weights(similarity, adversarial.into()))
                    }
                    _ => None,
                };
                let (value, gradients) = with_threads(2, || case.backward(similarity, loss));
                assert_close(value, case.loss(similarity, loss, weights.as_deref()), 1e-5, &name);
                for (which, gradient) in gradients.iter().enumerate() {
                    let rows = if which == 1 { CANDIDATES } else { QUERIES };
                    for (row, k) in (0..rows).flat_map(|row| (0..DIM).map(move |k| (row, k))) {
                        let moved = |step: f32| {
                            let mut case = Case::new(are_candidates);
                            let moved = [&mut case.queries, &mut case.candidates, &mut case.positives];
                            let matrix = &mut *moved.into_iter().nth(which).expect("three matrices");
                            let place = row * matrix.stride + k;
                            matrix.data[place] += step;
                            case.loss(similarity, loss, weights.as_deref())
                        };
                        let expected = (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP);
                        let actual = gradient.row(row)[k];
                        assert_close(actual.into(), expected, 2e-3, &format!("{name}, {which}, row {row}, value {k}"));
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_have_the_same_bits_for_any_number_of_threads() {
    for similarity in SIMILARITIES {
        let (queries, candidates) = (matrix(150, 20, 7), matrix(1100, 20, 8));
        let positives: Vec<u32> = (0..150).map(|query| query * 7).collect();
        let side = Side {
            similarity,
            loss: TripleLoss::Softmax,
            weight: 0.01,
            dim: 20,
            queries: &queries,
            candidates: &candidates,
            positives: Positives::Among(&positives),
        };
        let results = [1, 2, 3].map(|threads| {
            with_threads(threads, || {
                let (mut gradients, mut of_candidates) = (SideGradients::default(), Matrix::zeros(1100, 20));
                let loss = side.backward(&mut SideMemory::default(), &mut gradients, &mut of_candidates.data);
                (loss.to_bits(), gradients.queries.data, of_candidates.data)
            })
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{similarity:?}");
    }
}
