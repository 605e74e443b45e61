//! The aggregation of the transformer convolution over all in-neighbors, out of core.

use grappa_engine::aggregate::{ListSize, Reduce};

use super::{
    edge_weight::EdgeWeight,
    softmax::{Heads, weight},
};

/// As [`Attention`](super::Attention), with logits that are dot products, and without the node itself.
///
/// ```text
/// source  heads' keys | heads' values
/// own     heads' queries
/// state   heads' sums | largest logits | sums of weights | queries | room for the products of an edge
/// ```
#[derive(Debug, Clone)]
pub struct DotAttention {
    pub(super) heads: Heads,
    pub(super) edges: Option<EdgeWeight>,
}

impl Reduce for DotAttention {
    fn source_width(&self) -> usize {
        2 * self.heads.values()
    }

    fn own_width(&self) -> usize {
        self.heads.values()
    }

    fn edge_width(&self) -> usize {
        self.edges.as_ref().map_or(0, |edges| edges.features)
    }

    fn state_width(&self) -> usize {
        3 * self.heads.values() + 2 * self.heads.count
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        let (queries, along) = self.heads.begin(state).split_at_mut(own.len());
        queries.copy_from_slice(own);
        along.fill(0.0);
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        self.heads.merge(state, part);
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_along(state, source, &[]);
    }

    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let Heads { count, width } = self.heads;
        let [sums, largest, weights, rest] = self.heads.split(state);
        let (queries, along) = rest.split_at_mut(sums.len());
        along.fill(0.0);
        if let Some(edges) = &self.edges {
            edges.add_products(edge, 0, along);
        }
        let (keys, values) = source.split_at(sums.len());
        let scale = (width as f32).sqrt().recip();
        for head in 0..count {
            let part = head * width..(head + 1) * width;
            let (along, sums) = (&along[part.clone()], &mut sums[part.clone()]);
            let products = queries[part.clone()]
                .iter()
                .zip(keys[part.clone()].iter().zip(along))
                .map(|(query, (key, along))| query * (key + along));
            let logit = scale * products.sum::<f32>();
            let weight = weight(logit, &mut largest[head], &mut weights[head], sums);
            let rows = sums.iter_mut().zip(values[part].iter().zip(along));
            rows.for_each(|(sum, (value, along))| *sum += weight * (value + along));
        }
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        if list.added > 0 {
            self.heads.finish(state);
        }
    }
}
