//! The ages of the nodes of a batch, as inputs of a model with weights for each relation.

use std::sync::Arc;

use grappa_kernels::for_each;
use grappa_run::model::{ModelGraph, TimeEncoding};
use grappa_sampling::sample::Minibatch;
use grappa_storage::{Graph, NodeTimes};
use tch::{Device, Tensor};

use crate::{Result, runtime::send};

/// Nodes that a thread encodes at a time.
const NODES: usize = 512;

/// How ages are encoded, and the times of the nodes that have them.
pub(crate) struct NodeAges {
    encoding: TimeEncoding,
    /// By node type; none for types whose ages the model does not take.
    times: Vec<Option<Arc<NodeTimes>>>,
}

impl NodeAges {
    /// The ages that a model of `learned` takes. None if it takes none.
    ///
    /// # Errors
    /// If the times of nodes cannot be read.
    pub fn open(graph: &Graph, learned: &ModelGraph, encoding: Option<TimeEncoding>) -> Result<Option<Self>> {
        let Some(encoding) = encoding.filter(|_| learned.node_types.iter().any(|node_type| node_type.ages > 0)) else {
            return Ok(None);
        };
        let times = learned.node_types.iter().enumerate().map(|(number, node_type)| match node_type.ages {
            0 => Ok(None),
            _ => graph.node_times(number).map(Option::<&_>::cloned),
        });
        Ok(Some(Self { encoding, times: times.collect::<grappa_io::Result<_>>()? }))
    }

    /// Appends the encoded age of each node of a batch to the features of its type, `[nodes, features]`. The age is the time from the node to
    /// the seed of its part.
    pub fn append_to(&self, features: &mut [Tensor], minibatches: &[Minibatch], device: Device) {
        for ((features, minibatch), times) in features.iter_mut().zip(minibatches).zip(&self.times) {
            let Some(times) = times else { continue };
            let ages = send(self.encoded(minibatch, times), device).to_kind(features.kind());
            *features = Tensor::cat(&[features.shallow_clone(), ages], 1);
        }
    }

    /// f32 of `[nodes, values]`.
    fn encoded(&self, minibatch: &Minibatch, times: &NodeTimes) -> Tensor {
        let values = self.encoding.values;
        let mut rows = vec![0.0f32; minibatch.nodes.len() * values];
        let parts: Vec<_> = rows.chunks_mut(NODES * values).zip(minibatch.nodes.chunks(NODES)).zip(0..).collect();
        for_each(parts, |((rows, nodes), chunk)| {
            let mut row = Vec::with_capacity(values);
            for ((place, out), node) in rows.chunks_exact_mut(values).enumerate().zip(nodes) {
                // Without parts, all nodes are of one.
                let part = minibatch.parts.get(chunk * NODES + place).map_or(0, |&part| part as usize);
                row.clear();
                let age = minibatch.part_times[part].saturating_sub(times.time(*node));
                self.encoding.append(age, &mut row);
                out.copy_from_slice(&row);
            }
        });
        Tensor::from_slice(&rows).view([-1, values as i64])
    }
}
