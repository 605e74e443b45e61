//! The unit of work by which training and inference are compared: aggregating one edge.

/// An epoch takes as long as aggregating about so many edges for each sampled one: forward and backward passes, sampling, and the
/// update of the states of few destinations per edge.
pub(super) const SAMPLED_EDGE_WORK: f64 = 8.0;

/// Updating a state takes as long as aggregating about so many edges: a product of a row and two square matrices, next to the memory
/// traffic of a row.
pub(super) const STATE_WORK: f64 = 16.0;
