//! Models in safetensors files, with the shape of the model in the metadata.
//!
//! A file has all parameters and buffers as f32, under the names that [`Model`] describes. The metadata key `model` has the
//! [`ModelOptions`] as JSON, and `digest` the [`digest`] of all else. With weights for relations, `relations` has the result of
//! [`ModelOptions::relations_of_layers`] as JSON. PyTorch's `num_batches_tracked` is ignored.

use std::{collections::BTreeMap, path::Path};

use grappa_run::{
    checkpoint::{NamedTensor, read_tensors, write_tensors},
    model::ModelOptions,
};
use sha2::{Digest, Sha256};
use tch::{Device, Tensor, no_grad};

use super::model::Model;
use crate::{Error, Result};

const OPTIONS: &str = "model";
const DIGEST: &str = "digest";
/// The relations that each layer aggregates for each type, of a model with weights for relations: they follow from its shape.
const RELATIONS: &str = "relations";

impl Model {
    /// Writes parameters, buffers and the shape to a file. After a crash, the file is complete or does not exist.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.save_with(path, &[], BTreeMap::new())
    }

    /// As [`Model::save`], with additional tensors and metadata.
    pub(crate) fn save_with(
        &self,
        path: &Path,
        more: &[NamedTensor],
        mut metadata: BTreeMap<String, String>,
    ) -> Result<()> {
        let own = self.tensors().map(|(name, tensor)| {
            let values = Vec::<f32>::try_from(tensor.detach().to_device(Device::Cpu).contiguous().view([-1]));
            NamedTensor::from_f32(name, &shape(tensor), &values.expect("parameters are f32"))
        });
        let tensors: Vec<NamedTensor> = own.chain(more.iter().cloned()).collect();
        let options = serde_json::to_string(self.options()).expect("options are plain data");
        metadata.insert(OPTIONS.to_owned(), options);
        if self.options().graph.is_some() {
            let relations = self.options().relations_of_layers();
            metadata.insert(RELATIONS.to_owned(), serde_json::to_string(&relations).expect("numbers are plain data"));
        }
        metadata.insert(DIGEST.to_owned(), digest(&metadata, &tensors));
        Ok(write_tensors(path, &tensors, &metadata)?)
    }

    /// Reads a model that [`Model::save`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or is not a model.
    pub fn load(path: &Path, device: Device) -> Result<Self> {
        let (tensors, metadata) = read_tensors(path)?;
        let metadata = BTreeMap::from_iter(metadata);
        let options = metadata.get(OPTIONS);
        let options =
            options.ok_or_else(|| Error::run_file(path, format!("not a model: its metadata has no `{OPTIONS}`")))?;
        if metadata.get(DIGEST) != Some(&digest(&metadata, &tensors)) {
            return Err(Error::run_file(
                path,
                "damaged: its contents do not match its digest: export the model again".to_owned(),
            ));
        }
        let options: ModelOptions = serde_json::from_str(options)
            .map_err(|error| Error::run_file(path, format!("options of the model: {error}")))?;
        let model = Self::new(options, 0, device)?;
        model.fill(&tensors, path)?;
        Ok(model)
    }

    /// Reads parameters and buffers from a file of any program. Names and shapes must be the same.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or has other tensors. Then nothing is replaced.
    pub fn load_parameters(&self, path: &Path) -> Result<()> {
        self.fill(&read_tensors(path)?.0, path)
    }

    fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let parameters = self.parameters();
        let both = parameters.named().iter().chain(parameters.buffers());
        both.map(|(name, tensor)| (name.as_str(), tensor))
    }

    fn fill(&self, from: &[NamedTensor], path: &Path) -> Result<()> {
        let mut read = Vec::new();
        for (name, tensor) in self.tensors() {
            let found = from.iter().find(|found| found.name == name);
            let found = found.ok_or_else(|| Error::run_file(path, format!("has no tensor `{name}`")))?;
            let values = found.to_f32().filter(|_| found.shape == shape(tensor));
            let values = values.ok_or_else(|| {
                let (dtype, theirs, ours) = (found.dtype, &found.shape, shape(tensor));
                let problem = format!("`{name}` is {dtype} of {theirs:?}, and the model has F32 of {ours:?}");
                Error::run_file(path, problem)
            })?;
            read.push(values);
        }
        if let Some(other) = from
            .iter()
            .filter(|found| !found.name.ends_with(".num_batches_tracked"))
            .find(|found| self.tensors().all(|(name, _)| found.name != name))
        {
            let problem = format!("has a tensor `{}`, and the model has none", other.name);
            return Err(Error::run_file(path, problem));
        }
        no_grad(|| {
            for ((_, tensor), values) in self.tensors().zip(read) {
                let values = Tensor::from_slice(&values).view(&*tensor.size());
                tensor.shallow_clone().copy_(&values);
            }
        });
        Ok(())
    }
}

/// The SHA-256 of metadata and tensors, in hexadecimal digits. safetensors has no checksum, so a flipped byte would be another parameter.
///
/// ```text
/// for each key of the metadata but `digest`, ascending:  key 00 value 00
/// for each tensor, names ascending:                      name 00 type 00 sizes, separated by commas 00 bytes
/// ```
fn digest(metadata: &BTreeMap<String, String>, tensors: &[NamedTensor]) -> String {
    let mut hash = Sha256::new();
    for (key, value) in metadata.iter().filter(|(key, _)| *key != DIGEST) {
        hash.update(format!("{key}\0{value}\0"));
    }
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    for NamedTensor { name, dtype, shape, bytes } in tensors {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        hash.update(format!("{name}\0{dtype}\0{}\0", sizes.join(",")));
        hash.update(&bytes[..]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shape(tensor: &Tensor) -> Vec<usize> {
    tensor.size().iter().map(|&size| size as usize).collect()
}
