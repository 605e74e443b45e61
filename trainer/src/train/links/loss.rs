//! The loss of each edge.
//!
//! ```text
//! p          the score of an edge
//! n_1 .. n_k the scores of its negatives
//!
//! bce        (bce(p, 1) + sum of bce(n_i, 0)) / (1 + k): its mean over edges is PyTorch's BCEWithLogitsLoss of all pairs
//! bpr        mean of -log sigmoid(p - n_i)
//! softmax    -log(exp(p / t) / (exp(p / t) + sum of exp(n_i / t)))
//! ```

use grappa_run::config::LossKind;
use tch::{Kind, Tensor};

use super::pairs::PairTensors;
use crate::nn::LinkDecoder;

/// The loss of links.
#[derive(Debug, Clone, Copy)]
pub struct LinkLoss {
    kind: LossKind,
    temperature: f64,
    negatives: i64,
    is_shared: bool,
}

impl LinkLoss {
    /// A loss of edges with `negatives` negatives each, or for each part if its edges share them (`is_shared`). An edge without negatives has
    /// the loss of its own score alone.
    pub fn new(kind: LossKind, temperature: f64, negatives: u32, is_shared: bool) -> Self {
        Self { kind, temperature, negatives: negatives.into(), is_shared }
    }

    /// The loss of each edge, f32 of `[edges]`, from the embeddings of all ends, `[rows, values]`.
    pub fn losses(&self, decoder: &LinkDecoder, embeddings: &Tensor, pairs: &PairTensors) -> Tensor {
        let [sources, destinations] = pairs.positives.each_ref().map(|rows| embeddings.index_select(0, rows));
        let edges = decoder.score(&sources, &destinations);
        let (negatives, is_negative) = self.negatives(decoder, embeddings, &sources, pairs);
        self.of_scores(&edges, &negatives, is_negative.as_ref())
    }

    /// The scores of the negatives of each edge, `[edges, negatives]`, and which of them count; none if all do.
    fn negatives(
        &self,
        decoder: &LinkDecoder,
        embeddings: &Tensor,
        sources: &Tensor,
        pairs: &PairTensors,
    ) -> (Tensor, Option<Tensor>) {
        let shape = [-1, self.negatives];
        let [from, to] = &pairs.negatives;
        let to = embeddings.index_select(0, to);
        let is_negative = pairs.is_negative.as_ref().map(|is_negative| is_negative.view(shape));
        if !self.is_shared {
            let scores = decoder.score(&embeddings.index_select(0, from), &to);
            return (scores.view(shape), is_negative);
        }
        let mut first = 0;
        let parts: Vec<Tensor> = (0..)
            .zip(&pairs.parts)
            .map(|(part, &edges)| {
                let sources = sources.narrow(0, first, edges);
                first += edges;
                decoder.score_all(&sources, &to.narrow(0, part * self.negatives, self.negatives))
            })
            .collect();
        (Tensor::cat(&parts, 0), is_negative)
    }

    fn of_scores(&self, edges: &Tensor, negatives: &Tensor, is_negative: Option<&Tensor>) -> Tensor {
        let counted = match is_negative {
            Some(is_negative) => is_negative.to_kind(Kind::Float),
            None => negatives.ones_like(),
        };
        let count = sum_of_rows(&counted);
        match self.kind {
            LossKind::Bpr => {
                let losses = -(edges.unsqueeze(1) - negatives).log_sigmoid();
                sum_of_rows(&(losses * &counted)) / count.clamp_min(1.0)
            }
            LossKind::Softmax => {
                let (edges, negatives) = (edges / self.temperature, negatives / self.temperature);
                let negatives = match is_negative {
                    Some(is_negative) => negatives.masked_fill(&is_negative.logical_not(), f64::NEG_INFINITY),
                    None => negatives,
                };
                let all = Tensor::cat(&[edges.unsqueeze(1), negatives], 1);
                all.logsumexp([1i64].as_slice(), false) - edges
            }
            // log(1 + exp(n)) = -log sigmoid(-n).
            _ => {
                let negative_loss = sum_of_rows(&((-negatives).log_sigmoid() * &counted));
                -(edges.log_sigmoid() + negative_loss) / (count + 1.0)
            }
        }
    }
}

fn sum_of_rows(values: &Tensor) -> Tensor {
    values.sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(loss: LossKind, temperature: f64, is_negative: Option<&[bool]>) -> Vec<f32> {
        let loss = LinkLoss { kind: loss, temperature, negatives: 2, is_shared: false };
        let edges = Tensor::from_slice(&[1.0f32, -0.5]);
        let negatives = Tensor::from_slice(&[0.5f32, -2.0, 3.0, 0.25]).view([2, 2]);
        let is_negative = is_negative.map(|marks| Tensor::from_slice(marks).view([2, 2]));
        Vec::try_from(loss.of_scores(&edges, &negatives, is_negative.as_ref())).unwrap()
    }

    fn softplus(x: f64) -> f64 {
        x.exp().ln_1p()
    }

    fn assert_near(found: &[f32], expected: [f64; 2]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn losses_are_their_formulas() {
        let bce = [
            (softplus(-1.0) + softplus(0.5) + softplus(-2.0)) / 3.0,
            (softplus(0.5) + softplus(3.0) + softplus(0.25)) / 3.0,
        ];
        assert_near(&values(LossKind::Bce, 1.0, None), bce);
        assert_near(&values(LossKind::Auto, 1.0, None), bce);
        let bpr = [(softplus(-0.5) + softplus(-3.0)) / 2.0, (softplus(3.5) + softplus(0.75)) / 2.0];
        assert_near(&values(LossKind::Bpr, 1.0, None), bpr);
        let softmax = |edge: f64, negatives: [f64; 2], t: f64| {
            let sum = (edge / t).exp() + negatives.iter().map(|n| (n / t).exp()).sum::<f64>();
            sum.ln() - edge / t
        };
        let expected = [softmax(1.0, [0.5, -2.0], 0.5), softmax(-0.5, [3.0, 0.25], 0.5)];
        assert_near(&values(LossKind::Softmax, 0.5, None), expected);
    }

    #[test]
    fn candidates_that_are_edges_do_not_count() {
        let marks: &[bool] = &[true, false, false, false];
        let none = softplus(0.5);
        assert_near(&values(LossKind::Bce, 1.0, Some(marks)), [(softplus(-1.0) + softplus(0.5)) / 2.0, none]);
        assert_near(&values(LossKind::Bpr, 1.0, Some(marks)), [softplus(-0.5), 0.0]);
        assert_near(&values(LossKind::Softmax, 1.0, Some(marks)), [softplus(-0.5), 0.0]);
    }
}
