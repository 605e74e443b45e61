//! Edges in binary files: `.npy` arrays, alone or in an archive, sparse matrices and raw pairs of integers.
//!
//! Each worker reads its own rows, from anywhere in the file. Only a deflated member of an archive must be unpacked front to
//! back. A deflated array of shape [2, E] is unpacked by two streams side by side; the second one first skips the sources.
//! The arrays of a sparse matrix are read side by side; see [`EntryReader`] for what compressed rows cost.

use std::sync::{Arc, Mutex};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    EdgeBatch, IdLimit,
    edge_array::{ArrayColumn, EdgeArray},
    row_check::{Fault, OnBadRow, RowCheck, ids_of_floats},
    text::grow,
};
use crate::{
    conversions::Conversion,
    extent::{Compression, Extent},
    file::InputFile,
    messages::Checked,
    npy::{ArrayReader, NpyArray},
    sparse::{EntryReader, SparseArrays},
};

/// Entries of a matrix that are read at a time, beside the block that they belong to.
const ENTRIES: usize = 1 << 15;

pub(super) struct Table {
    ids: Ids,
    /// Bytes of the edges in the file.
    pub bytes: u64,
    pub rows: u64,
    /// The type of the ids that are read. Ids of entries become int64.
    id: ElementType,
    /// Shape [2, 2], which is read as [E, 2] although it may be [2, E].
    pub is_square: bool,
    /// Number of nodes that a matrix has.
    pub nodes: Option<u64>,
    /// The row of separate values that belongs to the first row.
    first_value: u64,
    /// The values of edges, those in the file included.
    arrays: Vec<EdgeArray>,
    /// Whether the weights are the values of the matrix.
    pub has_values: bool,
    /// The column of these values with the order of the edges.
    order: Option<ArrayColumn>,
    block_rows: u64,
    /// Held while a worker reads a table that must be read front to back.
    pub turn: Mutex<()>,
}

enum Ids {
    /// Sources and targets alternate.
    Pairs(Box<ArrayReader>),
    /// All sources, then all targets. There are two readers because deflated data needs two streams.
    Halves { sources: Box<ArrayReader>, targets: Box<ArrayReader> },
    /// Rows of a matrix are sources, and columns are targets.
    Entries(Box<EntryReader>),
}

impl Table {
    /// The edges of a `.npy` array. An `edge_index` has shape [2, E], also with two edges.
    pub fn npy(array: NpyArray, is_edge_index: bool) -> Result<Self> {
        let refuse = |problem: &str, conversion: Option<Conversion>| {
            let command = conversion.map(|conversion| array.extent.file.remedy(conversion));
            let command = command.map_or_else(String::new, |command| format!("; convert it: {command}"));
            Err(array.error(format!(
                "{problem}, found {} of shape {}{command}",
                array.element.name(),
                array.shape_shown()
            )))
        };
        let (rows, is_halves) = match *array.shape {
            [2, 2] if is_edge_index => (2, true),
            [rows, 2] => (rows, false),
            [2, rows] => (rows, true),
            [rows, columns] if rows == columns && rows > 3 => {
                return refuse(
                    "edges must have shape [E, 2] or [2, E], and an adjacency matrix has another shape",
                    Some(Conversion::DenseAdjacency),
                );
            }
            [_, 3] | [3, _] => {
                return refuse(
                    "edges must have shape [E, 2] or [2, E], with weights in an array of their own, which --weights names",
                    Some(Conversion::SplitWeights),
                );
            }
            _ => {
                return refuse(
                    "edges must have shape [E, 2] or [2, E]; weights are in an array of their own, which --weights names",
                    None,
                );
            }
        };
        match array.element {
            ElementType::Bool => return refuse("edges must be integers, or floats that are integers", None),
            ElementType::F16 | ElementType::Bf16 => {
                return refuse("ids are read from integers, float32 and float64", Some(Conversion::WideArray));
            }
            _ => {}
        }
        let is_square = *array.shape == [2, 2] && !is_edge_index;
        let (id, bytes) = (array.element, array.extent.bytes);
        // The columns of an array are the rows of its transpose.
        let ids = match is_halves != array.has_columns {
            true => Ids::Halves { sources: Box::new(array.reader()), targets: Box::new(array.reader()) },
            false => Ids::Pairs(Box::new(array.reader())),
        };
        Ok(Self { is_square, ..Self::new(ids, bytes, rows, id) })
    }

