//! The in-degrees of nodes.

use std::ops::Range;

use grappa_engine::aggregate::NodeRows;
use grappa_formats::{NodeId, chunks::ChunkMap};
use grappa_storage::{Chunk, Store};

use crate::Result;

/// The in-degrees of all nodes, memory-mapped.
pub struct Degrees {
    chunks: Vec<Chunk>,
    map: ChunkMap,
}

impl Degrees {
    /// Maps the in-degrees of a store.
    pub fn open(store: &Store) -> Result<Self> {
        let chunks = store.present_chunks().map(|chunk| store.chunk(chunk));
        Ok(Self {
            chunks: chunks.collect::<grappa_io::Result<_>>()?,
            map: store.chunks().clone(),
        })
    }

    /// The in-degree of a node.
    pub fn of(&self, node: NodeId) -> grappa_io::Result<u64> {
        let chunk = self.map.chunk_of(node);
        let rows = self.chunks[chunk.0 as usize].rows();
        rows.degree(node.0 - self.map.range(chunk).start)
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
