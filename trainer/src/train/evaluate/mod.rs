//! Evaluations of the model while it is trained.

pub(super) mod evaluations;
pub(super) mod link_scores;
mod minibatch_scores;
mod ranked_links;
pub(super) mod scored_nodes;
mod timed_links;
