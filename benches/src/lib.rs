//! What the measuring programs share: children and what they take, the page cache, the disk, tables and records.
//!
//! Each program in `src/bin` answers one question and is run with one command; `benches/README.md` lists them. What is
//! measured runs in a child process of its own, whose processor time and peak memory the kernel counts
//! ([`child`]); the measuring process itself stays small, because on Linux a child starts with its parent's peak.

#![forbid(unsafe_code)]

pub mod cache;
pub mod child;
pub mod disk;
pub mod folder;
pub mod inputs;
pub mod labelled;
pub mod limit;
pub mod machine;
pub mod peers;
pub mod programs;
pub mod record;
pub mod stats;
pub mod training;
pub mod turns;