    /// The entries of a sparse matrix: an edge from each row to its columns. `has_values`: their values are the weights, unless
    /// they are bool.
    pub fn entries(arrays: SparseArrays, has_values: bool) -> Result<Self> {
        if arrays.rows != arrays.columns {
            return Err(arrays.data.extent.file.error(format!(
                "the matrix has {} rows and {} columns, but edges between nodes make a square one; if columns are other nodes than \
                 rows, number them after the rows: {}",
                arrays.rows,
                arrays.columns,
                arrays.data.extent.file.remedy(Conversion::BipartiteNpz)
            )));
        }
        let values = (has_values && arrays.data.element != ElementType::Bool)
            .then(|| EdgeArray::weights_of(arrays.data.clone()))
            .transpose()?;
        let (nodes, bytes, entries) = (arrays.rows, arrays.data.extent.file.bytes(), arrays.entries());
        let ids = Ids::Entries(Box::new(EntryReader::new(arrays)));
        Ok(Self {
            nodes: Some(nodes),
            has_values: values.is_some(),
            arrays: values.into_iter().collect(),
            ..Self::new(ids, bytes, entries, ElementType::I64)
        })
    }

    fn new(ids: Ids, bytes: u64, rows: u64, id: ElementType) -> Self {
        Self {
            ids,
            bytes,
            rows,
            id,
            is_square: false,
            nodes: None,
            first_value: 0,
            arrays: Vec::new(),
            has_values: false,
            order: None,
            block_rows: 1,
            turn: Mutex::default(),
        }
    }

    /// Pairs of integers from the start of the file to its end.
    pub fn raw(file: &Arc<InputFile>, id: ElementType) -> Result<Self> {
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
        let array = NpyArray::raw(Extent::whole(file, Compression::None), id, vec![rows, 2]);
        Ok(Self::new(Ids::Pairs(Box::new(array.reader())), file.bytes(), rows, id))
    }

    /// Sets the number of rows in the files before this one, the separate values of the rows of all files, the one among them with the
    /// order of the edges, and the block size. An error says that there is no such value.
    pub fn attach(
        &mut self,
        first_row: u64,
        arrays: &[EdgeArray],
        order: Option<&str>,
        block_bytes: usize,
    ) -> Checked<()> {
        self.first_value = first_row;
        self.arrays.extend_from_slice(arrays);
        self.block_rows = (block_bytes / self.row_bytes()).max(1) as u64;
        self.order = order.map(|name| ArrayColumn::named(name, &self.arrays)).transpose()?;
        Ok(())
    }

