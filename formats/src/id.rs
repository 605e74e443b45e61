//! Ids are types, not integers.

use std::fmt;

/// Node ids are below this, everywhere: on disk they take 40 bits.
pub const NODES_MAX: u64 = 1 << 40;

/// A node in the store's own order, `0..nodes`. External ids, those of the user's files, are never this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A contiguous range of node ids, the unit of repartitioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

/// What one worker sees in a super-epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

macro_rules! display_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_as_number!(NodeId, ChunkId, PartitionId);
