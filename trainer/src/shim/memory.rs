//! The memory of tensors on the processor, which is kept when tensors are freed.
//!
//! A training step allocates and frees the same large tensors as the one before. If their memory went back to the operating system, the
//! system would clear each page again and map it on the first access. With tensors of 134 MB that takes half of a step.
//!
//! The C library's allocator keeps small blocks, if it is told to. Large ones it maps and unmaps one by one. Large blocks of tensors come
//! from an allocator of the shim (`memory.cpp`), which keeps freed blocks for tensors of about the same size. All its blocks together
//! never take more than tensors took at some time before, in sizes that are rounded up by at most an eighth.
//!
//! The C library's heap has no such bound: free blocks between used ones stay. With a budget of 64 MiB and large blocks from 32 MiB on,
//! training took 60 MiB more than its live blocks. So a large block is a small share of the budget.

use grappa_io::ledger::MemoryShare;

/// A block is large from this part of the budget on, but never below or above these sizes. The C library admits no larger threshold.
const LARGE: MemoryShare = MemoryShare::one(
    "large block",
    64,
    "free blocks of the heap stay between used ones: with a threshold of 1/2, training took as much as its budget beside it",
);
const LARGE_MIN: u64 = 1 << 20;
const LARGE_MAX: u64 = 32 << 20;

// SAFETY: the functions are in memory.cpp, with these types, and may be called at any time from any thread. The last one writes two
// numbers.
unsafe extern "C" {
    safe fn grappa_keep_blocks(smallest: usize);
    safe fn grappa_release_blocks();
    safe fn grappa_block_bytes(used_bytes: &mut usize, kept_bytes: &mut usize);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockBytes {
    /// Blocks that tensors use.
    pub(crate) used: u64,
    /// Blocks that are kept for later tensors.
    pub(crate) spare: u64,
}

/// Makes the allocators keep freed memory, for the rest of the process, which has a budget of `memory` bytes.
pub(crate) fn keep_freed(memory: u64) {
    let large = LARGE.bytes(memory).clamp(LARGE_MIN, LARGE_MAX) as usize;
    #[cfg(target_env = "gnu")]
    keep_small_blocks(large);
    grappa_keep_blocks(large);
}

/// Returns the kept large blocks to the system.
pub(crate) fn release_kept() {
    grappa_release_blocks();
}

/// Returns the free pages of the C library's heap to the system. It keeps them otherwise ([`keep_freed`]).
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `int malloc_trim(size_t)` returns free pages, at any time, and leaves `left` bytes at the end of the heap.
        unsafe extern "C" {
            safe fn malloc_trim(left: usize) -> i32;
        }
        malloc_trim(0);
    }
}

/// Bytes that the C library's heap keeps free: each thread that ever allocated left some.
pub(crate) fn free_heap_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // As in malloc.h.
        #[repr(C)]
        struct Mallinfo2 {
            before: [usize; 8],
            fordblks: usize,
            keepcost: usize,
        }
        // SAFETY: `struct mallinfo2 mallinfo2(void)` adds up the free blocks of all arenas, at any time.
        unsafe extern "C" {
            safe fn mallinfo2() -> Mallinfo2;
        }
        mallinfo2().fordblks as u64
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Bytes of large blocks; zeros before [`keep_freed`].
pub(crate) fn block_bytes() -> BlockBytes {
    let (mut used, mut spare) = (0, 0);
    grappa_block_bytes(&mut used, &mut spare);
    BlockBytes { used: used as u64, spare: spare as u64 }
}

/// Makes the C library's allocator take blocks of less than `large` bytes from its heap, which does not shrink until it is trimmed.
///
/// By default the C library has several heaps (arenas), so that threads do not wait for each other. It trims only the first one, and others
/// kept 8 MiB each from threads that had ended. With a small budget there is only one.
#[cfg(target_env = "gnu")]
fn keep_small_blocks(large: usize) {
    // From malloc.h.
    const TRIM_THRESHOLD: i32 = -1;
    const MMAP_THRESHOLD: i32 = -3;
    const ARENA_MAX: i32 = -8;
    // SAFETY: `int mallopt(int, int)` sets parameters of the allocator, at any time.
    unsafe extern "C" {
        safe fn mallopt(parameter: i32, value: i32) -> i32;
    }
    mallopt(MMAP_THRESHOLD, large as i32);
    mallopt(TRIM_THRESHOLD, i32::MAX);
    if (large as u64) < LARGE_MAX {
        mallopt(ARENA_MAX, 1);
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    const MIB: i64 = 1 << 20;

    fn tensor(mib: i64) -> Tensor {
        Tensor::empty([mib * MIB], (Kind::Uint8, Device::Cpu))
    }

    /// One test, because all tensors of the process share the allocator. The first part counts all blocks from the start.
    #[test]
    fn large_tensors_take_blocks_that_are_kept() {
        keep_freed(u64::MAX);
        blocks_are_kept_for_tensors_of_about_their_size_and_never_take_more_than_tensors_did();
        products_of_libtorch_allocate_and_free_memory_of_all_sizes();
        a_tensor_may_be_freed_by_another_thread();
    }

    fn blocks_are_kept_for_tensors_of_about_their_size_and_never_take_more_than_tensors_did() {
        let before = block_bytes();
        let mib =
            |used: i64, spare: i64| BlockBytes { used: before.used + (used * MIB) as u64, spare: (spare * MIB) as u64 };
        release_kept();

        let small = tensor(31);
        assert_eq!(block_bytes(), mib(0, 0), "the C library has it");
        let first = tensor(96);
        let place = first.data_ptr();
        assert_eq!(block_bytes(), mib(96, 0));
        drop((first, small));
        assert_eq!(block_bytes(), mib(0, 96));

        let mut second = tensor(85);
        assert_eq!(second.data_ptr(), place, "a little smaller, so it takes the block");
        assert_eq!(block_bytes(), mib(96, 0));
        let _ = second.fill_(7);
        assert_eq!(second.max().int64_value(&[]), 7);
        drop(second);

        // Too small for the block: both would take more than tensors did at any time.
        let third = tensor(40);
        assert_eq!(block_bytes(), mib(40, 0));
        let fourth = tensor(56);
        drop(third);
        assert_eq!(block_bytes(), mib(56, 40));
        // 37 MiB in steps of 4.
        let fifth = tensor(37);
        assert_eq!(block_bytes(), mib(96, 0));
        drop((fourth, fifth));
        assert_eq!(block_bytes(), mib(0, 96));

        release_kept();
        assert_eq!(block_bytes(), mib(0, 0));
    }

    fn products_of_libtorch_allocate_and_free_memory_of_all_sizes() {
        for kind in [Kind::Float, Kind::BFloat16] {
            for size in [0, 1, 96, 960, 4096] {
                let ones = |rows, columns| Tensor::ones([rows, columns], (kind, Device::Cpu));
                let product = ones(size, 128).matmul(&ones(128, size));
                assert_eq!(product.sum(Kind::Double).double_value(&[]), (128 * size * size) as f64);
            }
        }
    }

    fn a_tensor_may_be_freed_by_another_thread() {
        let threads = (0..4).map(|_| {
            std::thread::spawn(|| {
                let made: Vec<Tensor> = (0..4).map(|i| tensor(3000 + 500 * i)).collect();
                made
            })
        });
        let made: Vec<Tensor> =
            threads.collect::<Vec<_>>().into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        let mut places: Vec<_> = made.iter().map(|tensor| tensor.data_ptr().addr()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 16, "tensors do not share blocks");
    }
}
