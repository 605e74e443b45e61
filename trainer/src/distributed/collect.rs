//! Data that ranks exchange between steps and that is too large for the store: counts, sets of nodes, and scores. Never features or
//! activations.
//!
//! Counts and sets go through all-reduces of integers, words go to rank 0, both in pieces of bounded size. A call waits as long as the other ranks
//! show signs of life, because they may be busy. All ranks make the same calls in the same order.

use grappa_io::progress::Progress;
use serde::{Serialize, de::DeserializeOwned};
use tch::Tensor;

use super::group::ProcessGroup;
use crate::{Result, shim::c10d::Reduction};

/// Values of one message of a rank, at most 8 MiB; chosen, not measured.
const PIECE: usize = 1 << 20;

impl ProcessGroup {
    /// Replaces each count by its sum over all ranks.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached, or progress says to stop.
    pub fn sum(&self, counts: &mut [u64], progress: &dyn Progress) -> Result<()> {
        self.reduce_words(counts, Reduction::Sum, progress)
    }

    /// Replaces each word by the union of its bits on all ranks.
    ///
    /// # Errors
    /// As [`ProcessGroup::sum`].
    pub fn unite(&self, words: &mut [u64], progress: &dyn Progress) -> Result<()> {
        self.reduce_words(words, Reduction::Union, progress)
    }

    /// Collects the words of each rank, in the order of ranks. Ranks may have different numbers of words. Rank 0 gets all of them, and the
    /// others none.
    ///
    /// # Errors
    /// As [`ProcessGroup::sum`].
    pub fn gather_words(&self, words: &[u32], progress: &dyn Progress) -> Result<Option<Vec<Vec<u32>>>> {
        let ranks = self.place().ranks as usize;
        let mut lengths = vec![0; ranks];
        lengths[self.place().rank as usize] = words.len() as u64;
        self.sum(&mut lengths, progress)?;
        let mut all: Vec<Vec<u32>> = match self.is_first() {
            true => lengths.iter().map(|&length| Vec::with_capacity(length as usize)).collect(),
            false => Vec::new(),
        };
        // Bounded messages: 10^9 scored nodes have gigabytes of words.
        let longest = lengths.iter().copied().max().unwrap_or(0);
        for start in (0..longest).step_by(PIECE) {
            let left = |length: u64| length.saturating_sub(start).min(PIECE as u64) as usize;
            let piece = &words[(start as usize).min(words.len())..][..left(words.len() as u64)];
            let mut sent = vec![0; ranks];
            sent[0] = piece.len() as i64;
            let received: Vec<i64> =
                lengths.iter().map(|&length| if self.is_first() { left(length) as i64 } else { 0 }).collect();
            let piece = Tensor::from_slice(bytemuck::cast_slice::<u32, i32>(piece));
            let pieces = self.all_to_all_values(&piece, &sent, &received)?;
            for (words, piece) in all.iter_mut().zip(pieces.split_with_sizes(&received, 0)) {
                let piece = Vec::<i32>::try_from(&piece).expect("words of one dimension");
                words.extend_from_slice(bytemuck::cast_slice(&piece));
            }
        }
        Ok(self.is_first().then_some(all))
    }

    /// Collects a value of each rank, in the order of ranks, on all ranks.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    pub fn gather_all<T: Serialize + DeserializeOwned>(&self, name: &str, value: T) -> Result<Vec<T>> {
        let gathered = self.gather(name, value)?;
        self.share(name, || Ok(gathered.expect("rank 0 gathers")))
    }

    fn reduce_words(&self, words: &mut [u64], reduction: Reduction, progress: &dyn Progress) -> Result<()> {
        for piece in words.chunks_mut(PIECE) {
            let piece: &mut [i64] = bytemuck::cast_slice_mut(piece);
            let tensor = Tensor::from_slice(piece);
            self.reduce(&tensor, reduction, progress)?;
            tensor.copy_data(piece, piece.len());
        }
        Ok(())
    }
}
