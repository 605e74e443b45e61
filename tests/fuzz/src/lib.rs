//! Fuzz targets of every parser and decoder, and what runs them on stable Rust.
//!
//! ```text
//! cargo xtask fuzz [TARGET] [--seconds N]
//! ```
//!
//! A [`Target`] is a decoder with seeds and properties: it never panics, allocates no more than its input justifies, ends
//! soon, and what it accepts survives being encoded and decoded again. The [`campaign`] mutates seeds ([`mutate`]), repairs
//! checksums so that mutants get past them ([`repair`]), and keeps inputs that bring a new outcome. Outcomes guide it
//! instead of coverage, which takes a nightly compiler: readers here say precisely what is wrong with their input, so
//! another branch mostly means another message.
//!
//! A run is two processes: one decodes, under a limit of memory, and one looks on, and saves the input at which the first
//! was killed or hung. Inputs that were found lie in `found/TARGET` of the package, which has a test that runs them all.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod checks;
pub mod mutate;
pub mod program;
pub mod repair;
pub mod scratch;
pub mod target;
pub mod targets;
pub mod watch;

pub use target::{Input, Target};
