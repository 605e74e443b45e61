//! Tables in Apache Parquet: their row groups, and the values of columns.
//!
//! The reader of the `parquet` crate trusts what a file claims. Here its claims are checked first ([`claims`]), and what the reader asserts
//! becomes an error about the file.

mod claims;
mod metadata;
mod pages;
mod thrift;
pub(crate) mod types;
pub(crate) mod values;

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use parquet::{
    basic::Compression,
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::DataType,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::ColumnChunkMetaData,
        reader::{FileReader, SerializedFileReader},
    },
    schema::types::{ColumnDescriptor, SchemaDescriptor},
};

use self::pages::{CheckedPages, Chunks, guarded, value_bytes};
use crate::{conversions::Conversion, file::InputFile};

pub(crate) struct ParquetTable {
    pub file: Arc<InputFile>,
    reader: SerializedFileReader<Chunks>,
    pub rows: u64,
    /// The row groups that are not empty.
    pub groups: Vec<RowGroup>,
}

/// A row group that is not empty.
pub(crate) struct RowGroup {
    index: usize,
    pub first_row: u64,
    pub rows: u64,
}

impl ParquetTable {
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        let reader = guarded(|| SerializedFileReader::new(Chunks(file.clone())))
            .map_err(|error| file.error(format!("this Parquet file cannot be read ({error}); write it again")))?;
        let (mut rows, mut groups) = (0, Vec::new());
        for (index, group) in reader.metadata().row_groups().iter().enumerate() {
            let group_rows = u64::try_from(group.num_rows()).map_err(|_| file.error(impossible(index)))?;
            if group_rows == 0 {
                continue;
            }
            groups.push(RowGroup { index, first_row: rows, rows: group_rows });
            // Far below 2^64, so that the sum over many files cannot overflow.
            rows =
                Some(rows + group_rows).filter(|&rows| rows < 1 << 62).ok_or_else(|| file.error(impossible(index)))?;
        }
        Ok(Self { file: file.clone(), reader, rows, groups })
    }

    pub fn schema(&self) -> &SchemaDescriptor {
        self.reader.metadata().file_metadata().schema_descr()
    }

    /// Refuses columns that cannot be read. Call it before [`Self::column`].
    pub fn check_columns(&self, columns: impl Iterator<Item = usize> + Clone) -> Result<()> {
        for group in &self.groups {
            let described = self.reader.metadata().row_group(group.index);
            for column in columns.clone() {
                let chunk = described.columns().get(column);
                if let Some(chunk) = chunk
                    && let Compression::BROTLI(_) | Compression::LZO = chunk.compression()
                {
                    return Err(self.file.error(self.unread_compression(chunk)));
                }
                // The Parquet reader asserts these conditions, and the contents of a file must not make it panic.
                if !chunk.is_some_and(|chunk| self.has_bytes_of(chunk)) {
                    return Err(self.file.error(impossible(group.index)));
                }
            }
        }
        Ok(())
    }

    /// Whether the file is as long as a column of a row group claims.
    fn has_bytes_of(&self, chunk: &ColumnChunkMetaData) -> bool {
        let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        let end = start.checked_add(chunk.compressed_size());
        start >= 0 && chunk.compressed_size() >= 0 && end.is_some_and(|end| end as u64 <= self.file.bytes())
    }

    /// The largest size of a column in a row group, in bytes, decompressed.
    pub fn column_bytes_max(&self, column: usize) -> u64 {
        let groups = self.reader.metadata().row_groups().iter();
        let bytes = groups.filter_map(|group| u64::try_from(group.columns().get(column)?.uncompressed_size()).ok());
        bytes.max().unwrap_or(0)
    }

    pub fn column(&self, group: usize, column: usize) -> Result<ColumnReader> {
        let RowGroup { index, first_row, .. } = self.groups[group];
        guarded(|| {
            let group = self.reader.get_row_group(index)?;
            let described = group.metadata().column(column).column_descr_ptr();
            let pages = CheckedPages {
                pages: group.get_column_page_reader(column)?,
                value_bytes: value_bytes(described.physical_type()),
            };
            Ok(get_column_reader(described, Box::new(pages)))
        })
        .map_err(|error| self.damaged(first_row, &error))
    }

    fn unread_compression(&self, chunk: &ColumnChunkMetaData) -> String {
        format!(
            "column {} is compressed with {}, which is not read; write the file again with another compression: {}",
            chunk.column_descr().name(),
            match chunk.compression() {
                Compression::BROTLI(_) => "brotli",
                _ => "LZO",
            },
            Conversion::RecompressParquet.command(self.file.path())
        )
    }

    /// The error about data that cannot be read from `row` on.
    pub fn damaged(&self, row: u64, error: &ParquetError) -> Error {
        Error::input(
            self.file.path(),
            Position::Row(row),
            format!("the Parquet data from here on cannot be read ({error}); write the file again"),
        )
    }
}

