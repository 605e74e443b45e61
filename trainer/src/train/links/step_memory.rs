//! The memory of the negatives of a step, before any is drawn.
//!
//! The memory of a model is extra to the budget, because it is small next to the graph. Negatives can be many, so what their tensors need
//! beyond [`MODEL_BYTES`] comes from the budget, and a run with too many of them is refused.

use grappa_io::{ledger::MemoryShare, size::ByteSize};
use grappa_run::{
    config::{NegativeSampling, TrainConfig},
    model::Decoder,
};
use grappa_storage::Relation;

use crate::{Error, Result};

/// Tensors of negatives up to this size count as memory of the model.
const MODEL_BYTES: u64 = 32 << 20;
/// The tensors of negatives beyond [`MODEL_BYTES`].
const NEGATIVES: MemoryShare = MemoryShare::one(
    "negatives of a step",
    2,
    "refused above 1/2, because minibatches of that many nodes need the rest; chosen, not measured",
);
/// Bytes of a pair besides embeddings: its rows in the model's outputs, as they are listed and as tensors.
const PAIR_BYTES: u64 = 24;
/// Bytes of the score of a negative for an edge: itself, its mark, its loss, and the gradients.
const SCORE_BYTES: u64 = 48;
/// Values of a node's row in each layer, in hidden dimensions: its input, its output, and what the backward pass adds.
const LAYER_VALUES: u64 = 5;

/// The sizes that the memory of a step follows from.
#[derive(Debug, Clone, Copy)]
struct StepSize {
    /// Edges of the largest possible minibatch of a partition.
    batch: u64,
    /// Partitions that a process computes together.
    parts: u64,
    negatives: u64,
    sampling: NegativeSampling,
    decoder: Decoder,
    embedding: u64,
    hidden: u64,
    layers: u64,
    nodes: u64,
    edges: u64,
}

/// The bytes of the budget that the negatives of a step, which are of a relation, need in each of `processes` processes.
///
/// # Errors
/// If they need more than the budget has for them.
pub fn budgeted_bytes(config: &TrainConfig, relation: Relation<'_>, processes: u32) -> Result<u64> {
    let mut ends = vec![relation.destinations];
    ends.extend((!relation.joins_one_type()).then_some(relation.sources));
    let size = StepSize {
        batch: config.batch() as u64,
        parts: config.concurrent().div_ceil(processes.max(1)).into(),
        negatives: config.negatives().into(),
        sampling: config.negative_sampling(),
        decoder: config.decoder,
        embedding: config.embedding() as u64,
        hidden: config.hidden as u64,
        layers: config.layers as u64,
        nodes: ends.iter().map(|store| store.manifest().nodes).sum(),
        edges: relation.edges.manifest().edges,
    };
    let (memory, bytes) = (config.memory.0, size.budgeted_bytes());
    match bytes <= NEGATIVES.bytes(memory) {
        true => Ok(bytes),
        false => Err(Error::Options(size.refusal(config, bytes))),
    }
}

impl StepSize {
    fn budgeted_bytes(&self) -> u64 {
        self.bytes().saturating_sub(MODEL_BYTES)
    }

