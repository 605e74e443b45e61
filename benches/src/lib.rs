//! Shared code of the benches: their frame ([`mod@bench`]), child processes, the page cache, the disk, tables and records.
//!
//! Each program in `src/bin` answers one question with one command; `benches/README.md` lists them. Measured programs run
//! in child processes, and the kernel counts their processor time and peak memory ([`child`]). The measuring process stays
//! small, because on Linux the peak memory of a child starts with its parent's memory.

#![deny(unsafe_code)]

pub mod bench;
pub mod cache;
pub mod child;
pub mod dataset;
pub mod disk;
pub mod disk_use;
pub mod folder;
pub mod inputs;
pub mod job;
pub mod labelled;
pub mod limit;
pub mod machine;
pub mod network;
pub mod peers;
pub mod programs;
pub mod record;
pub mod stats;
pub mod stores;
pub mod training;
pub mod turns;
pub mod watch;
