//! The other ways to train a partitioned graph, for comparisons with Grappa's.
//!
//! A step takes all training nodes and all edges. The states of all partitions are the rows of one matrix, and the edges of all
//! partitions are one block. So an exchange between partitions is an index, a change of the rows, and a count of bytes:
//!
//! ```text
//! states at the input of a layer   [nodes, width]
//!     index                        the rows of boundary nodes, once for each partition that needs them
//!     exchange                     what arrives: exact, masked, quantized, late          `BoundaryExchange`
//!     layer                        on the states and the rows that arrived
//! loss, and backward through the layers: the gradients of the rows that arrived go back through the same exchange
//! ```
//!
//! Only gradients of parameters pass through [`grappa_trainer::train::exchange`], for every method. States and their gradients have a type of their
//! own, `BoundaryExchange`, so the exchange of gradients has no room for them.
//!
//! With `full` and `varco`, processes can divide the partitions. A process has the rows and the edges of its own; the exchange sends what
//! others need to their processes (`Wire`), and a step has as many exchanges in every process.
//!
//! | method | what travels besides gradients of parameters |
//! |---|---|
//! | `full` | states of boundary nodes, and their gradients |
//! | `isolated`, `cofree` | nothing |
//! | `varco` | a random part of the values of `full` |
//! | `adaqp` | the values of `full` in 2, 4 or 8 bits |
//! | `bns` | the values of `full` for a random part of the boundary nodes |
//! | `pipegcn` | the values of `full`, which are used one epoch later |
//! | `llcg` | copies of the model after local steps, and all features once |
//! | `gern` | nothing: there is one partition, and a step takes a path through the graph |

#![forbid(unsafe_code)]

mod adaqp;
mod bns;
mod boundary;
mod choice;
mod compare;
mod config;
mod exchange;
mod features;
mod full;
mod gern;
mod graph;
mod lists;
mod llcg;
mod owners;
mod pipegcn;
mod step;
#[cfg(test)]
mod tests;
mod training;
mod varco;
mod wire;

pub use self::{
    compare::{Comparison, MethodSpec, NOT_SHARED, PlannedRun},
    config::{MessageBits, Method, MethodConfig, RateSchedule, RateUnit, option_named},
    training::setup,
};
