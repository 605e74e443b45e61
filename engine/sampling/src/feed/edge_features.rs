//! The features of the edges of minibatches.

use std::sync::Arc;

use grappa_io::{Error, Result};
use grappa_storage::Graph;

use crate::{
    sample::{Block, Minibatch},
    shape::GraphShape,
    view::{EdgeFeatures, MappedMemory, shape_of},
};

/// The features of the edges of a graph, of each relation that has any. Shared by threads.
#[derive(Debug)]
pub struct GraphEdgeFeatures {
    shape: GraphShape,
    relations: Vec<Option<EdgeFeatures>>,
}

impl GraphEdgeFeatures {
    /// Maps the features of all edges. Their resident pages, and the pages of others that share `memory`, may take the sum of their limits,
    /// here `bytes`.
    ///
    /// # Errors
    /// If no edges have features, or a file cannot be opened.
    pub(crate) fn open(graph: &Graph, bytes: u64, memory: &Arc<MappedMemory>) -> Result<Self> {
        let all: u128 = graph.relations().iter().map(|store| u128::from(store.edge_feature_bytes())).sum();
        let relations = graph.relations().iter().map(|store| {
            let share = u128::from(bytes) * u128::from(store.edge_feature_bytes()) / all.max(1);
            store.edge_features().map(|_| EdgeFeatures::open(store, share as u64, memory)).transpose()
        });
        let relations: Vec<_> = relations.collect::<Result<_>>()?;
        if relations.iter().all(Option::is_none) {
            let remedy = "ingest edges with --edge-features or --edge-features-from";
            return Err(Error::missing("edge features", graph.path(), remedy));
        }
        Ok(Self { shape: shape_of(graph), relations })
    }

    /// The most bytes that their resident pages take.
    pub fn bytes(&self) -> u64 {
        self.relations.iter().flatten().map(|relation| relation.bytes()).sum()
    }

    /// Sets the features of the edges of a minibatch of each node type to zeros, in blocks that have ids of edges.
    pub(crate) fn make_room(&self, types: &mut [Minibatch]) {
        self.for_each(types, |features, block| {
            block.edge_features.resize(features.dim() * block.edge_ids.len(), 0.0);
            Ok(())
        })
        .expect("nothing is read");
    }

    /// Reads the features of the edges that [`GraphEdgeFeatures::make_room`] has made room for.
    ///
    /// # Errors
    /// If a file is damaged, or the store has no such edge.
    pub(crate) fn gather(&self, types: &mut [Minibatch]) -> Result<()> {
        self.for_each(types, |features, block| features.gather(&block.edge_ids, &mut block.edge_features))
    }

    fn for_each(&self, types: &mut [Minibatch], each: impl Fn(&EdgeFeatures, &mut Block) -> Result<()>) -> Result<()> {
        let hops = self.shape.hops(types);
        for (number, features) in self.relations.iter().enumerate() {
            let (Some(features), destination) = (features, self.shape.relations[number].destination) else { continue };
            for hop in 0..hops {
                each(features, &mut types[destination].blocks[self.shape.block_place(number, hop)])?;
            }
        }
        Ok(())
    }
}
