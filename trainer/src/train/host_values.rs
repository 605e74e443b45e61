//! The values of tensors in the processor's memory.

use std::ops::Deref;

use tch::{Device, Kind, Tensor};

use crate::shim;

/// The values of a tensor as f32, row by row. If they are f32 in the processor's memory already, they are not copied.
pub(crate) fn values(tensor: &Tensor) -> HostValues {
    HostValues(tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float).contiguous())
}

/// The values of a tensor in the processor's memory. Dereferences to a slice.
#[derive(Debug)]
pub(crate) struct HostValues(Tensor);

impl Deref for HostValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        shim::values(&self.0)
    }
}
