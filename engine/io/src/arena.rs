//! Large memory, aligned to pages, on huge pages if the kernel supports them.
//!
//! Huge pages help read buffers and memory with random access: they cause fewer TLB misses, and direct reads pin fewer
//! pages. The memory is zeroed, and takes no physical memory until it is touched.

#![expect(unsafe_code, reason = "a thread that adds memory gets its address, and processes share memory")]

use std::{
    fs::File,
    io,
    ops::{Deref, DerefMut, Range},
};

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};

use crate::{Error, Result, populate::Populate};

/// Bytes of a huge page on x86-64, and on most other machines. If huge pages are larger, the first one starts further
/// into the arena.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping. It is private, or it is [shared memory](crate::shared). Dropping it returns the memory to the kernel. Dereferences to
/// its bytes, which start at a multiple of 4096. Private arenas of 2 MiB or more start at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Arena {
    /// Before the mapping, because it must be dropped first.
    populate: Option<Box<Populate>>,
    map: MmapMut,
    bytes: Range<usize>,
}

impl Arena {
    /// Reserves `bytes` of zeros without touching a page. The kernel adds memory on first access, up to 2 MiB at a
    /// time.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub fn new(bytes: usize) -> Result<Self> {
        Self::for_purpose(bytes, "a buffer")
    }

    /// As [`Arena::new`]. `purpose` completes "cannot get memory for".
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn for_purpose(bytes: usize, purpose: &'static str) -> Result<Self> {
        // A mapping starts at a multiple of a small page, so a part before the first huge page may stay unused.
        let slack = if bytes < HUGE_PAGE_BYTES { 0 } else { HUGE_PAGE_BYTES };
        let refused = |source| Error::Memory { bytes: bytes as u64, purpose, source };
        let total = bytes.checked_add(slack).ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapMut::map_anon(total).map_err(refused)?;
        if slack == 0 {
            return Ok(Self { populate: None, map, bytes: 0..bytes });
        }
        let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        assert!(start <= slack, "an address can be rounded up");
        // No huge page for the last part: it would take more memory than requested.
        let whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if let Err(error) = map.advise_range(Advice::HugePage, start, whole) {
            tracing::debug!("no huge pages: {error}");
        }
        Ok(Self { populate: None, map, bytes: start..start + bytes })
    }

    /// As [`Arena::new`], for bytes that one thread fills from front to back: if they are many, another thread adds memory ahead of it.
    /// Report progress with [`Arena::filled`].
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn to_fill(bytes: usize) -> Result<Self> {
        let mut arena = Self::new(bytes)?;
        // SAFETY: the bytes belong to the mapping, which is dropped after the thread.
        arena.populate = unsafe { Populate::start(arena.as_mut_ptr(), bytes) }.map(Box::new);
        Ok(arena)
    }

    /// The bytes of a file in memory, which other processes may map too. What one of them writes, all read. They must not write what others
    /// read or write at the same time.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub(crate) fn shared(file: &File, bytes: u64) -> Result<Self> {
        let refused = |source| Error::Memory { bytes, purpose: "memory that processes share", source };
        let length = usize::try_from(bytes).map_err(|_| refused(io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: the file has no name and a fixed length, so only processes that were told of it map it. They write their parts of it, and
        // read the others' bytes after these have said that they are done.
        let map = unsafe { MmapOptions::new().len(length).map_mut(file) }.map_err(refused)?;
        if let Err(error) = map.advise(Advice::HugePage) {
            tracing::debug!("no huge pages in shared memory: {error}");
        }
        Ok(Self { populate: None, map, bytes: 0..length })
    }

    /// Says that the bytes before `end` are filled.
    #[inline]
    pub fn filled(&self, end: usize) {
        if let Some(populate) = &self.populate {
            populate.filled(end);
        }
    }

    /// Changes the number of bytes, within the address space of the arena. Bytes that are added may have any value. Returns
    /// whether there is enough address space.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let end = self.bytes.start.saturating_add(bytes);
        let fits = end <= self.map.len();
        if fits {
            self.bytes.end = end;
        }
        fits
    }

    /// The mapping and the range of the bytes in it, for memory that the kernel writes.
    pub(super) fn into_raw(self) -> (MmapRaw, Range<usize>) {
        let Self { populate, map, bytes } = self;
        drop(populate);
        (map.into(), bytes)
    }

    /// The bytes as values. Bytes after the last whole value are left out.
    #[inline]
    pub fn values<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(&self[..self.len() - self.len() % size_of::<T>()])
    }

    /// The bytes as values. Bytes after the last whole value are left out.
    #[inline]
    pub fn values_mut<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        let whole = self.len() - self.len() % size_of::<T>();
        bytemuck::cast_slice_mut(&mut self[..whole])
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[self.bytes.clone()]
    }
}

