//! What a model is trained on: labels, splits, degrees, and the values of edges.

pub(super) mod class_weights;
pub(super) mod degrees;
pub(super) mod edge_data;
pub(crate) mod labels;
pub(super) mod moments;
pub(super) mod monitor;
pub(crate) mod node_ages;
pub(crate) mod node_inputs;
pub(super) mod slice;
pub(crate) mod splits;
pub(crate) mod times;
pub(super) mod training_data;
pub(crate) mod types;
