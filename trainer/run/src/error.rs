//! Errors of this crate.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Every message says how to proceed.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is not a device.
    #[error("unknown device `{0}`: use auto, cpu, cuda or cuda:N")]
    UnknownDevice(String),
    /// A model of this shape cannot exist.
    #[error("impossible model: {0}")]
    Model(String),
    /// Options contradict each other, the store or an earlier run. The message names a value that works.
    #[error("{0}")]
    Options(String),
    /// A file of a run is damaged, truncated, of another kind, or written by a newer version.
    #[error("{}: {what}", .path.display())]
    RunFile {
        /// The file.
        path: PathBuf,
        /// The problem, and how to proceed.
        what: String,
    },
    /// A file, or an operation of the engine.
    #[error(transparent)]
    Engine(#[from] grappa_io::Error),
}

impl Error {
    /// An error about a file of a run.
    pub fn run_file(path: &Path, what: impl Into<String>) -> Self {
        Self::RunFile {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// Whether a disk is full, or a quota exceeded.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_disk_full())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{ErrorKind, Write},
    };

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        let full = Path::new("/dev/full");
        let written = File::options()
            .write(true)
            .open(full)
            .and_then(|mut file| file.write_all(b"x"));
        let error = |error| Error::from(grappa_io::Error::io("write", full)(error));
        assert!(error(written.expect_err("it is full")).is_disk_full());
        assert!(!error(ErrorKind::PermissionDenied.into()).is_disk_full());
        assert!(!Error::Options("-".into()).is_disk_full());
    }
}
