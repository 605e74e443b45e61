//! Reads the elements of an array at any place, as little-endian ones.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use grappa_io::Result;

use super::array::NpyArray;
use crate::extent::{Compression, Stream};

/// Bytes of a column that one read takes, and columns that are read before their elements are put in rows: one cache line
/// of f32.
const COLUMN_BYTES: usize = 64 << 10;
const COLUMNS: usize = 16;

/// A reader of the elements of an array.
///
/// Any number of threads read a plain array in place. A packed array is unpacked by one thread at a time. A read that continues the last
/// one costs nothing extra. A read further ahead unpacks the bytes in between. A read further back unpacks from the start again.
///
/// **Cost**: consecutive elements of a row-major array are one read. Rows of a column-major array (Fortran order) take a read
/// of each column, for as many rows as are asked for, at most 64 KiB; 1 MiB of columns is in memory, besides the rows. So
/// ask for many rows at a time: blocks of 8 MiB of 1000 columns of f32 are reads of 8 KiB.
pub(crate) struct ArrayReader {
    pub array: NpyArray,
    /// The stream of a packed array, and the number of bytes it has returned.
    stream: Mutex<Option<(Stream, u64)>>,
}

impl NpyArray {
    pub fn reader(&self) -> ArrayReader {
        ArrayReader { array: self.clone(), stream: Mutex::new(None) }
    }
}

impl ArrayReader {
    /// Fails unless the member of an archive has its CRC-32: see [`Extent::check`](crate::extent::Extent::check).
    pub fn check(&self) -> Result<()> {
        self.array.extent.check()
    }

    /// Whether only reads in order are cheap.
    pub fn is_sequential(&self) -> bool {
        self.array.extent.compression != Compression::None
    }

    /// Tells the kernel to start reading these elements in the background.
    pub fn will_need(&self, first: u64, count: usize) {
        let NpyArray { extent, data_offset, element, .. } = &self.array;
        if !self.is_sequential() {
            let (offset, bytes) = (data_offset + first * element.bytes() as u64, (count * element.bytes()) as u64);
            extent.file.will_need(extent.offset + offset, bytes.min(extent.bytes.saturating_sub(offset)));
        }
    }

    /// Fills `into` with the elements from `first` on, as they follow one another in the file.
    pub fn read(&self, first: u64, into: &mut [u8]) -> Result<()> {
        let width = self.array.element.bytes();
        self.read_bytes(self.array.data_offset + first * width as u64, into)?;
        if self.array.is_big_endian {
            swap_bytes(into, width);
        }
        Ok(())
    }

    /// Fills `into` from `offset` of the unpacked bytes.
    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let extent = &self.array.extent;
        if !self.is_sequential() {
            return extent.read_exact_at(into, offset);
        }
        let mut guard = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut stream, at) = match guard.take() {
            Some((stream, at)) if at <= offset => (stream, at),
            _ => (extent.stream()?, 0),
        };
        let skipped = stream.skip(offset - at)?;
        if skipped < offset - at || stream.read_full(into)? < into.len() {
            return Err(extent.ends_early());
        }
        *guard = Some((stream, offset + into.len() as u64));
        Ok(())
    }

    /// Fills `into` with the rows from `first` on, one after another. An array of one axis has rows of one element.
    pub fn read_rows(&self, first: u64, into: &mut [u8]) -> Result<()> {
        let columns = self.array.shape.get(1).copied().unwrap_or(1);
        if !self.array.has_columns {
            return self.read(first * columns, into);
        }
        let (width, columns) = (self.array.element.bytes(), columns as usize);
        let tile_rows = COLUMN_BYTES / width;
        let mut buffer = Vec::new();
        for (tile, into) in into.chunks_mut(tile_rows * columns * width).enumerate() {
            let at = first + (tile * tile_rows) as u64;
            for start in (0..columns).step_by(COLUMNS) {
                let group = start..(start + COLUMNS).min(columns);
                self.read_columns(at, &group, into.len() / (columns * width), &mut buffer)?;
                match width {
                    1 => interleave::<1>(&buffer, columns, &group, into),
                    2 => interleave::<2>(&buffer, columns, &group, into),
                    4 => interleave::<4>(&buffer, columns, &group, into),
                    _ => interleave::<8>(&buffer, columns, &group, into),
                }
            }
        }
        Ok(())
    }

    /// Replaces the contents of `buffer` with some rows of these columns, a column after another.
    fn read_columns(&self, first: u64, columns: &Range<usize>, rows: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let bytes = rows * self.array.element.bytes();
        buffer.resize(columns.len() * bytes, 0);
        for (column, into) in columns.clone().zip(buffer.chunks_exact_mut(bytes)) {
            self.read(column as u64 * self.array.shape[0] + first, into)?;
        }
        Ok(())
    }
}

/// Puts the elements of columns, which have `N` bytes each, in rows of `all` columns.
fn interleave<const N: usize>(buffer: &[u8], all: usize, columns: &Range<usize>, into: &mut [u8]) {
    let (elements, _) = buffer.as_chunks::<N>();
    let rows = elements.len() / columns.len();
    let (into, _) = into.as_chunks_mut::<N>();
    for (row, into) in into.chunks_exact_mut(all).enumerate() {
        for (at, into) in into[columns.clone()].iter_mut().enumerate() {
            *into = elements[at * rows + row];
        }
    }
}

/// Reverses the bytes of each element, which has `width` of them.
fn swap_bytes(bytes: &mut [u8], width: usize) {
    match width {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|all| all.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|all| all.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|all| all.reverse()),
        _ => {}
    }
}
