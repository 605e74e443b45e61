//! A thread that adds memory to a large buffer, ahead of the thread that fills it from front to back.
//!
//! The kernel zeroes memory when it is first touched. That takes about as long as copying to it, and much longer in a virtual
//! machine that has returned its free memory to the host. So a second core does a part of it.

#![expect(unsafe_code, reason = "the address of memory is given to the system")]

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::mm::{Advice, madvise};

/// Bytes that are added at a time.
const PIECE_BYTES: usize = 2 << 20;
/// Distance to the bytes that were filled last. Reads complete in any order, and two threads that touch a page at once would both
/// zero memory for it.
const DISTANCE_BYTES: usize = 32 << 20;
/// Smaller buffers are not worth a thread.
const BYTES_MIN: usize = 128 << 20;

/// The thread. Dropping it waits until the thread ends, which takes no longer than to add a piece.
#[derive(Debug)]
pub(crate) struct Populate {
    /// The end of the bytes that are filled.
    filled: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Populate {
    /// Starts to add memory to the `bytes` bytes from `start` on. None if they are few, if there is one processor, or if the system
    /// refuses a thread.
    ///
    /// # Safety
    /// The bytes are a private mapping without a file, from a page on. They stay mapped until this is dropped.
    pub(crate) unsafe fn start(start: *mut u8, bytes: usize) -> Option<Self> {
        if bytes < BYTES_MIN || thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
            return None;
        }
        let filled = Arc::new(AtomicUsize::new(0));
        // A pointer cannot be sent to a thread.
        let (place, seen) = (start.expose_provenance(), filled.clone());
        let thread = thread::Builder::new()
            .name("populate".into())
            .spawn(move || {
                let mut next = 0;
                loop {
                    let ahead = seen.load(Ordering::Relaxed).saturating_add(DISTANCE_BYTES);
                    next = next.max(ahead / PIECE_BYTES * PIECE_BYTES);
                    if next >= bytes {
                        break;
                    }
                    let length = PIECE_BYTES.min(bytes - next);
                    let piece = std::ptr::with_exposed_provenance_mut::<c_void>(place + next);
                    // SAFETY: the piece is mapped, as the caller promises, because a drop waits for this thread. The kernel adds zeros
                    // where there is no page yet, and changes nothing where there is one.
                    if let Err(error) = unsafe { madvise(piece, length, Advice::LinuxPopulateWrite) } {
                        tracing::debug!("memory is not added ahead: {error}");
                        break;
                    }
                    next += length;
                }
            })
            .ok()?;
        Some(Self { filled, thread: Some(thread) })
    }

    /// Says that the bytes before `end` are filled.
    #[inline]
    pub(crate) fn filled(&self, end: usize) {
        self.filled.fetch_max(end, Ordering::Relaxed);
    }
}

impl Drop for Populate {
    fn drop(&mut self) {
        self.filled(usize::MAX);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    const MIB: usize = 1 << 20;

    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn memory_is_added_beyond_the_bytes_that_are_filled() {
        let (bytes, filled) = (200 * MIB, 40 * MIB);
        let mut map = MmapMut::map_anon(bytes).unwrap();
        if map.advise_range(memmap2::Advice::PopulateWrite, 0, 1).is_err() {
            grappa_skip::skip!("this kernel cannot add memory on request");
        }
        let before = resident_bytes();
        // SAFETY: `map` outlives the thread.
        let Some(mut populate) = (unsafe { Populate::start(map.as_mut_ptr(), bytes) }) else {
            grappa_skip::skip!("there is one processor");
        };
        populate.filled(filled);
        populate.thread.take().unwrap().join().unwrap();
        let added = resident_bytes() - before;
        // Other tests of this process allocate memory at the same time, but less than this.
        let expected = bytes - filled - DISTANCE_BYTES - PIECE_BYTES;
        assert!(added >= expected / 2, "{} MiB were added", added / MIB);
        drop(populate);
        assert!(map.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn few_bytes_have_no_thread() {
        let mut map = MmapMut::map_anon(MIB).unwrap();
        // SAFETY: `map` outlives the thread.
        assert!(unsafe { Populate::start(map.as_mut_ptr(), MIB) }.is_none());
    }
}
