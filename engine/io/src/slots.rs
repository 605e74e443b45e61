//! Slots for rows of bytes. One thread fills slots while others read other slots.

#![expect(unsafe_code, reason = "memory is viewed as atomic words, for which there is no safe cast")]

use std::{
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{arena::Arena, prefetch::prefetch};
use crate::Result;

const WORD: usize = size_of::<u64>();
const LINE: usize = 64;

/// Slots of equal size in one piece of memory, shared by threads.
///
/// Any thread with a reference may fill and read any slot at any time. That is sound, because bytes are moved as
/// relaxed atomic words. They cost the same as ordinary loads and stores, except that the compiler cannot vectorize
/// them. A read that races with a fill returns a mixture of old and new words. So the threads must agree who may touch
/// which slot, and synchronize through a lock or a channel between a fill and a read.
///
/// The alternative, a lock for each slot, costs two atomic read-modify-writes per read. Measured on rows of 512 bytes
/// spread over a gigabyte, with prefetching, both take about 90 ns per row; the memory access alone takes 60 ns.
#[derive(Debug)]
pub struct Slots {
    words: NonNull<AtomicU64>,
    /// Words of all slots.
    length: usize,
    words_per_slot: usize,
    /// Owns the memory that `words` points to. Never accessed directly.
    _arena: Arena,
}

// SAFETY: the words are only reached as `&[AtomicU64]`, which threads may share, and they live as long as the arena, which
// may be dropped by any thread.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Reserves `slots` slots of `slot_bytes`, filled with zeros. Pages become resident when they are filled.
    ///
    /// # Panics
    /// If `slot_bytes` is 0 or not a multiple of 8.
    pub fn new(slots: usize, slot_bytes: usize) -> Result<Self> {
        assert!(slot_bytes > 0 && slot_bytes.is_multiple_of(WORD), "slots of {slot_bytes} bytes");
        let mut arena = Arena::new(slots.saturating_mul(slot_bytes))?;
        Ok(Self {
            // An arena starts at a page, so its words are aligned.
            words: NonNull::from(&mut *arena).cast(),
            length: slots * (slot_bytes / WORD),
            words_per_slot: slot_bytes / WORD,
            _arena: arena,
        })
    }

    /// Number of slots.
    #[inline]
    pub fn len(&self) -> usize {
        self.length / self.words_per_slot
    }

    /// Whether there are no slots.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of a slot.
    #[inline]
    pub fn slot_bytes(&self) -> usize {
        self.words_per_slot * WORD
    }

    /// Fills a part of a slot. The rest of the last word becomes zero.
    ///
    /// # Panics
    /// If there is no such slot, the part does not start at a multiple of 8, or is too long.
    pub fn fill(&self, slot: usize, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(WORD), "a part that starts at {offset}");
        let words = &self.slot(slot)[offset / WORD..];
        assert!(bytes.len() <= words.len() * WORD, "{} bytes", bytes.len());
        let (whole, rest) = bytes.as_chunks::<WORD>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    /// Copies a part of a slot.
    ///
    /// # Panics
    /// If there is no such slot, the part does not start at a multiple of 8, or is too long.
    #[inline]
    pub fn read(&self, slot: usize, offset: usize, bytes: &mut [u8]) {
        assert!(offset.is_multiple_of(WORD), "a part that starts at {offset}");
        let words = &self.slot(slot)[offset / WORD..];
        assert!(bytes.len() <= words.len() * WORD, "{} bytes", bytes.len());
        let (whole, rest) = bytes.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = words[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Prefetches `lines` cache lines of a slot, from the byte at `offset` on.
    #[inline]
    pub fn prefetch(&self, slot: usize, offset: usize, lines: usize) {
        let first = slot * self.words_per_slot + offset / WORD;
        for line in 0..lines {
            prefetch(self.words(), first + line * (LINE / WORD));
        }
    }

    #[inline]
    fn slot(&self, slot: usize) -> &[AtomicU64] {
        &self.words()[slot * self.words_per_slot..][..self.words_per_slot]
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` is derived from a unique reference to all bytes of the arena, which holds `length` words, is
        // aligned to pages, initialized, and lives as long as `self`. `_arena` is never used meanwhile, so all access
        // goes through these atomics. An `AtomicU64` has size, alignment (on 64-bit machines) and validity of eight
        // bytes.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize},
    };

    use super::*;

    #[test]
    fn slots_return_the_bytes_that_were_filled_in() {
        let slots = Slots::new(5, 24).unwrap();
        assert_eq!((slots.len(), slots.slot_bytes(), slots.is_empty()), (5, 24, false));
        for slot in 0..5 {
            slots.fill(slot, 0, &[slot as u8 + 1; 24]);
        }
        slots.fill(2, 8, &[77; 11]);
        let mut row = [0; 24];
        slots.read(1, 0, &mut row);
        assert_eq!(row, [2; 24]);
        slots.read(3, 0, &mut row);
        assert_eq!(row, [4; 24]);
        slots.read(2, 0, &mut row);
        assert_eq!(row[..8], [3; 8]);
        assert_eq!(row[8..19], [77; 11]);
        assert_eq!(row[19..], [0; 5]);
        let mut part = [9; 13];
        slots.read(2, 0, &mut part);
        assert_eq!(part, row[..13]);
        slots.prefetch(4, 8, 9);
        assert!(Slots::new(0, 8).unwrap().is_empty());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_slot_beyond_the_last_is_not_touched() {
        Slots::new(5, 24).unwrap().fill(5, 0, &[1]);
    }

    #[test]
    #[should_panic(expected = "25 bytes")]
    fn a_slot_is_not_overrun() {
        Slots::new(5, 24).unwrap().fill(0, 0, &[1; 25]);
    }

    /// One thread fills slots and passes them on through a lock. Others read and check them, and pass them back.
    #[test]
    fn rows_passed_on_through_a_lock_arrive_whole() {
        const ROUNDS: usize = 20_000;
        const BYTES: usize = 8 * 9;
        let slots = Slots::new(16, BYTES).unwrap();
        let free = Mutex::new((0..slots.len()).collect::<Vec<_>>());
        let filled = Mutex::new(Vec::new());
        let (done, checked) = (AtomicBool::new(false), AtomicUsize::new(0));
        let pattern = |round: usize| (0..BYTES).map(move |i| (round * 31 + i * 7) as u8);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let slot = loop {
                        if let Some(slot) = free.lock().unwrap().pop() {
                            break slot;
                        }
                        std::thread::yield_now();
                    };
                    let row: Vec<u8> = pattern(round).collect();
                    slots.fill(slot, 0, &row[..40]);
                    slots.fill(slot, 40, &row[40..]);
                    filled.lock().unwrap().push((slot, round));
                }
                done.store(true, Ordering::Release);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut row = [0; BYTES];
                    loop {
                        let ended = done.load(Ordering::Acquire);
                        let Some((slot, round)) = filled.lock().unwrap().pop() else {
                            if ended {
                                break;
                            }
                            std::thread::yield_now();
                            continue;
                        };
                        slots.read(slot, 0, &mut row);
                        assert!(row.into_iter().eq(pattern(round)), "round {round}");
                        checked.fetch_add(1, Ordering::Relaxed);
                        free.lock().unwrap().push(slot);
                    }
                });
            }
        });
        assert_eq!(checked.into_inner(), ROUNDS);
    }
}
