//! Tensors in memory, without a tensor library.

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
    pub bytes: Vec<u8>,
}

impl NamedTensor {
    /// A tensor with these bytes.
    ///
    /// # Panics
    /// If the number of bytes does not match the shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        let tensor = Self { name: name.into(), dtype, shape: shape.to_vec(), bytes };
        tensor.assert_sound();
        tensor
    }

    /// A tensor of f32.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn from_f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
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
