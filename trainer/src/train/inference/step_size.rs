//! How many nodes an inference computes at once.

use grappa_io::ledger::MemoryShare;

/// Nodes whose messages, queries or states are computed at once, at most.
pub(super) const STEP_NODES: u64 = 1 << 13;
/// Bytes of their widest rows, at most. The allocator returns memory of more than 32 MiB to the system each time, which clears it again.
const STEP_BYTES: u64 = 16 << 20;
/// With little memory, the widest rows of a step.
const STEP: MemoryShare = MemoryShare::one(
    "rows of an inference step",
    128,
    "a computation has several tensors of that size at a time: what it reads, what it makes and what it passes on; with 1/128, \
     predictions of GAT stay within 64 MiB of their budget (benches/record/memory.md)",
);

/// The number of nodes that are computed at once, with rows of at most `width` values and this much memory.
pub(super) fn step_nodes(width: usize, memory: u64) -> u64 {
    let row_bytes = (width * size_of::<f32>()) as u64;
    let bytes = STEP_BYTES.min(STEP.bytes(memory));
    (bytes / row_bytes).clamp(1, STEP_NODES)
}
