//! The in-degrees of nodes.

use std::{ops::Range, sync::Arc};

use grappa_engine::aggregate::NodeRows;
use grappa_formats::NodeId;
use grappa_storage::MappedChunks;

/// The in-degrees of all nodes, memory-mapped.
pub struct Degrees(Arc<MappedChunks>);

impl Degrees {
    /// The in-degrees in some chunks.
    pub fn new(chunks: Arc<MappedChunks>) -> Self {
        Self(chunks)
    }

    /// The in-degree of a node.
    pub fn of(&self, node: NodeId) -> grappa_io::Result<u64> {
        self.0.degree(node)
    }

    /// The in-degrees of some nodes, as tensors take them.
    pub(super) fn of_each(&self, nodes: impl IntoIterator<Item = NodeId>) -> grappa_io::Result<Vec<f32>> {
        nodes.into_iter().map(|node| Ok(self.of(node)? as f32)).collect()
    }
}

impl NodeRows for Degrees {
    fn width(&self) -> usize {
        1
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        for (out, node) in out.iter_mut().zip(nodes) {
            *out = self.of(NodeId(node))? as f32;
        }
        Ok(())
    }
}
