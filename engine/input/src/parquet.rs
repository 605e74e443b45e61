//! Edges in Apache Parquet: two columns of a flat table, and perhaps one of weights.
//!
//! A block is a range of rows within one row group. Blocks of a large row group are independent: each finds its first row
//! by skipping pages by their headers. A worker reads the pages of its block's columns while it parses; beside them it
//! holds the decoded columns before they become edges, about 16 bytes an edge more than other formats.

use std::{
    io::BufReader,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use grappa_io::{Error, Position, Result};
use parquet::{
    basic::{ConvertedType, LogicalType, Type},
    column::{
        page::{Page, PageMetadata, PageReader},
        reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    },
    data_type::{ByteArray, DataType},
    errors::{ParquetError, Result as ParquetResult},
    file::reader::{ChunkReader, FileReader, Length, SerializedFileReader},
    schema::types::ColumnDescriptor,
};

use super::{
    batch::{EdgeBatch, TextBatch},
    edges::IdKind,
    file::{Compression, Extent, InputFile, Pieces},
    lines::{BadEdge, IdLimit, SOURCE_NAMES, TARGET_NAMES},
    table::{OnBadRow, RowCheck, Weights, share},
};

const WEIGHT_NAMES: [&str; 3] = ["weight", "weights", "w"];

/// A Parquet file with edges.
pub(super) struct ParquetFile {
    file: Arc<InputFile>,
    reader: SerializedFileReader<Chunks>,
    /// Sources, targets.
    columns: [usize; 2],
    /// Whether these come as signed integers.
    signed: [bool; 2],
    weight: Option<usize>,
    rows: u64,
    /// The row groups that have rows.
    groups: Vec<Group>,
    block_rows: u64,
    blocks: u64,
    first_row: u64,
    weights: Option<Weights>,
}

struct Group {
    index: usize,
    first_row: u64,
    rows: u64,
    /// How many blocks are before it.
    first_block: u64,
}

/// A block.
struct Part {
    row_group: usize,
    /// Rows before it in its row group.
    skip: usize,
    /// Its rows in the file.
    rows: Range<u64>,
}

impl ParquetFile {
    /// Reads the footer and picks the columns.
    pub fn open(file: &Arc<InputFile>, ids: IdKind) -> Result<Self> {
        let refuse = |what: String| Error::input(file.path(), Position::Whole, what);
        let reader = guarded(|| SerializedFileReader::new(Chunks(file.clone())))
            .map_err(|error| refuse(format!("this Parquet file cannot be read ({error}); write it again")))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let flat = |&column: &usize| {
            schema.column(column).max_rep_level() == 0 && schema.column(column).path().parts().len() == 1
        };
        let columns: Vec<usize> = (0..schema.num_columns()).filter(flat).collect();
        let named = |names: &[&str]| {
            names.iter().find_map(|name| {
                let found = |&&column: &&usize| schema.column(column).name().eq_ignore_ascii_case(name);
                columns.iter().find(found).copied()
            })
        };
        let is_id = |column: &ColumnDescriptor| match ids {
            IdKind::Integer => is_integer(column),
            IdKind::String => is_string(column),
        };
        let picked = match (named(&SOURCE_NAMES), named(&TARGET_NAMES)) {
            (Some(source), Some(target)) => [source, target],
            _ => {
                let mut fitting = columns.iter().copied().filter(|&column| is_id(&schema.column(column)));
                match (fitting.next(), fitting.next()) {
                    (Some(source), Some(target)) => [source, target],
                    _ => {
                        let names: Vec<_> = schema.columns().iter().map(|column| described(column)).collect();
                        return Err(refuse(format!(
                            "expected two columns of {} (such as src and dst), found {}{}",
                            if ids == IdKind::Integer { "integers" } else { "strings" },
                            names.join(", "),
                            if ids == IdKind::Integer {
                                "; strings need --ids string"
                            } else {
                                "; integers need --ids dense or sparse"
                            },
                        )));
                    }
                }
            }
        };
        for column in picked {
            let column = schema.column(column);
            if !is_id(&column) {
                return Err(refuse(match ids {
                    IdKind::Integer => format!(
                        "expected integers in column {}; strings need --ids string, other types a cast to int64",
                        described(&column)
                    ),
                    IdKind::String => format!(
                        "expected strings in column {}; integers need --ids dense or sparse",
                        described(&column)
                    ),
                }));
            }
        }
        let weight = named(&WEIGHT_NAMES).filter(|column| !picked.contains(column));
        if let Some(column) = weight
            && !is_number(&schema.column(column))
        {
            return Err(refuse(format!(
                "expected numbers in column {}; cast it to float, or rename it if it holds no weights",
                described(&schema.column(column))
            )));
        }
        let mut rows = 0;
        let mut groups = Vec::new();
        for (index, group) in reader.metadata().row_groups().iter().enumerate() {
            let damaged = || {
                refuse(format!(
                    "row group {index} makes no sense; the file is damaged: write it again"
                ))
            };
            let group_rows = u64::try_from(group.num_rows()).map_err(|_| damaged())?;
            if group_rows == 0 {
                continue;
            }
            for &column in picked.iter().chain(&weight) {
                // The reader asserts this much, and file contents must not make it panic.
                let chunk = group.columns().get(column).ok_or_else(damaged)?;
                let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
                let end = start.checked_add(chunk.compressed_size()).ok_or_else(damaged)?;
                if start < 0 || chunk.compressed_size() < 0 || end as u64 > file.bytes() {
                    return Err(damaged());
                }
            }
            groups.push(Group {
                index,
                first_row: rows,
                rows: group_rows,
                first_block: 0,
            });
            // Half of what 64 bits hold, so that sums of a few files do not overflow.
            rows = Some(rows + group_rows)
                .filter(|&rows| rows < 1 << 62)
                .ok_or_else(damaged)?;
        }
        Ok(Self {
            signed: picked.map(|column| is_signed(&schema.column(column))),
            file: file.clone(),
            reader,
            columns: picked,
            weight,
            rows,
            groups,
            block_rows: 1,
            blocks: 0,
            first_row: 0,
            weights: None,
        })
    }

    /// Says how many rows other files have before it, which weights go with all of them, and how to cut blocks.
    pub fn attach(&mut self, first_row: u64, weights: Option<Weights>, block_bytes: usize) {
        self.first_row = first_row;
        self.weights = weights;
        self.block_rows = (block_bytes / 16).max(1) as u64;
        self.blocks = 0;
        for group in &mut self.groups {
            group.first_block = self.blocks;
            self.blocks += group.rows.div_ceil(self.block_rows);
        }
    }

    fn part(&self, block: u64) -> Part {
        let after = self.groups.partition_point(|group| group.first_block <= block);
        let group = &self.groups[after - 1];
        let skip = (block - group.first_block) * self.block_rows;
        let end = (skip + self.block_rows).min(group.rows);
        Part {
            row_group: group.index,
            skip: skip as usize,
            rows: group.first_row + skip..group.first_row + end,
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn weighted(&self) -> bool {
        self.weight.is_some()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block's share of the file.
    pub fn input_bytes(&self, block: u64) -> u64 {
        let Range { start, end } = self.part(block).rows;
        share(self.file.bytes(), end, self.rows) - share(self.file.bytes(), start, self.rows)
    }

    /// Reads and parses a block of integers.
    pub fn parse(&self, block: u64, limit: IdLimit, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let part = &self.part(block);
        let mut missing = Missing::default();
        self.integers(part, 0, &mut missing, &mut into.sources)?;
        self.integers(part, 1, &mut missing, &mut into.targets)?;
        self.read_weights(part, &mut missing, &mut into.weights)?;
        let check = RowCheck {
            first_row: part.rows.start,
            limit,
            signed: self.signed,
            missing: missing.rows.as_deref(),
        };
        check.sift(into, on_bad)
    }

    /// Reads and parses a block of strings.
    pub fn parse_text(&self, block: u64, into: &mut TextBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let part = &self.part(block);
        let mut missing = Missing::default();
        let sources = self.strings(part, 0, &mut missing)?;
        let targets = self.strings(part, 1, &mut missing)?;
        let mut weights = Vec::new();
        self.read_weights(part, &mut missing, &mut weights)?;
        for (row, (source, target)) in sources.iter().zip(&targets).enumerate() {
            // A missing value has no bytes to look at.
            let missing = missing.rows.as_ref().is_some_and(|missing| missing[row]);
            let [source, target] = [source, target].map(|key| if missing { &[] } else { key.data() });
            let weight = weights.get(row).copied();
            let text = |key: &[u8]| std::str::from_utf8(key).is_ok();
            let bad = if missing {
                BadEdge::Null
            } else if source.is_empty() || target.is_empty() {
                BadEdge::EmptyId
            } else if !text(source) || !text(target) {
                BadEdge::NotUtf8
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
            on_bad(part.rows.start + row as u64, &line, bad)?;
        }
        Ok(())
    }

    fn integers(&self, part: &Part, which: usize, missing: &mut Missing, into: &mut Vec<u64>) -> Result<()> {
        let column = self.columns[which];
        let signed = self.signed[which];
        match self.column(part, column)? {
            ColumnReader::Int32ColumnReader(reader) => {
                let extend = |value: i32| {
                    if signed {
                        i64::from(value) as u64
                    } else {
                        u64::from(value as u32)
                    }
                };
                self.read(part, column, reader, missing, |values| into.extend(values.map(extend)))
            }
            ColumnReader::Int64ColumnReader(reader) => self.read(part, column, reader, missing, |values| {
                into.extend(values.map(|value| value as u64))
            }),
            _ => unreachable!("ids are read from columns of integers"),
        }
    }

    fn strings(&self, part: &Part, which: usize, missing: &mut Missing) -> Result<Vec<ByteArray>> {
        let column = self.columns[which];
        let mut keys = Vec::new();
        match self.column(part, column)? {
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.read(part, column, reader, missing, |values| keys.extend(values))?;
            }
            _ => unreachable!("keys are read from columns of strings"),
        }
        Ok(keys)
    }

    /// The weights of a block's rows, from their column or their file; none if there are none.
    fn read_weights(&self, part: &Part, missing: &mut Missing, into: &mut Vec<f32>) -> Result<()> {
        if let Some(weights) = &self.weights {
            let rows = (part.rows.end - part.rows.start) as usize;
            let mut bytes = vec![0; rows * weights.element_bytes()];
            weights.read(self.first_row + part.rows.start, &mut bytes)?;
            weights.convert(&bytes, into);
        }
        let Some(column) = self.weight else { return Ok(()) };
        match self.column(part, column)? {
            ColumnReader::FloatColumnReader(reader) => {
                self.read(part, column, reader, missing, |values| into.extend(values))
            }
            ColumnReader::DoubleColumnReader(reader) => self.read(part, column, reader, missing, |values| {
                into.extend(values.map(|value| value as f32))
            }),
            ColumnReader::Int32ColumnReader(reader) => self.read(part, column, reader, missing, |values| {
                into.extend(values.map(|value| value as f32))
            }),
            ColumnReader::Int64ColumnReader(reader) => self.read(part, column, reader, missing, |values| {
                into.extend(values.map(|value| value as f32))
            }),
            _ => unreachable!("weights are read from columns of numbers"),
        }
    }

    fn column(&self, part: &Part, column: usize) -> Result<ColumnReader> {
        let open = || {
            let group = self.reader.get_row_group(part.row_group)?;
            let described = group.metadata().column(column).column_descr_ptr();
            let pages = CheckedPages {
                pages: group.get_column_page_reader(column)?,
                value_bytes: value_bytes(described.physical_type()),
            };
            Ok(get_column_reader(described, Box::new(pages)))
        };
        guarded(open).map_err(|error| self.damaged(part, &error))
    }

    /// Gives all of a block's values of one column to `each`, defaults where they are missing.
    fn read<T: DataType>(
        &self,
        part: &Part,
        column: usize,
        mut reader: ColumnReaderImpl<T>,
        missing: &mut Missing,
        each: impl FnOnce(&mut dyn Iterator<Item = T::T>),
    ) -> Result<()> {
        let rows = (part.rows.end - part.rows.start) as usize;
        let nullable = self
            .reader
            .metadata()
            .file_metadata()
            .schema_descr()
            .column(column)
            .max_def_level()
            > 0;
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut read = 0;
        let result = guarded(|| {
            if reader.skip_records(part.skip)? < part.skip {
                return Ok(());
            }
            while read < rows {
                let levels = nullable.then_some(&mut levels);
                let (records, _, _) = reader.read_records(rows - read, levels, None, &mut values)?;
                if records == 0 {
                    break;
                }
                read += records;
            }
            Ok(())
        });
        result.map_err(|error| self.damaged(part, &error))?;
        let present = levels.iter().filter(|&&level| level > 0).count();
        if read < rows || values.len() != if nullable { present } else { rows } || nullable && levels.len() != rows {
            return Err(self.damaged(part, &ParquetError::EOF("a column has too few values".to_owned())));
        }
        if present == rows || !nullable {
            each(&mut values.into_iter());
            return Ok(());
        }
        let missing = missing.rows.get_or_insert_with(|| vec![false; rows]);
        let mut values = values.into_iter();
        each(&mut levels.iter().zip(missing).map(|(&level, missing)| {
            if level > 0 {
                values.next().unwrap_or_default()
            } else {
                *missing = true;
                T::T::default()
            }
        }));
        Ok(())
    }

    fn damaged(&self, part: &Part, error: &ParquetError) -> Error {
        Error::input(
            self.file.path(),
            Position::Row(part.rows.start),
            format!("the Parquet data from here on cannot be read ({error}); write the file again"),
        )
    }
}

/// The pages of a column. The Parquet reader makes room for as many values of a dictionary as its page says that there are,
/// so pages that are too short for them end here.
struct CheckedPages {
    pages: Box<dyn PageReader>,
    /// A value takes so many bytes at least.
    value_bytes: usize,
}

impl CheckedPages {
    fn checked(&self, page: Option<Page>) -> ParquetResult<Option<Page>> {
        if let Some(Page::DictionaryPage { buf, num_values, .. }) = &page
            && *num_values as usize > buf.len() / self.value_bytes
        {
            return Err(ParquetError::General(format!(
                "a dictionary of {num_values} values has {} bytes",
                buf.len()
            )));
        }
        Ok(page)
    }
}

impl Iterator for CheckedPages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        self.checked(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.take_deferred_dictionary()?;
        self.checked(page)
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}

/// What a value takes in a dictionary, at least: one of bytes has its length before it.
fn value_bytes(physical: Type) -> usize {
    match physical {
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        // Not read.
        Type::BOOLEAN | Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY => 1,
    }
}

/// Turns a panic of the Parquet reader, which asserts some of what a file says, into an error about the file. What the
/// panic left behind is given up with the error.
fn guarded<T>(work: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|what| (*what).to_owned());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(ParquetError::General(
            what.unwrap_or_else(|| "it makes no sense".to_owned()),
        ))
    })
}

/// In which rows of a block a value is missing.
#[derive(Default)]
struct Missing {
    rows: Option<Vec<bool>>,
}

fn is_integer(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::INT32 | Type::INT64)
        && match column.logical_type_ref() {
            Some(logical) => matches!(logical, LogicalType::Integer(_)),
            // Dates and decimals are integers too.
            None => matches!(
                column.converted_type(),
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::INT_64
                    | ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
                    | ConvertedType::UINT_64
            ),
        }
}

