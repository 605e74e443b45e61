//! Fuzz targets for every parser and decoder.
//!
//! ```text
//! cargo xtask fuzz [TARGET] [--seconds N]
//! ```
//!
//! A [`Target`] is a decoder with seeds and promises: it never panics, allocates no more than its input justifies, ends
//! soon, and accepted inputs survive encoding and decoding. The program `grappa-fuzz` runs a target in libFuzzer, which
//! follows the edges of the code and its comparisons. It repairs the checksums of mutants, so that they pass them
//! ([`repair`]).
//!
//! libFuzzer saves an input that breaks a promise in `found/TARGET` of the package. A test runs them all, without
//! libFuzzer.

pub mod promises;
pub mod repair;
pub mod scratch;
pub mod target;
pub mod targets;

pub use target::{Input, Target};
