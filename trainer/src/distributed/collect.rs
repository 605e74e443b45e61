//! Data that ranks exchange between steps and that is too large for the store: counts, sets of nodes, and scores. Never features or
//! activations.
//!
//! Counts and sets go through all-reduces of integers, in pieces of bounded size; words go to rank 0. A call waits as long as the other ranks
//! show signs of life, because they may be busy. All ranks make the same calls in the same order.

use grappa_io::progress::Progress;
use serde::{Serialize, de::DeserializeOwned};
use tch::Tensor;

use super::group::ProcessGroup;
use crate::{Result, shim::c10d::Reduction};

/// Values that one all-reduce takes.
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
        let mut sent = vec![0; ranks];
        sent[0] = words.len() as i64;
        let received = lengths.iter().map(|&length| if self.is_first() { length as i64 } else { 0 });
        let received: Vec<i64> = received.collect();
        let words = Tensor::from_slice(bytemuck::cast_slice::<u32, i32>(words));
        let all = self.all_to_all_values(&words, &sent, &received)?;
        Ok(self.is_first().then(|| {
            let of_rank = |part: &Tensor| Vec::<i32>::try_from(part).expect("words of one dimension");
            all.split_with_sizes(&received, 0).iter().map(|part| bytemuck::cast_vec(of_rank(part))).collect()
        }))
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
