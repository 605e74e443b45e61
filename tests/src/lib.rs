//! Shared parts of the end-to-end tests: they find and run the built programs, and make input files.
//!
//! The tests are in `tests/tests/programs`, one module per subject. Run those of one subject with
//! `cargo nextest run --workspace --test programs crash::`.
//!
//! ```text
//! formats      one graph in every accepted format gives one store
//! misread      each input gives the graph that its author means, or an error with place and remedy
//! input        bad input is an error of the program, and leaves nothing behind
//! generate     grappa-gen makes what it says, or says why not
//! features     add-features makes the right features and survives a kill
//! concurrent   of two processes on one output, one works and the other says why it stops
//! crash        a run killed at any moment is resumed to the same store
//! signals      SIGINT, SIGTERM and SIGHUP end programs in order, with the right exit code
//! planted      planted links and folders are neither followed nor emptied
//! hostile      inputs cannot make a program wait, fill the disk, act on the terminal, or abort
//! disk         a full disk leaves nothing useless behind, and the error names the remedy
//! damage       every damaged byte of a store is found, and nothing panics
//! descriptors  a store of more files than a process may have open is usable
//! repartition  assignments are replaced as a whole, however a run ends
//! sample       minibatches are right and stay within the budget, or an error says why not
//! store        a sound store is described, and exported so that it can be ingested again
//! real         real graphs, if present, have the numbers that their sources state
//! ```
//!
//! Everything here panics if it fails: these are tests.

#![forbid(unsafe_code)]

pub mod archive;
pub mod files;
pub mod folder;
pub mod graph;
pub mod held;
pub mod kills;
pub mod npy;
pub mod parquet;
pub mod program;
pub mod random;
