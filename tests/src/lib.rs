//! What the end-to-end tests share: finding and running the built programs, and making the files they are fed.
//!
//! The tests themselves are in `tests/tests`, one program per subject:
//!
//! ```text
//! formats      one graph in every accepted format gives one store
//! input        what is wrong with the input is told, with the place and the remedy, and leaves nothing behind
//! concurrent   two processes on one output: one wins, and the other says why it does not go on
//! crash        a run killed at any moment goes on to the same store
//! planted      links and folders that somebody planted are neither followed nor emptied
//! disk         a full disk leaves nothing in vain, and the error says what would help
//! damage       every damaged byte of a store is found, and nothing panics
//! descriptors  a store of more files than a process may have open is usable
//! repartition  assignments are replaced whole, however a run ends, and tell what they make
//! sample       minibatches come as they were promised and within the budget, or an error says why not
//! store        a sound store is described, and exported so that it can be ingested again
//! real         real graphs, if they are there, come out with the numbers their sources state
//! ```
//!
//! Everything here panics if it fails: these are tests.

#![forbid(unsafe_code)]

pub mod archive;
pub mod files;
pub mod graph;
pub mod kills;
pub mod npy;
pub mod pairs;
pub mod parquet;
pub mod program;
pub mod random;
