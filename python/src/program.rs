//! The programs as functions.

use std::{collections::HashMap, ffi::OsString};

use anyhow::anyhow;
use grappa_console::Console;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{background, error::program_exception, inputs::Data, options};

/// Runs a program with these arguments, and returns its answer as JSON. Ctrl-C stops it. `report` is
/// as for [`background::run`]. `data`: the values of options of `grappa-ingest` that are data in memory.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    program: &str,
    arguments: Vec<OsString>,
    report: Option<&Bound<'_, PyAny>>,
    data: Vec<Data<'_>>,
) -> PyResult<Option<String>> {
    let data = data.into_iter().map(Data::into_input).collect::<PyResult<HashMap<_, _>>>()?;
    let line = [program.into()].into_iter().chain(arguments);
    background::run(py, report, |progress| {
        let console = Console::within(progress);
        let ended = match program {
            "grappa-gen" => grappa_gen::call(line, &console),
            "grappa-ingest" => grappa_ingest::call(line, data, &console),
            "grappa-store" => grappa_store::call(line, &console),
            _ => return Err(PyValueError::new_err(format!("there is no program {program:?}"))),
        };
        let answer = console.take_answer();
        match ended {
            Ok(()) => Ok(answer.map(|answer| answer.json)),
            Err(error) => Err(program_exception(&match answer {
                // The problems that it found.
                Some(answer) => anyhow!("{error:#}\n{}", answer.text),
                None => error,
            })),
        }
    })
}

/// What programs and loaders have warned of since the last call.
#[pyfunction]
pub fn take_warnings() -> Vec<String> {
    let warnings = grappa_console::take_warnings();
    warnings.iter().map(|warning| options::in_python(warning)).collect()
}

/// A message of a program with arguments in the place of options.
#[pyfunction]
pub fn in_python(message: &str) -> String {
    options::in_python(message)
}
