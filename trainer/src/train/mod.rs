//! Training: isolated partitions, an exchange of gradients per step, and new partitions in each super-epoch.
//!
//! ```text
//! for each super-epoch:                                                `partitions`
//!     assign chunks to K partitions                                    grappa_sampling::partition
//!     open a view of each
//!     for each epoch:                                                  `session`, `epoch`
//!         for each step, of Q partitions:                              `step`
//!             sample a minibatch of each, join them, gather            the feed of grappa_sampling, `load`
//!             forward, backward                                        its gradient is the sum of theirs
//!             exchange, divide, clip, update the parameters            `exchange`, `correction`, `optimizer`
//!         evaluate by exact inference                                  `evaluate`, `inference`
//!             it leaves the historical embeddings of halo nodes        `historical`
//! ```
//!
//! The result depends on K, Q and the seed. It does not depend on the number of processes that serve the partitions, on how files
//! are read, or on the memory budget, unless K or Q is `auto`: then they are chosen from it (`numbers`). On a processor, runs are equal to
//! the bit, on any number of threads.

mod advice;
pub mod correction;
mod epoch;
mod estimate;
mod evaluate;
pub mod exchange;
mod facts;
mod features;
mod finished;
pub mod first_hop;
pub mod historical;
mod hosts;
pub mod inference;
mod initial;
pub(crate) mod labels;
mod load;
mod numbers;
mod optimizer;
mod partitions;
mod ranks;
mod reach;
mod refresh;
mod residuals;
mod sampled;
mod scored;
mod session;
mod slice;
pub(crate) mod split;
mod standardize;
mod state;
mod step;
#[cfg(test)]
mod tests;
pub mod trained;
mod trainer;

use grappa_formats::random;

pub use self::{
    epoch::EpochStats,
    evaluate::Evaluation,
    finished::finished,
    ranks::{agree_on_options, follow, hello},
    session::{Watcher, train, train_first},
    trainer::Trainer,
};

/// How to use less memory.
const OUT_OF_MEMORY: &str = "try a smaller --batch, --concurrent or --hidden, smaller --fanouts, or --precision bf16; checkpoints, if there are any, are intact";

/// A key made of several parts. Changing any part changes all of the key.
fn key<const N: usize>(parts: [u64; N]) -> u64 {
    parts.iter().fold(random::GOLDEN, |key, part| random::hash(key ^ part))
}
