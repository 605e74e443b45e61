//! Predictions: the model of a run applied to a store, for all nodes or the nodes of a split in a file, or for a few of them.
//!
//! Inference is exact and out of core. It computes nodes in the order of the store, and files are in the order of external ids. So the
//! rows of nodes go to a scratch file, then to a second one in shards of external ids, and from there in batches to the output:
//!
//! | output | for each node, in the order of the sorted external ids (dense ids: id 0, 1, 2, ...) |
//! |---|---|
//! | `.npy`, classes | int64 of `[nodes]`: its class, or -1 if a logit is NaN. For multi-label tasks, int8 of `[nodes, classes]`: 1 for the classes in its set, and -1 everywhere if a logit is NaN. This is the format of `grappa-store export --labels` |
//! | `.npy`, logits | f32 of `[nodes, classes]` |
//! | `.npy`, embeddings | f32 of `[nodes, hidden]` |
//! | `.npy`, probabilities | f32 of `[nodes, classes]` |
//! | a table, classes | columns `id` (int64, or string), `class` (its name, or int64 if classes have no names; null if a logit is NaN), `probability` (f32, of that class). For multi-label tasks, `classes` and `probabilities`: lists of those with a probability above 0.5 |
//! | a table, probabilities | columns `id`, `class` or `classes`, and `probability_NAME` for each class (f32; its number if it has no name) |
//! | a table, logits | columns `id` and `logits`, a list of f32 |
//! | a table, embeddings | columns `id` and `embedding`, a list of f32. `grappa-ingest --features` reads such tables |
//!
//! [`predict_links`] writes scores of pairs instead, or the best destinations of sources: columns `source`, `target` and `score` (f32).
//!
//! A table is `.parquet` or `.csv`, where lists are as in [`grappa_engine::export::table`].
//!
//! A file of a split has the rows of its nodes only, in the same order. A file of listed nodes has their rows in the order of the list.
//!
//! Cost: disk space for two copies of the rows besides the output, and the memory budget. A split or a list takes 32 bytes of memory more
//! for each of its nodes.

mod encoding;
mod file;
mod links;
mod memory;
mod nan;
mod nodes;
mod options;
mod probability;
mod scored;
mod table;

pub use self::{
    file::{Predicted, predict_file, print_predictions, split_of},
    links::{LinkRequest, PredictedLinks, predict_links},
    nan::NanOutputs,
    nodes::{Prediction, Predictions, predict_nodes},
    options::{FileNodes, FileOptions, Values},
};
