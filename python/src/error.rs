//! Errors of the engine as exceptions.

use grappa_engine::Error as EngineError;
use pyo3::{
    create_exception,
    exceptions::{PyException, PyKeyboardInterrupt, PyMemoryError, PyValueError},
    prelude::*,
};

use crate::options::in_python;

create_exception!(
    grappa,
    Error,
    PyException,
    "A failure of Grappa. The message names the file, the place in it, and a remedy."
);

/// The exception for an error of the engine: `ValueError` for a bad argument, `MemoryError` if the system refuses
/// memory, `KeyboardInterrupt` for Ctrl-C, else `grappa.Error`.
pub fn exception(error: EngineError) -> PyErr {
    match error {
        EngineError::Memory { .. } => PyMemoryError::new_err(in_python(&error.to_string())),
        EngineError::Stopped => PyKeyboardInterrupt::new_err(()),
        EngineError::OutOfRange { .. } | EngineError::UnknownName { .. } => {
            PyValueError::new_err(in_python(&error.to_string()))
        }
        error => Error::new_err(in_python(&error.to_string())),
    }
}

/// The exception for an error of a program.
pub fn program_exception(error: anyhow::Error) -> PyErr {
    match error.downcast::<EngineError>() {
        Ok(error) => exception(error),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(error) => PyValueError::new_err(in_python(&without_usage(&error.to_string()))),
            Err(error) => Error::new_err(in_python(&format!("{error:#}"))),
        },
    }
}

/// The exception for an error about a run.
pub fn run_exception(error: &grappa_run::Error) -> PyErr {
    Error::new_err(in_python(&error.to_string()))
}

/// The message of a wrong command line, without the lines about usage and help.
fn without_usage(message: &str) -> String {
    let paragraphs =
        message.split("\n\n").filter(|text| !text.starts_with("Usage:") && !text.starts_with("For more information"));
    let text = paragraphs.map(str::trim).collect::<Vec<_>>().join("; ");
    text.strip_prefix("error: ").map_or(text.clone(), str::to_owned)
}
