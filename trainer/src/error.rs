//! Errors of the trainer.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The result of an operation of the trainer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the trainer failed. Every message says how to proceed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A CUDA device was requested, and libtorch cannot use CUDA.
    #[error("CUDA cannot be used: {reason}; `--device cpu` trains without it")]
    CudaUnusable {
        /// The message of libtorch or of the dynamic loader.
        reason: String,
    },
    /// A CUDA device was requested that does not exist.
    #[error("there is no cuda:{index}: this machine has {devices} CUDA device(s), counted from cuda:0")]
    NoSuchDevice {
        /// The requested index.
        index: usize,
        /// Number of devices.
        devices: usize,
    },
    /// The device, or the processor's memory, is too small for the computation.
    #[error("out of memory: {message}; {remedy}")]
    OutOfMemory {
        /// The message of libtorch.
        message: String,
        /// How to use less.
        remedy: &'static str,
    },
    /// Training stopped because it was asked to.
    #[error("training stopped {place}; {kept}")]
    Stopped {
        /// For example `after step 12 of epoch 3`.
        place: String,
        /// Whether a checkpoint could be written.
        kept: String,
    },
    /// The processes that train together could not meet, or one of them is missing. The message names the rank.
    #[error("{0}")]
    Distributed(String),
    /// Memory or a disk is too small for work that training can do without, on this rank or on another one.
    #[error("{}{message}", .rank.map_or_else(String::new, |rank| format!("rank {rank}: ")))]
    Lack {
        /// The rank, if it is another one.
        rank: Option<u32>,
        /// The resource that ran out.
        resource: Resource,
        /// The message, which says how to proceed.
        message: String,
    },
    /// Options contradict each other or the labels of the store. The message names a value that works.
    #[error("{0}")]
    Options(String),
    /// The loss, parameters or logits are not finite during training. Checkpoints of earlier epochs are intact.
    #[error("{0}")]
    Diverged(String),
    /// Features, or all predictions, are not finite.
    #[error("{0}")]
    NotFinite(String),
    /// Nodes have no labels, or there are no nodes to train on.
    #[error("{0}")]
    NoLabels(String),
    /// The store is another one than the run's, or lacks features, a split or a part of the graph.
    #[error("{0}")]
    WrongStore(String),
    /// The run of `--init-from` has another model, or other features or classes.
    #[error("{0}")]
    WrongRun(String),
    /// `--first-hop preaggregated` is not possible.
    #[error("{0}")]
    NoPreaggregation(String),
    /// The model or a minibatch does not fit into the memory of this machine. The message has both sizes.
    #[error("{0}")]
    TooLarge(String),
    /// The configuration, a file of the run, or the shape of the model.
    #[error(transparent)]
    Run(#[from] grappa_run::Error),
    /// A file, or an operation of the engine.
    #[error(transparent)]
    Engine(#[from] grappa_io::Error),
}

/// A resource that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    /// Space on a disk.
    Disk,
    /// The memory budget.
    Memory,
}

impl Error {
    /// Whether a disk is full, or a quota exceeded.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Run(error) => error.is_disk_full(),
            Self::Engine(error) => error.is_disk_full(),
            Self::Lack { resource, .. } => *resource == Resource::Disk,
            _ => false,
        }
    }

    /// Whether the memory budget is too small.
    pub(crate) fn is_budget(&self) -> bool {
        matches!(self, Self::Engine(grappa_io::Error::Budget { .. }) | Self::Lack { resource: Resource::Memory, .. })
    }

    /// Whether the operation ended because the caller asked it to stop.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Stopped { .. }
                | Self::Engine(grappa_io::Error::Stopped)
                | Self::Run(grappa_run::Error::Engine(grappa_io::Error::Stopped))
        )
    }

    pub(crate) fn run_file(path: &Path, problem: impl Into<String>) -> Self {
        grappa_run::Error::run_file(path, problem).into()
    }
}
