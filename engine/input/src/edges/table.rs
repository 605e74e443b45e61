//! Edges in binary files: `.npy` arrays, alone or in an archive, and raw pairs of integers.
//!
//! Each worker reads its own rows, from anywhere in the file. Only a deflated member of an archive must be unpacked front to
//! back. A deflated array of shape [2, E] is unpacked by two streams side by side; the second one first skips the sources.

use std::sync::Arc;

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    EdgeBatch, IdLimit,
    edge_weights::EdgeWeights,
    row_check::{OnBadRow, RowCheck},
};
use crate::{
    extent::{Compression, Extent, ExtentReader},
    file::InputFile,
    npy::NpyArray,
};

/// The type of stored ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdType {
    I32,
    I64,
    U32,
    U64,
}

impl IdType {
    fn bytes(self) -> usize {
        match self {
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    fn is_signed(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }
}

/// A table of edges.
pub(super) struct Table {
    /// Reads sources, or pairs.
    sources: ExtentReader,
    /// Reads targets that are not paired. It is a second reader because deflated data needs a second stream.
    targets: ExtentReader,
    /// Offset of the first source in the unpacked bytes.
    offset: u64,
    rows: u64,
    id: IdType,
    /// Shape [2, E]: all sources, then all targets. Otherwise sources and targets alternate.
    halves: bool,
    /// Shape [2, 2], which is read as [E, 2] although it may be [2, E].
    is_square: bool,
    /// Number of rows in the files before this one.
    first_row: u64,
    weights: Option<EdgeWeights>,
    block_rows: u64,
}

impl Table {
    /// The edges of a `.npy` array. An `edge_index` has shape [2, E], also with two edges.
    pub fn npy(array: NpyArray, is_edge_index: bool) -> Result<Self> {
        let id = match array.element {
            ElementType::I32 => IdType::I32,
            ElementType::I64 => IdType::I64,
            ElementType::U32 => IdType::U32,
            ElementType::U64 => IdType::U64,
            other => {
                return Err(array.error(format!(
                    "edges must be int32, int64, uint32 or uint64, found {}: numpy.save(path, a.astype('<i8'))",
                    other.name()
                )));
            }
        };
        let (rows, halves) = match *array.shape {
            [2, 2] if is_edge_index => (2, true),
            [rows, 2] => (rows, false),
            [2, rows] => (rows, true),
            _ => {
                return Err(array.error(format!(
                    "edges must have shape [E, 2] or [2, E], found {}; store weights in a separate array and name it \
                     with --weights",
                    array.shape_shown()
                )));
            }
        };
        Ok(Self {
            is_square: *array.shape == [2, 2] && !is_edge_index,
            ..Self::new(array.extent, array.data_offset, rows, id, halves)
        })
    }

    fn new(extent: Extent, offset: u64, rows: u64, id: IdType, halves: bool) -> Self {
        Self {
            sources: ExtentReader::new(extent.clone()),
            targets: ExtentReader::new(extent),
            offset,
            rows,
            id,
            halves,
            is_square: false,
            first_row: 0,
            weights: None,
            block_rows: 1,
        }
    }

    /// Pairs of integers from the start of the file to its end.
    pub fn raw(file: Arc<InputFile>, id: IdType) -> Result<Self> {
        let record = 2 * id.bytes() as u64;
        if !file.bytes().is_multiple_of(record) {
            return Err(Error::input(
                file.path(),
                Position::Offset(file.bytes() / record * record),
                format!(
                    "an edge takes {record} bytes (two ids of {}), but {} bytes are left over at the end; the file is \
                     truncated, or has another --format",
                    record / 2,
                    file.bytes() % record
                ),
            ));
        }
        let rows = file.bytes() / record;
        Ok(Self::new(Extent::whole(&file, Compression::None), 0, rows, id, false))
    }

    /// Sets the number of rows in the files before this one, the weights of the rows of all files, and the block size.
    pub fn attach(&mut self, first_row: u64, weights: Option<EdgeWeights>, block_bytes: usize) {
        self.first_row = first_row;
        self.weights = weights;
        self.block_rows = (block_bytes / self.row_bytes()).max(1) as u64;
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the shape does not tell rows of edges from a row of sources and one of targets.
    pub fn is_square(&self) -> bool {
        self.is_square
    }

    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.block_rows)
    }

    /// Bytes of the edges in the file.
    pub fn total_bytes(&self) -> u64 {
        self.sources.extent().bytes
    }

    /// The block's share of these bytes.
    pub fn input_bytes(&self, block: u64) -> u64 {
        let (first, rows) = self.block(block);
        share(self.total_bytes(), first + rows as u64, self.rows) - share(self.total_bytes(), first, self.rows)
    }

    /// Whether blocks must be read one after another.
    pub fn is_sequential(&self) -> bool {
        self.sources.is_sequential()
    }

    fn row_bytes(&self) -> usize {
        2 * self.id.bytes() + self.weights.as_ref().map_or(0, |weights| weights.element_bytes())
    }

    /// Fails unless the member of an archive has its CRC-32.
    pub fn check(&self) -> Result<()> {
        // Both halves are in one member.
        self.sources.check()
    }

    /// The block's first row, and its number of rows.
    fn block(&self, block: u64) -> (u64, usize) {
        let first = block * self.block_rows;
        (first, (self.rows - first).min(self.block_rows) as usize)
    }

    /// Reads the block's ids, then its weights, into `buffer`.
    pub fn read(&self, block: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let (first, rows) = self.block(block);
        let id = self.id.bytes();
        buffer.resize(buffer.len().max(rows * self.row_bytes()), 0);
        let (ids, rest) = buffer.split_at_mut(rows * 2 * id);
        if self.halves {
            let (sources, targets) = ids.split_at_mut(rows * id);
            let offset = self.offset + first * id as u64;
            let half = self.rows * id as u64;
            for next in [offset, offset + half] {
                self.sources
                    .will_need(next + sources.len() as u64, sources.len() as u64);
            }
            self.sources.read_exact_at(sources, offset)?;
            self.targets.read_exact_at(targets, offset + half)?;
        } else {
            let offset = self.offset + first * 2 * id as u64;
            self.sources.will_need(offset + ids.len() as u64, ids.len() as u64);
            self.sources.read_exact_at(ids, offset)?;
        }
        if let Some(weights) = &self.weights {
            let bytes = rows * weights.element_bytes();
            weights.read(self.first_row + first, &mut rest[..bytes])?;
        }
        Ok(())
    }

    /// Parses the output of [`read`](Self::read). Calls `on_bad` for each bad row.
    pub fn parse(
        &self,
        block: u64,
        buffer: &[u8],
        limit: IdLimit,
        into: &mut EdgeBatch,
        on_bad: &mut OnBadRow<'_>,
    ) -> Result<()> {
        let (first, rows) = self.block(block);
        let (ids, rest) = buffer.split_at(rows * 2 * self.id.bytes());
        into.reserve(rows, self.weights.is_some());
        match self.id {
            IdType::I32 => self.ids(ids, into, |bytes: [u8; 4]| i64::from(i32::from_le_bytes(bytes)) as u64),
            IdType::I64 | IdType::U64 => self.ids(ids, into, u64::from_le_bytes),
            IdType::U32 => self.ids(ids, into, |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes))),
        }
        if let Some(weights) = &self.weights {
            weights.convert(&rest[..rows * weights.element_bytes()], &mut into.weights);
        }
        let check = RowCheck {
            first_row: first,
            limit,
            signed: [self.id.is_signed(); 2],
            missing: None,
        };
        check.sift(into, on_bad)
    }

    /// Appends the ids, which have `N` bytes each.
    fn ids<const N: usize>(&self, bytes: &[u8], into: &mut EdgeBatch, id: impl Fn([u8; N]) -> u64 + Copy) {
        let (ids, _) = bytes.as_chunks::<N>();
        if self.halves {
            let (sources, targets) = ids.split_at(ids.len() / 2);
            into.sources.extend(sources.iter().map(|&bytes| id(bytes)));
            into.targets.extend(targets.iter().map(|&bytes| id(bytes)));
        } else {
            // Two passes over each tile: one for sources, one for targets. A tile stays in the L1 cache.
            for tile in ids.chunks(1024) {
                let (pairs, _) = tile.as_chunks::<2>();
                into.sources.extend(pairs.iter().map(|&[source, _]| id(source)));
                into.targets.extend(pairs.iter().map(|&[_, target]| id(target)));
            }
        }
    }
}

/// The part of `total` that belongs to the first `rows` of `all` rows.
pub(super) fn share(total: u64, rows: u64, all: u64) -> u64 {
    (u128::from(total) * u128::from(rows) / u128::from(all.max(1))) as u64
}
