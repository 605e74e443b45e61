//! The aggregation of a layer over all in-neighbors, out of core: see [`grappa_engine::aggregate`].

use grappa_engine::aggregate::{ListSize, Max, Mean, Reduce, Sum, WeightedMean, WeightedSum};
use grappa_formats::features::FeatureLayout;
use grappa_kernels::attention::leaky;

use super::{
    dot_attention::DotAttention,
    edge_weight::{EdgeWeight, STRIP},
    softmax::{self, Heads},
};

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
            Self::Attention(Attention { heads, .. }) | Self::DotAttention(DotAttention { heads, .. }) => heads.values(),
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
        self.0.features
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

/// A softmax-weighted mean in one pass over the edges.
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
/// With loops, the node itself is the first neighbor. Without, the own row is its query alone. With features of edges, GATv2 gives it the mean features of the others. These are not known
/// before, so it is the last one, and the state ends with
///
/// ```text
///        own rows as source | sums of the features
/// ```
#[derive(Debug, Clone)]
pub struct Attention {
    pub(super) heads: Heads,
    /// The attention vector of GATv2. GAT's scores are in the rows.
    pub(super) attention: Option<Vec<f32>>,
    pub(super) edges: Option<EdgeWeight>,
    /// Whether the node itself is a neighbor.
    pub(super) has_loops: bool,
}

impl Attention {
    /// Width of the destination's part of the logits.
    fn query_width(&self) -> usize {
        if self.attention.is_some() { self.heads.values() } else { self.heads.count }
    }

    /// The logit of a head, from a source's row, the destination's query, and the features of their edge.
    fn logit(&self, head: usize, source: &[f32], query: &[f32], edge: &[f32]) -> f32 {
        let head_values = head * self.heads.width..(head + 1) * self.heads.width;
        if let (Some(attention), Some(edges)) = (&self.attention, &self.edges) {
            let products = head_values.clone().step_by(STRIP).map(|at| {
                let part = at..(at + STRIP).min(head_values.end);
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
            None => leaky(source[self.heads.values() + head] + query[head]),
            Some(attention) => {
                let values =
                    source[head_values.clone()].iter().zip(&query[head_values.clone()]).zip(&attention[head_values]);
                values.map(|((source, own), attention)| attention * leaky(source + own)).sum()
            }
        }
    }

    #[inline]
    fn add_neighbor(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let [sums, largest, weights, query] = self.heads.split(state);
        let heads = sums.chunks_exact_mut(self.heads.width).zip(source.chunks_exact(self.heads.width));
        for (head, (sums, row)) in heads.enumerate() {
            let logit = self.logit(head, source, query, edge);
            let weight = softmax::weight(logit, &mut largest[head], &mut weights[head], sums);
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}

impl Reduce for Attention {
    fn source_width(&self) -> usize {
        self.heads.values() + if self.attention.is_some() { 0 } else { self.heads.count }
    }

    fn own_width(&self) -> usize {
        match self.has_loops {
            true => self.source_width() + self.query_width(),
            false => self.query_width(),
        }
    }

    fn state_width(&self) -> usize {
        let edge_values = self.edges.as_ref().map_or(0, |edges| self.heads.values() + edges.features);
        self.heads.values() + 2 * self.heads.count + self.query_width() + edge_values
    }

    fn edge_width(&self) -> usize {
        self.edges.as_ref().map_or(0, |edges| edges.features)
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        if !self.has_loops {
            self.heads.begin(state).copy_from_slice(own);
            return;
        }
        let (source, query) = own.split_at(self.source_width());
        if self.edges.is_some() {
            let (stored_query, rest) = self.heads.begin(state).split_at_mut(query.len());
            let (own_row, features) = rest.split_at_mut(source.len());
            stored_query.copy_from_slice(query);
            own_row.copy_from_slice(source);
            features.fill(0.0);
            return;
        }
        let [sums, largest, weights, stored_query] = self.heads.split(state);
        // The node itself is the first neighbor.
        sums.copy_from_slice(&source[..sums.len()]);
        for (head, largest) in largest.iter_mut().enumerate() {
            *largest = self.logit(head, source, query, &[]);
        }
        weights.iter_mut().zip(&*largest).for_each(|(weight, logit)| *weight = softmax::weight_of_largest(*logit));
        stored_query.copy_from_slice(query);
    }

    fn begin_part(&self, own: &[f32], state: &mut [f32]) {
        self.begin(own, state);
        if self.edges.is_none() && self.has_loops {
            // The node itself is in the first part.
            let [sums, _, weights, _] = self.heads.split(state);
            sums.fill(0.0);
            weights.fill(0.0);
        }
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        self.heads.merge(state, part);
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
            // The node itself, with the mean features of its edges.
            let features = state.len() - self.edge_width();
            let row = state[features - self.heads.values()..features].to_vec();
            let factor = 1.0 / list.added.max(1) as f32;
            let mean: Vec<f32> = state[features..].iter().map(|sum| factor * sum).collect();
            self.add_neighbor(state, &row, &mean);
        }
        if self.has_loops || list.added > 0 {
            self.heads.finish(state);
        }
    }
}
