//! Exact inference: one layer after the other over the graph, in memory or out of core.
//!
//! ```text
//! states = features
//! for each layer:
//!     for each tile of the nodes whose states the next layer needs:
//!         aggregate the messages of all in-neighbors                  grappa_engine::aggregate
//!         update the states of the tile; states of the last layer are logits
//! ```
//!
//! If the aggregates of the first layer are known, the first tile of the second one takes the states as they are made. If the last layer
//! aggregates products of states and weights ([`Model::input`](crate::nn::Model::input)), these take the place of the states before it.
//!
//! All neighbors are used and nothing is sampled. So the result is the result of the model on the whole graph, and does not depend on
//! partitions, memory or the number of threads. Evaluations may draw the in-neighbors of each layer instead ([`NeededOptions::samples`]).
//! [`Needed`] has the nodes that each layer computes: those that the wanted results depend on. States are in memory as f32 if they fit.
//! Else they are rounded ([`Inference::rounded_states`]), and in memory or in scratch files. Memory then holds one tile and one block of
//! rows at a time. The same holds for the historical embeddings of halo nodes ([`HistoricalRows`](historical::HistoricalRows)), which take
//! the same passes.

mod at_times;
pub(super) mod columns;
mod exact;
pub(super) mod first_inputs;
pub mod historical;
mod keeper;
mod layers;
pub(super) mod needed;
mod pass;
mod predicted_graph;
mod relational;
mod run;
mod states;
mod step_size;
pub(super) mod task;
pub mod trained_model;

pub(crate) use self::needed::check_sets;
pub use self::{
    first_inputs::FirstInputs,
    needed::{Needed, NeededGraph, NeededOptions},
    relational::RelationalInference,
    task::{Inference, OnRows},
};
pub use super::data::degrees::Degrees;
