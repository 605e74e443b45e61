//! What can go wrong in training, and what to do about it.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// The result of an operation of the trainer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the trainer failed. Every message says what would help.
#[derive(Debug, Error)]
pub enum Error {
    /// A text that names no device.
    #[error("unknown device `{0}`: use auto, cpu, cuda or cuda:N")]
    UnknownDevice(String),
    /// A CUDA device was asked for where there is none.
    #[error("CUDA can't be used: {reason}; `--device cpu` does without")]
    CudaUnusable {
        /// What libtorch or the dynamic loader said.
        reason: String,
    },
    /// A CUDA device was asked for beyond those that there are.
    #[error("there is no cuda:{index}: this machine has {devices} CUDA device(s), counted from cuda:0")]
    NoSuchDevice {
        /// The index asked for.
        index: usize,
        /// How many there are.
        devices: usize,
    },
    /// A text that names no kind of layer.
    #[error("unknown model `{0}`: use sage, sage-max, gcn, gat, gatv2, gin or pinsage")]
    UnknownLayer(String),
    /// A text that names no norm.
    #[error("unknown norm `{0}`: use none, batch or layer")]
    UnknownNorm(String),
    /// A model that can't be.
    #[error("no such model: {0}")]
    Model(String),
    /// The device, or the processor's memory, has no room for what was to be computed.
    #[error("out of memory: {what}; {remedy}")]
    OutOfMemory {
        /// What libtorch said.
        what: String,
        /// What would take less.
        remedy: &'static str,
    },
    /// Training was asked to stop, and did.
    #[error("training stopped {place}; {kept}")]
    Stopped {
        /// `after step 12 of epoch 3`.
        place: String,
        /// Whether a checkpoint could be written.
        kept: String,
    },
    /// Options that contradict each other, the store or an earlier run; the message says which value would do.
    #[error("{0}")]
    Options(String),
    /// A file of a run is damaged, truncated, foreign or too new.
    #[error("{}: {what}", .path.display())]
    RunFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do about it.
        what: String,
    },
    /// A file, or an operation of the engine.
    #[error(transparent)]
    Engine(#[from] grappa_io::Error),
}

impl Error {
    /// Whether it is for want of room on a disk.
    pub fn is_of_full_disk(&self) -> bool {
        match self {
            Self::Engine(grappa_io::Error::Io { source, .. }) => {
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether it is because the caller asked the operation to stop.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped { .. } | Self::Engine(grappa_io::Error::Stopped))
    }

    pub(crate) fn run_file(path: &Path, what: impl Into<String>) -> Self {
        Self::RunFile {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        let full = Path::new("/dev/full");
        let written = File::options()
            .write(true)
            .open(full)
            .and_then(|mut file| file.write_all(b"x"));
        let error = |error| Error::from(grappa_io::Error::io("write", full)(error));
        assert!(error(written.expect_err("it is full")).is_of_full_disk());
        assert!(!error(ErrorKind::PermissionDenied.into()).is_of_full_disk());
        assert!(!Error::Options("-".into()).is_of_full_disk());
    }
}
