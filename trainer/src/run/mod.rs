//! What surrounds the training loop: what a run is told, what it keeps, and what it shows.
//!
//! - [`config`]: what a run is told, in files and flags;
//! - [`scores`]: how good predictions are;
//! - [`learning_rate`], [`early_stopping`], [`gradient`]: what the loop asks in each step or evaluation;
//! - [`class_names`]: what classes are called;
//! - [`folder`]: where it is all kept;
//! - [`checkpoint`]: what a killed run goes on from;
//! - [`journal`]: what each epoch came to, for programs and TensorBoard;
//! - [`summary`]: what came of the run;
//! - [`report`]: all of it on a page, for people.
//!
//! Nothing here computes with libtorch.

pub mod checkpoint;
pub mod class_names;
pub mod config;
pub mod early_stopping;
pub mod folder;
pub mod gradient;
pub mod journal;
pub mod learning_rate;
pub mod report;
pub mod scores;
pub mod summary;
