//! Edges in Apache Parquet: two columns of a flat table, and optionally columns of weights and features.
//!
//! A block is a range of rows within one row group. The blocks of a row group are independent: each finds its first row by
//! skipping pages by their headers. A worker reads the pages of its block while it parses them. It also holds the decoded
//! columns before they become edges: about 16 bytes per edge more than in other formats.

mod schema;

use std::{ops::Range, sync::Arc};

use grappa_formats::dictionary::KEY_BYTES_MAX;
use grappa_io::{Error, Position, Result};
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
};

use self::schema::PickedColumns;
use super::{
    BadEdge, EdgeBatch, EdgeSourceOptions, IdLimit, TextBatch,
    bad_edge::Checked,
    edge_array::EdgeArray,
    order::Place,
    row_check::{Fault, OnBadRow, RowCheck, faults_of, ids_of_floats, not_finite, weight_of},
    table::share,
};
use crate::{
    file::InputFile,
    parquet::{
        ParquetTable, read_column,
        types::is_signed,
        values::{NextRows, Values},
    },
    table::Cell,
};

pub(super) struct ParquetFile {
    table: ParquetTable,
    pub columns: PickedColumns,
    /// Number of blocks before each row group.
    first_blocks: Vec<u64>,
    block_rows: u64,
    pub blocks: u64,
    first_row: u64,
    arrays: Vec<EdgeArray>,
}

/// The value of a row of a column.
fn cell_of(column: &Values, row: usize) -> Checked<Cell<'_>> {
    column.cell(row).map_err(|_| BadEdge::BinaryValue)
}

struct BlockRows {
    /// The row group, counted among those that are not empty.
    group: usize,
    /// Number of rows before the block in its row group.
    skip: usize,
    /// The rows, numbered in the file.
    rows: Range<u64>,
}

impl ParquetFile {
    pub fn open(file: &Arc<InputFile>, options: &EdgeSourceOptions) -> Result<Self> {
        let table = ParquetTable::open(file)?;
        let columns = PickedColumns::of(table.schema(), options, file.path()).map_err(|what| file.error(what))?;
        table.check_columns(columns.ids.iter().chain(&columns.values).copied().chain(columns.order))?;
        Ok(Self {
            first_blocks: vec![0; table.groups.len()],
            table,
            columns,
            block_rows: 1,
            blocks: 0,
            first_row: 0,
            arrays: Vec::new(),
        })
    }

    /// Sets the number of rows in the files before this one, the separate values of the rows of all files, and the block size.
    pub fn attach(&mut self, first_row: u64, arrays: &[EdgeArray], block_bytes: usize) {
        self.first_row = first_row;
        self.arrays = arrays.to_vec();
        // A weight is decoded beside the ids and their memory. Features take theirs from the block.
        let features = self.width() - usize::from(self.columns.weighted);
        self.block_rows = (block_bytes / (16 + 8 * features)).max(1) as u64;
        self.blocks = 0;
        for (group, first) in self.table.groups.iter().zip(&mut self.first_blocks) {
            *first = self.blocks;
            self.blocks += group.rows.div_ceil(self.block_rows);
        }
    }

    fn rows_of(&self, block: u64) -> BlockRows {
        let number = self.first_blocks.partition_point(|&first| first <= block) - 1;
        let group = &self.table.groups[number];
        let skip = (block - self.first_blocks[number]) * self.block_rows;
        let end = (skip + self.block_rows).min(group.rows);
        BlockRows { group: number, skip: skip as usize, rows: group.first_row + skip..group.first_row + end }
    }

    pub fn rows(&self) -> u64 {
        self.table.rows
    }

    /// Values of an edge, in columns and in separate arrays.
    fn width(&self) -> usize {
        self.columns.width() + self.arrays.iter().map(|array| array.width).sum::<usize>()
    }

    /// Whether the first value of an edge is its weight.
    fn weight_is_first(&self) -> bool {
        self.columns.weighted || self.arrays.iter().any(EdgeArray::is_weights)
    }

    pub fn input_bytes(&self, block: u64) -> u64 {
        let Range { start, end } = self.rows_of(block).rows;
        let [before, with] = [start, end].map(|rows| share(self.table.file.bytes(), rows, self.rows()));
        with - before
    }

    /// Reads and parses a block of integers.
    pub fn parse(&self, block: u64, limit: IdLimit, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let block = &self.rows_of(block);
        let mut faults = Vec::new();
        self.integers(block, 0, &mut faults, &mut into.sources)?;
        self.integers(block, 1, &mut faults, &mut into.targets)?;
        self.read_values(block, &mut faults, &mut into.values)?;
        self.read_order(block, &mut faults, |_, place| into.order.push(place))?;
        let check = RowCheck {
            weighted: self.weight_is_first(),
            first_row: block.rows.start,
            limit,
            signed: self.columns.signed,
            faults: &faults,
        };
        check.sift(into, on_bad)
    }

