//! A run: epochs with evaluations, records, reports and checkpoints, from its first epoch or its last checkpoint to its summary.

pub(super) mod agreement;
mod end;
mod files;
mod finished;
mod follow;
mod initial_parameters;
mod logits;
mod resume;
mod run;
pub(super) mod run_facts;
mod start;
mod train;

use grappa_run::watcher;

pub use self::{
    agreement::{agree_on_options, hello},
    finished::finished,
    follow::follow,
    train::train,
    watcher::Watcher,
};
