//! Errors of the engine and of programs as exceptions.

use grappa_console::{Failure, FailureKind};
use grappa_engine::{Error as EngineError, io::ErrorFields};
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
    "A failure of Grappa. The message names the file, the place in it, and a remedy. An error about an argument has the attributes \
     `option`, `expected` and `found` as far as they are known, and one with another way out has `remedy`."
);

/// The exception for an error of the engine: `ValueError` for a bad argument, `MemoryError` if the system refuses
/// memory, `KeyboardInterrupt` for Ctrl-C, else `grappa.Error`.
pub fn exception(error: EngineError) -> PyErr {
    failure_exception(Failure::of_engine(&error))
}

/// The exception for an error of a program.
pub fn program_exception(error: &anyhow::Error) -> PyErr {
    failure_exception(Failure::new(error))
}

/// The exception for an error about a run.
pub fn run_exception(error: &grappa_run::Error) -> PyErr {
    Error::new_err(in_python(&error.to_string()))
}

/// The exception for the failure of a program, in JSON.
#[pyfunction]
pub fn exception_of(failure: &str) -> PyResult<PyErr> {
    let failure = serde_json::from_str(failure).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(failure_exception(failure))
}

/// The exception for the failure of a program.
fn failure_exception(failure: Failure) -> PyErr {
    let Failure { kind, message, mut fields, .. } = failure;
    let message = match kind {
        FailureKind::UnknownOption => {
            // Names of similar options.
            fields.expected = fields.expected.as_deref().map(argument);
            unknown_option(&fields)
        }
        _ => in_python(&message),
    };
    let exception = match kind {
        FailureKind::Stopped => PyKeyboardInterrupt::new_err(()),
        FailureKind::Memory => PyMemoryError::new_err(message),
        FailureKind::Value | FailureKind::UnknownOption => PyValueError::new_err(message),
        FailureKind::Other => Error::new_err(message),
    };
    with_fields(exception, fields)
}

fn unknown_option(fields: &ErrorFields) -> String {
    let name = fields.option.as_deref().map(argument).unwrap_or_default();
    let similar: Vec<_> =
        fields.expected.iter().flat_map(|names| names.split(", ")).map(|name| format!("{name}=")).collect();
    match &similar[..] {
        [] => format!("there is no option {name}="),
        _ => format!("there is no option {name}=: did you mean {}?", similar.join(" or ")),
    }
}

/// The name of an option as an argument.
fn argument(option: &str) -> String {
    option.replace('-', "_")
}

/// The exception with the fields of an error as attributes.
fn with_fields(exception: PyErr, fields: ErrorFields) -> PyErr {
    let ErrorFields { option, expected, found, remedy } = fields;
    let attributes = [
        ("option", option.as_deref().map(argument)),
        ("expected", expected.as_deref().map(in_python)),
        ("found", found),
        ("remedy", remedy.as_deref().map(in_python)),
    ];
    Python::attach(|py| {
        for (name, value) in attributes.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            // Only memory is missing if this fails, and the message has all that the fields have.
            let _ = exception.value(py).setattr(name, value);
        }
    });
    exception
}
