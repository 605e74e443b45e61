//! A bitmap that several threads write.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::NodeId;

/// A set of nodes out of a range. All threads add to it.
pub(super) struct Bitmap {
    first: u64,
    words: Vec<AtomicU64>,
}

impl Bitmap {
    /// Bytes of memory for a range of nodes.
    pub fn bytes(nodes: &Range<u64>) -> u64 {
        Self::words(nodes) as u64 * size_of::<AtomicU64>() as u64
    }

    fn words(nodes: &Range<u64>) -> usize {
        (nodes.end - nodes.start).div_ceil(64) as usize
    }

    /// An empty set.
    pub fn new(nodes: &Range<u64>) -> Self {
        Self { first: nodes.start, words: (0..Self::words(nodes)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a node of the range.
    pub fn set(&self, node: NodeId) {
        let offset = node.0 - self.first;
        let (word, bit) = (&self.words[(offset / 64) as usize], 1 << (offset % 64));
        // Most bits are set already. A load keeps the cache line shared; a write would take it from the other threads.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Number of nodes in the set.
    pub fn count(&self) -> u64 {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.map(|word| u64::from(word.count_ones())).sum()
    }
}
