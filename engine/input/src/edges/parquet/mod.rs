//! Edges in Apache Parquet: two columns of a flat table, and optionally a column of weights.
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
    BadEdge, EdgeBatch, IdKind, IdLimit, TextBatch,
    edge_weights::EdgeWeights,
    row_check::{Fault, OnBadRow, RowCheck},
    table::share,
};
use crate::{
    columns::EdgeColumnOptions,
    file::InputFile,
    parquet::{ParquetTable, read_column},
};

/// A Parquet file with edges.
pub(super) struct ParquetFile {
    table: ParquetTable,
    columns: PickedColumns,
    /// Number of blocks before each row group.
    first_blocks: Vec<u64>,
    block_rows: u64,
    blocks: u64,
    first_row: u64,
    weights: Option<EdgeWeights>,
}

/// The rows of a block.
struct BlockRows {
    /// The row group, counted among those that are not empty.
    group: usize,
    /// Number of rows before the block in its row group.
    skip: usize,
    /// The rows, numbered in the file.
    rows: Range<u64>,
}

impl ParquetFile {
    /// Reads the footer and picks the columns.
    pub fn open(file: &Arc<InputFile>, ids: IdKind, options: &EdgeColumnOptions) -> Result<Self> {
        let table = ParquetTable::open(file)?;
        let columns = PickedColumns::of(table.schema(), ids, options, file.path())
            .map_err(|what| Error::input(file.path(), Position::Whole, what))?;
        table.check_columns(columns.ids.iter().chain(&columns.weight).copied())?;
        Ok(Self {
            first_blocks: vec![0; table.groups().len()],
            table,
            columns,
            block_rows: 1,
            blocks: 0,
            first_row: 0,
            weights: None,
        })
    }

    /// Sets the number of rows in the files before this one, the weights of the rows of all files, and the block size.
    pub fn attach(&mut self, first_row: u64, weights: Option<EdgeWeights>, block_bytes: usize) {
        self.first_row = first_row;
        self.weights = weights;
        self.block_rows = (block_bytes / 16).max(1) as u64;
        self.blocks = 0;
        for (group, first) in self.table.groups().iter().zip(&mut self.first_blocks) {
            *first = self.blocks;
            self.blocks += group.rows.div_ceil(self.block_rows);
        }
    }

    fn rows_of(&self, block: u64) -> BlockRows {
        let number = self.first_blocks.partition_point(|&first| first <= block) - 1;
        let group = &self.table.groups()[number];
        let skip = (block - self.first_blocks[number]) * self.block_rows;
        let end = (skip + self.block_rows).min(group.rows);
        BlockRows {
            group: number,
            skip: skip as usize,
            rows: group.first_row + skip..group.first_row + end,
        }
    }

    pub fn rows(&self) -> u64 {
        self.table.rows()
    }

    pub fn weighted(&self) -> bool {
        self.columns.weight.is_some()
    }

    /// The roles of columns, and their names.
    pub fn roles(&self) -> Vec<(&'static str, String)> {
        let [source, target] = self.columns.ids;
        let roles = [
            ("source", Some(source)),
            ("target", Some(target)),
            ("weight", self.columns.weight),
        ];
        let name = |column: usize| self.table.schema().column(column).name().to_owned();
        roles
            .into_iter()
            .filter_map(|(role, column)| Some((role, name(column?))))
            .collect()
    }

