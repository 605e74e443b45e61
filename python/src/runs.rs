//! The files of runs, checked, as JSON.

use std::path::PathBuf;

use grappa_run::read;
use pyo3::prelude::*;

use crate::error::run_exception;

/// The options of a run, as a JSON object.
#[pyfunction]
pub fn run_config(folder: PathBuf) -> PyResult<String> {
    read::config(&folder).map_err(|error| run_exception(&error))
}

/// The summary of a run, as a JSON object. None if there is none yet.
#[pyfunction]
pub fn run_summary(folder: PathBuf) -> PyResult<Option<String>> {
    read::summary(&folder).map_err(|error| run_exception(&error))
}

/// The metrics of a run: a JSON object for each epoch, each in a line.
#[pyfunction]
pub fn run_metrics(folder: PathBuf) -> PyResult<String> {
    read::metrics(&folder).map_err(|error| run_exception(&error))
}
