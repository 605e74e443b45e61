//! Makes pieces in parallel and consumes them in order, in bounded memory.
//!
//! ```text
//! each thread: loop
//!     plan the next piece
//!     wait until the pieces that are made but not consumed leave room for it, or it is the next to be consumed
//!     make it, and put it in the queue
//!     unless another thread does so: consume pieces from the head of the queue while they are there
//! ```
//!
//! No thread only consumes, so any number of threads is kept busy, and one thread suffices. The next piece to be consumed
//! never waits for room, so the threads cannot deadlock.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use grappa_io::{Result, workers};

pub struct PlannedPiece<P> {
    /// The input for making it.
    pub piece: P,
    /// The part of the window that it fills.
    pub cost: u64,
}

/// Makes all pieces of `plan` on `threads` threads and passes them to `take` in order.
///
/// The pieces in memory cost at most `window` together. A piece that costs more than the window is made when it is the next
/// to be consumed.
pub fn in_order<P, B: Send>(
    threads: usize,
    window: u64,
    mut plan: impl FnMut() -> Result<Option<PlannedPiece<P>>> + Send,
    make: impl Fn(P) -> Result<B> + Sync,
    take: impl FnMut(B) -> Result<()> + Send,
) -> Result<()> {
    let (mut number, mut cost_end) = (0, 0);
    // The next piece: its number, the cost of all pieces up to and including it, and its input.
    let next = Mutex::new(|| -> Result<Option<(u64, u64, P)>> {
        Ok(plan()?.map(|PlannedPiece { piece, cost }| {
            (number, cost_end) = (number + 1, cost_end + cost);
            (number - 1, cost_end, piece)
        }))
    });
    let line = PieceLine {
        state: Mutex::new(LineState { ready: BTreeMap::new(), head: 0, taken: 0, taking: false, broken: false }),
        moved: Condvar::new(),
    };
    let take = Mutex::new(take);
    workers::run(threads, |_| {
        let breaks = BreaksLine(&line);
        loop {
            let Some((number, cost_end, piece)) = lock(&next)()? else { break };
            if !line.wait_for_room(number, cost_end, window) {
                break;
            }
            let made = make(piece)?;
            line.put(number, cost_end, made, |piece| lock(&take)(piece))?;
        }
        std::mem::forget(breaks);
        Ok(())
    })
}

struct PieceLine<B> {
    state: Mutex<LineState<B>>,
    /// Signalled when the head has moved or a thread has failed.
    moved: Condvar,
}

struct LineState<B> {
    /// Pieces that are made, by number, with the cost of all pieces up to each.
    ready: BTreeMap<u64, (u64, B)>,
    /// The number of the next piece to be consumed.
    head: u64,
    /// The cost of all consumed pieces.
    taken: u64,
    /// Whether a thread is consuming pieces.
    taking: bool,
    /// Whether a thread has failed. The head does not move any more then.
    broken: bool,
}

impl<B> PieceLine<B> {
    /// Waits until there is room for a piece. Returns false if there will be none, because a thread has failed.
    fn wait_for_room(&self, number: u64, cost_end: u64, window: u64) -> bool {
        let mut state = lock(&self.state);
        while !state.broken && state.head != number && cost_end - state.taken > window {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.broken
    }

    /// Puts a piece in the queue. Consumes the pieces at its head, unless another thread does.
    fn put(&self, number: u64, cost_end: u64, made: B, take: impl Fn(B) -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state);
        state.ready.insert(number, (cost_end, made));
        if state.taking {
            // The consuming thread looks at the queue again under this lock before it stops, so it finds this piece.
            return Ok(());
        }
        state.taking = true;
        loop {
            let head = state.head;
            let Some((cost_end, piece)) = state.ready.remove(&head) else {
                break;
            };
            drop(state);
            take(piece)?;
            state = lock(&self.state);
            state.head += 1;
            state.taken = cost_end;
            self.moved.notify_all();
        }
        state.taking = false;
        Ok(())
    }
}

/// Wakes the waiting threads when it is dropped. A thread that ends normally forgets it; one that fails or panics drops it.
struct BreaksLine<'a, B>(&'a PieceLine<B>);

impl<B> Drop for BreaksLine<'_, B> {
    fn drop(&mut self) {
        lock(&self.0.state).broken = true;
        self.0.moved.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use grappa_io::Error;

    use super::*;

    /// Pieces `0..count`. Piece n costs `cost(n)`.
    fn pieces(count: u64, cost: impl Fn(u64) -> u64) -> impl FnMut() -> Result<Option<PlannedPiece<u64>>> {
        let mut numbers = 0..count;
        move || Ok(numbers.next().map(|piece| PlannedPiece { piece, cost: cost(piece) }))
    }

    #[test]
    fn pieces_are_taken_in_order_and_within_the_window() {
        let cost = |n: u64| if n % 50 == 7 { 30 } else { n % 5 };
        for threads in [1, 2, 7] {
            let (made, taken) = (AtomicU64::new(0), AtomicU64::new(0));
            let mut order = Vec::new();
            let make = |n: u64| {
                let waiting = made.fetch_add(cost(n), SeqCst) + cost(n) - taken.load(SeqCst);
                assert!(waiting <= 30, "{waiting} in memory");
                if n.is_multiple_of(11) {
                    std::thread::yield_now();
                }
                Ok(n)
            };
            in_order(threads, 10, pieces(1000, cost), make, |n| {
                order.push(n);
                taken.fetch_add(cost(n), SeqCst);
                Ok(())
            })
            .unwrap();
            assert_eq!(order, (0..1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_to_plan_make_or_take_ends_the_work_of_all() {
        for threads in [1, 2, 7] {
            let fail = |n: u64| match n {
                100 => Err(Error::Stopped),
                _ => Ok(n),
            };
            let mut numbers = 0..u64::MAX;
            let plan = || numbers.next().map(|n| Ok(PlannedPiece { piece: fail(n)?, cost: 1 })).transpose();
            assert!(matches!(in_order(threads, 3, plan, Ok, |_| Ok(())), Err(Error::Stopped)));
            let made = in_order(threads, 3, pieces(u64::MAX, |_| 1), fail, |_| Ok(()));
            assert!(matches!(made, Err(Error::Stopped)));
            let taken = in_order(threads, 3, pieces(u64::MAX, |_| 1), Ok, |n| fail(n).map(drop));
            assert!(matches!(taken, Err(Error::Stopped)));
        }
    }
}
