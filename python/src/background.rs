//! Long operations on a thread of their own, while Python stays responsive.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use grappa_engine::Progress;
use pyo3::prelude::*;

/// How often Python sees signals and progress.
const INTERVAL: Duration = Duration::from_millis(100);

/// Runs `operation` on another thread, without the GIL. Ctrl-C stops it. `report` is called some times a second with the
/// stage, the bytes that are done, and the bytes of the stage if they are known; an exception of it stops the operation, too.
pub fn run<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    operation: impl FnOnce(&dyn Progress) -> PyResult<T> + Send,
) -> PyResult<T> {
    let progress = &Watched::default();
    thread::scope(|scope| {
        let running = scope.spawn(move || operation(progress));
        let mut outcome = Ok(());
        while !running.is_finished() {
            py.detach(|| thread::sleep(INTERVAL.min(Duration::from_millis(5).max(progress.age()))));
            let seen = py.check_signals().and_then(|()| progress.tell(report));
            if outcome.is_ok() && seen.is_err() {
                progress.stop.store(true, Ordering::Relaxed);
                outcome = seen;
            }
        }
        let result = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome.and(result)
    })
}

/// The progress of an operation, read by another thread than the ones that report it.
#[derive(Default)]
struct Watched {
    stage: Mutex<(String, Option<u64>)>,
    done: AtomicU64,
    polls: AtomicU64,
    stop: AtomicBool,
}

impl Watched {
    /// Short waits for short operations.
    fn age(&self) -> Duration {
        Duration::from_millis(5 * self.polls.fetch_add(1, Ordering::Relaxed))
    }

    fn tell(&self, report: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(report) = report else {
            return Ok(());
        };
        let (stage, total) = self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report
            .call1((stage, self.done.load(Ordering::Relaxed), total))
            .map(drop)
    }
}

impl Progress for Watched {
    fn stage(&self, name: &str, bytes: Option<u64>) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = (name.to_owned(), bytes);
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64, _edges: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
