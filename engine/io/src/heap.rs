//! Failed allocations (`ulimit -v`, a container's limit).
//!
//! Rust's collections abort the process if the system refuses memory. Two things replace that:
//!
//! - large buffers are reserved with [`reserve`] or [`zeroed`], which return [`Error::Memory`]. The program cleans up,
//!   and keeps the work that can be resumed;
//! - programs allocate with [`Heap`], which ends the process with one line on stderr and exit status 1 when any other
//!   allocation fails.
//!
//! A process that the kernel kills for exceeding a container's memory limit prints nothing.

#![expect(unsafe_code, reason = "an allocator is unsafe by its interface")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use bytemuck::{Zeroable, allocation::try_zeroed_vec};

use crate::{Error, Result};

/// Bytes of blocks that go back to the system when they are freed ([`return_large_blocks`]).
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: i32 = 1 << 20;

thread_local! {
    /// Whether this thread handles a failed allocation itself.
    static MAY_REFUSE: Cell<bool> = const { Cell::new(false) };
}

/// Reserves room for exactly `additional` more values. `purpose` completes "cannot get memory for".
///
/// # Errors
/// [`Error::Memory`] if the system refuses.
pub fn reserve<T>(values: &mut Vec<T>, additional: usize, purpose: &'static str) -> Result<()> {
    allowing_refusal(|| values.try_reserve_exact(additional)).map_err(|_| memory_error::<T>(additional, purpose))
}

/// Reserves room for `additional` more values of a vector that grows often, and for more of them, as `push` does. `purpose` completes
/// "cannot get memory for".
///
/// # Errors
/// [`Error::Memory`] if the system refuses.
#[inline]
pub fn grow<T>(values: &mut Vec<T>, additional: usize, purpose: &'static str) -> Result<()> {
    if values.capacity() - values.len() >= additional {
        return Ok(());
    }
    allowing_refusal(|| values.try_reserve(additional)).map_err(|_| memory_error::<T>(additional, purpose))
}

/// Reserves room for exactly `length` values in all. `purpose` completes "cannot get memory for".
///
/// # Errors
/// [`Error::Memory`] if the system refuses.
pub fn reserve_to<T>(values: &mut Vec<T>, length: usize, purpose: &'static str) -> Result<()> {
    reserve(values, length.saturating_sub(values.len()), purpose)
}

/// `length` zeros. Their pages become resident when they are touched. `purpose` completes "cannot get memory for".
///
/// # Errors
/// [`Error::Memory`] if the system refuses.
pub fn zeroed<T: Zeroable>(length: usize, purpose: &'static str) -> Result<Vec<T>> {
    allowing_refusal(|| try_zeroed_vec(length)).map_err(|()| memory_error::<T>(length, purpose))
}

/// Makes the C library return each freed block of 1 MiB and more to the system, for the rest of the process.
///
/// Its own rule is to keep blocks as large as any that was freed before, up to 32 MiB, for the thread that freed them. Programs that
/// aggregate on several threads then have two to three times the memory that they use.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        // From malloc.h.
        const TRIM_THRESHOLD: i32 = -1;
        const MMAP_THRESHOLD: i32 = -3;
        // SAFETY: `int mallopt(int, int)` sets parameters of the allocator, at any time.
        unsafe extern "C" {
            safe fn mallopt(parameter: i32, value: i32) -> i32;
        }
        mallopt(MMAP_THRESHOLD, LARGE_BLOCK);
        mallopt(TRIM_THRESHOLD, LARGE_BLOCK);
    }
}

fn allowing_refusal<T>(allocate: impl FnOnce() -> T) -> T {
    MAY_REFUSE.set(true);
    let result = allocate();
    MAY_REFUSE.set(false);
    result
}

fn memory_error<T>(values: usize, purpose: &'static str) -> Error {
    Error::Memory {
        bytes: (values as u64).saturating_mul(size_of::<T>() as u64),
        purpose,
        source: io::ErrorKind::OutOfMemory.into(),
    }
}

/// The system's allocator, for programs: `#[global_allocator] static HEAP: Heap = Heap;`. An allocation failure that no
/// caller handles ends the process with one line on stderr and exit status 1.
#[derive(Debug, Clone, Copy)]
pub struct Heap;

// SAFETY: all calls go to the system's allocator with the caller's arguments, and its results are returned unchanged.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the conditions, which are the same.
        answer(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        answer(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        answer(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[inline]
fn answer(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        refused(bytes);
    }
    memory
}

/// Ends the process unless this thread handles the failure itself. Allocates nothing.
#[cold]
fn refused(bytes: usize) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    // A thread whose locals are destroyed handles no failures.
    if MAY_REFUSE.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    if TOLD.swap(true, Ordering::Relaxed) {
        // Another thread is writing the line, and will end the process.
        loop {
            std::thread::park();
        }
    }
    let mut line = [0; 512];
    let mut rest = &mut line[..];
    // Overwrite the progress bar, if there is one.
    let start = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(
        rest,
        "{start}error: cannot get {} MiB of memory; give a smaller --memory or fewer --threads, or raise the limit (`ulimit -v`, \
         the container's); what is not finished can be continued with --resume",
        bytes.div_ceil(1 << 20)
    );
    let bytes = 512 - rest.len();
    // SAFETY: the line has at least `bytes` bytes. `_exit` runs no code of this process that could need memory.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), bytes);
        libc::_exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_that_names_the_size_and_the_purpose() {
        let mut values = vec![1u64, 2];
        let error = reserve(&mut values, 1 << 57, "a test").unwrap_err().to_string();
        assert!(
            error.contains("1152921504606846976 bytes of memory for a test") && error.contains("ulimit -v"),
            "{error}"
        );
        assert_eq!(values, [1, 2]);
        let error = zeroed::<u64>(usize::MAX, "a test").unwrap_err();
        assert!(matches!(error, Error::Memory { bytes: u64::MAX, .. }), "{error}");
    }

    #[test]
    fn reserved_vectors_have_the_requested_room() {
        assert_eq!(zeroed::<u8>(3, "a test").unwrap(), [0, 0, 0]);
        let mut values = vec![0u8; 10];
        reserve(&mut values, 1000, "a test").unwrap();
        assert!(values.capacity() >= 1010);
        // Vectors that grow one by one are copied a few times only.
        let mut copies = 0;
        for value in 0..1000 {
            let before = values.capacity();
            grow(&mut values, 1, "a test").unwrap();
            copies += usize::from(values.capacity() != before);
            values.push(value as u8);
        }
        assert!(copies < 3, "{copies}");
        assert!(grow(&mut vec![0u64], 1 << 60, "a test").is_err());
    }
}
