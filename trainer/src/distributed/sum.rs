//! The sum of a tensor over all ranks.
//!
//! ```text
//! cut the tensor into a slice per rank
//! send each rank its slice                 all to all
//! add the slices of all ranks, in the order of ranks
//! send the sum of the own slice to all     all to all
//! ```
//!
//! A rank sends as many bytes as in Gloo's all-reduce, which is a ring: 2 (W-1)/W of the tensor. But the ring sends 2 (W-1) messages one
//! after the other, and this sends two, each to all ranks at a time. A message waits for word that its receiver is ready. So each rank is
//! ready for both messages before it sends the first.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use super::group::ProcessGroup;
use crate::{Result, shim};

impl ProcessGroup {
    /// Replaces a tensor, f32 in the processor's memory, by its sum over all ranks. All must call it with a tensor of the same size. All
    /// get the same sum, bit for bit.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached. The tensor is then undefined.
    ///
    /// # Panics
    /// If the tensor is not contiguous.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<()> {
        let flat = tensor.view(-1);
        let rank = self.place().rank as usize;
        let slices = slices(flat.numel(), self.place().ranks as usize);
        let lengths: Vec<i64> = slices.iter().map(|slice| slice.len() as i64).collect();
        let own = slices[rank].len();
        let slice_lengths = vec![own as i64; slices.len()];
        let mut parts = Tensor::empty([(own * slices.len()) as i64], (Kind::Float, Device::Cpu));

        let slice_parts = self.receive(&parts, &slice_lengths, 0)?;
        // A rank sends the sum of its slice when it has all parts, so that part of the tensor has left by then.
        let sums = self.receive(&flat, &lengths, 1)?;
        self.send(slice_parts, &flat, Some(&lengths))?;
        let mut own_slice = flat.narrow(0, slices[rank].start as i64, own as i64);
        add_up(shim::values_mut(&mut parts), shim::values_mut(&mut own_slice), rank);
        self.send(sums, &own_slice, None)
    }
}

/// Cuts `values` values into a slice per rank. The first ones have one value more if they cannot all have the same number.
pub(crate) fn slices(values: usize, ranks: usize) -> Vec<Range<usize>> {
    let start = |rank: usize| rank * (values / ranks) + rank.min(values % ranks);
    (0..ranks).map(|rank| start(rank)..start(rank + 1)).collect()
}

/// Makes `own`, the values of rank `rank`, the sum over all ranks. `parts` has as many values of each rank; its own part is overwritten.
fn add_up(parts: &mut [f32], own: &mut [f32], rank: usize) {
    if own.is_empty() {
        return;
    }
    let mut parts: Vec<&mut [f32]> = parts.chunks_exact_mut(own.len()).collect();
    parts[rank].copy_from_slice(own);
    let (sum, others) = parts.split_first_mut().expect("a part of each rank");
    for other in others {
        sum.iter_mut().zip(&**other).for_each(|(sum, other)| *sum += other);
    }
    own.copy_from_slice(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_all_values_once() {
        for (values, ranks) in [(0, 3), (2, 3), (9, 3), (10, 3), (11, 3), (5, 1)] {
            let slices = slices(values, ranks);
            assert_eq!(slices.len(), ranks);
            let covered: Vec<usize> = slices.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..values).collect::<Vec<usize>>());
            let longest = slices.iter().map(Range::len).max().unwrap();
            assert!(slices.iter().all(|slice| slice.len() + 1 >= longest), "{slices:?}");
        }
    }

    #[test]
    fn values_are_added_in_the_order_of_ranks() {
        let mut parts = [1e8, 2.0, f32::NAN, f32::NAN, -1e8, 200.0];
        let mut own = [1.0, 20.0];
        add_up(&mut parts, &mut own, 1);
        assert_eq!(own, [1e8 + 1.0 - 1e8, 222.0]);
        add_up(&mut [], &mut [], 0);
    }
}
