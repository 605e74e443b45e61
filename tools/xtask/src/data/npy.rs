//! Writes NumPy arrays sequentially.
//!
//! The header (NumPy, "NEP 1: A simple file format for NumPy arrays") takes 128 bytes for any shape, so it can be
//! rewritten when the number of rows is known.

use std::{
    fs::File,
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

const HEADER_BYTES: usize = 128;

/// Element type of an array.
#[derive(Debug, Clone, Copy)]
pub enum Element {
    I64,
    F32,
    F16,
}

/// An array to which rows are appended.
pub struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
    element: Element,
}

/// Writes an array of a known shape.
pub fn write(path: &Path, element: Element, shape: &[u64], fill: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
    let mut writer = Writer::create(path, element)?;
    fill(&mut writer)?;
    writer.finish(shape)
}

impl Writer {
    pub fn create(path: &Path, element: Element) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut writer = Self {
            file: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            element,
        };
        writer.bytes(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    pub fn ids(&mut self, ids: &[u64]) -> Result<()> {
        ids.iter().try_for_each(|id| self.bytes(&id.to_le_bytes()))
    }

    pub fn i64s(&mut self, values: &[i64]) -> Result<()> {
        values.iter().try_for_each(|value| self.bytes(&value.to_le_bytes()))
    }

    pub fn f32s(&mut self, values: &[f32]) -> Result<()> {
        values.iter().try_for_each(|value| self.bytes(&value.to_le_bytes()))
    }

    pub fn f16s(&mut self, values: &[half::f16]) -> Result<()> {
        values.iter().try_for_each(|value| self.bytes(&value.to_le_bytes()))
    }

    /// Writes the header and the buffered rows.
    pub fn finish(mut self, shape: &[u64]) -> Result<()> {
        let dtype = match self.element {
            Element::I64 => "<i8",
            Element::F32 => "<f4",
            Element::F16 => "<f2",
        };
        // Python's notation of tuples.
        let shape = match shape {
            [rows] => format!("{rows},"),
            _ => shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        };
        let dict = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}");
        let mut header = b"\x93NUMPY\x01\x00".to_vec();
        header.extend(((HEADER_BYTES - 10) as u16).to_le_bytes());
        header.extend(dict.as_bytes());
        header.resize(HEADER_BYTES - 1, b' ');
        header.push(b'\n');
        let mut write = || -> std::io::Result<()> {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header)?;
            self.file.flush()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
