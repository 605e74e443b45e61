//! Values that belong to one process.

use std::{mem, process};

use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// A value with threads or locks. A process that forked has a copy of it without its threads, and a lock may be held forever. There, use
/// is an error, and the value is never dropped.
pub struct OfProcess<T> {
    /// None only after it was forgotten.
    value: Option<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: process::id() }
    }

    /// The value. `RuntimeError` in another process.
    pub fn get(&self) -> PyResult<&T> {
        let value = self.value.as_ref().filter(|_| self.process == process::id());
        value.ok_or_else(|| {
            PyRuntimeError::new_err(
                "this loader was made before a fork, and its threads are in the other process; start processes with the \
                 method \"spawn\", for example torch.utils.data.DataLoader(..., multiprocessing_context=\"spawn\"), or make \
                 the loader after the fork",
            )
        })
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            mem::forget(self.value.take());
        }
    }
}
