//! Errors of the engine as exceptions.

use std::io;

use clap::error::{ContextKind, ContextValue};
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
    "A failure of Grappa. The message names the file, the place in it, and a remedy. An error about an argument has the attributes \
     `option`, `expected` and `found` as far as they are known, and one with another way out has `remedy`."
);

/// The exception for an error of the engine: `ValueError` for a bad argument, `MemoryError` if the system refuses
/// memory, `KeyboardInterrupt` for Ctrl-C, else `grappa.Error`.
pub fn exception(error: EngineError) -> PyErr {
    let fields = fields_of(&error);
    with_fields(exception_of(error), fields)
}

fn exception_of(error: EngineError) -> PyErr {
    if is_refused_memory(&error) {
        return PyMemoryError::new_err(in_python(&error.to_string()));
    }
    match error {
        EngineError::Stopped => PyKeyboardInterrupt::new_err(()),
        EngineError::OutOfRange { .. } | EngineError::UnknownName { .. } => {
            PyValueError::new_err(in_python(&error.to_string()))
        }
        error => Error::new_err(in_python(&error.to_string())),
    }
}

/// What an error knows beside its message, by the names of attributes.
type Fields = Vec<(&'static str, String)>;

fn fields_of(error: &EngineError) -> Fields {
    match error {
        EngineError::OutOfRange { what, expected, found } => {
            let option = what.strip_prefix("--").map(|name| ("option", argument(name)));
            option.into_iter().chain([("expected", in_python(expected)), ("found", found.clone())]).collect()
        }
        EngineError::UnknownName { name, known, .. } => {
            vec![("expected", (*known).to_owned()), ("found", name.clone())]
        }
        EngineError::Budget { given, least, remedy, .. } => vec![
            ("option", "memory".to_owned()),
            ("expected", least.to_string()),
            ("found", given.to_string()),
            ("remedy", in_python(remedy)),
        ],
        EngineError::Limit { limit, remedy, .. } => vec![("expected", limit.clone()), ("remedy", in_python(remedy))],
        EngineError::Conflict { remedy, .. } | EngineError::Missing { remedy, .. } => {
            vec![("remedy", in_python(remedy))]
        }
        EngineError::Unsupported { remedy, .. } => vec![("remedy", in_python(remedy))],
        _ => Vec::new(),
    }
}

/// The fields of an error about a command line.
fn fields_of_line(error: &clap::Error) -> Fields {
    let found = error.context().filter_map(|(kind, value)| {
        Some(match (kind, value) {
            (ContextKind::InvalidArg, ContextValue::String(option)) => {
                let name = option.trim_start_matches("--").split([' ', '=']).next().unwrap_or_default();
                ("option", argument(name))
            }
            (ContextKind::InvalidValue, ContextValue::String(value)) => ("found", value.clone()),
            (ContextKind::ValidValue, ContextValue::Strings(values)) => ("expected", values.join(", ")),
            _ => return None,
        })
    });
    found.collect()
}

/// The name of an option as an argument.
fn argument(option: &str) -> String {
    option.replace('-', "_")
}

fn with_fields(exception: PyErr, fields: Fields) -> PyErr {
    Python::attach(|py| {
        for (name, value) in fields {
            // Only memory is missing if this fails, and the message has all that the fields have.
            let _ = exception.value(py).setattr(name, value);
        }
    });
    exception
}

/// Whether the system refused memory, or addresses for a mapping.
fn is_refused_memory(error: &(dyn std::error::Error + 'static)) -> bool {
    let errors = std::iter::successors(Some(error), |error| error.source());
    errors.filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| error.kind() == io::ErrorKind::OutOfMemory)
}

/// The exception for an error of a program.
pub fn program_exception(error: anyhow::Error) -> PyErr {
    if is_refused_memory(&*error) {
        return PyMemoryError::new_err(in_python(&format!("{error:#}")));
    }
    match error.downcast::<EngineError>() {
        Ok(error) => exception(error),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(error) => with_fields(
                PyValueError::new_err(in_python(&without_usage(&error.to_string()))),
                fields_of_line(&error),
            ),
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