fn is_signed(column: &ColumnDescriptor) -> bool {
    match column.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => integer.is_signed,
        _ => !matches!(
            column.converted_type(),
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
        ),
    }
}

fn is_string(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Type::BYTE_ARRAY && column.converted_type() != ConvertedType::DECIMAL
}

fn is_number(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) || is_integer(column)
}

/// A column's name and type for messages.
fn described(column: &ColumnDescriptor) -> String {
    format!("{} ({})", column.name(), column.physical_type())
}

/// The file as the Parquet reader wants it: read at offsets, so that threads do not share a position.
struct Chunks(Arc<InputFile>);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<Pieces>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let bytes = self.0.bytes().checked_sub(start).ok_or_else(|| beyond(start))?;
        let mut extent = Extent::whole(&self.0, Compression::None);
        extent.offset = start;
        extent.bytes = bytes;
        // Page headers are small, and pages are asked for by get_bytes.
        Ok(BufReader::with_capacity(4 << 10, Pieces::new(extent)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.bytes()) {
            return Err(beyond(start));
        }
        let mut bytes = vec![0; length];
        self.0
            .read_exact_at(&mut bytes, start)
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(bytes.into())
    }
}

fn beyond(start: u64) -> ParquetError {
    ParquetError::EOF(format!("bytes at offset {start} are beyond the end of the file"))
}
