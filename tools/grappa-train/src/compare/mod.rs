//! `grappa-train compare STORE`: methods of training, each in a run of its own, on one page.

mod args;
mod run;

pub use self::{args::CompareArgs, run::run};
