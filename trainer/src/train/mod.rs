//! Training: isolated partitions, an exchange of gradients per step, and new partitions in each super-epoch.
//!
//! ```text
//! for each super-epoch:                                                `partitions`
//!     assign chunks to K partitions                                    grappa_sampling::partition
//!     open a view of each
//!     for each epoch:                                                  `session`, `epoch`
//!         for each step, of Q partitions:                              `step`
//!             sample a minibatch of each, join them, gather            the feed of grappa_sampling, `partitions`
//!             forward, backward                                        its gradient is the sum of theirs
//!             exchange, divide, clip, update the parameters            `exchange`, `step`
//!         evaluate by exact inference                                  `evaluate`, `inference`
//!             it leaves the historical embeddings of halo nodes        `halo`
//! ```
//!
//! [`Trainer`] composes owners, which take what else they need as arguments. A room imports from those above it:
//!
//! ```text
//! ranks            the processes that train together, and the chunks of each
//! links            the edges of link prediction
//! exchange         the sum of the gradients of all ranks
//! data             the store, labels, degrees, splits
//! embeddings       the learnable embeddings of nodes
//! options          the options, with a value for each that was `auto`
//! inference        exact inference, and the model of a run
//! partitions       the open partitions, and their batches on the device
//! step             the model, its optimizer, the gradient of a step; or a method of another crate, whose steps take the whole graph
//! memory           the leases of the ledger: who takes how much memory, and why
//! model_on_graph   an inference of the model while it is trained: its inputs and its memory
//! halo             the historical embeddings of halo nodes
//! evaluate         the nodes that evaluations compute, and their scores
//! session          a run: start on all ranks, epochs, files
//! ```
//!
//! The result depends on K, Q and the seed. It does not depend on the number of processes that serve the partitions, on how files
//! are read, or on the memory budget, unless K or Q is `auto`: then they are chosen from it (`options`). On a processor, runs are equal to
//! the bit, on any number of threads.

mod data;
mod embeddings;
mod epoch;
mod evaluate;
pub mod exchange;
mod feature_tensors;
mod full_graph_epoch;
mod halo;
pub mod inference;
mod links;
mod memory;
mod model_on_graph;
mod options;
mod partitions;
mod random_key;
mod ranks;
mod session;
mod step;
mod tensors;
#[cfg(test)]
mod tests;
mod trainer;

pub(crate) use self::{
    data::{labels, splits},
    tensors::host_values,
};
pub use self::{
    epoch::EpochStats,
    evaluate::evaluations::Evaluation,
    inference::{historical, trained_model},
    options::first_hop,
    partitions::correction,
    random_key::key,
    session::{Watcher, agree_on_options, finished, follow, hello, train},
    step::{
        full_graph::{FullGraphInputs, FullGraphMethod, FullGraphStep, FullGraphSums, TrainSetup},
        optimizer::Optimizer,
    },
    trainer::Trainer,
};
