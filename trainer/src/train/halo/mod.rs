//! Historical embeddings of halo nodes, while the model is trained.

pub(super) mod history;
mod reachable_nodes;
