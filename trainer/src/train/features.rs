//! Features as tensors.

use grappa_engine::feed::{FeatureBuffer, OutputDtype};
use tch::{Device, Kind, Tensor};

/// The rows of a minibatch, `[nodes, dim]`, on a device.
pub fn tensor(rows: &FeatureBuffer, device: Device) -> Tensor {
    let kind = match rows.dtype() {
        OutputDtype::F32 => Kind::Float,
        OutputDtype::Bf16 => Kind::BFloat16,
    };
    Tensor::from_data_size(rows.bytes(), &[rows.rows() as i64, rows.dim() as i64], kind).to_device(device)
}
