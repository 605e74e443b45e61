//! Everything around the training loop that needs no libtorch.
//!
//! - [`config`]: the options of a run, from files and flags;
//! - [`model`]: the kinds of layers, norms and numbers, and the shape of a model;
//! - [`scores`]: how good predictions are;
//! - [`learning_rate`] and [`early_stopping`]: decisions after each step or evaluation;
//! - [`class_names`]: names of classes;
//! - [`schema`]: whether a store has the features and classes of a run, by their names;
//! - [`folder`]: the run's folder and its files;
//! - [`checkpoint`]: the state that a killed run continues from;
//! - [`journal`]: metrics of each epoch, for programs and TensorBoard;
//! - [`summary`]: the result of a run, as JSON;
//! - [`read`]: the configuration, the metrics and the result of a run, checked, for programs that show them;
//! - [`stages`]: wall time by stage;
//! - [`finished`]: runs that have nothing left to do;
//! - [`background`]: files that are written while training continues;
//! - [`resume`]: what a resumed run checks and tells;
//! - [`watcher`]: what a run tells its caller;
//! - [`codecs`]: encodings of gradients.
//!
//! The training loop itself, and everything else that computes with tensors, is in `grappa-trainer`, which depends on this
//! crate. Nothing here may depend on that one. `grappa-report` makes the report.

#![forbid(unsafe_code)]

pub mod background;
pub mod checkpoint;
mod checksum_line;
pub mod class_names;
pub mod codecs;
pub mod config;
pub mod early_stopping;
mod error;
pub mod finished;
pub mod folder;
pub mod journal;
pub mod learning_rate;
pub mod model;
pub mod names;
pub mod option_value;
mod own_folder;
mod percent;
pub mod read;
pub mod resume;
pub mod schema;
pub mod scores;
pub mod serde_text;
pub mod stages;
pub mod summary;
mod summary_file;
pub mod watcher;

pub use self::{
    error::{Error, Result},
    percent::percent,
};
