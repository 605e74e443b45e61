//! Processor prefetches.
//!
//! Loops that are bound by memory latency prefetch what they will touch a few steps later. A prefetch costs about as
//! much as a load that hits the cache, and affects only time.

#![expect(unsafe_code, reason = "prefetching takes a pointer")]

/// Prefetches `slice[index]` into all levels of the cache. Only the cache line of the element's first byte is loaded.
/// An index beyond the end is ignored, so a loop may look past its last step. Does nothing on processors other than
/// x86-64.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the pointer is to an element of the slice, and a prefetch neither changes memory nor faults. The
        // instruction is in SSE, which every x86-64 processor has.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = element;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_index_may_be_asked_for() {
        let values = [1u32, 2, 3];
        for index in [0, 2, 3, usize::MAX] {
            prefetch(&values, index);
        }
        prefetch::<u64>(&[], 0);
        prefetch(&[(); 3], 1);
        assert_eq!(values, [1, 2, 3]);
    }
}
