//! The unit of work by which training and inference are compared: aggregating one edge.

/// Training costs as much per sampled edge as aggregating this many edges: forward and backward passes, sampling, and the update of
/// the states of few destinations per edge.
pub(super) const SAMPLED_EDGE_WORK: f64 = 8.0;

/// Updating a state costs as much as aggregating this many edges: a product of a row and two square matrices, next to the memory
/// traffic of a row.
pub(super) const STATE_WORK: f64 = 16.0;
