//! What can go wrong in training, and what to do about it.

use std::path::{Path, PathBuf};

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
    Engine(#[from] grappa_engine::Error),
}

impl Error {
    pub(crate) fn run_file(path: &Path, what: impl Into<String>) -> Self {
        Self::RunFile {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
