//! Runs an input of a target, and checks that it allocates no more than the input justifies.

use std::sync::{Mutex, PoisonError};

use peak_alloc::PeakAlloc;

use crate::{Input, Target, scratch::Scratch};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory is counted for the whole process, so inputs run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs an input, and returns the target's outcome.
///
/// # Panics
/// If the target panics, or allocates more than [`Target::memory_max`].
pub fn run(target: &Target, bytes: &[u8], scratch: &Scratch) -> String {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let outcome = (target.run)(&Input { bytes, scratch });
    let taken = MEMORY.peak_usage().saturating_sub(before);
    let most = target.memory_max(bytes.len());
    assert!(
        taken <= most,
        "{}: allocated {taken} bytes for {} of input; {most} are justified",
        target.name,
        bytes.len()
    );
    outcome
}
