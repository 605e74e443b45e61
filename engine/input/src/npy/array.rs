//! The array in a `.npy` file: its header, checked.

use std::{path::Path, sync::Arc};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result, size::ByteSize};

use super::header::{Header, element_type};
use crate::{
    extent::{Compression, Extent},
    file::InputFile,
    input::{Input, MemoryArray, MemoryData},
    kinds,
    messages::shown,
};

/// The longest header. Real headers have a few hundred bytes.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// An array in a file. Its header was checked against the size of the file.
#[derive(Debug, Clone)]
pub(crate) struct NpyArray {
    pub extent: Extent,
    /// Start of the elements in the unpacked bytes.
    pub data_offset: u64,
    pub element: ElementType,
    /// Whether elements of several bytes begin with the highest one.
    pub is_big_endian: bool,
    pub shape: Vec<u64>,
    /// Whether there are several rows and columns, and columns follow one another (Fortran order).
    pub has_columns: bool,
}

impl NpyArray {
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        Self::in_extent(Extent::whole(file, Compression::None), file.bytes())
    }

    /// Reads the header at the start of `extent`, which unpacks to `bytes` bytes.
    pub fn in_extent(extent: Extent, bytes: u64) -> Result<Self> {
        let mut stream = extent.stream()?;
        let mut prefix = [0; 12];
        let read = stream.read_full(&mut prefix[..10])?;
        if read < 10 || &prefix[..6] != kinds::NPY {
            return Err(extent.error_at(
                0,
                format!(
                    "expected a .npy array, which starts with the bytes \\x93NUMPY, found {}; write it with NumPy's save",
                    shown(&prefix[..read.min(6)])
                ),
            ));
        }
        let (header_offset, header_bytes) = match prefix[6] {
            1 => (10, u32::from(u16::from_le_bytes([prefix[8], prefix[9]]))),
            2 | 3 => {
                truncated_if(stream.read_full(&mut prefix[10..])? < 2, &extent)?;
                (12, u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]))
            }
            version => {
                return Err(extent.error_at(
                    6,
                    format!("version {version} of the .npy format is unknown; this program reads versions 1 to 3"),
                ));
            }
        };
        if header_bytes > HEADER_BYTES_MAX {
            return Err(extent.error_at(
                8,
                format!(
                    "the .npy header claims {}, which is not plausible; the file is damaged",
                    ByteSize(header_bytes.into())
                ),
            ));
        }
        let mut header = vec![0; header_bytes as usize];
        truncated_if(stream.read_full(&mut header)? < header.len(), &extent)?;
        let header = Header::parse(&header)
            .map_err(|problem| extent.error_at(header_offset, format!("this .npy header cannot be read: {problem}")))?;
        let (element, is_big_endian) = element_type(&header.descr).map_err(|(problem, conversion)| {
            let remedy = match extent.member {
                None => extent.file.remedy(conversion),
                Some(_) => "save it as a .npy file of its own, whose error has the command".to_owned(),
            };
            extent.error_at(header_offset, format!("{problem}; convert it: {remedy}"))
        })?;
        let has_columns = header.fortran_order && header.shape.iter().filter(|&&length| length > 1).count() > 1;
        let data_offset = header_offset + u64::from(header_bytes);
        let expected = header
            .shape
            .iter()
            .try_fold(element.bytes() as u64, |product, &n| product.checked_mul(n))
            .and_then(|data| data.checked_add(data_offset));
        if expected != Some(bytes) {
            return Err(extent.error_at(
                bytes.min(expected.unwrap_or(bytes)),
                format!(
                    "a {} array of shape {} takes {} bytes with its header, found {bytes}; the file is truncated or \
                     was appended to: write it again",
                    element.name(),
                    shape_shown(&header.shape),
                    expected.map_or_else(|| "more than 2^64".to_owned(), |expected| expected.to_string()),
                ),
            ));
        }
        Ok(Self { extent, data_offset, element, is_big_endian, shape: header.shape, has_columns })
    }

    /// An array in memory. `name` is its name for messages.
    pub fn in_memory(name: &Path, array: &MemoryArray) -> Result<Self> {
        let file = InputFile::of_array(name, array);
        let (element, is_big_endian) = element_type(&array.descr).map_err(|(problem, conversion)| {
            file.error(format!("{problem}; convert it: {}", file.remedy(conversion)))
        })?;
        let has_columns = array.column_major && array.shape.iter().filter(|&&length| length > 1).count() > 1;
        let extent = Extent::whole(&file, Compression::None);
        Ok(Self { extent, data_offset: 0, element, is_big_endian, shape: array.shape.clone(), has_columns })
    }

    /// The array that an input is.
    pub fn of_input(input: &Input) -> Result<Self> {
        match input {
            Input::Path(path) => Self::open(&InputFile::open(path)?),
            Input::Parts(parts) => {
                Err(Error::input(&parts.name, Position::Whole, "expected an array, found the files of a table"))
            }
            Input::Memory(input) => match &input.data {
                MemoryData::Array(array) => Self::in_memory(&input.name, array),
                MemoryData::Matrix(_) | MemoryData::Table(..) | MemoryData::Parquet(_) => {
                    Err(Error::input(&input.name, Position::Whole, "expected an array, found a matrix or a table"))
                }
            },
        }
    }

    /// The elements of a file without a header.
    pub fn raw(extent: Extent, element: ElementType, shape: Vec<u64>) -> Self {
        Self { extent, data_offset: 0, element, is_big_endian: false, shape, has_columns: false }
    }

    /// The array's shape as Python writes it.
    pub fn shape_shown(&self) -> String {
        shape_shown(&self.shape)
    }

    pub fn path(&self) -> &Path {
        self.extent.file.path()
    }

    /// An error about the array as a whole.
    pub fn error(&self, problem: impl AsRef<str>) -> Error {
        self.extent.error(problem)
    }
}

fn truncated_if(truncated: bool, extent: &Extent) -> Result<()> {
    if truncated {
        return Err(extent.error_at(0, "the file ends within its .npy header: it is truncated; write it again"));
    }
    Ok(())
}

fn shape_shown(shape: &[u64]) -> String {
    let numbers: Vec<_> = shape.iter().map(u64::to_string).collect();
    match numbers.as_slice() {
        [one] => format!("({one},)"),
        _ => format!("({})", numbers.join(", ")),
    }
}
