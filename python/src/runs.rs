//! The files of runs: options and metrics, checked, as JSON, and predictions as arrays.

use std::path::PathBuf;

use grappa_engine::TableColumn;
use grappa_run::read;
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    array::Array,
    error::{exception, run_exception},
};

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

/// The columns of a Parquet file that a program has written, by name: an array, or a list of bytes.
#[pyfunction]
pub fn read_table<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    for (name, column) in py.detach(|| grappa_engine::read_table(&path)).map_err(exception)? {
        match column {
            TableColumn::Integers(values) => table.set_item(name, Array::vector(values))?,
            TableColumn::Floats(values) => table.set_item(name, Array::vector(values))?,
            TableColumn::Strings(values) => {
                let values = values.iter().map(|value| PyBytes::new(py, value));
                table.set_item(name, values.collect::<Vec<_>>())?;
            }
        }
    }
    Ok(table)
}
