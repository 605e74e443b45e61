//! Files, memory and threads. This crate knows nothing of graphs. It holds all `unsafe` code of the engine.
//!
//! Files:
//! - [`blocks`]: new files whose blocks are made in parallel;
//! - [`container`]: a streaming writer and a checking reader of container files;
//! - [`durable`]: files, folders and renames that survive a power failure, and locks;
//! - `identity`: detects that a file changed after it was opened;
//! - [`journal`]: an append-only log, from which a killed run resumes;
//! - [`map`]: read-only mappings;
//! - [`npy`]: headers of NumPy files;
//! - [`read`]: many reads in flight, through io_uring or threads;
//! - [`regular`]: opens files that a user named, which must be regular files;
//! - [`unnamed`]: scratch files that disappear with the process.
//!
//! Memory and threads:
//! - [`arena`]: large buffers on huge pages;
//! - [`heap`]: allocations that can fail with an error;
//! - [`machine`]: memory and disk space of the machine;
//! - [`memory`]: a memory budget that workers share;
//! - [`prefetch`]: loads memory into the cache before it is needed;
//! - [`slots`]: places for feature rows, shared by threads;
//! - [`sort`]: radix sort of ids in memory;
//! - [`workers`]: threads that stop when one of them fails.
//!
//! Messages:
//! - [`progress`]: the trait through which operations report progress and are told to stop;
//! - [`size`]: sizes, counts and durations as text;
//! - [`text`]: makes text from files safe to print on a terminal.
//!
//! All crates of the engine return one error type, [`Error`].

#![deny(unsafe_code)]

pub mod arena;
pub mod blocks;
pub mod container;
pub mod durable;
mod error;
pub mod heap;
mod identity;
pub mod journal;
pub mod machine;
pub mod map;
pub mod memory;
pub mod npy;
pub mod prefetch;
pub mod progress;
pub mod read;
pub mod regular;
pub mod size;
pub mod slots;
pub mod sort;
pub mod text;
pub mod unnamed;
pub mod workers;

pub use error::{Error, Position, Result};
pub use workers::check_threads;
