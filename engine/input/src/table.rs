//! Edges in binary files: `.npy` arrays, alone or in an archive, and raw pairs of integers.
//!
//! Their rows can be read from anywhere, by every worker for itself. Only a deflated member of an archive must be unpacked
//! front to back; of a deflated [2, E], two streams are unpacked side by side, one of which begins by skipping the sources.

use std::{path::Path, sync::Arc};

use grappa_io::{Error, Position, Result};

use super::{
    batch::EdgeBatch,
    file::{Compression, Extent, ExtentReader, InputFile},
    lines::{BadEdge, IdLimit},
    npy::{ElementType, NpyArray},
};

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
    /// Where sources are read from, and pairs.
    sources: ExtentReader,
    /// Where targets are read from, if they are not paired: a reader of their own, for deflated data.
    targets: ExtentReader,
    /// Where the first source is in the unpacked bytes.
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
        Ok(Self::new(array.extent, array.data_offset, rows, id, halves))
    }

    fn new(extent: Extent, offset: u64, rows: u64, id: IdType, halves: bool) -> Self {
        Self {
            sources: ExtentReader::new(extent.clone()),
            targets: ExtentReader::new(extent),
            offset,
            rows,
            id,
            halves,
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
                     truncated, or --format is another",
                    record / 2,
                    file.bytes() % record
                ),
            ));
        }
        let rows = file.bytes() / record;
        Ok(Self::new(Extent::whole(&file, Compression::None), 0, rows, id, false))
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

    /// Bytes of the file that the edges take.
    pub fn total_bytes(&self) -> u64 {
        self.sources.extent().bytes
    }

    /// The block's share of them.
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

    /// Fails unless the bytes of an archive's member have the CRC that they should have.
    pub fn check(&self) -> Result<()> {
        // Both halves are of one member.
        self.sources.check()
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
}

/// How to tell good rows from bad ones in a batch of parsed integers.
pub(super) struct RowCheck<'a> {
    /// The number of the batch's first row in its file.
    pub first_row: u64,
    pub limit: IdLimit,
    /// Whether sources, and targets, come from signed integers: then what is 2^63 or more was negative.
    pub signed: [bool; 2],
    /// For each row whether a value is missing, if any is.
    pub missing: Option<&'a [bool]>,
}

impl RowCheck<'_> {
    /// Removes the bad rows. When there is none, which is quickly seen, nothing is moved.
    pub fn sift(&self, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let largest = |ids: &[u64]| ids.iter().copied().fold(0, u64::max);
        if self.missing.is_none()
            && largest(&into.sources) < self.exclusive(0)
            && largest(&into.targets) < self.exclusive(1)
            && into.weights.iter().all(|weight| weight.is_finite())
        {
            return Ok(());
        }
        let mut kept = 0;
        for row in 0..into.sources.len() {
            let ids = [into.sources[row], into.targets[row]];
            let weight = into.weights.get(row).copied();
            if let Some(bad) = self.bad(row, ids, weight) {
                let line = self.line(row, ids, weight);
                on_bad(self.first_row + row as u64, line.as_bytes(), bad)?;
                continue;
            }
            [into.sources[kept], into.targets[kept]] = ids;
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

    /// The least id in a column that is bad, taken as unsigned.
    fn exclusive(&self, column: usize) -> u64 {
        let limit = self.limit.exclusive();
        if self.signed[column] { limit.min(1 << 63) } else { limit }
    }

    fn is_missing(&self, row: usize) -> bool {
        self.missing.is_some_and(|missing| missing[row])
    }

    fn bad(&self, row: usize, ids: [u64; 2], weight: Option<f32>) -> Option<BadEdge> {
        if self.is_missing(row) {
            return Some(BadEdge::Null);
        }
        for (column, id) in ids.into_iter().enumerate() {
            if id >= self.exclusive(column) {
                return Some(if self.signed[column] && id >= 1 << 63 {
                    BadEdge::Negative
                } else {
                    BadEdge::TooLarge(self.limit)
                });
            }
        }
        weight
            .filter(|weight| !weight.is_finite())
            .map(|_| BadEdge::WeightNotFinite)
    }

    /// The row as a line of text.
    fn line(&self, row: usize, ids: [u64; 2], weight: Option<f32>) -> String {
        if self.is_missing(row) {
            return "null".to_owned();
        }
        let [source, target] = [0, 1].map(|column| {
            if self.signed[column] {
                (ids[column] as i64).to_string()
            } else {
                ids[column].to_string()
            }
        });
        match weight {
            Some(weight) => format!("{source}\t{target}\t{weight}"),
            None => format!("{source}\t{target}"),
        }
    }
}

/// How many of `total` belong to the first `rows` of `all` rows.
pub(super) fn share(total: u64, rows: u64, all: u64) -> u64 {
    (u128::from(total) * u128::from(rows) / u128::from(all.max(1))) as u64
}

/// Edge weights in a `.npy` array of their own.
#[derive(Clone)]
pub(super) struct Weights {
    array: Arc<NpyArray>,
    reader: Arc<ExtentReader>,
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
        Ok(Self {
            reader: Arc::new(array.reader()),
            array: Arc::new(array),
        })
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

    pub fn element_bytes(&self) -> usize {
        self.array.element.bytes()
    }

    /// Fills `into` with the bytes of the weights from `first`.
    pub fn read(&self, first: u64, into: &mut [u8]) -> Result<()> {
        self.reader.read_exact_at(into, self.array.offset_of(first))
    }

    /// Replaces `into` by the weights in `bytes`.
    pub fn convert(&self, bytes: &[u8], into: &mut Vec<f32>) {
        into.resize(bytes.len() / self.element_bytes(), 0.0);
        self.array.element.source_dtype().to_f32(bytes, into);
    }
}
