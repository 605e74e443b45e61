//! Training on Grappa stores. The only crate that links libtorch.
//!
//! - [`runtime`] starts libtorch, says what it can do on this machine, and picks the device;
//! - [`nn`] is layers and models;
//! - [`train`] is the loop: partitions, gradients, exact inference;
//! - [`export`] writes the model of a run for other programs;
//! - [`predict`] applies the model of a run to a store.
//!
//! Everything around the training loop that needs no libtorch is in [`grappa_run`]: configuration, scores, checkpoints,
//! metrics, report.
//!
//! `unsafe` lives in two private modules: `shim`, which calls what `tch` does not bind, and `kernels`, whose loops use vector
//! instructions that not every processor has.

mod error;
pub mod export;
mod kernels;
pub mod nn;
pub mod predict;
pub mod runtime;
mod shim;
pub mod train;

pub use error::{Error, Result};
