//! Values that start at a cache line.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vectors.
const LINE_BYTES: usize = 64;

/// A buffer of a fixed length that starts at a cache line.
///
/// An allocator starts buffers at multiples of 16 bytes. A vector of 64 bytes then lies in two cache lines, and products of small
/// matrices take up to a quarter longer, or not, as the allocator happens to place them.
#[derive(Debug)]
pub struct Aligned<T> {
    values: Vec<T>,
    start: usize,
    length: usize,
}

impl<T: Copy + Default> Aligned<T> {
    pub fn zeros(length: usize) -> Self {
        let spare = LINE_BYTES / size_of::<T>();
        let values = vec![T::default(); length + spare];
        let start = values.as_ptr().align_offset(LINE_BYTES);
        assert!(start <= spare, "an address can be rounded up");
        Self { values, start, length }
    }

    pub fn from_values(values: &[T]) -> Self {
        let mut copy = Self::zeros(values.len());
        copy.copy_from_slice(values);
        copy
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[self.start..][..self.length]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_length_start_at_a_cache_line() {
        // Kept, so that the allocator cannot return the same place again.
        let buffers: Vec<_> = (0..200).map(Aligned::<u16>::zeros).collect();
        for (length, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.len(), length);
            assert_eq!(buffer.as_ptr().addr() % LINE_BYTES, 0);
        }
        assert_eq!(*Aligned::from_values(&[1.5, 2.5]), [1.5, 2.5]);
    }
}
