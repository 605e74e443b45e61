//! Options after everything that is `auto` was decided, and advice about them.

pub(super) mod advice;
pub mod first_hop;
pub(super) mod loader_options;
pub(super) mod minibatch_estimate;
mod partition_counts;
pub(super) mod resolved_config;
