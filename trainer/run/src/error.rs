//! Errors of this crate.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use grappa_io::ErrorFields;
use thiserror::Error;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Every message says how to proceed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a device.
    #[error("unknown device `{0}`: use auto, cpu, cuda or cuda:N")]
    UnknownDevice(String),
    /// A model of this shape cannot exist.
    #[error("impossible model: {0}")]
    Model(String),
    /// The value of an option is out of its range.
    #[error("{option} is {found}; it must be {expected}")]
    OutOfRange {
        /// The name of the option.
        option: String,
        /// The possible values.
        expected: String,
        /// The value.
        found: String,
    },
    /// Options contradict each other. The message names a value that works.
    #[error("{0}")]
    Options(String),
    /// A resumed run was given another value of an option that it cannot change.
    #[error("{0}")]
    ChangedOption(String),
    /// The text is no name of a choice. The message has the names.
    #[error("{0}")]
    UnknownName(String),
    /// The store has other numbers of features or classes than the run or the preset.
    #[error("{0}")]
    WrongStore(String),
    /// These runs cannot be compared.
    #[error("{0}")]
    Incomparable(String),
    /// A newer version of this program wrote the file.
    #[error("{0}")]
    NewerVersion(String),
    /// The folder of a new run contains a run or other files.
    #[error("{}: {problem}", .path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
        /// Its contents, and how to proceed.
        problem: &'static str,
    },
    /// The folder contains no run to resume.
    #[error("{}: it contains no run (no {file}): start one without --resume", .path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// The file that each run has.
        file: &'static str,
    },
    /// A file of a run is damaged, truncated, missing or of another kind.
    #[error("{}: {problem}", .path.display())]
    RunFile {
        /// The file.
        path: PathBuf,
        /// The problem, and how to proceed.
        problem: String,
    },
    /// A file, or an operation of the engine.
    #[error(transparent)]
    Engine(#[from] grappa_io::Error),
}

impl Error {
    /// An error about a file of a run.
    pub fn run_file(path: &Path, problem: impl Into<String>) -> Self {
        Self::RunFile { path: path.to_owned(), problem: problem.into() }
    }

    /// The value of an option is out of its range.
    pub(crate) fn out_of_range(option: &str, expected: impl Display, found: impl Display) -> Self {
        Self::OutOfRange { option: option.to_owned(), expected: expected.to_string(), found: found.to_string() }
    }

    /// Whether a disk is full, or a quota exceeded.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_disk_full())
    }

    /// The parts of the message that are fields.
    pub fn fields(&self) -> ErrorFields {
        match self {
            Self::OutOfRange { option, expected, found } => ErrorFields {
                option: Some(option.clone()),
                expected: Some(expected.clone()),
                found: Some(found.clone()),
                remedy: None,
            },
            Self::Engine(error) => error.fields(),
            _ => ErrorFields::default(),
        }
    }
}

pub(crate) fn refuse(message: String) -> Result<()> {
    Err(Error::Options(message))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::{ErrorKind, Write},
    };

    use toml::Table;

    use super::*;
    use crate::{
        config::{Optimizer, Preset, TrainConfig},
        folder::RunFolder,
    };

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        let full = Path::new("/dev/full");
        let written = File::options().write(true).open(full).and_then(|mut file| file.write_all(b"x"));
        let error = |error| Error::from(grappa_io::Error::io("write", full)(error));
        assert!(error(written.expect_err("it is full")).is_disk_full());
        assert!(!error(ErrorKind::PermissionDenied.into()).is_disk_full());
        assert!(!Error::Options("-".into()).is_disk_full());
    }

    #[test]
    fn callers_can_tell_errors_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("letter.txt"), "-").unwrap();
        let config = TrainConfig::default();
        let zero = Table::from_iter([("hidden".to_owned(), 0.into())]);
        let seed = Table::from_iter([("seed".to_owned(), 2.into())]);
        let error = TrainConfig::default().layered(None, None, &zero).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
        let error = config.resumed(None, None, &seed).unwrap_err();
        assert!(matches!(error, Error::ChangedOption(_)), "{error:?}");
        let error = "lion".parse::<Optimizer>().unwrap_err();
        assert!(matches!(error, Error::UnknownName(_)), "{error:?}");
        let error = Preset::named("pyg-cora-gcn").unwrap().check_store(500, 3).unwrap_err();
        assert!(matches!(error, Error::WrongStore(_)), "{error:?}");
        let error = RunFolder::create(folder.path(), &config).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error:?}");
        let error = RunFolder::resume(folder.path()).unwrap_err();
        assert!(matches!(error, Error::NoRun { .. }), "{error:?}");
    }
}
