//! Tensors in memory, without a tensor library.

use std::fmt;

/// The type of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE 754, 64 bits.
    F64,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 16 bits.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 8 bits.
    U8,
    /// 0 or 1, in a byte.
    Bool,
}

impl Dtype {
    const ALL: [(Self, safetensors::Dtype, usize); 8] = [
        (Self::F64, safetensors::Dtype::F64, 8),
        (Self::F32, safetensors::Dtype::F32, 4),
        (Self::F16, safetensors::Dtype::F16, 2),
        (Self::Bf16, safetensors::Dtype::BF16, 2),
        (Self::I64, safetensors::Dtype::I64, 8),
        (Self::I32, safetensors::Dtype::I32, 4),
        (Self::U8, safetensors::Dtype::U8, 1),
        (Self::Bool, safetensors::Dtype::BOOL, 1),
    ];

    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        self.entry().2
    }

    /// The same type in the safetensors crate.
    pub(super) fn outside(self) -> safetensors::Dtype {
        self.entry().1
    }

    /// The type for one of the safetensors crate, if it is supported.
    pub(super) fn from_outside(dtype: safetensors::Dtype) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == dtype).map(|entry| entry.0)
    }

    fn entry(self) -> (Self, safetensors::Dtype, usize) {
        Self::ALL
            .into_iter()
            .find(|entry| entry.0 == self)
            .expect("all types are in the table")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outside().fmt(f)
    }
}

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
        let tensor = Self {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            bytes,
        };
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
        let values = self
            .bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
        (self.dtype == Dtype::F32).then(|| values.collect())
    }

    pub(super) fn assert_sound(&self) {
        let count: usize = self.shape.iter().product();
        assert_eq!(
            self.bytes.len(),
            count * self.dtype.bytes(),
            "bytes of tensor {}",
            self.name
        );
    }
}
