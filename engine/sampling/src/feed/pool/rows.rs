//! The memory of the row pool.

use grappa_io::slots::Slots;

use super::geometry::PoolGeometry;

/// The memory of the row pool.
#[derive(Debug)]
pub(in crate::feed) struct PoolRows {
    pub geometry: PoolGeometry,
    pub slots: Slots,
    /// The coalescing gap: gaps of at most this many bytes between missing rows are read.
    pub coalescing_gap_bytes: u64,
}
