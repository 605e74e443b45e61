//! Long operations on a thread of their own, while Python stays responsive.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
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
/// name of the stage, what is done, the total if it is known, and the unit of both; an exception of it stops the operation, too.
pub fn run<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    operation: impl FnOnce(Arc<dyn Progress + Send + Sync>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let progress = Arc::new(Watched::default());
    thread::scope(|scope| {
        let watched = progress.clone();
        let running = scope.spawn(move || operation(watched));
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

#[derive(Default, Clone)]
struct Stage {
    name: String,
    total: Option<u64>,
    counts_steps: bool,
}

/// The progress of an operation, read by another thread than the ones that report it.
#[derive(Default)]
struct Watched {
    stage: Mutex<Stage>,
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
        let Some(report) = report else { return Ok(()) };
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if stage.name.is_empty() {
            return Ok(());
        }
        let unit = if stage.counts_steps { "steps" } else { "B" };
        report.call1((stage.name, self.done.load(Ordering::Relaxed), stage.total, unit)).map(drop)
    }

    fn begin(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.done.store(0, Ordering::Relaxed);
    }
}

impl Progress for Watched {
    fn stage(&self, name: &str, bytes: Option<u64>) {
        self.begin(Stage { name: name.to_owned(), total: bytes, counts_steps: false });
    }

    fn steps(&self, name: &str, steps: u64) {
        self.begin(Stage { name: name.to_owned(), total: Some(steps), counts_steps: true });
    }

    fn advance(&self, bytes: u64, _edges: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
