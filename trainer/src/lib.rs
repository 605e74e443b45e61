//! Training on Grappa stores. The only crate that links libtorch.
//!
//! - [`runtime`] starts libtorch, says what it can do on this machine, and picks the device;
//! - [`nn`] is layers and models;
//! - [`train`] is the loop: partitions, gradients, exact inference;
//! - [`run`] is everything around the training loop: configuration, scores, checkpoints, metrics, report.
//!
//! `unsafe` lives in one private module, `shim`, which calls what `tch` does not bind.

mod error;
mod kernels;
pub mod nn;
pub mod run;
pub mod runtime;
mod shim;
pub mod train;

pub use error::{Error, Result};
