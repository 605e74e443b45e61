//! The aggregation of the transformer convolution over all in-neighbors, out of core.

use grappa_engine::aggregate::{ListSize, Reduce};

use super::edge_weight::EdgeWeight;

/// As [`Attention`](super::Attention), with logits that are dot products, and without the node itself.
///
/// ```text
/// source  heads' keys | heads' values
/// own     heads' queries
/// state   heads' sums | largest logits | sums of weights | queries | room for the products of an edge
/// ```
#[derive(Debug, Clone)]
pub struct DotAttention {
    heads: usize,
    /// Of all heads together.
    width: usize,
    edges: Option<EdgeWeight>,
}

impl DotAttention {
    pub(crate) fn new(heads: usize, width: usize, edges: Option<EdgeWeight>) -> Self {
        Self { heads, width, edges }
    }

    /// Values of all heads.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

impl Reduce for DotAttention {
    fn source_width(&self) -> usize {
        2 * self.width
    }

    fn own_width(&self) -> usize {
        self.width
    }

    fn edge_width(&self) -> usize {
        self.edges.as_ref().map_or(0, EdgeWeight::features)
    }

    fn state_width(&self) -> usize {
        3 * self.width + 2 * self.heads
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        state.fill(0.0);
        let (largest, queries) = state[self.width..].split_at_mut(2 * self.heads);
        largest[..self.heads].fill(f32::NEG_INFINITY);
        queries[..self.width].copy_from_slice(own);
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        let head_width = self.width / self.heads;
        let (sums, rest) = state.split_at_mut(self.width);
        let (part_sums, part_rest) = part.split_at(self.width);
        let heads = sums.chunks_exact_mut(head_width).zip(part_sums.chunks_exact(head_width));
        let (largest, weights) = rest.split_at_mut(self.heads);
        for (head, (sums, of_part)) in heads.enumerate() {
            let of_head = [&mut largest[head], &mut weights[head]];
            merge_head(sums, of_head, of_part, [part_rest[head], part_rest[self.heads + head]]);
        }
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_along(state, source, &[]);
    }

    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let head_width = self.width / self.heads;
        let (sums, rest) = state.split_at_mut(self.width);
        let (largest, rest) = rest.split_at_mut(self.heads);
        let (weights, rest) = rest.split_at_mut(self.heads);
        let (queries, along) = rest.split_at_mut(self.width);
        along.fill(0.0);
        if let Some(edges) = &self.edges {
            edges.add_products(edge, 0, along);
        }
        let (keys, values) = source.split_at(self.width);
        let scale = (head_width as f32).sqrt().recip();
        for head in 0..self.heads {
            let part = head * head_width..(head + 1) * head_width;
            let (along, sums) = (&along[part.clone()], &mut sums[part.clone()]);
            let products = queries[part.clone()]
                .iter()
                .zip(keys[part.clone()].iter().zip(along))
                .map(|(query, (key, along))| query * (key + along));
            let logit = scale * products.sum::<f32>();
            let weight = softmax_weight(logit, &mut largest[head], &mut weights[head], sums);
            let rows = sums.iter_mut().zip(values[part].iter().zip(along));
            rows.for_each(|(sum, (value, along))| *sum += weight * (value + along));
        }
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        if list.added == 0 {
            return;
        }
        let head_width = self.width / self.heads;
        let (sums, rest) = state.split_at_mut(self.width);
        for (sums, weight) in sums.chunks_exact_mut(head_width).zip(&rest[self.heads..]) {
            sums.iter_mut().for_each(|sum| *sum /= weight);
        }
    }
}

/// The weight of a neighbor in a softmax over neighbors that come one after the other. `weights` is the sum of all weights, with this one.
/// If the logit is the largest so far, the sums of messages and of weights so far are scaled to it.
pub(super) fn softmax_weight(logit: f32, largest: &mut f32, weights: &mut f32, sums: &mut [f32]) -> f32 {
    let weight = if logit > *largest {
        let scale = (*largest - logit).exp();
        sums.iter_mut().for_each(|sum| *sum *= scale);
        *weights *= scale;
        *largest = logit;
        weight_of_largest(logit)
    } else {
        (logit - *largest).exp()
    };
    *weights += weight;
    weight
}

/// Adds the weighted rows and the sum of weights of a part of a head's edges. They are relative to the largest logit of the part.
pub(super) fn merge_head(
    sums: &mut [f32],
    [largest, weights]: [&mut f32; 2],
    part_sums: &[f32],
    [part_largest, part_weights]: [f32; 2],
) {
    let common = largest.max(part_largest);
    let [scale, part_scale] = [*largest, part_largest].map(|logit| (logit - common).exp());
    for (sum, value) in sums.iter_mut().zip(part_sums) {
        *sum = *sum * scale + value * part_scale;
    }
    *weights = *weights * scale + part_weights * part_scale;
    *largest = common;
}

/// `exp(logit - largest)` of the largest logit: 1, or NaN if it is infinite, as in PyTorch's softmax.
pub(super) fn weight_of_largest(logit: f32) -> f32 {
    match logit == f32::INFINITY {
        true => f32::NAN,
        false => 1.0,
    }
}
