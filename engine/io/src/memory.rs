//! A memory budget shared by workers.

use std::sync::{Condvar, Mutex, PoisonError};

/// Hands out a budget of bytes to workers that wait for their turn.
///
/// A worker takes all memory for a piece of work at once and holds nothing while it waits. So workers cannot deadlock.
pub struct MemoryGate {
    total: u64,
    free: Mutex<u64>,
    returned: Condvar,
}

/// Bytes that were taken; dropping returns them.
pub struct Taken<'a> {
    gate: &'a MemoryGate,
    bytes: u64,
}

impl MemoryGate {
    /// A gate over `total` bytes.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            free: Mutex::new(total),
            returned: Condvar::new(),
        }
    }

    /// The budget in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Waits until `bytes` are free and takes them. A request above the total gets the total, so its worker runs alone.
    pub fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.total);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Taken { gate: self, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.gate.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.gate.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn taken_bytes_never_exceed_the_total() {
        let (gate, used, peak) = (MemoryGate::new(100), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (gate, used, peak) = (&gate, &used, &peak);
                scope.spawn(move || {
                    for round in 0..200 {
                        let wish = (worker * 31 + round * 17) % 120;
                        let taken = gate.take(wish);
                        peak.fetch_max(
                            used.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes,
                            Ordering::SeqCst,
                        );
                        std::thread::yield_now();
                        used.fetch_sub(taken.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(peak.into_inner() <= 100);
    }
}
