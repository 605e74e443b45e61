//! The features of the nodes of a graph.

use grappa_engine::aggregate::store_features;
use grappa_formats::NodeId;
use grappa_storage::Store;
use grappa_trainer::Result;
use tch::Tensor;

/// Features of some nodes.
pub(crate) struct NodeFeatures {
    /// Ascending.
    nodes: Vec<NodeId>,
    /// f32 of `[nodes, features]`.
    rows: Tensor,
}

impl NodeFeatures {
    pub(crate) fn read(store: &Store, nodes: &[NodeId]) -> Result<Self> {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let store_rows = store_features(store)?;
        let width = store_rows.width();
        let mut values = vec![0.0; nodes.len() * width];
        let mut start = 0;
        for run in nodes.chunk_by(|a, b| a.0 + 1 == b.0) {
            let end = start + run.len() * width;
            store_rows.read(run[0].0..run[0].0 + run.len() as u64, &mut values[start..end])?;
            start = end;
        }
        let rows = Tensor::from_slice(&values).view([nodes.len() as i64, width as i64]);
        Ok(Self { nodes, rows })
    }

    /// The rows of `nodes`, which are among them.
    pub(crate) fn rows_of(&self, nodes: &[NodeId]) -> Tensor {
        let places = nodes.iter().map(|node| self.nodes.binary_search(node).expect("it was read") as i64);
        let places: Vec<i64> = places.collect();
        self.rows.index_select(0, &Tensor::from_slice(&places))
    }
}
