//! A step: the gradient of a batch or of a whole graph, and the update of the parameters.

pub(super) mod batch_step;
pub(super) mod full_graph;
pub(super) mod learner;
pub(super) mod optimizer;
