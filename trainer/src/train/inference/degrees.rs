//! The in-degrees of nodes.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_engine::aggregate::NodeRows;
use grappa_formats::NodeId;
use grappa_storage::MappedChunks;

use crate::kernels::parallel;

/// The in-degrees of all nodes, memory-mapped. A slice may have the in-degrees of halo nodes whose chunks it lacks; others are 0.
#[derive(Clone)]
pub struct Degrees(Arc<MappedChunks>);

impl Degrees {
    /// The in-degrees in some chunks.
    pub fn new(chunks: Arc<MappedChunks>) -> Self {
        Self(chunks)
    }

    /// The in-degree of a node.
    pub fn of(&self, node: NodeId) -> grappa_io::Result<u64> {
        self.0.in_degree(node)
    }

    /// The in-degrees of many nodes, looked up by libtorch's threads.
    pub fn of_all(&self, nodes: &[NodeId]) -> grappa_io::Result<Vec<u64>> {
        const NODES_OF_PART: usize = 4096;
        let mut degrees = vec![0; nodes.len()];
        let failed = Mutex::new(Ok(()));
        let parts = degrees.chunks_mut(NODES_OF_PART).zip(nodes.chunks(NODES_OF_PART));
        parallel::for_each(parts.collect(), |(degrees, nodes): (&mut [u64], &[NodeId])| {
            let found = degrees.iter_mut().zip(nodes).try_for_each(|(degree, &node)| {
                *degree = self.of(node)?;
                Ok(())
            });
            if found.is_err() {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = found;
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok(degrees)
    }

    /// The in-degrees of some nodes, as tensors take them.
    pub(super) fn of_each(&self, nodes: impl IntoIterator<Item = NodeId>) -> grappa_io::Result<Vec<f32>> {
        nodes.into_iter().map(|node| Ok(self.of(node)? as f32)).collect()
    }

    /// The lengths of the adjacency lists of some nodes: their in-degrees, and 0 for those whose lists a slice lacks.
    pub(super) fn of_each_list(&self, nodes: impl IntoIterator<Item = NodeId>) -> grappa_io::Result<Vec<f32>> {
        nodes.into_iter().map(|node| Ok(self.0.degree(node)? as f32)).collect()
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
