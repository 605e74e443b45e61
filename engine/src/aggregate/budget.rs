//! The memory and threads of an aggregation.

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
        rows.saturating_mul((width * size_of::<f32>()) as u64) > self.memory / 2
    }
}
