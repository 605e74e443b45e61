//! Files, memory and threads. Nothing here knows about graphs.
//!
//! All `unsafe` code of the engine is here.
//!
//! Files:
//! - [`blocks`]: new files whose blocks are computed in parallel;
//! - [`container`]: a streaming writer and a checking reader of container files;
//! - [`direct`]: reads past the page cache;
//! - [`durable`]: files, folders and renames that survive a power failure, and locks;
//! - `identity`: detects that an open file was replaced or modified;
//! - [`journal`]: an append-only log from which a killed run is resumed;
//! - [`map`]: read-only mappings;
//! - [`npy`]: headers of NumPy files;
//! - [`read`]: many reads in flight, through io_uring or threads;
//! - [`regular`]: opening files that a user named, which must be regular files;
//! - [`unnamed`]: scratch files that disappear with the process.
//!
//! Memory and threads:
//! - [`arena`]: large read buffers;
//! - [`mod@array`]: arrays that change in place, in memory or in a scratch file;
//! - [`heap`]: allocations that can fail with an error;
//! - [`ledger`]: who may take how much of a memory limit, and why;
//! - [`machine`]: memory and disk space of the machine;
//! - [`memory`]: a memory budget that workers share, and buffers that they reuse;
//! - `populate`: a thread that adds memory to a buffer that another one fills;
//! - [`prefetch`]: processor prefetches;
//! - [`shared`]: memory that processes share;
//! - [`slots`]: slots for feature rows, shared by threads;
//! - [`sort`]: sorting of ids in memory;
//! - [`workers`]: threads that stop when one of them fails, and threads that read ahead.
//!
//! Progress and text:
//! - [`progress`]: the trait through which operations report progress and are asked to stop;
//! - [`size`]: sizes, counts and durations as text;
//! - [`text`]: text from files that is safe to print on a terminal.
//!
//! All crates of the engine return the same [`Error`] type.

#![deny(unsafe_code)]

pub mod arena;
pub mod array;
pub mod blocks;
pub mod container;
pub mod direct;
pub mod durable;
mod error;
pub mod heap;
mod identity;
pub mod journal;
pub mod ledger;
pub mod machine;
pub mod map;
pub mod memory;
pub mod npy;
mod populate;
pub mod prefetch;
pub mod progress;
pub mod read;
pub mod regular;
pub mod shared;
pub mod size;
pub mod slots;
pub mod sort;
pub mod text;
pub mod unnamed;
pub mod workers;

pub use error::{Error, ErrorFields, Position, Result};
pub use workers::check_threads;
