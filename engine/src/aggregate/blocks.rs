//! Blocks of sources.

use std::ops::Range;

use super::{budget::BLOCK, edge_lists::EdgeCode};

/// The largest block of sources, in bytes. Larger blocks only leave less memory for the tile.
const BLOCK_BYTES_MAX: u64 = 128 << 20;
/// The logarithm of the largest number of sources in a block.
const BLOCK_BITS_MAX: u32 = 20;

/// The sources, cut into ranges of positions. The rows of one range are in memory together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    sources: u64,
    /// Bytes of an encoded row.
    pub stride: u32,
    /// A block has two to the power of this many sources.
    pub block_bits: u32,
}

impl Blocks {
    pub fn new(sources: u64, stride: u32, memory: u64) -> Self {
        let block_sources = BLOCK.bytes(memory).min(BLOCK_BYTES_MAX) / u64::from(stride);
        // An edge has 32 bits. The place of a source takes this number of them.
        let block_bits = block_sources.max(1).ilog2().min(BLOCK_BITS_MAX);
        Self { sources, stride, block_bits }
    }

    pub fn count(self) -> u64 {
        self.sources.div_ceil(1 << self.block_bits)
    }

    /// Bytes of memory that the blocks take.
    pub fn bytes(self) -> u64 {
        self.block_bytes() as u64 * self.count().min(2)
    }

    /// The most bytes that the blocks of a budget of `memory` bytes take.
    pub fn bytes_max(self, memory: u64) -> u64 {
        2 * BLOCK.bytes(memory).max(u64::from(self.stride))
    }

    /// Bytes of the largest block.
    pub fn block_bytes(self) -> usize {
        (self.sources.min(1 << self.block_bits)) as usize * self.stride as usize
    }

    pub fn positions(self, block: u64) -> Range<u64> {
        let first = block << self.block_bits;
        first..(first + (1 << self.block_bits)).min(self.sources)
    }

    /// The code of an edge between these blocks.
    pub fn code(self) -> EdgeCode {
        EdgeCode { place_bits: self.block_bits }
    }
}
