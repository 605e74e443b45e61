//! Types of ids, so that the compiler rejects one kind where another is expected.

use std::fmt;

/// The maximum number of nodes. Node ids have 40 bits on disk and in memory.
pub const NODES_MAX: u64 = 1 << 40;

/// The id of a node inside a store, in `0..nodes`. The ids in the user's files are external ids, never of this type.
///
/// ```
/// use grappa_formats::{DenseId, NodeId};
///
/// assert_eq!(NodeId(7).to_string(), "7");
/// assert!(NodeId(7) < NodeId(8)); // and the compiler refuses `NodeId(7) < DenseId(8)`
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The dense id of a node: its index among all external ids, in `0..nodes`. External ids that are dense integers are
/// their own dense ids; others are sorted. The node permutation maps dense ids to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DenseId(pub u64);

/// The number of a chunk. A chunk is a contiguous range of node ids, and the unit of repartitioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

/// The number of a partition: the set of chunks that one worker trains on during a super-epoch.
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
display_as_number!(NodeId, DenseId, ChunkId, PartitionId);
