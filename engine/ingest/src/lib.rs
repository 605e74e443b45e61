//! Builds stores under a memory budget.
//!
//! - [`ingest`] sorts edge lists externally and adds features, labels and splits;
//! - `ids` maps the ids of input files to nodes;
//! - [`generate`] writes stores and edge lists of synthetic graphs.
//!
//! The same input, options and seed give the same bytes, whatever the memory and the number of threads, and however often a
//! run was killed and resumed.

#![forbid(unsafe_code)]

pub mod generate;
mod ids;
mod in_order;
pub mod ingest;
