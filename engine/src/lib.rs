//! The out-of-core graph engine: what happens to an edge between a file and a minibatch.
//!
//! - [`ingest`] reads edge lists, feature and label files, and writes a store under a memory budget;
//! - [`generate`] writes stores and edge lists of synthetic graphs of any size;
//! - [`store`] opens, verifies, describes and exports stores;
//! - [`partition`] says which part of the graph each worker sees;
//! - [`view`] is the rows that can be sampled from;
//! - [`sample`] draws minibatches from them;
//! - [`feed`] delivers these with the features of their nodes;
//! - [`aggregate`] reduces the rows of all in-neighbours, out of core;
//! - [`sort`] sorts ids in memory;
//! - [`machine`] is what the machine has of memory, and the process takes of it;
//! - [`size`] is sizes, counts and durations as text;
//! - [`text`] is text from files as it can be shown on a terminal;
//! - [`io`] is files, mappings and memory: the only module with `unsafe` code, and it knows no graph words.
//!
//! Nothing here links libtorch or prints: progress goes through [`progress::Progress`], failures through [`Error`].

#![deny(unsafe_code)]

pub mod aggregate;
mod error;
pub mod feed;
pub mod generate;
pub mod ids;
pub mod ingest;
pub mod io;
pub mod machine;
mod memory;
pub mod partition;
pub mod progress;
pub mod sample;
pub mod size;
pub mod sort;
pub mod store;
pub mod text;
pub mod view;
mod workers;

pub use error::{Error, Position, Result};
pub use workers::check_threads;