    /// Reads and parses a block of strings.
    pub fn parse_text(&self, block: u64, into: &mut TextBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let block = &self.rows_of(block);
        let mut faults = Vec::new();
        let sources = self.strings(block, 0, &mut faults)?;
        let targets = self.strings(block, 1, &mut faults)?;
        let (mut values, width) = (Vec::new(), self.width());
        self.read_values(block, &mut faults, &mut values)?;
        let mut places = Vec::new();
        self.read_order(block, &mut faults, |_, place| places.push(place))?;
        for (row, (source, target)) in sources.iter().zip(&targets).enumerate() {
            // A missing value has no bytes.
            let missing = faults.get(row).is_some_and(|fault| fault.missing);
            let [source, target] = [source, target].map(|key| if missing { &[] } else { key.data() });
            let values = &values[row * width..][..width];
            let bad = if missing {
                BadEdge::Null
            } else if let Some(bad) = faults.get(row).and_then(|fault| fault.other) {
                bad
            } else if source.is_empty() || target.is_empty() {
                BadEdge::EmptyId.of_end(usize::from(!source.is_empty()))
            } else if source.len().max(target.len()) > KEY_BYTES_MAX {
                BadEdge::LongId
            } else if [source, target].into_iter().any(|key| std::str::from_utf8(key).is_err()) {
                BadEdge::BinaryKey
            } else if let Some(bad) = not_finite(values, self.weight_is_first()) {
                bad
            } else {
                into.sources.push(source);
                into.targets.push(target);
                into.values.extend_from_slice(values);
                places.get(row).into_iter().for_each(|&place| into.order.push(place));
                continue;
            };
            let line = if missing { b"null".to_vec() } else { [source, b"\t", target].concat() };
            on_bad(block.rows.start + row as u64, &line, bad)?;
        }
        Ok(())
    }

