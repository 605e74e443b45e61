//! Tensors in the processor's memory, and in checkpoints.

use std::{ops::Deref, path::Path};

use grappa_run::checkpoint::NamedTensor;
use tch::{Device, Kind, Tensor, no_grad};

use crate::{Error, Result, shim};

/// The values of a tensor as f32, row by row. If they are f32 in the processor's memory already, they are not copied.
pub(crate) fn host_values(tensor: &Tensor) -> HostValues {
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

/// A tensor for a checkpoint.
pub(super) fn to_named(name: &str, tensor: &Tensor) -> NamedTensor {
    let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
    NamedTensor::from_f32(name, &shape, &host_values(tensor))
}

/// Copies the tensors of a checkpoint into those with the same names.
pub(super) fn load(path: &Path, tensors: &[(String, Tensor)], from: &[NamedTensor]) -> Result<()> {
    if tensors.len() != from.len() {
        return Err(of_another_model(path, format!("{} tensors instead of {}", from.len(), tensors.len())));
    }
    for (name, tensor) in tensors {
        let Some(found) = from.iter().find(|found| found.name == *name) else {
            return Err(of_another_model(path, format!("there is no tensor {name}")));
        };
        let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
        let Some(found_values) = found.to_f32().filter(|_| found.shape == shape) else {
            return Err(of_another_model(
                path,
                format!("tensor {name} has the shape {:?} instead of {:?}", found.shape, shape),
            ));
        };
        let size = tensor.size();
        no_grad(|| {
            let loaded = Tensor::from_slice(&found_values).view(&*size).to_kind(Kind::Float);
            tensor.shallow_clone().copy_(&loaded.to_device(tensor.device()));
        });
    }
    Ok(())
}

/// The error for a checkpoint in `path` that lacks something of the model.
pub(super) fn of_another_model(path: &Path, problem: String) -> Error {
    Error::run_file(path, format!("{problem}: the checkpoint belongs to another model"))
}
