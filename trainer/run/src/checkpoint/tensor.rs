//! Tensors in memory or in files, without a tensor library.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use grappa_io::{array::Array, map::Mapping};
pub use safetensors::Dtype;

/// A tensor: a name, a type, a shape and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTensor {
    /// Its name, which must not be empty.
    pub name: String,
    /// The type of its values.
    pub dtype: Dtype,
    /// Its sizes; empty for a single value.
    pub shape: Vec<usize>,
    /// Its values, row by row, little-endian.
    pub bytes: TensorBytes,
}

/// The bytes of a tensor. A copy of bytes that are not in memory refers to the same file.
#[derive(Clone)]
pub enum TensorBytes {
    /// Bytes in memory.
    Memory(Vec<u8>),
    /// Bytes that may be in a scratch file.
    Array(Arc<Array<u8>>),
    /// A part of a finished file.
    Part(Arc<Mapping>, Range<usize>),
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Array(array) => array,
            Self::Part(mapping, part) => &mapping[part.clone()],
        }
    }
}

impl PartialEq for TensorBytes {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for TensorBytes {}

impl fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl From<Vec<u8>> for TensorBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

impl From<Array<u8>> for TensorBytes {
    fn from(bytes: Array<u8>) -> Self {
        Self::Array(Arc::new(bytes))
    }
}

impl NamedTensor {
    /// A tensor with these bytes.
    ///
    /// # Panics
    /// If the number of bytes does not match the shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: &[usize], bytes: impl Into<TensorBytes>) -> Self {
        let tensor = Self { name: name.into(), dtype, shape: shape.to_vec(), bytes: bytes.into() };
        tensor.assert_sound();
        tensor
    }

    /// A tensor of f32.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn from_f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(name, Dtype::F32, shape, bytes)
    }

    /// Its values, if they are f32.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let values = self.bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
        (self.dtype == Dtype::F32).then(|| values.collect())
    }

    pub(super) fn assert_sound(&self) {
        let count: usize = self.shape.iter().product();
        assert_eq!(8 * self.bytes.len(), count * self.dtype.bitsize(), "bytes of tensor {}", self.name);
    }
}
