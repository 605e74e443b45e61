//! safetensors files. They are written so that a crash leaves either the old file or the new one.
//!
//! The `safetensors` crate reads them. It cannot write them here: it does not sync files, it needs the whole file in memory, and
//! it writes metadata in random order, while the same tensors must give the same bytes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::Arc,
};

use grappa_io::{
    Error as EngineError,
    durable::Temporary,
    map::{Access, Mapping},
    regular,
};
use safetensors::{SafeTensorError, SafeTensors, tensor::TensorInfo};
use serde_json::{Map, Value, json};

use super::tensor::{NamedTensor, TensorBytes};
use crate::{Error, Result};

/// The key of the header that is not a tensor.
const METADATA: &str = "__metadata__";
/// Tensors of at least this many bytes are not copied into memory: 16 MiB, more than the parameters of most models.
const MAPPED_BYTES: usize = 16 << 20;

/// Writes or replaces a safetensors file. When this returns, the file is on disk.
///
/// # Errors
/// If the file cannot be written, for example because the disk is full. The old file is then unchanged.
///
/// # Panics
/// If two tensors have the same name, or if a tensor has no name or a number of bytes that does not match its shape.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor], metadata: &BTreeMap<String, String>) -> Result<()> {
    let named: Vec<_> = tensors.iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    write_named(path, &named, metadata)
}

/// As [`write_tensors`], with other names than the tensors have.
pub(super) fn write_named(
    path: &Path,
    tensors: &[(String, &NamedTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    // Removes an incomplete file on an error, which also frees the space on a full disk.
    let temporary = Temporary::replace(path)?;
    write(&temporary.file, tensors, metadata).map_err(EngineError::io("write", path))?;
    temporary.finish()?;
    Ok(())
}

fn write(file: &File, tensors: &[(String, &NamedTensor)], metadata: &BTreeMap<String, String>) -> std::io::Result<()> {
    // Types with large values come first, so all values are aligned, because the header is.
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(_, tensor)| Reverse(tensor.dtype.bitsize()));
    let mut header = Map::new();
    header.insert(METADATA.to_owned(), json!(metadata));
    let mut offset = 0;
    for (name, tensor) in &ordered {
        tensor.assert_sound();
        assert!(!name.is_empty() && name != METADATA, "a tensor has a name");
        let info = TensorInfo {
            dtype: tensor.dtype,
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
/// If the file cannot be read, is truncated, or is not a safetensors file.
pub fn read_tensors(path: &Path) -> Result<(Vec<NamedTensor>, HashMap<String, String>)> {
    parse(path, &regular::read(path)?)
}

/// As [`read_tensors`], of a file that is never modified: large tensors stay in the file, which is mapped.
pub(super) fn map_tensors(path: &Path) -> Result<(Vec<NamedTensor>, HashMap<String, String>)> {
    let file = regular::open(path)?;
    let bytes = file.metadata().map_err(EngineError::io("inspect", path))?.len();
    if bytes < MAPPED_BYTES as u64 {
        return read_tensors(path);
    }
    let mapping = Arc::new(Mapping::new(&file, path, Access::Sequential)?);
    let copy_or_part = |data: &[u8]| {
        if data.len() < MAPPED_BYTES {
            return data.to_vec().into();
        }
        let start = data.as_ptr().addr() - mapping.as_ptr().addr();
        TensorBytes::Part(mapping.clone(), start..start + data.len())
    };
    decode(&mapping, copy_or_part).map_err(|error| incomplete(path, &error))
}

/// As [`read_tensors`], of the bytes of a file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<NamedTensor>, HashMap<String, String>)> {
    decode(bytes, |data| data.to_vec().into()).map_err(|error| incomplete(path, &error))
}

fn incomplete(path: &Path, error: &SafeTensorError) -> Error {
    Error::run_file(path, format!("not a complete safetensors file: {error}"))
}

/// `tensor_bytes` returns the bytes of a tensor, which it gets as a part of `bytes`.
fn decode(
    bytes: &[u8],
    tensor_bytes: impl Fn(&[u8]) -> TensorBytes,
) -> std::result::Result<(Vec<NamedTensor>, HashMap<String, String>), SafeTensorError> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let parsed = SafeTensors::deserialize(bytes)?;
    let mut tensors = Vec::with_capacity(parsed.len());
    for name in header.offset_keys() {
        let view = parsed.tensor(&name)?;
        tensors.push(NamedTensor::new(name, view.dtype(), view.shape(), tensor_bytes(view.data())));
    }
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}
