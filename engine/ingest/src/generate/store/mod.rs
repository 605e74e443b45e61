//! Generates a graph directly into a store. Nothing is spilled, no sort over edges is needed, and each chunk is made alone.
//!
//! ```text
//! teams of threads, each: loop
//!     take the next chunk that no team has
//!     its nodes in order -> their labels -> pieces of a few thousand nodes       pieces
//!     generate the pieces in parallel; encode them in order                      chunk, in_order
//!     features, labels: the same, with pieces of feature rows or labels
//!     other threads sync the chunk's files and record it in the journal meanwhile
//! splits, manifest, rename                                                       grappa_storage::writer
//! ```
//!
//! If there are enough chunks, each thread is a team of its own; otherwise several threads share a chunk. The store depends
//! on the recipe and the options only: not on the memory budget, the number of threads, or where a run was killed. It is
//! the store that ingest makes from the recipe's edge list with the same options.
//!
//! Cost per edge and thread, R-MAT with the parameters of Graph500 and edge factor 16: 20 ns at scale 24, 24 to 29 ns at
//! scale 36. Drawing, sorting and encoding take a third each (AMD EPYC, 5th generation).
//!
//! Memory: the edges that a team has generated and not yet encoded are bounded by its *window*. Adjacency lists that exceed
//! the window are generated one at a time, from the rest of the budget. An adjacency list must fit in the budget;
//! [`generate_store`] checks that before it writes anything, and names a budget that suffices. The directory of each chunk
//! that is being encoded, the features' mean of each class and the edge buckets count too.

mod chunk;
mod generation;
mod journal;
mod options;
mod pieces;
mod team_plan;

pub use self::{
    generation::{Generation, Member, NodeLayout, generate_store},
    journal::{Record as GenerationRecord, resume as resume_generation},
    options::{FeatureOptions, StoreOptions, StoreSummary, chosen_chunks},
};
