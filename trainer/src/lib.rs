//! Training on Grappa stores. This is the only library that links libtorch.
//!
//! - [`runtime`]: libtorch's version, threads and devices;
//! - [`nn`]: layers, models and losses;
//! - [`distributed`]: the processes that train one model together;
//! - [`links`]: scores of pairs of nodes, ranks of edges, the best destinations;
//! - [`train`]: the training loop: partitions, gradients, exact inference;
//! - [`export`]: the model of a run as a file for other programs;
//! - [`predict`]: predictions with the model of a run.
//!
//! Private modules are `kernels`, loops for processors, and `shim`, the functions of libtorch that `tch` does not bind. The layers are
//! `shim -> kernels, distributed -> nn -> links -> train -> predict, export`, and no module imports from one to its right.
//!
//! Everything around the training loop that needs no libtorch is in [`grappa_run`]: configuration, scores, checkpoints,
//! metrics, report.
//!
//! `unsafe` code is in `shim` and in `kernels`, which uses vector instructions that not every processor has.

pub mod distributed;
mod error;
pub mod export;
pub mod links;
pub mod nn;
pub mod predict;
pub mod runtime;
mod shim;
pub mod train;

pub use error::{Error, Resource, Result};