    pub fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.block_rows)
    }

    pub fn input_bytes(&self, block: u64) -> u64 {
        let (first, rows) = self.block(block);
        share(self.bytes, first + rows as u64, self.rows) - share(self.bytes, first, self.rows)
    }

    /// Whether blocks must be read one after another.
    pub fn is_sequential(&self) -> bool {
        match &self.ids {
            Ids::Pairs(ids) | Ids::Halves { sources: ids, .. } => ids.is_sequential(),
            Ids::Entries(entries) => entries.is_sequential(),
        }
    }

    fn row_bytes(&self) -> usize {
        2 * self.id.bytes() + self.arrays.iter().map(EdgeArray::row_bytes).sum::<usize>()
    }

    fn width(&self) -> usize {
        self.arrays.iter().map(|array| array.width).sum()
    }

    /// The first row of an array that belongs to the first row of the table.
    fn first_of(&self, array: &EdgeArray) -> u64 {
        match self.has_values && array.is_weights() {
            true => 0,
            false => self.first_value,
        }
    }

    /// Fails unless the members of an archive have their CRC-32.
    pub fn check(&self) -> Result<()> {
        self.arrays.iter().try_for_each(|array| array.reader.check())?;
        match &self.ids {
            // Both halves are in one member.
            Ids::Pairs(ids) | Ids::Halves { sources: ids, .. } => ids.check(),
            Ids::Entries(entries) => entries.check(),
        }
    }

    /// The block's first row, and its number of rows.
    fn block(&self, block: u64) -> (u64, usize) {
        let first = block * self.block_rows;
        (first, (self.rows - first).min(self.block_rows) as usize)
    }

    /// Reads the block's ids, then its values, one array after another, into `buffer`.
    pub fn read(&self, block: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let (first, rows) = self.block(block);
        let id = self.id.bytes();
        grow(buffer, rows * self.row_bytes())?;
        let (ids, mut rest) = buffer.split_at_mut(rows * 2 * id);
        match &self.ids {
            Ids::Pairs(pairs) => {
                pairs.will_need(2 * (first + rows as u64), 2 * rows);
                pairs.read(2 * first, ids)?;
            }
            Ids::Halves { sources, targets } => {
                for next in [first, self.rows + first] {
                    sources.will_need(next + rows as u64, rows);
                }
                let (into_sources, into_targets) = ids.split_at_mut(rows * id);
                sources.read(first, into_sources)?;
                targets.read(self.rows + first, into_targets)?;
            }
            Ids::Entries(entries) => {
                let (into_sources, into_targets) = ids.split_at_mut(rows * id);
                let (into_sources, into_targets) = (into_sources.as_chunks_mut().0, into_targets.as_chunks_mut().0);
                let (mut from, mut to) = (Vec::new(), Vec::new());
                for at in (0..rows).step_by(ENTRIES) {
                    let count = ENTRIES.min(rows - at);
                    entries.read(first + at as u64, count, &mut from, &mut to)?;
                    for (into, ids) in [(&mut *into_sources, &from), (&mut *into_targets, &to)] {
                        for (into, id) in into[at..at + count].iter_mut().zip(ids) {
                            *into = id.to_le_bytes();
                        }
                    }
                }
            }
        }
        for array in &self.arrays {
            let (bytes, others) = rest.split_at_mut(rows * array.row_bytes());
            array.reader.read_rows(self.first_of(array) + first, bytes)?;
            rest = others;
        }
        Ok(())
    }

    /// The first row of a block.
    pub fn first_row_of(&self, block: u64) -> u64 {
        self.block(block).0
    }

    /// Parses the output of [`read`](Self::read). Calls `on_bad` for each bad row.
    pub fn parse(
        &self,
        block: u64,
        buffer: &[u8],
        limits: [IdLimit; 2],
        into: &mut EdgeBatch,
        on_bad: &mut OnBadRow<'_>,
    ) -> Result<()> {
        let (first, rows) = self.block(block);
        let (ids, mut rest) = buffer.split_at(rows * 2 * self.id.bytes());
        let width = self.width();
        into.reserve(rows, width)?;
        let mut faults = Vec::new();
        match self.id {
            ElementType::U8 => self.ids(ids, into, |[byte]: [u8; 1]| byte.into()),
            ElementType::I8 => self.ids(ids, into, |bytes| i64::from(i8::from_le_bytes(bytes)) as u64),
            ElementType::U16 => self.ids(ids, into, |bytes| u16::from_le_bytes(bytes).into()),
            ElementType::I16 => self.ids(ids, into, |bytes| i64::from(i16::from_le_bytes(bytes)) as u64),
            ElementType::U32 => self.ids(ids, into, |bytes| u32::from_le_bytes(bytes).into()),
            ElementType::I32 => self.ids(ids, into, |bytes| i64::from(i32::from_le_bytes(bytes)) as u64),
            ElementType::F32 => {
                self.ids(ids, into, |bytes| f64::from(f32::from_le_bytes(bytes)).to_bits());
                faults_of_floats(into, f32::MANTISSA_DIGITS, &mut faults);
            }
            ElementType::F64 => {
                self.ids(ids, into, u64::from_le_bytes);
                faults_of_floats(into, f64::MANTISSA_DIGITS, &mut faults);
            }
            _ => self.ids(ids, into, u64::from_le_bytes),
        }
        into.values.resize(rows * width, 0.0);
        for (at, array) in self.arrays.iter().enumerate() {
            let (bytes, others) = rest.split_at(rows * array.row_bytes());
            array.convert(bytes, width, &mut into.values);
            if let Some(column) = self.order.filter(|column| column.array == at) {
                column.places(array, bytes).for_each(|place| into.order.push(place));
            }
            rest = others;
        }
        let is_signed = matches!(self.id, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64);
        let check = RowCheck {
            first_row: first,
            limits,
            signed: [is_signed; 2],
            faults: &faults,
            weighted: self.arrays.first().is_some_and(EdgeArray::is_weights),
        };
        check.sift(into, on_bad)
    }

    /// Appends the ids, which have `N` bytes each.
    fn ids<const N: usize>(&self, bytes: &[u8], into: &mut EdgeBatch, id: impl Fn([u8; N]) -> u64 + Copy) {
        let (ids, _) = bytes.as_chunks::<N>();
        if matches!(self.ids, Ids::Pairs(_)) {
            // Two passes over each tile: one for sources, one for targets. A tile stays in the L1 cache.
            for tile in ids.chunks(1024) {
                let (pairs, _) = tile.as_chunks::<2>();
                into.sources.extend(pairs.iter().map(|&[source, _]| id(source)));
                into.targets.extend(pairs.iter().map(|&[_, target]| id(target)));
            }
        } else {
            let (sources, targets) = ids.split_at(ids.len() / 2);
            into.sources.extend(sources.iter().map(|&bytes| id(bytes)));
            into.targets.extend(targets.iter().map(|&bytes| id(bytes)));
        }
    }
}

/// Turns the bits of floats, which a batch has instead of ids, into ids.
fn faults_of_floats(batch: &mut EdgeBatch, digits: u32, faults: &mut Vec<Fault>) {
    ids_of_floats(&mut batch.sources, digits, 0, faults);
    ids_of_floats(&mut batch.targets, digits, 1, faults);
}

/// The part of `total` that belongs to the first `rows` of `all` rows.
pub(super) fn share(total: u64, rows: u64, all: u64) -> u64 {
    (u128::from(total) * u128::from(rows) / u128::from(all.max(1))) as u64
}
