//! Divides work among the threads of the program.
//!
//! Kernels have no threads of their own: two pools on the same processors wait for each other. The program registers the threads that its
//! other operators use.

use std::sync::{Mutex, OnceLock};

/// Calls a function once on each thread of a pool, and returns after all calls. It passes on a panic of a call.
pub type OnEachThread = fn(&(dyn Fn() + Sync));

static THREADS: OnceLock<OnEachThread> = OnceLock::new();

/// Registers the threads of all kernels. Before, the calling thread does all the work. Results do not depend on the threads.
///
/// # Panics
/// If others are registered.
pub fn use_threads(on_each_thread: OnEachThread) {
    let registered = *THREADS.get_or_init(|| on_each_thread);
    assert!(std::ptr::fn_addr_eq(registered, on_each_thread), "kernels have threads already");
}

/// Calls `work` for each part, on the next free thread. A part should take tens of microseconds or more, and there should be several
/// times as many parts as threads.
pub fn for_each<T: Send>(parts: Vec<T>, work: impl Fn(T) + Sync) {
    let on_each_thread = THREADS.get().filter(|_| parts.len() > 1);
    let Some(on_each_thread) = on_each_thread else {
        parts.into_iter().for_each(work);
        return;
    };
    let parts = Mutex::new(parts.into_iter());
    on_each_thread(&|| {
        while let Some(part) = next(&parts) {
            work(part);
        }
    });
}

/// Holds the lock for one step of the iterator, and not while its item is used.
fn next<I: Iterator>(parts: &Mutex<I>) -> Option<I::Item> {
    parts.lock().unwrap_or_else(|poison| poison.into_inner()).next()
}

/// Rows of a part of a matrix.
pub(crate) const ROWS: usize = 256;

/// Parts of two matrices with the same rows, of [`ROWS`] rows each.
pub(crate) fn in_parts<'a, T>(
    columns: usize,
    first: &'a [T],
    second: &'a mut [T],
) -> impl ExactSizeIterator<Item = (&'a [T], &'a mut [T])> {
    assert_eq!(first.len(), second.len(), "matrices of the same shape");
    // No values, no rows.
    let values = ROWS * columns.max(1);
    first.chunks(values).zip(second.chunks_mut(values))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        panic::resume_unwind,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    fn on_three_threads(run: &(dyn Fn() + Sync)) {
        let joined = thread::scope(|scope| [(); 3].map(|()| scope.spawn(run)).map(|thread| thread.join()));
        for result in joined {
            result.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    #[test]
    fn each_part_is_worked_on_once_by_the_threads_that_are_registered() {
        use_threads(on_three_threads);
        use_threads(on_three_threads);
        let (own, threads) = (thread::current().id(), Mutex::new(HashSet::new()));
        let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        for_each((0..100).collect(), |i: usize| {
            counts[i].fetch_add(1, Ordering::Relaxed);
            threads.lock().unwrap().insert(thread::current().id());
        });
        assert!(!threads.into_inner().unwrap().contains(&own));
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    #[should_panic(expected = "part 7")]
    fn a_panic_reaches_the_caller() {
        use_threads(on_three_threads);
        for_each((0..20).collect(), |i: usize| assert!(i != 7, "part {i}"));
    }
}
