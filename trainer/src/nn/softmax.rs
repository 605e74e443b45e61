//! Softmax-weighted sums over neighbors that come one after the other (Milakov, Gimelshein: "Online normalizer calculation for softmax",
//! 2018).
//!
//! A state has the largest logit so far, and the sums of weights and weighted rows relative to it. A larger logit scales the sums down:
//!
//! ```text
//! if logit > largest: sums *= exp(largest - logit); weights *= exp(largest - logit); largest = logit
//! sums += exp(logit - largest) * row; weights += exp(logit - largest)
//! ```

/// The heads of a state, which begins with the heads' sums, then their largest logits, then their sums of weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Values of a head.
    pub(super) width: usize,
}

impl Heads {
    pub(super) fn values(self) -> usize {
        self.count * self.width
    }

    /// The sums, the largest logits, the sums of weights, and the rest of a state.
    #[inline(always)]
    pub(super) fn split(self, state: &mut [f32]) -> [&mut [f32]; 4] {
        let (sums, rest) = state.split_at_mut(self.values());
        let (largest, rest) = rest.split_at_mut(self.count);
        let (weights, rest) = rest.split_at_mut(self.count);
        [sums, largest, weights, rest]
    }

    /// A state without neighbors. Returns the rest of it.
    pub(super) fn begin(self, state: &mut [f32]) -> &mut [f32] {
        let [sums, largest, weights, rest] = self.split(state);
        sums.fill(0.0);
        largest.fill(f32::NEG_INFINITY);
        weights.fill(0.0);
        rest
    }

    pub(super) fn merge(self, state: &mut [f32], part: &[f32]) {
        let [sums, largest, weights, _] = self.split(state);
        let (part_sums, part_rest) = part.split_at(self.values());
        let (part_largest, part_weights) = part_rest.split_at(self.count);
        let heads = sums.chunks_exact_mut(self.width).zip(part_sums.chunks_exact(self.width));
        for (head, (sums, part_sums)) in heads.enumerate() {
            let common = largest[head].max(part_largest[head]);
            let [scale, part_scale] = [largest[head], part_largest[head]].map(|logit| (logit - common).exp());
            for (sum, value) in sums.iter_mut().zip(part_sums) {
                *sum = *sum * scale + value * part_scale;
            }
            weights[head] = weights[head] * scale + part_weights[head] * part_scale;
            largest[head] = common;
        }
    }

    /// Divides the sums by the sums of weights.
    pub(super) fn finish(self, state: &mut [f32]) {
        let [sums, _, weights, _] = self.split(state);
        for (sums, weight) in sums.chunks_exact_mut(self.width).zip(weights) {
            sums.iter_mut().for_each(|sum| *sum /= *weight);
        }
    }
}

/// The weight of a neighbor. `weights` is the sum of all weights of a head, with this one. If the logit is the largest so far, the sums of
/// rows and of weights so far are scaled to it.
pub(super) fn weight(logit: f32, largest: &mut f32, weights: &mut f32, sums: &mut [f32]) -> f32 {
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

/// `exp(logit - largest)` of the largest logit: 1, or NaN if it is infinite, as in PyTorch's softmax.
pub(super) fn weight_of_largest(logit: f32) -> f32 {
    if logit == f32::INFINITY { f32::NAN } else { 1.0 }
}
