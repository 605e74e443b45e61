//! Edges in binary files: `.npy` arrays and raw pairs of integers, whose rows can be read from anywhere.

use std::{path::Path, sync::Arc};

use super::{
    batch::EdgeBatch,
    file::InputFile,
    lines::{BadEdge, IdLimit},
    npy::{ElementType, NpyArray},
};
use crate::{Error, Position, Result};

/// How an id is stored.
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

/// Hears of bad rows: the row's number in the file, the row written as a line, and what is wrong. An error ends the block.
pub(super) type OnBadRow<'a> = dyn FnMut(u64, &[u8], BadEdge) -> Result<()> + 'a;

/// A table of edges.
pub(super) struct Table {
    file: Arc<InputFile>,
    /// Where the first source is.
    offset: u64,
    rows: u64,
    id: IdType,
    /// [2, E]: all sources, then all targets. Otherwise they alternate.
    halves: bool,
    /// Rows of the files before this one.
    first_row: u64,
    weights: Option<Weights>,
    block_rows: u64,
}

impl Table {
    /// The edges of a `.npy` array.
    pub fn npy(array: NpyArray) -> Result<Self> {
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
            [rows, 2] => (rows, false),
            [2, rows] => (rows, true),
            _ => {
                return Err(array.error(format!(
                    "edges must have shape [E, 2] or [2, E], found {}; weights go into an array of their own, named \
                     with --weights",
                    array.shape_shown()
                )));
            }
        };
        Ok(Self {
            offset: array.extent.offset + array.data_offset,
            file: array.extent.file,
            rows,
            id,
            halves,
            first_row: 0,
            weights: None,
            block_rows: 1,
        })
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
                     truncated, or --format is another",
                    record / 2,
                    file.bytes() % record
                ),
            ));
        }
        Ok(Self {
            rows: file.bytes() / record,
            file,
            offset: 0,
            id,
            halves: false,
            first_row: 0,
            weights: None,
            block_rows: 1,
        })
    }

    /// Says how many rows other files have before it, which weights go with all of them, and how to cut blocks.
    pub fn attach(&mut self, first_row: u64, weights: Option<Weights>, block_bytes: usize) {
        self.first_row = first_row;
        self.weights = weights;
        self.block_rows = (block_bytes / self.row_bytes()).max(1) as u64;
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.block_rows)
    }

    /// Bytes of the block in the file of edges; the first one's share includes the header.
    pub fn input_bytes(&self, block: u64) -> u64 {
        let header = if block == 0 {
            self.file.bytes() - self.rows * 2 * self.id.bytes() as u64
        } else {
            0
        };
        self.block(block).1 as u64 * 2 * self.id.bytes() as u64 + header
    }

    fn row_bytes(&self) -> usize {
        2 * self.id.bytes() + self.weights.as_ref().map_or(0, |weights| weights.array.element.bytes())
    }

    /// The block's first row, and how many it has.
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
                self.file.will_need(next + sources.len() as u64, sources.len() as u64);
            }
            self.file.read_exact_at(sources, offset)?;
            self.file.read_exact_at(targets, offset + half)?;
        } else {
            let offset = self.offset + first * 2 * id as u64;
            self.file.will_need(offset + ids.len() as u64, ids.len() as u64);
            self.file.read_exact_at(ids, offset)?;
        }
        if let Some(weights) = &self.weights {
            let bytes = rows * weights.array.element.bytes();
            weights.array.read_at(self.first_row + first, &mut rest[..bytes])?;
        }
        Ok(())
    }

    /// Turns what [`read`](Self::read) read into edges. Hears of bad rows by their number in the file.
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
        let mut fine = true;
        if let Some(weights) = &self.weights {
            weights.read(&rest[..rows * weights.array.element.bytes()], &mut into.weights);
            fine &= into.weights.iter().all(|weight| weight.is_finite());
        }
        // A negative id is, as an unsigned one, beyond every limit a signed id can meet.
        let exclusive = if self.id.is_signed() {
            limit.exclusive().min(1 << 63)
        } else {
            limit.exclusive()
        };
        let largest = |ids: &[u64]| ids.iter().copied().fold(0, u64::max);
        fine &= largest(&into.sources) < exclusive && largest(&into.targets) < exclusive;
        if fine {
            return Ok(());
        }
        self.sift(first, limit, exclusive, into, on_bad)
    }

    /// Appends the ids, of `N` bytes each.
    fn ids<const N: usize>(&self, bytes: &[u8], into: &mut EdgeBatch, id: impl Fn([u8; N]) -> u64 + Copy) {
        let (ids, _) = bytes.as_chunks::<N>();
        if self.halves {
            let (sources, targets) = ids.split_at(ids.len() / 2);
            into.sources.extend(sources.iter().map(|&bytes| id(bytes)));
            into.targets.extend(targets.iter().map(|&bytes| id(bytes)));
        } else {
            // In tiles that stay in the first-level cache, as each is gone over twice.
            for tile in ids.chunks(1024) {
                let (pairs, _) = tile.as_chunks::<2>();
                into.sources.extend(pairs.iter().map(|&[source, _]| id(source)));
                into.targets.extend(pairs.iter().map(|&[_, target]| id(target)));
            }
        }
    }

    /// Removes the bad rows among the parsed ones.
    fn sift(
        &self,
        first: u64,
        limit: IdLimit,
        exclusive: u64,
        into: &mut EdgeBatch,
        on_bad: &mut OnBadRow<'_>,
    ) -> Result<()> {
        let mut kept = 0;
        for row in 0..into.sources.len() {
            let (source, target) = (into.sources[row], into.targets[row]);
            let weight = into.weights.get(row).copied();
            let bad = match source.max(target) {
                id if self.id.is_signed() && id >= 1 << 63 => Some(BadEdge::Negative),
                id if id >= exclusive => Some(BadEdge::TooLarge(limit)),
                _ => weight
                    .filter(|weight| !weight.is_finite())
                    .map(|_| BadEdge::WeightNotFinite),
            };
            if let Some(bad) = bad {
                let id = |id: u64| {
                    if self.id.is_signed() {
                        (id as i64).to_string()
                    } else {
                        id.to_string()
                    }
                };
                let mut line = format!("{}\t{}", id(source), id(target));
                if let Some(weight) = weight {
                    line.push_str(&format!("\t{weight}"));
                }
                on_bad(first + row as u64, line.as_bytes(), bad)?;
                continue;
            }
            into.sources[kept] = source;
            into.targets[kept] = target;
            if let Some(weight) = weight {
                into.weights[kept] = weight;
            }
            kept += 1;
        }
        into.sources.truncate(kept);
        into.targets.truncate(kept);
        into.weights.truncate(kept);
        Ok(())
    }
}

/// Edge weights in a `.npy` array of their own.
#[derive(Clone)]
pub(super) struct Weights {
    array: Arc<NpyArray>,
}

impl Weights {
    pub fn open(path: &Path) -> Result<Self> {
        let array = NpyArray::open(&InputFile::open(path)?)?;
        if !matches!(*array.shape, [_] | [_, 1]) {
            return Err(array.error(format!(
                "weights must have shape [E], one per edge, found {}",
                array.shape_shown()
            )));
        }
        Ok(Self { array: Arc::new(array) })
    }

    /// Refuses weights that are not one per edge.
    pub fn expect_rows(&self, edges: u64) -> Result<()> {
        if self.array.shape[0] == edges {
            return Ok(());
        }
        Err(self.array.error(format!(
            "expected {edges} weights, one per edge, found {}",
            self.array.shape[0]
        )))
    }

    fn read(&self, bytes: &[u8], into: &mut Vec<f32>) {
        super::npy::extend_f32(self.array.element, bytes, into);
    }
}
