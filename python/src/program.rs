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
            _ => return Err(unknown(program)),
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

/// Runs a program with the arguments of a command line, as if it were a process of its own: it prints, and signals are its own. Returns the
/// exit code, with which the process must end.
#[pyfunction]
pub fn main(py: Python<'_>, program: &str, arguments: Vec<OsString>) -> PyResult<u8> {
    let line = [program.into()].into_iter().chain(arguments);
    py.detach(|| match program {
        "grappa-gen" => Ok(grappa_gen::main(line)),
        "grappa-ingest" => Ok(grappa_ingest::main(line)),
        "grappa-store" => Ok(grappa_store::main(line)),
        _ => Err(unknown(program)),
    })
}

fn unknown(program: &str) -> PyErr {
    PyValueError::new_err(format!("there is no program {program:?}"))
}

/// From now on, warnings wait for [`take_warnings`].
#[pyfunction]
pub fn keep_warnings() {
    grappa_console::keep_warnings();
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
