//! The threads of kernels: as many as PyTorch's operators have.

use std::{
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of the next kernel, with the calling one.
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// The pool of the last kernel. A process that forked has none of its threads.
static POOL: Mutex<Option<Pool>> = Mutex::new(None);

struct Pool {
    process: u32,
    /// Threads beside the calling one.
    threads: usize,
    pool: Arc<ThreadPool>,
}

/// Sets the number of threads of kernels, with the calling one.
pub fn set(count: usize) {
    grappa_kernels::use_threads(on_each_thread);
    COUNT.store(count, Ordering::Relaxed);
}

/// Calls `run` on the calling thread and on those of the pool.
fn on_each_thread(run: &(dyn Fn() + Sync)) {
    let others = COUNT.load(Ordering::Relaxed).saturating_sub(1);
    match if others > 0 { pool(others) } else { None } {
        None => run(),
        Some(pool) => pool.in_place_scope(|scope| {
            (0..others).for_each(|_| scope.spawn(|_| run()));
            run();
        }),
    }
}

/// A pool of so many threads. None if the system starts no more threads; the calling thread then works alone.
fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    let mut last = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = process::id();
    if let Some(last) = last.as_ref().filter(|last| last.process == process && last.threads == threads) {
        return Some(last.pool.clone());
    }
    let name = |thread| format!("kernel {thread}");
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()?);
    let before = last.replace(Pool { process, threads, pool: pool.clone() });
    if let Some(before) = before.filter(|before| before.process != process) {
        // Its threads are in the process that forked: nobody would answer.
        std::mem::forget(before);
    }
    Some(pool)
}