    /// Bytes of the tensors of the negatives.
    fn bytes(&self) -> u64 {
        let positives = self.batch.saturating_mul(self.parts).min(self.edges);
        let is_shared = matches!(self.sampling, NegativeSampling::Shared | NegativeSampling::InBatch);
        let scores = positives.saturating_mul(self.negatives);
        let pairs = if is_shared { self.parts.saturating_mul(self.negatives) } else { scores };
        // Both ends, their product, and the gradients of the ends; for other decoders, also what they compute in between.
        let rows = match self.decoder {
            Decoder::Dot => 5,
            Decoder::DistMult => 7,
            _ => 9,
        };
        let row_bytes = self.embedding.saturating_mul(size_of::<f32>() as u64);
        // The perceptron computes a row for each score.
        let rows_of_score = if is_shared && self.decoder == Decoder::Mlp { 6 } else { 0 };
        let ends = match self.sampling {
            NegativeSampling::InBatch => 0,
            NegativeSampling::Pairs => pairs.saturating_mul(2),
            _ => pairs,
        };
        // Each of these nodes has a row in all layers.
        let layers = self.hidden.saturating_mul(self.layers).saturating_mul(LAYER_VALUES * size_of::<f32>() as u64);
        [
            pairs.saturating_mul(PAIR_BYTES.saturating_add(rows * row_bytes)),
            scores.saturating_mul(SCORE_BYTES.saturating_add(rows_of_score * row_bytes)),
            ends.min(self.nodes).saturating_mul(layers),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    fn refusal(&self, config: &TrainConfig, bytes: u64) -> String {
        let memory = config.memory.0;
        // The feed of large minibatches takes more of the budget, too, so the remedies leave all of it.
        let fits = |size: Self| size.budgeted_bytes() == 0;
        let negatives = largest(self.negatives, |negatives| fits(Self { negatives, ..*self }));
        let batch = match config.full_graph {
            true => 0,
            false => largest(self.batch, |batch| fits(Self { batch, ..*self })),
        };
        let least = ByteSize(
            NEGATIVES.budget_of(bytes.saturating_mul(2)).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX),
        );
        let mut remedies = Vec::new();
        if negatives > 0 {
            remedies.push(format!("--negatives {negatives}"));
        }
        if batch > 0 {
            remedies.push(format!("--batch {batch}"));
        }
        remedies.push(format!("--memory {}", least.exact()));
        format!(
            "the negatives of a step need {} of memory ({} per edge or group of edges, embeddings of {} values), and --memory {} leaves {} \
             for them: give {}",
            ByteSize(self.bytes()),
            self.negatives,
            self.embedding,
            config.memory.exact(),
            ByteSize(MODEL_BYTES + NEGATIVES.bytes(memory)),
            remedies.join(" or ")
        )
    }
}

/// The largest number up to `max` that fits, if smaller ones do; 0 if none fits.
fn largest(max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut fit, mut unfit) = (0, max.saturating_add(1));
    while unfit - fit > 1 {
        let middle = fit + (unfit - fit) / 2;
        match fits(middle) {
            true => fit = middle,
            false => unfit = middle,
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: StepSize = StepSize {
        batch: 1024,
        parts: 1,
        negatives: 1,
        sampling: NegativeSampling::Uniform,
        decoder: Decoder::Dot,
        embedding: 64,
        hidden: 64,
        layers: 2,
        nodes: 1 << 40,
        edges: 1 << 40,
    };

    #[test]
    fn few_negatives_are_memory_of_the_model() {
        let shared = StepSize { sampling: NegativeSampling::Shared, negatives: 100, ..SIZE };
        for size in [SIZE, shared, StepSize { negatives: 5, ..SIZE }] {
            assert_eq!(size.budgeted_bytes(), 0, "{size:?}");
        }
    }

    #[test]
    fn the_memory_of_negatives_grows_with_each_number() {
        for sampling in [NegativeSampling::Uniform, NegativeSampling::Shared, NegativeSampling::Pairs] {
            for decoder in [Decoder::Dot, Decoder::DistMult, Decoder::Cosine, Decoder::Mlp] {
                let size = StepSize { sampling, decoder, negatives: 10_000, ..SIZE };
                let more = [
                    StepSize { negatives: 20_000, ..size },
                    StepSize { batch: 2048, ..size },
                    StepSize { parts: 2, ..size },
                    StepSize { embedding: 128, ..size },
                    StepSize { hidden: 128, ..size },
                ];
                for other in more {
                    assert!(other.bytes() > size.bytes(), "{other:?}");
                }
            }
        }
        let most = StepSize { batch: u64::MAX, negatives: u64::MAX, parts: u64::MAX, edges: u64::MAX, ..SIZE };
        assert_eq!(most.bytes(), u64::MAX);
    }

    #[test]
    fn the_largest_number_that_fits_is_found() {
        assert_eq!(largest(100, |number| number <= 37), 37);
        assert_eq!(largest(100, |_| true), 100);
        assert_eq!(largest(100, |_| false), 0);
    }
}
