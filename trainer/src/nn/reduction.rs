//! The aggregation of a layer over all in-neighbors, out of core: see [`grappa_engine::aggregate`].

use grappa_engine::aggregate::{ListSize, Max, Mean, Reduce, Sum, WeightedMean, WeightedSum};
use grappa_formats::features::FeatureLayout;

use super::{
    dot_attention::{DotAttention, merge_head, softmax_weight, weight_of_largest},
    edge_weight::{EdgeWeight, STRIP},
};
use crate::kernels::attention::leaky;

/// The aggregation of one layer over all in-neighbors.
///
/// The sources' rows are [`Model::messages`](super::Model::messages), and the destinations' own rows are
/// [`Model::queries`](super::Model::queries). A state begins with the aggregate that [`Model::update`](super::Model::update) takes.
#[derive(Debug, Clone)]
pub enum Reduction {
    /// The mean.
    Mean(Mean),
    /// The maximum, value by value.
    Max(Max),
    /// The sum.
    Sum(Sum),
    /// GCN's sum, divided by the square root of the in-degree + 1. Its messages are divided by the same root for the source.
    Gcn(Sum),
    /// The mean by the weights of edges.
    WeightedMean(WeightedMean),
    /// The sum of rows times the weights of their edges.
    WeightedSum(WeightedSum),
    /// GCN's sum with weights of edges. Messages are as without.
    WeightedGcn(WeightedGcn),
    /// GINE's sum.
    ReluSum(ReluSum),
    /// A mean with attention weights.
    Attention(Attention),
    /// A mean with attention weights that are dot products.
    DotAttention(DotAttention),
}

macro_rules! each {
    ($self:ident, $reduce:ident => $do:expr) => {
        match $self {
            Self::Mean($reduce) => $do,
            Self::Max($reduce) => $do,
            Self::Sum($reduce) | Self::Gcn($reduce) => $do,
            Self::WeightedMean($reduce) => $do,
            Self::WeightedSum($reduce) => $do,
            Self::WeightedGcn($reduce) => $do,
            Self::ReluSum($reduce) => $do,
            Self::Attention($reduce) => $do,
            Self::DotAttention($reduce) => $do,
        }
    };
}

