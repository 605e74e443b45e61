//! BNS-GCN (Wan, Li, Li, Kim, Lin: "BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks with Partition-Parallelism and
//! Random Boundary Node Sampling", MLSys 2022).
//!
//! In each epoch, each pair of partitions draws a share p of its boundary nodes without replacement. All layers use the same ones. States
//! that arrive are divided by p, and so are the gradients that go back, so sums of neighbors are right in expectation.

use grappa_formats::permutation::Feistel;
use tch::{Kind, Tensor};

use super::{
    boundary::Boundary,
    exchange::{BoundaryExchange, BoundaryRows, TransferBytes},
};
use grappa_trainer::{Result, train::key};

/// The exchange of BNS-GCN.
#[derive(Debug)]
pub(super) struct Bns {
    share: f64,
    seed: u64,
    /// The copies that travel in this epoch, int64.
    drawn: Tensor,
    /// What the row of each of them is multiplied by, f32 of `[drawn, 1]`: copies of the pair of partitions / drawn ones.
    factors: Tensor,
}

impl Bns {
    /// An exchange of a `share` of the copies.
    pub(super) fn new(share: f64, seed: u64) -> Self {
        Self { share, seed, drawn: Tensor::from_slice::<i64>(&[]), factors: Tensor::from_slice::<f32>(&[]) }
    }

    /// Takes the drawn rows; the others are zero.
    fn scaled(&self, layer: usize, rows: &Tensor, bytes: &mut TransferBytes) -> Tensor {
        let (drawn, factors) = (self.drawn.to_device(rows.device()), self.factors.to_device(rows.device()));
        let sent = rows.index_select(0, &drawn);
        bytes.add(layer, super::exchange::bytes_of(&sent));
        rows.zeros_like().index_copy(0, &drawn, &(sent * factors).to_kind(rows.kind()))
    }
}

impl BoundaryExchange for Bns {
    fn begin(&mut self, epoch: u64, boundary: &Boundary) {
        let (mut drawn, mut factors) = (Vec::new(), Vec::new());
        for channel in &boundary.channels {
            let copies = channel.copies.len() as u64;
            let pair = (u64::from(channel.from) << 32) | u64::from(channel.to);
            let count = ((copies as f64 * self.share).round() as u64).max(1);
            let mut pair_copies: Vec<u64> = (0..count).collect();
            Feistel::new(copies, key([self.seed, epoch, pair])).forward_all(&mut pair_copies);
            drawn.extend(pair_copies.into_iter().map(|copy| (channel.copies.start as u64 + copy) as i64));
            factors.resize(drawn.len(), copies as f32 / count as f32);
        }
        self.drawn = Tensor::from_slice(&drawn);
        self.factors = Tensor::from_slice(&factors).to_kind(Kind::Float).unsqueeze(1);
    }

    fn states(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        Ok(self.scaled(sent.layer, &sent.rows, sent.bytes))
    }

    fn gradients(&mut self, sent: BoundaryRows<'_>) -> Result<Tensor> {
        // The receiver's gradient is of the scaled row, so its factor is the derivative of the scaling.
        Ok(self.scaled(sent.layer, &sent.rows, sent.bytes))
    }
}
