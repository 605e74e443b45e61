mod buckets;
mod decoders;
mod distances;
mod dropout;
mod graph;
mod learned;
mod ranks;
mod residents;
mod rows;
mod runs;
mod sides;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use grappa_formats::random;

/// Threads of the kernels in all tests of this process. Results do not depend on them.
static THREADS: AtomicUsize = AtomicUsize::new(2);

fn on_each_thread(run: &(dyn Fn() + Sync)) {
    thread::scope(|scope| {
        (0..THREADS.load(Ordering::Relaxed)).for_each(|_| {
            scope.spawn(run);
        });
    });
}

/// Runs `work` with this number of threads.
fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    grappa_kernels::use_threads(on_each_thread);
    THREADS.store(threads, Ordering::Relaxed);
    work()
}

/// Numbers from -1 to 1.
fn values(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64).map(|place| (random::draw_at(seed, place) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

#[track_caller]
fn assert_close(actual: f64, expected: f64, tolerance: f64, name: &str) {
    assert!((actual - expected).abs() <= tolerance * (1.0 + expected.abs()), "{name}: {actual}, expected {expected}");
}
