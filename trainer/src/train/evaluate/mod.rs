//! Evaluations of the model while it is trained.

pub(super) mod evaluations;
pub(super) mod link_scores;
mod minibatch_scores;
pub(super) mod scored_nodes;
mod timed_links;