/// The position of a reader of some columns, front to back.
#[derive(Default)]
pub(crate) struct Cursor {
    pub row: u64,
    /// The row group, and its columns after `row`.
    open: Option<(usize, Vec<ColumnReader>)>,
}

impl Cursor {
    pub fn at(row: u64) -> Self {
        Self { row, open: None }
    }

    /// Calls `read` with readers of these columns, the number of rows to skip, and the number of rows to read after them: rows up to
    /// `end`, or up to the end of a row group.
    pub fn read<T>(
        &mut self,
        table: &ParquetTable,
        columns: &[usize],
        end: u64,
        read: impl FnOnce(&mut [ColumnReader], usize, usize) -> Result<T>,
    ) -> Result<T> {
        let (group, skip, mut readers) = match self.open.take() {
            Some((group, readers)) => (group, 0, readers),
            None => {
                let group = table.groups.partition_point(|group| group.first_row <= self.row) - 1;
                let readers = columns.iter().map(|&column| table.column(group, column)).collect::<Result<_>>()?;
                (group, (self.row - table.groups[group].first_row) as usize, readers)
            }
        };
        let group_end = table.groups[group].first_row + table.groups[group].rows;
        let rows = end.min(group_end) - self.row;
        let found = read(&mut readers, skip, rows as usize)?;
        self.row += rows;
        if self.row < group_end {
            self.open = Some((group, readers));
        }
        Ok(found)
    }
}

/// Values of a column that were read.
pub(crate) struct ReadValues<T> {
    /// Those that are not missing.
    pub values: Vec<T>,
    /// The definition level of each value, missing or not. Empty if none can be missing.
    pub levels: Vec<i16>,
    /// The repetition level of each of them. Empty if each row has one.
    pub repeats: Vec<i16>,
}

/// Skips `skip` rows of a column, and reads the next `rows`.
pub(crate) fn read_column<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    column: &ColumnDescriptor,
    skip: usize,
    rows: usize,
) -> ParquetResult<ReadValues<T::T>> {
    let (nullable, repeated) = (column.max_def_level() > 0, column.max_rep_level() > 0);
    let (mut values, mut levels, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
    let mut read = 0;
    guarded(|| {
        if skip > 0 && reader.skip_records(skip)? < skip {
            return Ok(());
        }
        while read < rows {
            let levels = nullable.then_some(&mut levels);
            let repeats = repeated.then_some(&mut repeats);
            let (records, _, _) = reader.read_records(rows - read, levels, repeats, &mut values)?;
            if records == 0 {
                break;
            }
            read += records;
        }
        Ok(())
    })?;
    let present = levels.iter().filter(|&&level| level == column.max_def_level()).count();
    let slots = if repeated { repeats.len() } else { rows };
    if read < rows || values.len() != if nullable { present } else { slots } || nullable && levels.len() != slots {
        return Err(ParquetError::EOF("a column has too few values".to_owned()));
    }
    Ok(ReadValues { values, levels, repeats })
}

fn impossible(group: usize) -> String {
    format!("row group {group} has impossible sizes; the file is damaged: write it again")
}
