//! `.npy` files, valid and invalid.

use std::{fs, path::Path};

/// An array to write. It can describe files that NumPy would not write, to test that they are refused.
#[derive(Debug, Clone)]
pub struct Npy {
    /// NumPy's name of the element type, such as `<i8`.
    pub descr: String,
    /// Whether the header claims Fortran order.
    pub fortran: bool,
    /// The shape in the header.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// An element type of arrays.
pub trait Element: Copy {
    /// Its name in NumPy.
    const DESCR: &'static str;
    /// Appends its little-endian bytes.
    fn put(self, bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($($type:ty: $descr:literal),*) => {$(
        impl Element for $type {
            const DESCR: &'static str = $descr;

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        }
    )*};
}
element!(i32: "<i4", i64: "<i8", u32: "<u4", u64: "<u8", f32: "<f4", f64: "<f8");

impl Npy {
    /// An array of `shape`, with `values` in row-major order.
    pub fn new<T: Element>(shape: &[usize], values: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        for value in values {
            value.put(&mut bytes);
        }
        Self::raw(T::DESCR, shape, bytes)
    }

    /// An array of elements of another type, or of another length than the shape says.
    pub fn raw(descr: &str, shape: &[usize], bytes: impl Into<Vec<u8>>) -> Self {
        Self { descr: descr.to_owned(), fortran: false, shape: shape.to_vec(), bytes: bytes.into() }
    }

    /// The whole file.
    pub fn encode(&self) -> Vec<u8> {
        let shape: String = self.shape.iter().map(|n| format!("{n},")).collect();
        let order = if self.fortran { "True" } else { "False" };
        let mut header = format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}", self.descr);
        while !(10 + header.len() + 1).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(&self.bytes);
        file
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        fs::write(path, self.encode()).unwrap();
    }
}
