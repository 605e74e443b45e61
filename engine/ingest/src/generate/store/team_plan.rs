//! The division of threads and memory.

use grappa_io::ledger::MemoryShare;

use super::pieces::PIECE_EDGES;

/// Bytes of memory per edge while its adjacency list is generated and encoded, at worst: the source, its copy while the list
/// is sorted or waits for the choice of a codec, and up to five bytes encoded.
pub(super) const EDGE_COST: u64 = 8 + 8 + 5;
/// Bytes of feature rows or labels that a team holds per thread, except for one larger row.
pub(super) const COLUMN_WINDOW_BYTES: u64 = 1 << 20;
/// The maximum window of a team in edges.
const WINDOW_EDGES_MAX: u64 = 1 << 21;
/// The windows of all teams.
const WINDOWS: MemoryShare = MemoryShare::one(
    "windows of edges",
    4,
    "the other 3/4 are for adjacency lists that exceed a window, one after the other; chosen, not measured",
);

/// Teams of threads, and the memory of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct TeamPlan {
    /// Number of teams. Each generates one chunk at a time.
    pub(super) teams: usize,
    pub(super) team_threads: usize,
    /// The maximum number of edges that a team has generated and not encoded, except for one longer adjacency list.
    pub(super) window: u64,
    /// Bytes for adjacency lists that exceed the window.
    pub(super) spare: u64,
}

impl TeamPlan {
    pub(super) fn new(memory: u64, threads: usize, chunks: usize) -> Self {
        let teams = Self::teams(threads, chunks);
        let window = (WINDOWS.bytes(memory) / teams as u64 / EDGE_COST).clamp(PIECE_EDGES, WINDOW_EDGES_MAX);
        Self {
            teams,
            team_threads: threads.div_ceil(teams),
            window,
            spare: memory.saturating_sub(window * EDGE_COST * teams as u64),
        }
    }

    pub(super) fn teams(threads: usize, chunks: usize) -> usize {
        threads.min(chunks).max(1)
    }

    /// Whether an adjacency list fits in memory.
    pub(super) fn holds_list(&self, edges: u64) -> bool {
        edges <= self.window || edges * EDGE_COST <= self.spare
    }

    /// The least memory in MiB that holds an adjacency list of `edges` edges, if `reserved` bytes are for something else.
    pub(super) fn memory_for_list(edges: u64, threads: usize, chunks: usize, reserved: u64) -> u64 {
        // Of this much without the reserved part, at least three quarters are spare, so it suffices. More memory never holds
        // less, so a binary search finds the least.
        let enough = (2 * edges + threads as u64 * WINDOW_EDGES_MAX) * EDGE_COST + reserved;
        let (mut low, mut high) = (1, enough.div_ceil(1 << 20));
        while low < high {
            let middle = low.midpoint(high);
            let memory = (middle << 20).saturating_sub(reserved);
            if Self::new(memory, threads, chunks).holds_list(edges) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}
