//! The memory and threads of an aggregation.

use grappa_io::ledger::MemoryShare;

/// A block of sources. Two blocks are in memory at a time.
pub(super) const BLOCK: MemoryShare = MemoryShare::one(
    "block of sources",
    8,
    "two blocks take 1/4 and tiles most of the rest: larger tiles read the sources fewer times, and smaller blocks cost only more reads; \
     chosen, not measured",
);
/// Segments of the edges of a tile that are not full.
pub(super) const SEGMENTS: MemoryShare = MemoryShare::one(
    "segments of edges that are not full",
    16,
    "each list of edges ends with a segment that is half empty on average, and 1/16 bounds what all of them waste; chosen, not measured",
);
/// Rows of destinations that a reduction reads in addition to the rows of in-neighbors. At least one row.
pub(super) const OWN_ROWS: MemoryShare = MemoryShare::one(
    "own rows",
    64,
    "rows of destinations are read piece by piece, once for each tile; chosen, not measured",
);
/// Sets of the nodes with and without in-neighbors.
pub(super) const SETS: MemoryShare = MemoryShare::one(
    "sets of nodes",
    8,
    "they spare the states of nodes without in-neighbors if they take at most 1/8; chosen, not measured",
);
/// A piece of rows that are copied. Three are in memory: one is written and two are read.
pub(super) const COPIED_PIECE: MemoryShare = MemoryShare::one(
    "rows that are copied",
    8,
    "three pieces take 3/8 of a small budget, and at most 48 MiB; chosen, not measured",
);
/// Rows in memory as f32.
pub(super) const ROWS: MemoryShare = MemoryShare::one(
    "rows in memory",
    2,
    "rows that take at most 1/2 are read once and stay, and the rest of the memory is for states and edges; chosen, not measured",
);
/// The states of a tile, if all rows are in memory.
pub(super) const TILE_IN_MEMORY: MemoryShare = MemoryShare::one(
    "states of destinations",
    4,
    "beside rows that are in memory, states of the destinations of all threads take at most 1/4; chosen, not measured",
);
// What is left is for the states and the edges of a tile.
const _: () = assert!(MemoryShare::fit(&[BLOCK, BLOCK, SEGMENTS, OWN_ROWS, SETS]));

/// Memory and threads of an aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Memory in bytes, for rows, states and lists of edges.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
}

impl Budget {
    /// A budget of `memory` bytes and of `threads` workers.
    pub const fn new(memory: u64, threads: usize) -> Self {
        Self { memory, threads }
    }

    /// Whether `rows` rows of `width` values, which are not in memory as f32, are streamed: the memory does not hold them and as much else.
    pub fn streams(self, rows: u64, width: usize) -> bool {
        rows.saturating_mul((width * size_of::<f32>()) as u64) > ROWS.bytes(self.memory)
    }
}
