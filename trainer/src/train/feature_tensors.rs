//! Feature rows of a feed as tensors.

use std::sync::Arc;

use grappa_sampling::feed::{Batch, OutputDtype, RowContent};
use tch::{Device, Kind, Tensor};

use crate::{
    runtime::send,
    shim::{Values, view_memory},
};

/// The feature rows of a batch.
pub(crate) struct FeatureTensors {
    /// The features of the nodes of each type, `[nodes, dim]`; of no columns for types without features.
    pub own: Vec<Tensor>,
    /// For each relation, their aggregates for the nodes of its destinations' type, if the batch has them.
    pub aggregates: Vec<Tensor>,
}

impl FeatureTensors {
    /// The rows of a batch on a device. On a processor nothing is copied: the tensors are views of the batch and keep it alive.
    ///
    pub fn from_batch(batch: &Arc<Batch>, relations: usize, device: Device) -> Self {
        let nodes = batch.minibatches().iter().map(|minibatch| minibatch.nodes.len() as i64);
        let Some(rows) = batch.features() else {
            // No type has features.
            let own = nodes.map(|nodes| Tensor::empty([nodes, 0], (Kind::Float, device)));
            return Self { own: own.collect(), aggregates: Vec::new() };
        };
        let kind = match rows.dtype() {
            OutputDtype::F32 => Kind::Float,
            OutputDtype::Bf16 => Kind::BFloat16,
        };
        let values = rows.shapes().map(|(.., [rows, dim])| rows * dim).sum();
        let all = send(view_memory(batch.clone(), values, 1, kind).view([-1]), device);
        let mut own: Vec<Tensor> = nodes.map(|nodes| Tensor::empty([nodes, 0], (kind, device))).collect();
        let mut aggregates = Vec::new();
        let mut start = 0;
        for (node_type, content, [rows, dim]) in rows.shapes() {
            let values = (rows * dim) as i64;
            let matrix = all.narrow(0, start, values).view([rows as i64, dim as i64]);
            start += values;
            match content {
                RowContent::Features => own[node_type] = matrix,
                RowContent::Aggregates(relation) => {
                    aggregates.resize_with(relations, || Tensor::empty([0, 0], (kind, device)));
                    aggregates[relation] = matrix;
                }
            }
        }
        Self { own, aggregates }
    }

    /// All tensors.
    pub fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.own.iter().chain(&self.aggregates)
    }
}

impl Values for Batch {
    fn bytes(&self) -> &[u8] {
        self.features().expect("a view of features").bytes()
    }
}
