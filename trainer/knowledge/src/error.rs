//! Errors of this crate.

use thiserror::Error;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why training failed. Every message says how to proceed.
#[derive(Debug, Error)]
pub enum Error {
    /// Training stopped because it was asked to.
    #[error("training stopped {place}; {kept}")]
    Stopped {
        /// For example `after step 12 of epoch 3`.
        place: String,
        /// Whether a checkpoint could be written.
        kept: String,
    },
    /// Options contradict each other or the graph. The message names a value that works.
    #[error("{0}")]
    Options(String),
    /// The loss is not finite. Checkpoints of earlier epochs are intact.
    #[error("{0}")]
    Diverged(String),
    /// The graph is another one than the run's, or has no triples.
    #[error("{0}")]
    WrongStore(String),
    /// The configuration, or a file of the run.
    #[error(transparent)]
    Run(#[from] grappa_run::Error),
    /// A file, or an operation of the engine.
    #[error(transparent)]
    Engine(#[from] grappa_io::Error),
}

impl Error {
    /// Whether the operation ended because the caller asked it to stop.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Stopped { .. }
                | Self::Engine(grappa_io::Error::Stopped)
                | Self::Run(grappa_run::Error::Engine(grappa_io::Error::Stopped))
        )
    }
}
