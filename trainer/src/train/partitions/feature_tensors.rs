//! Feature rows of a feed as tensors.

use std::sync::Arc;

use grappa_sampling::feed::{Batch, FeatureBuffer, OutputDtype};
use tch::{Device, Kind, Tensor};

use crate::{
    runtime::send,
    shim::{Values, view_memory},
};

/// The features of a batch's nodes, `[nodes, dim]`, on a device, then their aggregates if there are any. On a processor nothing is
/// copied: the tensors are views of the batch and keep it alive.
///
/// # Panics
/// If the batch has no features.
pub fn tensors(batch: &Arc<Batch>, device: Device) -> Vec<Tensor> {
    let rows = features(batch);
    let kind = match rows.dtype() {
        OutputDtype::F32 => Kind::Float,
        OutputDtype::Bf16 => Kind::BFloat16,
    };
    let all = view_memory(batch.clone(), rows.columns() * rows.rows(), rows.dim(), kind);
    let all = send(all, device);
    let nodes = rows.rows() as i64;
    let columns = 0..rows.columns() as i64;
    columns.map(|column| all.narrow(0, column * nodes, nodes)).collect()
}

fn features(batch: &Batch) -> &FeatureBuffer {
    batch.features().expect("features were asked for")
}

impl Values for Batch {
    fn bytes(&self) -> &[u8] {
        features(self).bytes()
    }
}
