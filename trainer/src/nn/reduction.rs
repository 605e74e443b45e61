//! A layer's aggregation as the engine does it out of core: see [`grappa_engine::aggregate`].

use grappa_engine::aggregate::{Max, Mean, Reduce, Sum};

use crate::kernels::attention::leaky;

/// The aggregation of one layer over all in-neighbours.
///
/// Its rows are [`Model::messages`](super::Model::messages), the destinations' own ones
/// [`Model::queries`](super::Model::queries), and its states begin with what [`Model::update`](super::Model::update) takes.
#[derive(Debug, Clone)]
pub enum Reduction {
    /// The mean.
    Mean(Mean),
    /// The largest, value by value.
    Max(Max),
    /// The sum.
    Sum(Sum),
    /// The sum over the root of the in-degree + 1. GCN's messages are divided by that of the source.
    Gcn(Sum),
    /// A mean with weights that depend on source and destination.
    Attention(Attention),
}

macro_rules! each {
    ($self:ident, $reduce:ident => $do:expr) => {
        match $self {
            Self::Mean($reduce) => $do,
            Self::Max($reduce) => $do,
            Self::Sum($reduce) | Self::Gcn($reduce) => $do,
            Self::Attention($reduce) => $do,
        }
    };
}

impl Reduction {
    /// How many of a state's values, the first, are the result.
    pub fn result_width(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.width(),
            other => other.state_width(),
        }
    }
}

impl Reduce for Reduction {
    fn source_width(&self) -> usize {
        each!(self, reduce => reduce.source_width())
    }

    fn own_width(&self) -> usize {
        each!(self, reduce => reduce.own_width())
    }

    fn state_width(&self) -> usize {
        each!(self, reduce => reduce.state_width())
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        each!(self, reduce => reduce.begin(own, state));
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        each!(self, reduce => reduce.add(state, source));
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        each!(self, reduce => reduce.finish(degree, state));
        if let Self::Gcn(_) = self {
            let factor = (degree as f32 + 1.0).sqrt().recip();
            state.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

/// A softmax-weighted mean, edge by edge: the sum so far is scaled down whenever a larger logit comes (Milakov, Gimelshein:
/// "Online normalizer calculation for softmax", 2018).
///
/// ```text
/// GAT:   source  heads' rows | score of each head
///        own     heads' rows | score of each head as source | as destination
///        state   heads' sums | largest logits | sums of weights | scores as destination
/// GATv2: source  heads' rows
///        own     heads' rows as source | as destination
///        state   heads' sums | largest logits | sums of weights | rows as destination
/// ```
#[derive(Debug, Clone)]
pub struct Attention {
    heads: usize,
    head_width: usize,
    /// GATv2's; GAT's scores are in the rows.
    attention: Option<Vec<f32>>,
}

impl Attention {
    pub(crate) fn gat(heads: usize, head_width: usize) -> Self {
        Self {
            heads,
            head_width,
            attention: None,
        }
    }

    pub(crate) fn gatv2(heads: usize, head_width: usize, attention: Vec<f32>) -> Self {
        assert_eq!(attention.len(), heads * head_width, "attention of all heads");
        Self {
            heads,
            head_width,
            attention: Some(attention),
        }
    }

    fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// Values of a destination that logits depend on.
    fn query_width(&self) -> usize {
        if self.attention.is_some() {
            self.width()
        } else {
            self.heads
        }
    }

    /// The logit of a head, from a source's row and the destination's query.
    fn logit(&self, head: usize, source: &[f32], query: &[f32]) -> f32 {
        match &self.attention {
            None => leaky(source[self.width() + head] + query[head]),
            Some(attention) => {
                let part = head * self.head_width..(head + 1) * self.head_width;
                let values = source[part.clone()]
                    .iter()
                    .zip(&query[part.clone()])
                    .zip(&attention[part]);
                values
                    .map(|((source, own), attention)| attention * leaky(source + own))
                    .sum()
            }
        }
    }
}

/// `exp(logit - largest)` of the largest logit: 1, but not a number if it is infinite, as in PyTorch's softmax.
fn weight_of_largest(logit: f32) -> f32 {
    match logit == f32::INFINITY {
        true => f32::NAN,
        false => 1.0,
    }
}

impl Reduce for Attention {
    fn source_width(&self) -> usize {
        self.width() + if self.attention.is_some() { 0 } else { self.heads }
    }

    fn own_width(&self) -> usize {
        self.source_width() + self.query_width()
    }

    fn state_width(&self) -> usize {
        self.width() + 2 * self.heads + self.query_width()
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        let (source, query) = own.split_at(self.source_width());
        let (sums, rest) = state.split_at_mut(self.width());
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (weights, kept) = rest.split_at_mut(self.heads);
        // The node itself is the first neighbour.
        sums.copy_from_slice(&source[..sums.len()]);
        for (head, largest) in largest.iter_mut().enumerate() {
            *largest = self.logit(head, source, query);
        }
        weights
            .iter_mut()
            .zip(&*largest)
            .for_each(|(weight, logit)| *weight = weight_of_largest(*logit));
        kept.copy_from_slice(query);
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        let (sums, rest) = state.split_at_mut(self.width());
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (weights, query) = rest.split_at_mut(self.heads);
        let heads = sums
            .chunks_exact_mut(self.head_width)
            .zip(source.chunks_exact(self.head_width));
        for (head, (sums, row)) in heads.enumerate() {
            let logit = self.logit(head, source, query);
            let weight = if logit > largest[head] {
                let scale = (largest[head] - logit).exp();
                sums.iter_mut().for_each(|sum| *sum *= scale);
                weights[head] *= scale;
                largest[head] = logit;
                weight_of_largest(logit)
            } else {
                (logit - largest[head]).exp()
            };
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
            weights[head] += weight;
        }
    }

    fn finish(&self, _degree: u64, state: &mut [f32]) {
        let (sums, rest) = state.split_at_mut(self.width());
        for (sums, weight) in sums.chunks_exact_mut(self.head_width).zip(&rest[self.heads..]) {
            sums.iter_mut().for_each(|sum| *sum /= weight);
        }
    }
}
