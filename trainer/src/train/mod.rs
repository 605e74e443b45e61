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
//! [`Trainer`] composes owners, which take what else they need as arguments:
//!
//! ```text
//! resolved           the options, with a value for each that was `auto`
//! processes          the ranks that train together, and the chunks of each
//! data               the store, labels, degrees, splits
//! learner            the model, its optimizer, the exchange of its gradients
//! partitions         the open partitions, and the loader of their minibatches
//! refresh            the historical embeddings of halo nodes
//! evaluate           the nodes that evaluations compute
//! model_on_graph     an inference of the model while it is trained: its inputs and its memory
//! full_graph         a method of another crate, whose steps take the place of those of minibatches
//! session            a run: start on all ranks, epochs, files
//! ```
//!
//! The result depends on K, Q and the seed. It does not depend on the number of processes that serve the partitions, on how files
//! are read, or on the memory budget, unless K or Q is `auto`: then they are chosen from it (`numbers`). On a processor, runs are equal to
//! the bit, on any number of threads.

mod advice;
mod class_weights;
pub mod correction;
mod data;
mod edge_data;
mod epoch;
mod estimate;
mod evaluate;
pub mod exchange;
mod facts;
mod features;
pub mod first_hop;
mod full_graph;
mod full_graph_epoch;
mod gradient_exchange;
pub(crate) mod host_values;
pub mod inference;
mod initial;
pub(crate) mod labels;
mod learner;
mod link_evaluation;
mod links;
mod load;
mod loader;
mod model_on_graph;
mod monitored;
mod named_tensors;
mod numbers;
mod optimizer;
mod partitions;
mod processes;
mod random_key;
mod reach;
mod refresh;
mod resolved;
mod sampled;
mod scored;
mod session;
mod slice;
pub(crate) mod split;
mod standardize;
mod step;
#[cfg(test)]
mod tests;
pub mod trained;
mod trainer;

pub use self::{
    epoch::EpochStats,
    evaluate::Evaluation,
    full_graph::{FullGraphInputs, FullGraphMethod, FullGraphStep, FullGraphSums, Recipe},
    inference::historical,
    optimizer::Optimizer,
    random_key::key,
    session::{Watcher, agree_on_options, finished, follow, hello, train, train_first},
    trainer::Trainer,
};
