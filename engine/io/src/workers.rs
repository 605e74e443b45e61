//! Worker threads that stop when one of them fails, and threads that read ahead for them.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::{Builder, Scope, ScopedJoinHandle},
};

use crossbeam::channel::{self, Receiver};

use crate::{Error, Result};

/// A worker thread's handle: its number, and whether to continue.
pub struct Worker<'a> {
    /// The worker's number, from 0.
    pub number: u32,
    stop: &'a AtomicBool,
}

impl Worker<'_> {
    /// Whether to begin another piece of work. False after any worker has failed.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Starts a thread of `scope`. If the system refuses, this returns an error; it does not panic.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).map_err(|source| Error::Thread { source })
}

/// Waits for a thread's result. If the thread panicked, the panic resumes in the caller.
pub fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Maximum number of threads. A thread takes several mappings, and a process may have some tens of thousands of them.
/// When they run out, the standard library aborts.
pub const THREADS_MAX: usize = 4096;

/// Fails if `threads` exceeds [`THREADS_MAX`].
pub fn check_threads(threads: usize) -> Result<()> {
    if threads > THREADS_MAX {
        return Err(Error::limit(
            format!("the run asks for {threads} threads"),
            THREADS_MAX,
            format!("give --threads {THREADS_MAX} or less"),
        ));
    }
    Ok(())
}

/// Runs `work` on `threads` threads. When one fails, [`Worker::goes_on`] becomes false for the others. Returns the
/// error of the failed worker with the lowest number.
pub fn run(threads: usize, work: impl Fn(Worker<'_>) -> Result<()> + Sync) -> Result<()> {
    check_threads(threads)?;
    let (work, stop) = (&work, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u32)
            .map(|number| {
                spawn(scope, move || {
                    let result = work(Worker { number, stop });
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect::<Result<_>>()
            .inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let results: Vec<Result<()>> = workers.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// Runs `work` for each of `items` on `threads` threads. The threads take the items in order.
pub fn for_each<T: Copy + Sync>(threads: usize, items: &[T], work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicU32::new(0);
    run(threads.min(items.len()), |worker| {
        while worker.goes_on()
            && let Some(&item) = items.get(next.fetch_add(1, Ordering::Relaxed) as usize)
        {
            work(item)?;
        }
        Ok(())
    })
}

/// Runs `work` for each of `items` on a thread of its own. Returns the results in order, or the first error.
pub fn each<I: Send, T: Send>(items: impl Iterator<Item = I>, work: impl Fn(I) -> Result<T> + Sync) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.map(|item| spawn(scope, move || work(item))).collect::<Result<_>>()?;
        threads.into_iter().map(join).collect()
    })
}

/// Pieces that threads of [`read_ahead`] have read. Any number of workers share it.
pub struct ReadAhead<T>(Receiver<Result<T>>);

impl<T> ReadAhead<T> {
    /// Waits for a piece that nobody has taken. None after the last one.
    ///
    /// # Errors
    /// If the piece cannot be read.
    pub fn next(&self) -> Result<Option<T>> {
        self.0.recv().ok().transpose()
    }
}

/// Runs `work` while `threads` other threads call `read` again and again, until it returns none. `work` gets the pieces
/// that they read, in any order if there are several threads. Each thread reads one piece before it waits for a worker.
pub fn read_ahead<T: Send, R>(
    threads: usize,
    read: impl Fn() -> Result<Option<T>> + Sync,
    work: impl FnOnce(&ReadAhead<T>) -> Result<R>,
) -> Result<R> {
    check_threads(threads)?;
    let read = &read;
    std::thread::scope(|scope| {
        let (sender, received) = channel::bounded(0);
        // Dropped before the scope waits for its threads. A thread ends when nobody can take its piece any more.
        let received = ReadAhead(received);
        for _ in 0..threads {
            let sender = sender.clone();
            spawn(scope, move || {
                while let Some(piece) = read().transpose() {
                    let is_last = piece.is_err();
                    if sender.send(piece).is_err() || is_last {
                        break;
                    }
                }
            })?;
        }
        drop(sender);
        work(&received)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Error;

    #[test]
    fn every_item_is_worked_on_once() {
        let items: Vec<u32> = (0..1000).collect();
        let seen = Mutex::new(Vec::new());
        for_each(3, &items, |item| {
            seen.lock().unwrap().push(item);
            Ok(())
        })
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, items);
    }

    #[test]
    fn a_failure_ends_the_work_of_all() {
        let items: Vec<u32> = (0..1_000_000).collect();
        let done = AtomicU32::new(0);
        let result = for_each(2, &items, |item| {
            done.fetch_add(1, Ordering::Relaxed);
            if item == 5 { Err(Error::Stopped) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::Stopped)));
        assert!(done.into_inner() < 1_000_000);
    }

    #[test]
    fn every_piece_that_is_read_ahead_is_taken_once() {
        let (next, seen) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        let read = || Ok(Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&piece| piece < 1000));
        read_ahead(3, read, |pieces| {
            run(2, |_| {
                while let Some(piece) = pieces.next()? {
                    seen.lock().unwrap().push(piece);
                }
                Ok(())
            })
        })
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn reading_ahead_ends_when_either_side_fails() {
        let failed = || Error::conflict("no", "nothing");
        // The reader fails: a worker gets the error.
        let next = AtomicU32::new(0);
        let read = || match next.fetch_add(1, Ordering::Relaxed) {
            5 => Err(failed()),
            piece => Ok(Some(piece)),
        };
        let drain = |pieces: &ReadAhead<u32>| {
            while pieces.next()?.is_some() {}
            Ok(())
        };
        assert!(read_ahead(1, read, drain).is_err());
        // A worker fails: the readers, which would never end, do.
        let result = read_ahead(2, || Ok(Some(7)), |pieces| pieces.next()?.map_or(Ok(()), |_| Err(failed())));
        assert!(result.is_err());
    }
}
