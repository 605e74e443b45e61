//! Errors of the engine as exceptions.

use grappa_engine::Error;
use pyo3::{
    create_exception,
    exceptions::{PyException, PyKeyboardInterrupt, PyValueError},
    prelude::*,
};

create_exception!(
    grappa,
    GrappaError,
    PyException,
    "A failure of Grappa. The message names the file, the place in it, and a remedy."
);

/// The exception for an error of the engine: `ValueError` for a bad argument, `KeyboardInterrupt` for Ctrl-C, else `grappa.Error`.
pub fn exception(error: Error) -> PyErr {
    match error {
        Error::Stopped => PyKeyboardInterrupt::new_err(()),
        Error::OutOfRange { .. } | Error::UnknownName { .. } => PyValueError::new_err(error.to_string()),
        error => GrappaError::new_err(error.to_string()),
    }
}

/// The exception for an error of a program.
pub fn program_exception(error: anyhow::Error) -> PyErr {
    match error.downcast::<Error>() {
        Ok(error) => exception(error),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(error) => PyValueError::new_err(error.to_string()),
            Err(error) => GrappaError::new_err(format!("{error:#}")),
        },
    }
}
