//! Fuzz targets for every parser and decoder, and a fuzzer for stable Rust.
//!
//! ```text
//! cargo xtask fuzz [TARGET] [--seconds N]
//! ```
//!
//! A [`Target`] is a decoder with seeds and promises: it never panics, allocates no more than its input justifies, ends
//! soon, and accepted inputs survive encoding and decoding. The [`campaign`] mutates seeds ([`mutate`]), repairs
//! checksums so that mutants pass them ([`repair`]), and keeps inputs with new outcomes. Grappa's readers name each
//! fault precisely, so another branch usually means another message. With `--coverage`, everything is compiled once more
//! with counters of edges, and inputs that take a new edge are kept too ([`coverage`]).
//!
//! A run has two processes. One decodes, under a memory limit. The other watches it, and saves the input at which it
//! was killed or hung. Found inputs are in `found/TARGET` of the package; a test runs them all.

pub mod campaign;
pub mod checks;
pub mod coverage;
pub mod mutate;
pub mod program;
pub mod repair;
pub mod scratch;
pub mod target;
pub mod targets;
pub mod watch;

pub use target::{Input, Target};
