//! Coverage of inputs, in builds with LLVM's edge counters (`cargo xtask fuzz --coverage`).
//!
//! Such a build has one byte for each edge of the control flow of all crates but the standard library. Code adds one
//! when it takes the edge. The program announces these bytes before `main`, so no function here is called otherwise.
//! In a build without counters there are no edges, and a campaign is guided by outcomes alone.
//!
//! This program has about 150 K edges. Their bytes are cleared before each input, and read after it.
//!
//! Source: LLVM, SanitizerCoverage, "Inline 8bit-counters"; counts are grouped as libFuzzer does.

#![expect(unsafe_code, reason = "LLVM announces its counters as two pointers")]

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The counters of this program. Null in a build without counters.
static COUNTERS: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static COUNTERS_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Counters that are read at a time.
const WORD: usize = size_of::<u64>();

/// Takes the counters that lie from `start` to `stop`. Each object file of the program announces the same range before
/// `main` runs.
// SAFETY: LLVM reserves names with this beginning for functions such as this one.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    COUNTERS_LENGTH.store(stop as usize - start as usize, Ordering::Relaxed);
    COUNTERS.store(start, Ordering::Relaxed);
}

/// Whether this build has counters.
pub fn is_built_in() -> bool {
    !COUNTERS.load(Ordering::Relaxed).is_null()
}

/// Sets all counters to zero.
pub fn clear() {
    let start = COUNTERS.load(Ordering::Relaxed);
    if !start.is_null() {
        // SAFETY: the program's counters are writable and as many as were announced. They are plain bytes. Threads of
        // a target have ended; one that has not may lose a count, which matters to nothing.
        unsafe { start.write_bytes(0, COUNTERS_LENGTH.load(Ordering::Relaxed)) };
    }
}

/// The edges that inputs have taken so far, and how often.
#[derive(Default)]
pub struct Coverage {
    /// For each edge, a bit for each group of counts.
    seen: Vec<u8>,
    edges: usize,
}

impl Coverage {
    /// Adds the edges that were taken since [`clear`]. Returns whether one of them, or its group of counts, is new.
    pub fn add(&mut self) -> bool {
        let (start, length) = (
            COUNTERS.load(Ordering::Relaxed),
            COUNTERS_LENGTH.load(Ordering::Relaxed),
        );
        self.seen.resize(length, 0);
        let mut is_new = false;
        for at in (0..length).step_by(WORD) {
            let bytes = (length - at).min(WORD);
            let mut counts = [0; WORD];
            // SAFETY: `at + bytes` is at most the number of counters, which are readable; see `clear`.
            unsafe { start.add(at).copy_to_nonoverlapping(counts.as_mut_ptr(), bytes) };
            // Nearly all words are zero.
            if u64::from_ne_bytes(counts) != 0 {
                is_new |= self.add_counts(at, &counts[..bytes]);
            }
        }
        is_new
    }

    /// Number of edges that inputs have taken.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// Adds the counts of edges from edge `first` on.
    fn add_counts(&mut self, first: usize, counts: &[u8]) -> bool {
        let mut is_new = false;
        for (seen, &count) in self.seen[first..].iter_mut().zip(counts) {
            let group = group_of(count);
            if *seen & group != group {
                self.edges += usize::from(*seen == 0);
                *seen |= group;
                is_new = true;
            }
        }
        is_new
    }
}

/// The group of a count, as a bit: 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127, more. No bit for 0.
fn group_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_and_a_new_group_of_its_counts_are_new_once() {
        let mut coverage = Coverage {
            seen: vec![0; 12],
            edges: 0,
        };
        assert!(!coverage.add_counts(0, &[0; 8]));
        assert!(coverage.add_counts(8, &[0, 1, 0, 5]));
        assert_eq!(coverage.edges(), 2);
        assert!(!coverage.add_counts(8, &[0, 1, 0, 7]));
        assert!(coverage.add_counts(8, &[0, 1, 0, 8]));
        assert!(coverage.add_counts(0, &[255]));
        assert_eq!(coverage.edges(), 3);
    }

    #[test]
    fn a_build_without_counters_covers_nothing() {
        let mut coverage = Coverage::default();
        assert!(!is_built_in());
        clear();
        assert!(!coverage.add());
        assert_eq!(coverage.edges(), 0);
    }
}
