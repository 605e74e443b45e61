//! The failure of a program as data, for a caller that is a program.

use std::{error::Error as StdError, io};

use clap::error::{ContextKind, ContextValue, ErrorKind as UsageKind};
use grappa_io::{Error as EngineError, ErrorFields};
use serde::{Deserialize, Serialize};

/// Why a program failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of the cause.
    pub kind: FailureKind,
    /// The message, as a program prints it after `error: `.
    pub message: String,
    /// The parts of the message that the error knows.
    #[serde(flatten)]
    pub fields: ErrorFields,
    /// The name of the process, if it is one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// There is no such option. `option` is its name, and `expected` lists similar ones.
    UnknownOption,
    /// An option has an impossible value, or options exclude each other.
    Value,
    /// The system refused memory.
    Memory,
    /// The caller asked the program to stop.
    Stopped,
    /// Any other failure.
    Other,
}

impl Failure {
    /// The failure of a program that ended with this error.
    pub fn new(error: &anyhow::Error) -> Self {
        let failure = |kind, fields| Self { kind, message: format!("{error:#}"), fields, process: None };
        if is_refused_memory(&**error) {
            return failure(FailureKind::Memory, ErrorFields::default());
        }
        match (error.downcast_ref::<EngineError>(), error.downcast_ref::<clap::Error>()) {
            (Some(error), _) => failure(kind_of(error), error.fields()),
            (None, Some(error)) => Self::usage(error),
            (None, None) => failure(FailureKind::Other, ErrorFields::default()),
        }
    }

    /// The failure of an operation of the engine.
    pub fn of_engine(error: &EngineError) -> Self {
        let kind = if is_refused_memory(error) { FailureKind::Memory } else { kind_of(error) };
        Self { kind, message: error.to_string(), fields: error.fields(), process: None }
    }

    /// The failure of a wrong command line. The message leaves out the lines about usage and help.
    pub fn usage(error: &clap::Error) -> Self {
        let text = error.to_string();
        let paragraphs = text
            .split("\n\n")
            .filter(|text| !text.starts_with("Usage:") && !text.starts_with("For more information"))
            .map(str::trim);
        let message = paragraphs.collect::<Vec<_>>().join("; ");
        let mut fields = ErrorFields::default();
        for (kind, value) in error.context() {
            match (kind, value) {
                (ContextKind::InvalidArg, ContextValue::String(option)) => fields.option = name_of(option),
                (ContextKind::InvalidValue, ContextValue::String(value)) => fields.found = Some(value.clone()),
                (ContextKind::ValidValue, ContextValue::Strings(values)) => fields.expected = Some(values.join(", ")),
                (ContextKind::SuggestedArg, ContextValue::String(option)) => fields.expected = name_of(option),
                (ContextKind::SuggestedArg, ContextValue::Strings(options)) => {
                    let names: Vec<_> = options.iter().filter_map(|option| name_of(option)).collect();
                    fields.expected = Some(names.join(", "));
                }
                _ => {}
            }
        }
        let kind = match error.kind() {
            UsageKind::UnknownArgument if fields.option.is_some() => FailureKind::UnknownOption,
            _ => FailureKind::Value,
        };
        Self { kind, message: message.trim_start_matches("error: ").to_owned(), fields, process: None }
    }
}

/// The name of an option in a usage such as `--edge-split <SPLIT>`. None for a positional argument.
fn name_of(usage: &str) -> Option<String> {
    let name = usage.strip_prefix("--")?.split([' ', '=']).next()?;
    Some(name.to_owned())
}

fn kind_of(error: &EngineError) -> FailureKind {
    match error {
        EngineError::Stopped => FailureKind::Stopped,
        EngineError::Member { source, .. } => kind_of(source),
        EngineError::OutOfRange { .. } | EngineError::UnknownName { .. } => FailureKind::Value,
        _ => FailureKind::Other,
    }
}

/// Whether the system refused memory, or addresses for a mapping.
fn is_refused_memory(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::iter;

    use clap::{Arg, Command, value_parser};

    use super::*;

    fn usage(arguments: &[&str]) -> Failure {
        let command = Command::new("program")
            .arg(Arg::new("epochs").long("epochs").value_parser(value_parser!(u32)))
            .arg(Arg::new("kind").long("kind").value_parser(["mean", "sum"]));
        let line = iter::once(&"program").chain(arguments);
        Failure::usage(&command.try_get_matches_from(line).expect_err("the line is wrong"))
    }

    #[test]
    fn a_wrong_command_line_has_its_option_as_a_field() {
        let unknown = usage(&["--epoch", "3"]);
        assert_eq!(unknown.kind, FailureKind::UnknownOption);
        assert_eq!(unknown.fields.option.as_deref(), Some("epoch"));
        assert_eq!(unknown.fields.expected.as_deref(), Some("epochs"));
        let value = usage(&["--kind", "max"]);
        assert_eq!(value.kind, FailureKind::Value);
        assert_eq!(value.fields.option.as_deref(), Some("kind"));
        assert_eq!(value.fields.found.as_deref(), Some("max"));
        assert_eq!(value.fields.expected.as_deref(), Some("mean, sum"));
        assert!(!value.message.contains("Usage"), "{}", value.message);
    }

    #[test]
    fn an_error_of_the_engine_keeps_its_fields_below_a_context() {
        let error = EngineError::out_of_range("--batch", "at least 1", 0);
        let failure = Failure::new(&anyhow::Error::new(error).context("cannot train"));
        assert_eq!(failure.kind, FailureKind::Value);
        assert_eq!(failure.message, "cannot train: --batch: expected at least 1, found 0");
        assert_eq!(failure.fields.option.as_deref(), Some("batch"));
        let refused = EngineError::io("map", "x")(io::ErrorKind::OutOfMemory.into());
        assert_eq!(Failure::new(&anyhow::Error::new(refused)).kind, FailureKind::Memory);
    }

    #[test]
    fn a_failure_survives_json() {
        let failure = Failure::of_engine(&EngineError::conflict("a and b", "leave out a"));
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(json, r#"{"kind":"other","message":"a and b; leave out a","remedy":"leave out a"}"#);
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }
}
