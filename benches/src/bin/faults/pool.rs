//! Jobs that run several at a time.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

/// Runs each job with its number, `at_once` at a time. Returns the results in the order of the jobs.
pub fn run_each<J: Send, R: Send>(jobs: Vec<J>, at_once: usize, run: impl Fn(u64, J) -> R + Sync) -> Vec<R> {
    let jobs = Mutex::new((0u64..).zip(jobs));
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((number, job)) = next else {
                        return;
                    };
                    let result = run(number, job);
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}
