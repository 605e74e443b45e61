//! The pairs of a step, as tensors.

use grappa_sampling::{
    feed::{BatchPlace, PartitionBatches},
    sample::LinkPairs,
};
use tch::{Device, Tensor};

use crate::runtime::send;

/// The pairs of a step on a device. Ends are rows of the model's outputs.
pub struct PairTensors {
    /// Sources and destinations of edges, int64 of `[edges]`.
    pub positives: [Tensor; 2],
    /// Sources and destinations of negatives, int64 of `[pairs]`.
    pub negatives: [Tensor; 2],
    /// Whether each negative is one for its edge, bool of `[edges * negatives]`. If the sources of a part share negatives, for each edge of
    /// the part.
    pub is_negative: Option<Tensor>,
    /// The number of edges of each part.
    pub parts: Vec<i64>,
}

impl PairTensors {
    /// The pairs of a batch. `first_rows` are the first rows of sources and of destinations among the model's outputs.
    pub fn from_pairs(
        pairs: &LinkPairs,
        first_rows: [i64; 2],
        parts: &[BatchPlace],
        batches: &PartitionBatches,
        device: Device,
    ) -> Self {
        let [positives, negatives] = [&pairs.positives, &pairs.negatives].map(|pairs| {
            [0, 1].map(|end| {
                let rows: Vec<i64> = pairs.iter().map(|pair| first_rows[end] + i64::from(pair[end])).collect();
                send(Tensor::from_slice(&rows), device)
            })
        });
        Self {
            positives,
            negatives,
            is_negative: (!pairs.is_negative.is_empty()).then(|| send(Tensor::from_slice(&pairs.is_negative), device)),
            parts: parts.iter().map(|&part| batches.seeds_of(part) as i64).collect(),
        }
    }

    /// All tensors.
    pub fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.positives.iter().chain(&self.negatives).chain(&self.is_negative)
    }
}