    fn integers(&self, block: &BlockRows, which: usize, faults: &mut Vec<Fault>, into: &mut Vec<u64>) -> Result<()> {
        let column = self.columns.ids[which];
        let signed = self.columns.signed[which];
        match self.column(block, column)? {
            ColumnReader::Int32ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                into.extend(values.map(|value| if signed { i64::from(value) as u64 } else { u64::from(value as u32) }))
            }),
            ColumnReader::Int64ColumnReader(reader) => {
                self.read(block, column, reader, faults, |values| into.extend(values.map(|value| value as u64)))
            }
            // pandas writes integers as floats if one of them is missing.
            ColumnReader::FloatColumnReader(reader) => {
                self.read(block, column, reader, faults, |values| {
                    into.extend(values.map(|value| f64::from(value).to_bits()))
                })?;
                ids_of_floats(into, f32::MANTISSA_DIGITS, which, faults);
                Ok(())
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.read(block, column, reader, faults, |values| into.extend(values.map(f64::to_bits)))?;
                ids_of_floats(into, f64::MANTISSA_DIGITS, which, faults);
                Ok(())
            }
            _ => unreachable!("ids are read from columns of integers or floats"),
        }
    }

    fn strings(&self, block: &BlockRows, which: usize, faults: &mut Vec<Fault>) -> Result<Vec<ByteArray>> {
        let column = self.columns.ids[which];
        let mut keys = Vec::new();
        match self.column(block, column)? {
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.read(block, column, reader, faults, |values| keys.extend(values))?;
            }
            _ => unreachable!("keys are read from columns of strings"),
        }
        Ok(keys)
    }

    /// Reads the values of a block's edges from their columns and files.
    fn read_values(&self, block: &BlockRows, faults: &mut Vec<Fault>, into: &mut Vec<f32>) -> Result<()> {
        let (rows, width) = ((block.rows.end - block.rows.start) as usize, self.width());
        into.resize(rows * width, 0.0);
        for array in &self.arrays {
            let mut bytes = vec![0; rows * array.row_bytes()];
            array.reader.read_rows(self.first_row + block.rows.start, &mut bytes)?;
            array.convert(&bytes, width, into);
        }
        // Separate weights come before the columns, and separate features after the weight in its column.
        let shift = usize::from(self.arrays.iter().any(EdgeArray::is_weights));
        if let Some(encoder) = &self.columns.encoder {
            let first = shift + usize::from(self.columns.weighted);
            let features = self.columns_of(block, self.columns.features())?;
            let mut numbers = Vec::with_capacity(encoder.dim());
            for (row, values) in into.chunks_exact_mut(width).enumerate() {
                numbers.clear();
                for (at, column) in features.iter().enumerate() {
                    if let Err(bad) = cell_of(column, row).and_then(|cell| encoder.value(at, cell, &mut numbers)) {
                        faults_of(faults, rows)[row].other.get_or_insert(bad);
                    }
                }
                if numbers.len() == encoder.dim() {
                    values[first..][..numbers.len()].copy_from_slice(&numbers);
                }
            }
        }
        for (at, &column) in self.columns.numbers().iter().enumerate() {
            let mut put = |values: &mut dyn Iterator<Item = f32>| {
                let places = into.iter_mut().skip(shift + at).step_by(width);
                places.zip(values).for_each(|(place, value)| *place = value);
            };
            let is_signed = is_signed(&self.table.schema().column(column));
            match self.column(block, column)? {
                ColumnReader::FloatColumnReader(reader) => {
                    self.read(block, column, reader, faults, |values| put(values))
                }
                ColumnReader::DoubleColumnReader(reader) => {
                    let is_weight = at == 0 && self.columns.weighted;
                    self.read(block, column, reader, faults, |values| match is_weight {
                        true => put(&mut values.map(weight_of)),
                        false => put(&mut values.map(|value| value as f32)),
                    })
                }
                // Parquet has the bits of unsigned integers in signed ones.
                ColumnReader::Int32ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                    put(&mut values.map(|value| match is_signed {
                        true => value as f32,
                        false => value.cast_unsigned() as f32,
                    }))
                }),
                ColumnReader::Int64ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                    put(&mut values.map(|value| match is_signed {
                        true => value as f32,
                        false => value.cast_unsigned() as f32,
                    }))
                }),
                _ => unreachable!("values are read from columns of numbers"),
            }?;
        }
        Ok(())
    }

    /// Calls `each` with the number and the place of each row, if edges have an order. A row without a place is a fault.
    fn read_order(&self, block: &BlockRows, faults: &mut Vec<Fault>, mut each: impl FnMut(usize, Place)) -> Result<()> {
        let Some(column) = self.columns.order else {
            return Ok(());
        };
        let rows = (block.rows.end - block.rows.start) as usize;
        for values in self.columns_of(block, &[column])? {
            for row in 0..rows {
                match cell_of(&values, row).and_then(Place::of) {
                    Ok(place) => each(row, place),
                    Err(bad) => {
                        faults_of(faults, rows)[row].other.get_or_insert(bad);
                        each(row, Place::of_number(0.0));
                    }
                }
            }
        }
        Ok(())
    }

    /// The values of a block in these columns, of any type.
    fn columns_of(&self, block: &BlockRows, columns: &[usize]) -> Result<Vec<Values>> {
        let rows = (block.rows.end - block.rows.start) as usize;
        let values = columns.iter().map(|&column| {
            let described = self.table.schema().column(column);
            let next = NextRows {
                table: &self.table,
                column: &described,
                skip: block.skip,
                rows,
                first: block.rows.start,
                dim: 1,
            };
            next.values(&mut self.column(block, column)?)
        });
        values.collect()
    }

    /// Calls `each` with the number of each row and its values in the columns of features, front to back.
    pub fn each_row(&self, each: &mut dyn FnMut(u64, &[Cell<'_>]) -> Result<()>) -> Result<()> {
        for block in 0..self.blocks {
            let block = self.rows_of(block);
            let columns = self.columns_of(&block, self.columns.features())?;
            for (index, row) in block.rows.clone().enumerate() {
                let cells: std::result::Result<Vec<_>, _> = columns.iter().map(|column| column.cell(index)).collect();
                let cells = cells.map_err(|_| {
                    let what = "expected text in UTF-8 in the columns of edge features, found other bytes";
                    Error::input(self.table.file.path(), Position::Row(row), what)
                })?;
                each(row, &cells)?;
            }
        }
        Ok(())
    }

    fn column(&self, block: &BlockRows, column: usize) -> Result<ColumnReader> {
        self.table.column(block.group, column)
    }

    /// Passes a block's values of one column to `each`, with defaults for missing values.
    fn read<T: DataType>(
        &self,
        block: &BlockRows,
        column: usize,
        mut reader: ColumnReaderImpl<T>,
        faults: &mut Vec<Fault>,
        each: impl FnOnce(&mut dyn Iterator<Item = T::T>),
    ) -> Result<()> {
        let rows = (block.rows.end - block.rows.start) as usize;
        let descriptor = self.table.schema().column(column);
        let read = read_column(&mut reader, &descriptor, block.skip, rows)
            .map_err(|error| self.table.damaged(block.rows.start, &error))?;
        if read.values.len() == rows {
            each(&mut read.values.into_iter());
            return Ok(());
        }
        let mut values = read.values.into_iter();
        each(&mut read.levels.iter().zip(faults_of(faults, rows)).map(|(&level, fault)| {
            if level > 0 {
                values.next().unwrap_or_default()
            } else {
                fault.missing = true;
                T::T::default()
            }
        }));
        Ok(())
    }
}
