//! NumPy's `.npy` container: the header, and the names of element types.
//!
//! The format is described in NEP 1 and `numpy.lib.format`: magic bytes, version, header length, a Python dictionary literal
//! with `descr`, `fortran_order` and `shape`, then the elements. This reader takes little-endian, C-ordered arrays of plain
//! numbers. It refuses all others with the line of Python that converts them.

use std::{path::Path, sync::Arc};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Result, size::ByteSize};

use crate::{
    extent::{Compression, Extent, ExtentReader},
    file::InputFile,
    messages::shown,
};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header. Real headers have a few hundred bytes.
const HEADER_BYTES_MAX: u32 = 1 << 20;

/// Whether a file's name says that it is a `.npy` file.
pub(crate) fn has_extension(path: &Path) -> bool {
    path.extension().is_some_and(|other| other.eq_ignore_ascii_case("npy"))
}

/// An array in a file. Its header was checked against the size of the file.
#[derive(Debug, Clone)]
pub(crate) struct NpyArray {
    pub extent: Extent,
    /// Start of the elements in the unpacked bytes.
    pub data_offset: u64,
    pub element: ElementType,
    pub shape: Vec<u64>,
}

impl NpyArray {
    /// Opens the `.npy` file `file`.
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        Self::in_extent(Extent::whole(file, Compression::None), file.bytes())
    }

    /// Reads the header at the start of `extent`, which unpacks to `bytes` bytes.
    pub fn in_extent(extent: Extent, bytes: u64) -> Result<Self> {
        let fail = |offset: u64, what: String| extent.error_at(offset, what);
        let mut stream = extent.stream()?;
        let mut prefix = [0; 12];
        let read = stream.read_full(&mut prefix[..10])?;
        if read < 10 || &prefix[..6] != MAGIC {
            return Err(fail(
                0,
                format!(
                    "expected a .npy array, which starts with the bytes \\x93NUMPY, found {}; write it with numpy.save",
                    shown(&prefix[..read.min(6)])
                ),
            ));
        }
        let (header_offset, header_bytes) = match prefix[6] {
            1 => (10, u32::from(u16::from_le_bytes([prefix[8], prefix[9]]))),
            2 | 3 => {
                truncated_if(stream.read_full(&mut prefix[10..])? < 2, &fail)?;
                (12, u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]))
            }
            version => {
                return Err(fail(
                    6,
                    format!("version {version} of the .npy format is unknown; this program reads versions 1 to 3"),
                ));
            }
        };
        if header_bytes > HEADER_BYTES_MAX {
            return Err(fail(
                8,
                format!(
                    "the .npy header claims {}, which is not plausible; the file is damaged",
                    ByteSize(header_bytes.into())
                ),
            ));
        }
        let mut header = vec![0; header_bytes as usize];
        truncated_if(stream.read_full(&mut header)? < header.len(), &fail)?;
        let header = Header::parse(&header)
            .map_err(|what| fail(header_offset, format!("this .npy header cannot be read: {what}")))?;
        let element = element_type(&header.descr).map_err(|what| fail(header_offset, what))?;
        if header.fortran_order && header.shape.len() > 1 {
            return Err(fail(
                header_offset,
                "the array is in Fortran (column-major) order; save it in C order: numpy.save(path, numpy.ascontiguousarray(a))"
                    .to_owned(),
            ));
        }
        let data_offset = header_offset + u64::from(header_bytes);
        let expected = header
            .shape
            .iter()
            .try_fold(element.bytes() as u64, |product, &n| product.checked_mul(n))
            .and_then(|data| data.checked_add(data_offset));
        if expected != Some(bytes) {
            return Err(fail(
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
        Ok(Self {
            extent,
            data_offset,
            element,
            shape: header.shape,
        })
    }

    /// The array's shape as Python writes it.
    pub fn shape_shown(&self) -> String {
        shape_shown(&self.shape)
    }

    /// An error about the array as a whole.
    pub fn error(&self, what: impl AsRef<str>) -> Error {
        self.extent.error(what)
    }

    /// A reader of the elements' bytes; see [`offset_of`](Self::offset_of).
    pub fn reader(&self) -> ExtentReader {
        ExtentReader::new(self.extent.clone())
    }

    /// Offset of an element in the unpacked bytes.
    pub fn offset_of(&self, element: u64) -> u64 {
        self.data_offset + element * self.element.bytes() as u64
    }
}

fn truncated_if(truncated: bool, fail: &impl Fn(u64, String) -> Error) -> Result<()> {
    if truncated {
        return Err(fail(
            0,
            "the file ends within its .npy header: it is truncated; write it again".to_owned(),
        ));
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

/// The element type that a `descr` such as `<i8` names, or why it is refused.
fn element_type(descr: &str) -> Parsed<ElementType> {
    let (order, kind) = match descr.as_bytes() {
        [order @ (b'<' | b'>' | b'=' | b'|'), ..] => (*order, &descr[1..]),
        _ => (b'|', descr),
    };
    let element = match kind {
        "b1" => ElementType::Bool,
        "i1" => ElementType::I8,
        "i2" => ElementType::I16,
        "i4" => ElementType::I32,
        "i8" => ElementType::I64,
        "u1" => ElementType::U8,
        "u2" => ElementType::U16,
        "u4" => ElementType::U32,
        "u8" => ElementType::U64,
        "f2" => ElementType::F16,
        "f4" => ElementType::F32,
        "f8" => ElementType::F64,
        "O" => {
            return Err(
                "the array holds Python objects (dtype object), which are pickles; save plain numbers: \
                 numpy.save(path, a.astype('<i8')) or '<f4'; string ids must be in text, CSV or Parquet"
                    .to_owned(),
            );
        }
        _ if kind.starts_with(['U', 'S']) => {
            return Err(format!(
                "the array holds strings (dtype '{descr}'), and .npy is read for numbers only; save numbers with \
                 numpy.save(path, a.astype('<i8')), and write other strings as text or CSV, or edges also as Parquet, with \
                 --ids string if they are ids"
            ));
        }
        _ => {
            return Err(format!(
                "elements of dtype '{descr}' cannot be read; save plain numbers: numpy.save(path, a.astype('<i8')) or \
                 '<f4'"
            ));
        }
    };
    if order == b'>' && element.bytes() > 1 {
        return Err(format!(
            "the array is big-endian (dtype '{descr}'); save it as little-endian: numpy.save(path, a.astype('<{kind}'))"
        ));
    }
    Ok(element)
}

/// A parsed piece of a header, or what is wrong with it.
type Parsed<T> = std::result::Result<T, String>;

/// The entries of a header's dictionary.
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Header {
    /// Parses the dictionary literal in the forms that NumPy and compatible programs write.
    fn parse(bytes: &[u8]) -> Parsed<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.take('}') {
            let key = literal.string()?;
            literal.expect(':')?;
            match key {
                "descr" => descr = Some(literal.descr()?.to_owned()),
                "fortran_order" => fortran_order = Some(literal.boolean()?),
                "shape" => shape = Some(literal.tuple()?),
                _ => return Err(format!("entry '{key}' is not known")),
            }
            if !literal.take(',') {
                literal.expect('}')?;
                break;
            }
        }
        Ok(Self {
            descr: descr.ok_or("entry 'descr' is missing")?,
            fortran_order: fortran_order.ok_or("entry 'fortran_order' is missing")?,
            shape: shape.ok_or("entry 'shape' is missing")?,
        })
    }
}

/// The unparsed rest of a Python literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Parsed<()> {
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("expected '{token}', found {}", shown(self.rest.as_bytes())))
        }
    }

    fn string(&mut self) -> Parsed<&'a str> {
        for quote in ['\'', '"'] {
            if self.take(quote) {
                let (string, rest) = self.rest.split_once(quote).ok_or("a string does not end")?;
                self.rest = rest;
                return Ok(string);
            }
        }
        Err(format!("expected a string, found {}", shown(self.rest.as_bytes())))
    }

    /// Parses the type: a string. Arrays of records have a list, which is refused.
    fn descr(&mut self) -> Parsed<&'a str> {
        if self.rest.trim_start().starts_with('[') {
            return Err("the array has named fields; save each as an array of its own".to_owned());
        }
        self.string()
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn boolean(&mut self) -> Parsed<bool> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(format!("expected True or False, found {}", shown(other.as_bytes()))),
        }
    }

    fn tuple(&mut self) -> Parsed<Vec<u64>> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            let word = self.word();
            // Python 2 wrote long integers with an L.
            let number = word.strip_suffix('L').unwrap_or(word);
            numbers.push(
                number
                    .parse()
                    .map_err(|_| format!("expected a length, found {}", shown(word.as_bytes())))?,
            );
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }
}
