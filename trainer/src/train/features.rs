//! Rows of a feed as tensors.

use grappa_engine::feed::{FeatureBuffer, OutputDtype};
use tch::{Device, Kind, Tensor};

/// The features of a minibatch's nodes, `[nodes, dim]`, on a device, and then their aggregates if there are any.
pub fn tensors(rows: &FeatureBuffer, device: Device) -> Vec<Tensor> {
    let kind = match rows.dtype() {
        OutputDtype::F32 => Kind::Float,
        OutputDtype::Bf16 => Kind::BFloat16,
    };
    let (columns, nodes, dim) = (rows.columns() as i64, rows.rows() as i64, rows.dim() as i64);
    let all = Tensor::from_data_size(rows.bytes(), &[columns, nodes, dim], kind).to_device(device);
    all.unbind(0)
}
