//! Whole arrays in memory, for short lists.

use std::path::Path;

use grappa_io::Result;

use super::array::NpyArray;
use crate::{file::InputFile, input::Input};

/// The numbers of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// The length of each axis.
    pub shape: Vec<u64>,
    /// The elements in row-major order. Integers from 2^53 on are rounded.
    pub values: Vec<f64>,
    /// Whether the elements are floats.
    pub are_floats: bool,
}

/// The shape of a `.npy` array. Reads its header.
///
/// # Errors
/// If the file is no array.
pub fn shape_of(path: &Path) -> Result<Vec<u64>> {
    Ok(NpyArray::open(&InputFile::open(path)?)?.shape)
}

/// Reads a `.npy` array. Takes 8 bytes for each element, and the bytes of the file.
///
/// # Errors
/// If the file is no array, or cannot be read.
pub fn read_numbers(path: &Path) -> Result<Numbers> {
    let array = NpyArray::of_input(&Input::from(path))?;
    let (element, shape) = (array.element, array.shape.clone());
    let count: u64 = shape.iter().product();
    let mut bytes = vec![0; count as usize * element.bytes()];
    let reader = array.reader();
    reader.read_rows(0, &mut bytes)?;
    reader.check()?;
    let values = bytes.chunks_exact(element.bytes()).map(|bytes| element.to_f64(bytes)).collect();
    Ok(Numbers { shape, values, are_floats: element.is_float() })
}
