//! Link prediction: the part of training that differs from tasks of nodes.
//!
//! ```text
//! data        the edges to learn and to score, and what is drawn for them
//! lists       pairs in files of the user: hard negatives, and candidates of evaluations
//! pairs       the pairs of a step, as tensors
//! loss        the loss of each edge, from the embeddings of its ends and of its negatives
//! step_memory the memory of the negatives of a step, and the refusal of too many
//! ```
//!
//! [`super::link_evaluation`] scores the edges that are held out.
//!
//! A step is a step of a task of nodes whose seeds are the ends of pairs: samplers, feed, model and exchange are the same. An edge belongs to
//! the partition of its destination. Its source may be a halo node, which has sampled in-neighbors there.

mod data;
mod lists;
mod loss;
mod pairs;
mod step_memory;

pub(super) use self::{data::LinkData, loss::LinkLoss, pairs::PairTensors, step_memory::budgeted_bytes};
