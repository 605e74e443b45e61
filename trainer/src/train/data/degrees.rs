//! The in-degrees of nodes.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_engine::aggregate::NodeRows;
use grappa_formats::NodeId;
use grappa_kernels::for_each;
use grappa_storage::MappedChunks;

/// The in-degrees of all nodes, memory-mapped. A slice may have the in-degrees of halo nodes whose chunks it lacks; others are 0.
///
/// GCN divides by in-degrees, or by the sums of the weights of in-edges.
#[derive(Clone)]
pub struct Degrees {
    chunks: Arc<MappedChunks>,
    /// Of each node, if GCN takes weights.
    weight_sums: Option<Arc<[f32]>>,
}

impl Degrees {
    /// The in-degrees in some chunks.
    pub fn new(chunks: Arc<MappedChunks>) -> Self {
        Self::with_weights(chunks, None)
    }

    /// The in-degrees in some chunks, and, if they are given, the sums of the weights of each node's in-edges, which GCN takes instead.
    pub fn with_weights(chunks: Arc<MappedChunks>, weight_sums: Option<Arc<[f32]>>) -> Self {
        Self { chunks, weight_sums }
    }

    /// The sums of the weights of each node's in-edges, if GCN takes them.
    pub fn weight_sums(&self) -> Option<&Arc<[f32]>> {
        self.weight_sums.as_ref()
    }

    /// The in-degree of a node.
    pub fn degree(&self, node: NodeId) -> grappa_io::Result<u64> {
        self.chunks.in_degree(node)
    }

    /// The in-degrees of many nodes, looked up by libtorch's threads.
    pub fn of_all(&self, nodes: &[NodeId]) -> grappa_io::Result<Vec<u64>> {
        const NODES_OF_PART: usize = 4096;
        let mut degrees = vec![0; nodes.len()];
        let failed = Mutex::new(Ok(()));
        let parts = degrees.chunks_mut(NODES_OF_PART).zip(nodes.chunks(NODES_OF_PART));
        for_each(parts.collect(), |(degrees, nodes): (&mut [u64], &[NodeId])| {
            let found = degrees.iter_mut().zip(nodes).try_for_each(|(degree, &node)| {
                *degree = self.degree(node)?;
                Ok(())
            });
            if found.is_err() {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = found;
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok(degrees)
    }

    /// What GCN takes of many nodes: in-degrees, or sums of weights.
    pub fn of_gcn(&self, nodes: &[NodeId]) -> grappa_io::Result<Vec<f32>> {
        match &self.weight_sums {
            Some(sums) => Ok(nodes.iter().map(|node| sums[node.0 as usize]).collect()),
            None => Ok(self.of_all(nodes)?.into_iter().map(|degree| degree as f32).collect()),
        }
    }

    /// What GCN takes of some nodes, as tensors take it.
    pub(crate) fn of_each(&self, nodes: impl IntoIterator<Item = NodeId>) -> grappa_io::Result<Vec<f32>> {
        let nodes = nodes.into_iter();
        match &self.weight_sums {
            Some(sums) => Ok(nodes.map(|node| sums[node.0 as usize]).collect()),
            None => nodes.map(|node| Ok(self.degree(node)? as f32)).collect(),
        }
    }

    /// The same, and 0 for nodes whose lists a slice lacks.
    pub(crate) fn of_each_list(&self, nodes: impl IntoIterator<Item = NodeId>) -> grappa_io::Result<Vec<f32>> {
        match &self.weight_sums {
            // They are of whole stores.
            Some(_) => self.of_each(nodes),
            None => nodes.into_iter().map(|node| Ok(self.chunks.degree(node)? as f32)).collect(),
        }
    }
}

impl NodeRows for Degrees {
    fn width(&self) -> usize {
        1
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        for (out, node) in out.iter_mut().zip(nodes) {
            *out = self.degree(NodeId(node))? as f32;
        }
        Ok(())
    }
}