impl Reduction {
    /// Number of values at the start of a state that are the result.
    pub fn result_width(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.width(),
            Self::DotAttention(attention) => attention.width(),
            other => other.source_width(),
        }
    }

    /// The same with the weights of edges.
    ///
    /// # Panics
    /// If it can take none.
    pub(crate) fn weighted(self) -> Self {
        match self {
            Self::Mean(Mean { width }) => Self::WeightedMean(WeightedMean { width }),
            Self::Sum(Sum { width }) => Self::WeightedSum(WeightedSum { width }),
            Self::Gcn(Sum { width }) => Self::WeightedGcn(WeightedGcn { width }),
            other => panic!("{other:?} takes no weights"),
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

    fn begin_part(&self, own: &[f32], state: &mut [f32]) {
        each!(self, reduce => reduce.begin_part(own, state));
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        each!(self, reduce => reduce.merge(state, part));
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        each!(self, reduce => reduce.add(state, source));
    }

    fn edge_width(&self) -> usize {
        each!(self, reduce => reduce.edge_width())
    }

    #[inline]
    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        each!(self, reduce => reduce.add_along(state, source, edge));
    }

    #[inline]
    fn add_encoded(&self, state: &mut [f32], source: &[u8], layout: FeatureLayout, values: &mut [f32]) {
        each!(self, reduce => reduce.add_encoded(state, source, layout, values));
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        each!(self, reduce => reduce.finish(list, state));
        if let Self::Gcn(_) = self {
            let factor = (list.degree as f32 + 1.0).sqrt().recip();
            state.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

/// GCN's sum with the weights of edges. The own row of a destination is its factor, which follows from the weights of all its in-edges, also
/// of those that were not drawn. A state has the sum, then the factor.
#[derive(Debug, Clone, Copy)]
pub struct WeightedGcn {
    width: usize,
}

impl Reduce for WeightedGcn {
    fn source_width(&self) -> usize {
        self.width
    }

    fn own_width(&self) -> usize {
        1
    }

    fn edge_width(&self) -> usize {
        1
    }

    fn state_width(&self) -> usize {
        self.width + 1
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        state.fill(0.0);
        state[self.width] = own[0];
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        let sums = state[..self.width].iter_mut().zip(part);
        sums.for_each(|(sum, value)| *sum += value);
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_along(state, source, &[1.0]);
    }

    #[inline]
    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let sums = state[..self.width].iter_mut().zip(source);
        sums.for_each(|(sum, value)| *sum += edge[0] * value);
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        let (sums, factor) = state.split_at_mut(self.width);
        sums.iter_mut().for_each(|sum| *sum *= factor[0]);
        WeightedSum { width: self.width }.finish(list, sums);
    }
}

/// GINE's sum: of `relu(row + products of the edge's features)`.
#[derive(Debug, Clone)]
pub struct ReluSum(pub(super) EdgeWeight);

impl Reduce for ReluSum {
    fn source_width(&self) -> usize {
        self.0.width()
    }

    fn edge_width(&self) -> usize {
        self.0.features()
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_along(state, source, &[]);
    }

    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        for (strip, (sums, row)) in state.chunks_mut(STRIP).zip(source.chunks(STRIP)).enumerate() {
            let mut values = [0.0; STRIP];
            let values = &mut values[..row.len()];
            values.copy_from_slice(row);
            self.0.add_products(edge, strip * STRIP, values);
            for (sum, value) in sums.iter_mut().zip(values) {
                // NaN stays.
                *sum += if *value < 0.0 { 0.0 } else { *value };
            }
        }
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        WeightedSum { width: state.len() }.finish(list, state);
    }
}

/// A softmax-weighted mean in one pass over the edges (Milakov, Gimelshein: "Online normalizer calculation for softmax", 2018).
///
/// The state has the largest logit so far, and the sums of weights and weighted rows relative to it. A larger logit scales the sums
/// down:
///
/// ```text
/// if logit > largest: sums *= exp(largest - logit); weights *= exp(largest - logit); largest = logit
/// sums += exp(logit - largest) * row; weights += exp(logit - largest)
/// ```
///
/// ```text
/// GAT:   source  heads' rows | score of each head
///        own     heads' rows | score of each head as source | as destination
///        state   heads' sums | largest logits | sums of weights | scores as destination
/// GATv2: source  heads' rows
///        own     heads' rows as source | as destination
///        state   heads' sums | largest logits | sums of weights | rows as destination
/// ```
///
/// The node itself is the first neighbor. With features of edges, GATv2 gives it the mean features of the others. These are not known
/// before, so it is the last one, and the state ends with
///
/// ```text
///        own rows as source | sums of the features
/// ```
#[derive(Debug, Clone)]
pub struct Attention {
    heads: usize,
    head_width: usize,
    /// The attention vector of GATv2. GAT's scores are in the rows.
    attention: Option<Vec<f32>>,
    edges: Option<EdgeWeight>,
}

impl Attention {
    pub(crate) fn gat(heads: usize, head_width: usize) -> Self {
        Self { heads, head_width, attention: None, edges: None }
    }

    pub(crate) fn gatv2(heads: usize, head_width: usize, attention: Vec<f32>, edges: Option<EdgeWeight>) -> Self {
        assert_eq!(attention.len(), heads * head_width, "attention of all heads");
        Self { heads, head_width, attention: Some(attention), edges }
    }

    fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// Width of the destination's part of the logits.
    fn query_width(&self) -> usize {
        if self.attention.is_some() { self.width() } else { self.heads }
    }

    /// The logit of a head, from a source's row, the destination's query, and the features of their edge.
    fn logit(&self, head: usize, source: &[f32], query: &[f32], edge: &[f32]) -> f32 {
        if let (Some(attention), Some(edges)) = (&self.attention, &self.edges) {
            let first = head * self.head_width;
            let strips = (first..first + self.head_width).step_by(STRIP);
            let products = strips.map(|at| {
                let part = at..(at + STRIP).min(first + self.head_width);
                let mut values = [0.0; STRIP];
                let values = &mut values[..part.len()];
                for (value, (source, own)) in
                    values.iter_mut().zip(source[part.clone()].iter().zip(&query[part.clone()]))
                {
                    *value = source + own;
                }
                edges.add_products(edge, at, values);
                let products = values.iter().zip(&attention[part]);
                products.map(|(value, attention)| attention * leaky(*value)).sum::<f32>()
            });
            return products.sum();
        }
        match &self.attention {
            None => leaky(source[self.width() + head] + query[head]),
            Some(attention) => {
                let part = head * self.head_width..(head + 1) * self.head_width;
                let values = source[part.clone()].iter().zip(&query[part.clone()]).zip(&attention[part]);
                values.map(|((source, own), attention)| attention * leaky(source + own)).sum()
            }
        }
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
        let of_edges = self.edges.as_ref().map_or(0, |edges| self.width() + edges.features());
        self.width() + 2 * self.heads + self.query_width() + of_edges
    }

    fn edge_width(&self) -> usize {
        self.edges.as_ref().map_or(0, EdgeWeight::features)
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        let (source, query) = own.split_at(self.source_width());
        if self.edges.is_some() {
            let (sums, rest) = state.split_at_mut(self.width());
            let (largest, rest) = rest.split_at_mut(self.heads);
            let (weights, rest) = rest.split_at_mut(self.heads);
            let (kept, rest) = rest.split_at_mut(self.query_width());
            let (own_row, features) = rest.split_at_mut(self.width());
            sums.fill(0.0);
            largest.fill(f32::NEG_INFINITY);
            weights.fill(0.0);
            kept.copy_from_slice(query);
            own_row.copy_from_slice(source);
            features.fill(0.0);
            return;
        }
        let (sums, rest) = state.split_at_mut(self.width());
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (weights, kept) = rest.split_at_mut(self.heads);
        // The node itself is the first neighbor.
        sums.copy_from_slice(&source[..sums.len()]);
        for (head, largest) in largest.iter_mut().enumerate() {
            *largest = self.logit(head, source, query, &[]);
        }
        weights.iter_mut().zip(&*largest).for_each(|(weight, logit)| *weight = weight_of_largest(*logit));
        kept.copy_from_slice(query);
    }

    fn begin_part(&self, own: &[f32], state: &mut [f32]) {
        self.begin(own, state);
        if self.edges.is_some() {
            return;
        }
        let (sums, rest) = state.split_at_mut(self.width());
        // The node itself is in the first part.
        sums.fill(0.0);
        rest[self.heads..2 * self.heads].fill(0.0);
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        let (sums, rest) = state.split_at_mut(self.width());
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (part_sums, part_rest) = part.split_at(self.width());
        let (part_largest, part_weights) = part_rest.split_at(self.heads);
        let heads = sums.chunks_exact_mut(self.head_width).zip(part_sums.chunks_exact(self.head_width));
        for (head, (sums, of_part)) in heads.enumerate() {
            let of_head = [&mut largest[head], &mut rest[head]];
            merge_head(sums, of_head, of_part, [part_largest[head], part_weights[head]]);
        }
        let features = part.len() - self.edge_width();
        let sums = state[features..].iter_mut().zip(&part[features..]);
        sums.for_each(|(sum, value)| *sum += value);
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_neighbor(state, source, &[]);
    }

    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        self.add_neighbor(state, source, edge);
        let features = state.len() - edge.len();
        let sums = state[features..].iter_mut().zip(edge);
        sums.for_each(|(sum, value)| *sum += value);
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        if self.edges.is_some() {
            self.add_itself(list.added, state);
        }
        let (sums, rest) = state.split_at_mut(self.width());
        for (sums, weight) in sums.chunks_exact_mut(self.head_width).zip(&rest[self.heads..]) {
            sums.iter_mut().for_each(|sum| *sum /= weight);
        }
    }
}

impl Attention {
    /// Adds the node itself, with the mean features of its `edges` edges.
    fn add_itself(&self, edges: u64, state: &mut [f32]) {
        let features = state.len() - self.edge_width();
        let row = state[features - self.width()..features].to_vec();
        let factor = 1.0 / edges.max(1) as f32;
        let mean: Vec<f32> = state[features..].iter().map(|sum| factor * sum).collect();
        self.add_neighbor(state, &row, &mean);
    }

    #[inline]
    fn add_neighbor(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let (sums, rest) = state.split_at_mut(self.width());
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (weights, query) = rest.split_at_mut(self.heads);
        let heads = sums.chunks_exact_mut(self.head_width).zip(source.chunks_exact(self.head_width));
        for (head, (sums, row)) in heads.enumerate() {
            let logit = self.logit(head, source, query, edge);
            let weight = softmax_weight(logit, &mut largest[head], &mut weights[head], sums);
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}
