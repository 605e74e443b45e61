//! NumPy's `.npy` container: the header, and the elements.
//!
//! The format is described in NEP 1 and `numpy.lib.format`: magic bytes, version, header length, a Python dictionary literal
//! with `descr`, `fortran_order` and `shape`, then the elements. Arrays of plain numbers are read, in C and in Fortran order and
//! of both byte orders ([`ArrayReader`]). All others are refused with the command that converts them.

mod array;
mod header;
mod numbers;
mod reader;

use std::path::Path;

pub use self::numbers::{Numbers, read_numbers, shape_of};
pub(crate) use self::{array::NpyArray, reader::ArrayReader};

/// Whether a file's name says that it is a `.npy` file.
pub(crate) fn has_extension(path: &Path) -> bool {
    path.extension().is_some_and(|other| other.eq_ignore_ascii_case("npy"))
}
