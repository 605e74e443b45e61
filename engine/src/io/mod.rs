//! Files, mappings and durability. Knows bytes and container files, no graph words; all `unsafe` of the engine is here.
//!
//! - [`arena`]: large memory of one's own, for what is read;
//! - `blocks`: new files whose parts are made in parallel;
//! - [`container`]: streaming writer and checking reader of container files;
//! - [`durable`]: what it takes for a file or a rename to survive a power failure;
//! - [`heap`]: what happens when the system refuses memory;
//! - `identity`: whether a file is still the one it was;
//! - [`journal`]: an append-only log that a killed run is resumed from;
//! - [`map`]: read-only mappings;
//! - [`npy`]: headers of NumPy files;
//! - [`prefetch`]: asking for memory that is needed soon;
//! - [`read`]: many reads at once;
//! - [`regular`]: opening files that a user named, which must be files;
//! - [`slots`]: places for rows that threads share;
//! - `unnamed`: scratch files that no kill leaves behind.

pub mod arena;
pub(crate) mod blocks;
pub mod container;
pub mod durable;
pub mod heap;
pub(crate) mod identity;
pub mod journal;
pub mod map;
pub mod npy;
pub mod prefetch;
pub mod read;
pub mod regular;
pub mod slots;
pub(crate) mod unnamed;
