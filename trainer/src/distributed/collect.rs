//! Data that ranks exchange between steps and that is too large for the store: counts, sets of nodes, and scores. Never features or
//! activations.
//!
//! All of it goes through all-reduces of integers, in pieces of bounded size. A call waits as long as the other ranks show signs of life,
//! because they may be busy. All ranks make the same calls in the same order.

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
        let own = self.place().rank as usize;
        let mut lengths = vec![0; self.place().ranks as usize];
        lengths[own] = words.len() as u64;
        self.sum(&mut lengths, progress)?;
        let total = lengths.iter().sum::<u64>() as usize;
        let begin = lengths[..own].iter().sum::<u64>() as usize;
        let mut all = Vec::with_capacity(if self.is_first() { total } else { 0 });
        let mut piece = Vec::with_capacity(PIECE.min(total));
        for start in (0..total).step_by(PIECE) {
            let end = (start + PIECE).min(total);
            // Each word is added to zeros of the other ranks.
            piece.clear();
            piece.resize(end - start, 0_i32);
            let (from, to) = (begin.max(start), (begin + words.len()).min(end));
            if from < to {
                let own = words[from - begin..to - begin].iter().map(|word| word.cast_signed());
                piece[from - start..to - start].iter_mut().zip(own).for_each(|(word, own)| *word = own);
            }
            let tensor = Tensor::from_slice(&piece);
            self.reduce(&tensor, Reduction::Sum, progress)?;
            if self.is_first() {
                tensor.copy_data(&mut piece, end - start);
                all.extend(piece.iter().map(|word| word.cast_unsigned()));
            }
        }
        if !self.is_first() {
            return Ok(None);
        }
        let mut rest = all.into_iter();
        let of_rank = |&length: &u64| rest.by_ref().take(length as usize).collect();
        Ok(Some(lengths.iter().map(of_rank).collect()))
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
