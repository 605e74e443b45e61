//! Ingest with the options of `grappa-ingest`.

use clap::Parser;
use pyo3::prelude::*;

use crate::{background, error::program_exception};

/// Runs `grappa-ingest` with these arguments, and returns its summary as JSON.
#[pyfunction]
pub fn ingest(py: Python<'_>, arguments: Vec<String>, report: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    let arguments = ["grappa-ingest".to_owned()].into_iter().chain(arguments);
    let args = grappa_ingest::IngestArgs::try_parse_from(arguments).map_err(|error| program_exception(error.into()))?;
    background::run(py, report, move |progress| {
        grappa_ingest::summary(&args, progress).map_err(program_exception)
    })
}
