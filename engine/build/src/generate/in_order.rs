//! Pieces made in parallel and taken in order, in bounded memory.
//!
//! ```text
//! each thread: loop
//!     plan the next piece
//!     wait until the pieces that are made but not taken leave room for it, or it is the next to be taken
//!     make it, and put it in line
//!     unless another thread is at it: take pieces from the head of the line while they are there
//! ```
//!
//! There is no thread that only takes: so any number of threads is kept busy, and one thread does without the others.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use grappa_io::{Result, workers};

/// A piece that is yet to be made.
pub(super) struct Planned<P> {
    /// What there is to make.
    pub(super) piece: P,
    /// How much of the window it fills.
    pub(super) cost: u64,
}

/// Makes all pieces of `plan`, on `threads` threads, and hands them to `take` in order. Pieces that are in memory cost
/// `window` together at most, but for a piece that alone costs more: it is made when it is the next to be taken.
pub(super) fn in_order<P, B: Send>(
    threads: usize,
    window: u64,
    plan: impl FnMut() -> Option<Planned<P>> + Send,
    make: impl Fn(P) -> Result<B> + Sync,
    take: impl FnMut(B) -> Result<()> + Send,
) -> Result<()> {
    let plan = Mutex::new(Plan {
        next: plan,
        number: 0,
        cost: 0,
    });
    let line = Line {
        state: Mutex::new(LineState {
            ready: BTreeMap::new(),
            head: 0,
            taken: 0,
            taking: false,
            broken: false,
        }),
        moved: Condvar::new(),
    };
    let take = Mutex::new(take);
    workers::run(threads, |_| {
        let breaks = BreaksLine(&line);
        while let Some((number, cost_end, piece)) = lock(&plan).next() {
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

struct Plan<F> {
    next: F,
    /// Of the next piece.
    number: u64,
    /// Of all pieces before it.
    cost: u64,
}

impl<P, F: FnMut() -> Option<Planned<P>>> Plan<F> {
    /// The next piece: its number, the cost of all pieces up to it, and what there is to make.
    fn next(&mut self) -> Option<(u64, u64, P)> {
        let Planned { piece, cost } = (self.next)()?;
        let number = self.number;
        self.number += 1;
        self.cost += cost;
        Some((number, self.cost, piece))
    }
}

struct Line<B> {
    state: Mutex<LineState<B>>,
    /// The head has moved on, or the line is broken.
    moved: Condvar,
}

struct LineState<B> {
    /// Pieces that are made, by number, each with the cost of all pieces up to it.
    ready: BTreeMap<u64, (u64, B)>,
    /// The number of the piece to be taken next.
    head: u64,
    /// The cost of all pieces that were taken.
    taken: u64,
    /// Whether a thread is taking.
    taking: bool,
    /// Whether a thread has failed: the head will not move any more.
    broken: bool,
}

impl<B> Line<B> {
    /// Waits for room for a piece; false if there will never be any.
    fn wait_for_room(&self, number: u64, cost_end: u64, window: u64) -> bool {
        let mut state = lock(&self.state);
        while !state.broken && state.head != number && cost_end - state.taken > window {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.broken
    }

    /// Puts a piece in line, and takes what is at its head unless another thread does.
    fn put(&self, number: u64, cost_end: u64, made: B, take: impl Fn(B) -> Result<()>) -> Result<()> {
        let mut state = lock(&self.state);
        state.ready.insert(number, (cost_end, made));
        if state.taking {
            // Who takes looks at the line once more, under the same lock, before it goes.
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

/// Dropped by a thread that fails or panics, it tells those that wait.
struct BreaksLine<'a, B>(&'a Line<B>);

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

    /// Pieces `0..count`, of which number n costs `cost(n)`.
    fn pieces(count: u64, cost: impl Fn(u64) -> u64) -> impl FnMut() -> Option<Planned<u64>> {
        let mut numbers = 0..count;
        move || {
            numbers.next().map(|piece| Planned {
                piece,
                cost: cost(piece),
            })
        }
    }

    #[test]
    fn pieces_are_taken_in_order_and_within_the_window() {
        let cost = |n: u64| if n % 50 == 7 { 30 } else { n % 5 };
        for threads in [1, 2, 7] {
            let (made, taken) = (AtomicU64::new(0), AtomicU64::new(0));
            let mut order = Vec::new();
            let make = |n: u64| {
                let held = made.fetch_add(cost(n), SeqCst) + cost(n) - taken.load(SeqCst);
                assert!(held <= 30, "{held} in memory");
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
    fn a_failure_to_make_or_take_ends_the_work_of_all() {
        for threads in [1, 2, 7] {
            let fail = |n: u64| match n {
                100 => Err(Error::Stopped),
                _ => Ok(n),
            };
            let made = in_order(threads, 3, pieces(u64::MAX, |_| 1), fail, |_| Ok(()));
            assert!(matches!(made, Err(Error::Stopped)));
            let taken = in_order(threads, 3, pieces(u64::MAX, |_| 1), Ok, |n| fail(n).map(drop));
            assert!(matches!(taken, Err(Error::Stopped)));
        }
    }
}
