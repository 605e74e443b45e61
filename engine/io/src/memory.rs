//! A memory budget shared by workers, and buffers that they reuse.

use std::{
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

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
        Self { total, free: Mutex::new(total), returned: Condvar::new() }
    }

    /// The budget in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Waits until `bytes` are free and takes them. A request above the total gets the total, so its worker runs alone.
    pub fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.total);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_while(free, |free| *free < bytes);
        *waited.unwrap_or_else(PoisonError::into_inner) -= bytes;
        Taken { gate: self, bytes }
    }
}

impl Taken<'_> {
    /// Raises the number of bytes to `bytes` if enough are free now. Returns whether it has as many.
    fn grow(&mut self, bytes: u64) -> bool {
        let bytes = bytes.min(self.gate.total);
        let mut free = self.gate.free.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = bytes.saturating_sub(self.bytes);
        if missing <= *free {
            *free -= missing;
            self.bytes += missing;
        }
        self.bytes >= bytes
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.gate.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.gate.returned.notify_all();
    }
}

/// Buffers of one kind that workers take in turn, each with its memory of a gate.
///
/// A buffer that is given back keeps its memory for the next worker. The kernel zeroes new memory page by page, which can
/// take as long as the work on it. But nobody waits for memory that only a spare buffer has: it is freed first.
pub struct SpareBuffers<'g, B> {
    gate: &'g MemoryGate,
    spare: Mutex<Spare<'g, B>>,
}

struct Spare<'g, B> {
    buffers: Vec<(B, Taken<'g>)>,
    waiting: u32,
}

/// A buffer of [`SpareBuffers`]; dropping it gives it back. It has the contents that its last user left.
pub struct Lent<'s, 'g, B> {
    from: &'s SpareBuffers<'g, B>,
    loan: Option<(B, Taken<'g>)>,
}

impl<'g, B: Default> SpareBuffers<'g, B> {
    /// No buffers yet. Their memory will come from `gate`.
    pub fn new(gate: &'g MemoryGate) -> Self {
        Self { gate, spare: Mutex::new(Spare { buffers: Vec::new(), waiting: 0 }) }
    }

    /// The budget of all buffers in bytes.
    pub fn total(&self) -> u64 {
        self.gate.total()
    }

    /// A buffer that may use `bytes`: a spare one, or a new one once that much memory is free.
    pub fn take(&self, bytes: u64) -> Lent<'_, 'g, B> {
        let mut spare = self.lock();
        let largest = (0..spare.buffers.len()).max_by_key(|&index| spare.buffers[index].1.bytes);
        let reused = largest.map(|index| spare.buffers.swap_remove(index));
        if let Some((buffer, mut taken)) = reused
            && taken.grow(bytes)
        {
            return Lent { from: self, loan: Some((buffer, taken)) };
        }
        Lent { from: self, loan: Some((B::default(), self.take_from_gate(spare, bytes))) }
    }

    /// Takes `bytes` without a buffer, once that much memory is free.
    pub fn reserve(&self, bytes: u64) -> Taken<'g> {
        self.take_from_gate(self.lock(), bytes)
    }

    /// Frees the spare buffers, and those that are given back meanwhile. So the gate gets all memory that nobody works with.
    fn take_from_gate(&self, mut spare: MutexGuard<'_, Spare<'g, B>>, bytes: u64) -> Taken<'g> {
        spare.buffers.clear();
        spare.waiting += 1;
        drop(spare);
        let taken = self.gate.take(bytes);
        self.lock().waiting -= 1;
        taken
    }
}

impl<'g, B> SpareBuffers<'g, B> {
    fn lock(&self) -> MutexGuard<'_, Spare<'g, B>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Deref for Lent<'_, '_, B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.loan.as_ref().expect("held until it is dropped").0
    }
}

impl<B> DerefMut for Lent<'_, '_, B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.loan.as_mut().expect("held until it is dropped").0
    }
}

impl<B> Drop for Lent<'_, '_, B> {
    fn drop(&mut self) {
        let loan = self.loan.take();
        let mut spare = self.from.lock();
        if spare.waiting == 0 {
            spare.buffers.extend(loan);
        }
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
                        peak.fetch_max(used.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes, Ordering::SeqCst);
                        std::thread::yield_now();
                        used.fetch_sub(taken.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(peak.into_inner() <= 100);
    }

    #[test]
    fn a_buffer_that_was_given_back_is_taken_again() {
        let gate = MemoryGate::new(100);
        let buffers = SpareBuffers::<Vec<u8>>::new(&gate);
        buffers.take(40).push(7);
        // The same buffer, with more memory. A second one has the rest.
        let first = buffers.take(60);
        let second = buffers.take(40);
        assert_eq!((&first[..], &second[..]), (&[7][..], &[][..]));
        drop((first, second));
        // Neither has so much, so both are freed.
        assert!(buffers.take(100).is_empty());
        assert_eq!(*gate.free.lock().unwrap(), 0, "one spare buffer has all memory");
    }

    #[test]
    fn memory_without_a_buffer_is_taken_from_spare_ones() {
        let gate = MemoryGate::new(100);
        let buffers = SpareBuffers::<Vec<u8>>::new(&gate);
        drop(buffers.take(60));
        let reserved = buffers.reserve(50);
        assert_eq!(*gate.free.lock().unwrap(), 50);
        drop(reserved);
        assert_eq!(*gate.free.lock().unwrap(), 100);
    }

    #[test]
    fn nobody_waits_for_the_memory_of_spare_buffers() {
        let gate = MemoryGate::new(100);
        let buffers = SpareBuffers::<Vec<u8>>::new(&gate);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let buffers = &buffers;
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = (worker * 31 + round * 17) % 120;
                        if round % 5 == 0 {
                            drop(buffers.reserve(bytes));
                        }
                        let mut buffer = buffers.take(bytes);
                        buffer.resize(10, 0);
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