impl DerefMut for Arena {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.bytes.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    fn an_arena_is_resized_within_its_address_space() {
        for bytes in [5000, 3 * HUGE_PAGE_BYTES] {
            let mut arena = Arena::new(bytes).unwrap();
            arena.fill(7);
            assert!(arena.resize(100));
            assert_eq!(&*arena, [7; 100]);
            assert!(arena.resize(bytes));
            assert_eq!(arena.len(), bytes);
            assert!(!arena.resize(bytes + 2 * HUGE_PAGE_BYTES));
            assert_eq!(arena.len(), bytes);
        }
    }

    #[test]
    fn an_arena_is_aligned_zeroed_and_of_the_requested_length() {
        for bytes in [0, 1, 4096, 5000, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 4097] {
            let mut arena = Arena::new(bytes).unwrap();
            let align = if bytes < HUGE_PAGE_BYTES { 4096 } else { HUGE_PAGE_BYTES };
            assert_eq!(arena.as_ptr().addr() % align, 0, "of {bytes} bytes");
            assert_eq!(arena.len(), bytes);
            assert!(arena.iter().all(|&byte| byte == 0));
            arena.fill(7);
            assert!(arena.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn an_arena_that_is_filled_keeps_what_it_was_given() {
        for steps in [1, 7, 200] {
            let bytes = (160 << 20) + 3;
            let mut arena = Arena::to_fill(bytes).unwrap();
            for piece in 0..steps {
                let range = bytes * piece / steps..bytes * (piece + 1) / steps;
                arena[range.clone()].fill(piece as u8 + 1);
                arena.filled(range.end);
            }
            for piece in 0..steps {
                let range = bytes * piece / steps..bytes * (piece + 1) / steps;
                assert!(arena[range].iter().all(|&byte| byte == piece as u8 + 1), "piece {piece} of {steps}");
            }
        }
    }

    #[test]
    fn values_are_whole() {
        let mut arena = Arena::new(8 * 100 + 5).unwrap();
        assert_eq!(arena.values::<u64>().len(), 100);
        assert_eq!(arena.values::<u32>().len(), 201);
        arena.values_mut::<u32>()[3] = 0x0102_0304;
        assert_eq!(arena[12..16], 0x0102_0304u32.to_ne_bytes());
        assert!(Arena::new(3).unwrap().values::<u32>().is_empty());
    }

    #[test]
    fn memory_becomes_resident_when_it_is_touched() {
        let before = resident_bytes();
        let arena = Arena::new(1 << 30).unwrap();
        // Other tests of this process allocate memory at the same time, but less than this.
        assert!(resident_bytes() < before + (512 << 20));
        assert_eq!(arena[arena.len() - 1], 0);
    }

    #[test]
    fn a_refused_arena_is_an_error_that_states_the_size() {
        for bytes in [usize::MAX, isize::MAX as usize - HUGE_PAGE_BYTES] {
            let error = Arena::new(bytes).unwrap_err().to_string();
            assert!(error.contains(&format!("{bytes} bytes of memory")), "{error}");
        }
    }
}
