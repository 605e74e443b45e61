//! Scores of pairs.

use grappa_formats::NodeId;
use grappa_io::progress::{Progress, check_stopped};
use tch::{Device, no_grad};

use super::LinkEmbeddings;
use crate::{Result, shim};

/// Pairs that are scored at once, at most.
const PIECE_PAIRS: u64 = 1 << 15;
/// Bytes of memory for a pair, besides embeddings: itself, its place and its score.
const PAIR_BYTES: u64 = 40;

impl LinkEmbeddings<'_> {
    /// The scores of pairs, source and destination, in their order.
    ///
    /// # Errors
    /// If embeddings cannot be read, or `progress` asks to stop.
    ///
    /// # Panics
    /// If a node is not in the set.
    pub fn score(&self, pairs: &[(NodeId, NodeId)], progress: &dyn Progress) -> Result<Vec<f32>> {
        let part = (self.memory / 2 / (self.row_bytes() + PAIR_BYTES)).max(1);
        // Two gathered rows, their product, and the rows of destinations.
        let piece = (self.memory / 2 / (4 * self.row_bytes())).clamp(1, PIECE_PAIRS);
        let mut scores = vec![0.0; pairs.len()];
        for (pairs, scores) in pairs.chunks(part as usize).zip(scores.chunks_mut(part as usize)) {
            let sources = self.list(pairs.iter().map(|pair| pair.0))?;
            let mut order: Vec<usize> = (0..pairs.len()).collect();
            if !self.are_at_hand() {
                order.sort_unstable_by_key(|&pair| pairs[pair].1);
            }
            for order in order.chunks(piece as usize) {
                check_stopped(progress)?;
                let of = order.iter().map(|&pair| pairs[pair]);
                let ends = [
                    self.rows_of(&sources, of.clone().map(|pair| pair.0))?,
                    self.read_any(of.map(|pair| pair.1))?,
                ];
                let found = no_grad(|| self.decoder.score(&ends[0], &ends[1]));
                let found = found.to_device(Device::Cpu).contiguous();
                for (&pair, &score) in order.iter().zip(shim::values(&found)) {
                    scores[pair] = score;
                }
            }
        }
        Ok(scores)
    }
}
