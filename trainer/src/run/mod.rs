//! What surrounds the training loop: what a run is told, what it keeps, and what it shows.
//!
//! - [`config`]: what a run is told, in files and flags;
//! - [`scores`]: how good predictions are;
//! - [`learning_rate`], [`early_stopping`], [`gradient`]: what the loop asks in each step or evaluation;
//! - [`checkpoint`]: what a killed run goes on from.
//!
//! Nothing here computes with libtorch.

pub mod checkpoint;
pub mod config;
pub mod early_stopping;
pub mod gradient;
pub mod learning_rate;
pub mod scores;