    /// The names of the columns that are not read.
    pub fn left_out(&self) -> Vec<String> {
        self.columns.left_out.clone()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block's share of the file.
    pub fn input_bytes(&self, block: u64) -> u64 {
        let Range { start, end } = self.rows_of(block).rows;
        let part = |rows| share(self.table.file().bytes(), rows, self.rows());
        part(end) - part(start)
    }

    /// Reads and parses a block of integers.
    pub fn parse(&self, block: u64, limit: IdLimit, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let block = &self.rows_of(block);
        let mut faults = Faults::default();
        self.integers(block, 0, &mut faults, &mut into.sources)?;
        self.integers(block, 1, &mut faults, &mut into.targets)?;
        self.read_weights(block, &mut faults, &mut into.weights)?;
        let check = RowCheck {
            first_row: block.rows.start,
            limit,
            signed: self.columns.signed,
            faults: faults.rows.as_deref(),
        };
        check.sift(into, on_bad)
    }

    /// Reads and parses a block of strings.
    pub fn parse_text(&self, block: u64, into: &mut TextBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let block = &self.rows_of(block);
        let mut faults = Faults::default();
        let sources = self.strings(block, 0, &mut faults)?;
        let targets = self.strings(block, 1, &mut faults)?;
        let mut weights = Vec::new();
        self.read_weights(block, &mut faults, &mut weights)?;
        for (row, (source, target)) in sources.iter().zip(&targets).enumerate() {
            // A missing value has no bytes.
            let missing = faults.rows.as_ref().is_some_and(|faults| faults[row].missing);
            let [source, target] = [source, target].map(|key| if missing { &[] } else { key.data() });
            let weight = weights.get(row).copied();
            let text = |key: &[u8]| std::str::from_utf8(key).is_ok();
            let bad = if missing {
                BadEdge::Null
            } else if source.is_empty() || target.is_empty() {
                BadEdge::EmptyId.of_end(usize::from(!source.is_empty()))
            } else if source.len().max(target.len()) > KEY_BYTES_MAX {
                BadEdge::LongId
            } else if !text(source) || !text(target) {
                BadEdge::BinaryKey
            } else if weight.is_some_and(|weight| !weight.is_finite()) {
                BadEdge::WeightNotFinite
            } else {
                into.sources.push(source);
                into.targets.push(target);
                into.weights.extend(weight);
                continue;
            };
            let line = if missing {
                b"null".to_vec()
            } else {
                [source, b"\t", target].concat()
            };
            on_bad(block.rows.start + row as u64, &line, bad)?;
        }
        Ok(())
    }

    fn integers(&self, block: &BlockRows, which: usize, faults: &mut Faults, into: &mut Vec<u64>) -> Result<()> {
        let column = self.columns.ids[which];
        let signed = self.columns.signed[which];
        match self.column(block, column)? {
            ColumnReader::Int32ColumnReader(reader) => {
                let extend = |value: i32| {
                    if signed {
                        i64::from(value) as u64
                    } else {
                        u64::from(value as u32)
                    }
                };
                self.read(block, column, reader, faults, |values| into.extend(values.map(extend)))
            }
            ColumnReader::Int64ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                into.extend(values.map(|value| value as u64))
            }),
            ColumnReader::FloatColumnReader(reader) => {
                self.floats(block, which, reader, faults, f32::MANTISSA_DIGITS, into)
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.floats(block, which, reader, faults, f64::MANTISSA_DIGITS, into)
            }
            _ => unreachable!("ids are read from columns of integers or floats"),
        }
    }

    /// Reads ids from floats with `digits` binary digits, as pandas writes integers if one of them is missing.
    fn floats<T: DataType<T: Into<f64>>>(
        &self,
        block: &BlockRows,
        which: usize,
        reader: ColumnReaderImpl<T>,
        faults: &mut Faults,
        digits: u32,
        into: &mut Vec<u64>,
    ) -> Result<()> {
        let mut values: Vec<f64> = Vec::new();
        self.read(block, self.columns.ids[which], reader, faults, |all| {
            values.extend(all.map(Into::into))
        })?;
        let rows = values.len();
        for (row, value) in values.into_iter().enumerate() {
            into.push(Fault::of_float(value, digits, which).unwrap_or_else(|(fault, bits)| {
                faults.of(rows)[row].add(fault);
                bits
            }));
        }
        Ok(())
    }

    fn strings(&self, block: &BlockRows, which: usize, faults: &mut Faults) -> Result<Vec<ByteArray>> {
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

    /// Reads the weights of a block's rows from their column or their file, if there are any.
    fn read_weights(&self, block: &BlockRows, faults: &mut Faults, into: &mut Vec<f32>) -> Result<()> {
        if let Some(weights) = &self.weights {
            let rows = (block.rows.end - block.rows.start) as usize;
            let mut bytes = vec![0; rows * weights.element_bytes()];
            weights.read(self.first_row + block.rows.start, &mut bytes)?;
            weights.convert(&bytes, into);
        }
        let Some(column) = self.columns.weight else {
            return Ok(());
        };
        match self.column(block, column)? {
            ColumnReader::FloatColumnReader(reader) => {
                self.read(block, column, reader, faults, |values| into.extend(values))
            }
            ColumnReader::DoubleColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                into.extend(values.map(|value| value as f32))
            }),
            // Parquet has the bits of unsigned integers in signed ones.
            ColumnReader::Int32ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                into.extend(values.map(|value| match self.columns.signed_weight {
                    true => value as f32,
                    false => value.cast_unsigned() as f32,
                }))
            }),
            ColumnReader::Int64ColumnReader(reader) => self.read(block, column, reader, faults, |values| {
                into.extend(values.map(|value| match self.columns.signed_weight {
                    true => value as f32,
                    false => value.cast_unsigned() as f32,
                }))
            }),
            _ => unreachable!("weights are read from columns of numbers"),
        }
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
        faults: &mut Faults,
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
        each(&mut read.levels.iter().zip(faults.of(rows)).map(|(&level, fault)| {
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

/// The faults of a block's rows, if there are any.
#[derive(Default)]
struct Faults {
    rows: Option<Vec<Fault>>,
}

impl Faults {
    /// The faults of the `rows` rows.
    fn of(&mut self, rows: usize) -> &mut [Fault] {
        self.rows.get_or_insert_with(|| vec![Fault::default(); rows])
    }
}
