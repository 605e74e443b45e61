//! The threads of a feed.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_io::{Error, read::ReadEngine};

use super::{
    access::RowAccess,
    core::{Alarm, FeedCore},
    reader::{FetchOutcome, WindowReader},
    state::schedule::ReaderTask,
};

/// Starts a thread. If that fails, the consumer gets the error instead of the first batch.
pub(super) fn spawn<T: Send + 'static>(
    core: &Arc<FeedCore>,
    name: &str,
    work: impl FnOnce(&FeedCore) -> T + Send + 'static,
) -> Option<JoinHandle<T>> {
    let of_thread = core.clone();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || work(&of_thread));
    started.map_err(|source| core.fail(Error::Thread { source })).ok()
}

/// Reads windows until the epoch ends.
pub(super) fn read_windows(core: &FeedCore, mut engine: Box<dyn ReadEngine>) -> Box<dyn ReadEngine> {
    let _alarm = Alarm(core);
    let (RowAccess::Stored(rows), Some(format)) = (&core.access, &core.format) else {
        return engine;
    };
    let Some(pool) = &rows.pool else {
        return engine;
    };
    let reader = WindowReader { files: &rows.files, format, pool };
    loop {
        let window = {
            let mut state = core.lock();
            loop {
                match state.reader_task() {
                    ReaderTask::Read(window) => break window,
                    ReaderTask::Wait => state = core.wait(state),
                    ReaderTask::End => return engine,
                }
            }
        };
        let started = Instant::now();
        let fetched = reader.fetch(&window.misses, &mut *engine, &core.counters, &core.stop);
        match fetched {
            Ok(FetchOutcome::Complete) => {
                tracing::debug!(
                    window = window.number,
                    batches = window.batches,
                    rows = window.rows,
                    read = window.misses.len(),
                    seconds = started.elapsed().as_secs_f64(),
                    "read a window"
                );
                core.counters.add(|stats| stats.windows += 1);
                core.lock().fetched(window.misses);
            }
            Ok(FetchOutcome::Stopped) => core.lock().not_fetched(window),
            Err(error) => {
                core.lock().not_fetched(window);
                core.fail(error);
            }
        }
        core.changed.notify_all();
    }
}
