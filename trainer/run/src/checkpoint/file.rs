//! safetensors files, written so that a crash leaves the old file or the new one.
//!
//! The `safetensors` crate reads them. It does not write them here, because it syncs nothing, and would have all of the file
//! in memory or its metadata in random order; the same tensors shall make the same bytes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use grappa_io::{Error as EngineError, durable::Temporary, regular};
use safetensors::{SafeTensorError, SafeTensors, tensor::TensorInfo};
use serde_json::{Map, Value, json};

use super::tensor::{Dtype, NamedTensor};
use crate::{Error, Result};

/// The key of the header that is no tensor.
const METADATA: &str = "__metadata__";

/// Writes or replaces a safetensors file. When this returns, it has survived.
///
/// # Errors
/// If the disk is full, or the file can't be written for another reason. What was there before is then still there.
///
/// # Panics
/// If two tensors have the same name, or one has no name, or bytes that its shape does not call for.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor], metadata: &BTreeMap<String, String>) -> Result<()> {
    let named: Vec<_> = tensors.iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    write_named(path, &named, metadata)
}

/// As [`write_tensors`], under other names than the tensors' own.
pub(super) fn write_named(
    path: &Path,
    tensors: &[(String, &NamedTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    // Half a file helps nobody, least of all on a full disk: it goes when this returns.
    let temporary = Temporary::replace(path)?;
    write(&temporary.file, tensors, metadata).map_err(EngineError::io("write", path))?;
    temporary.finish()?;
    Ok(())
}

fn write(file: &File, tensors: &[(String, &NamedTensor)], metadata: &BTreeMap<String, String>) -> std::io::Result<()> {
    // Large values first: then all are aligned, as the header is.
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(_, tensor)| Reverse(tensor.dtype.bytes()));
    let mut header = Map::new();
    header.insert(METADATA.to_owned(), json!(metadata));
    let mut offset = 0;
    for (name, tensor) in &ordered {
        tensor.assert_sound();
        assert!(!name.is_empty() && name != METADATA, "a tensor has a name");
        let info = TensorInfo {
            dtype: tensor.dtype.outside(),
            shape: tensor.shape.clone(),
            data_offsets: (offset, offset + tensor.bytes.len()),
        };
        offset += tensor.bytes.len();
        let before = header.insert(name.clone(), json!(info));
        assert!(before.is_none(), "two tensors are called {name}");
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut file = BufWriter::with_capacity(1 << 20, file);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for (_, tensor) in ordered {
        file.write_all(&tensor.bytes)?;
    }
    file.flush()
}

/// The tensors and the metadata of a safetensors file; tensors in the order of their bytes.
///
/// # Errors
/// If the file can't be read, is none, or is truncated.
pub fn read_tensors(path: &Path) -> Result<(Vec<NamedTensor>, HashMap<String, String>)> {
    parse(path, &regular::read(path)?)
}

/// As [`read_tensors`], of the bytes of a file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<NamedTensor>, HashMap<String, String>)> {
    let damaged = |what: String| Error::run_file(path, what);
    let broken = |error: SafeTensorError| damaged(format!("no whole safetensors file: {error}"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let parsed = SafeTensors::deserialize(bytes).map_err(broken)?;
    let mut tensors = Vec::with_capacity(parsed.len());
    for name in header.offset_keys() {
        let view = parsed.tensor(&name).map_err(broken)?;
        let dtype = Dtype::from_outside(view.dtype()).ok_or_else(|| {
            damaged(format!(
                "tensor {name} is of type {}, which is not known here",
                view.dtype()
            ))
        })?;
        tensors.push(NamedTensor::new(name, dtype, view.shape(), view.data().to_vec()));
    }
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}
