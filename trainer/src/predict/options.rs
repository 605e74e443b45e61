//! What to predict.

use grappa_formats::NodeId;

/// The values to write for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Its class, or its set of labels.
    Classes,
    /// The probability of each class.
    Probabilities,
    /// One value per class.
    Logits,
    /// The input of the last layer.
    Embeddings,
}

/// Contents of a file of predictions.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions<'a> {
    /// The values of each node.
    pub values: Values,
    /// The nodes.
    pub nodes: FileNodes<'a>,
}

/// The nodes of a file of predictions.
#[derive(Debug, Clone, Copy)]
pub enum FileNodes<'a> {
    /// All nodes, in the order of the sorted external ids.
    All,
    /// Those of the split of this name, in the same order.
    Split(&'a str),
    /// These, in this order.
    Listed(&'a [NodeId]),
}

impl From<Values> for FileOptions<'_> {
    /// The values of all nodes.
    fn from(values: Values) -> Self {
        Self { values, nodes: FileNodes::All }
    }
}
