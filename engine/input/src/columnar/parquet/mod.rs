//! Tables in Apache Parquet, read as Arrow arrays.
//!
//! The reader of the `parquet` crate trusts what a file claims. Here its claims are checked first ([`claims`]), and what the reader asserts
//! becomes an error about the file.

mod claims;
mod metadata;
mod pages;
mod thrift;

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use grappa_io::{Error, Result};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
        },
    },
    basic::{Compression, Type},
    file::metadata::ColumnChunkMetaData,
};

use self::pages::{Chunks, guarded};
use super::row_group::{ArrowResult, RowGroup};
use crate::{conversions::Conversion, file::InputFile};

pub(super) struct ParquetFile {
    file: Arc<InputFile>,
    metadata: ArrowReaderMetadata,
    /// The row groups that are not empty, by their numbers.
    groups: Vec<(usize, RowGroup)>,
}

impl ParquetFile {
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        let metadata = guarded(|| {
            let metadata = ArrowReaderMetadata::load(&Chunks(file.clone()), ArrowReaderOptions::new())?;
            match old_timestamps_in_milliseconds(&metadata) {
                None => Ok(metadata),
                Some(schema) => {
                    let options = ArrowReaderOptions::new().with_schema(schema);
                    ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
                }
            }
        });
        let metadata = metadata
            .map_err(|error| file.error(format!("this Parquet file cannot be read ({error}); write it again")))?;
        let (mut first_row, mut groups) = (0, Vec::new());
        for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| file.error(impossible(number)))?;
            if rows == 0 {
                continue;
            }
            groups.push((number, RowGroup { first_row, rows }));
            // Far below 2^64, so that the sum over many files cannot overflow.
            first_row =
                Some(first_row + rows).filter(|&rows| rows < 1 << 62).ok_or_else(|| file.error(impossible(number)))?;
        }
        Ok(Self { file: file.clone(), metadata, groups })
    }

    pub fn schema(&self) -> SchemaRef {
        self.metadata.schema().clone()
    }

    /// The key-value metadata of the file.
    pub fn key_values(&self) -> BTreeMap<String, String> {
        let pairs = self.metadata.metadata().file_metadata().key_value_metadata();
        let pairs = pairs.into_iter().flatten();
        pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect()
    }

    pub fn groups(&self) -> Vec<RowGroup> {
        self.groups.iter().map(|&(_, group)| group).collect()
    }

    /// The stored columns of a column in the row groups that are not empty, each with the number of its group.
    fn chunks(&self, column: usize) -> impl Iterator<Item = (usize, &ColumnChunkMetaData)> {
        let metadata = self.metadata.metadata();
        let schema = self.metadata.parquet_schema();
        let leaves = (0..schema.num_columns()).filter(move |&leaf| schema.get_column_root_idx(leaf) == column);
        self.groups.iter().flat_map(move |&(number, _)| {
            leaves.clone().map(move |leaf| (number, &metadata.row_group(number).columns()[leaf]))
        })
    }

    /// Refuses columns that cannot be read.
    pub fn check_columns(&self, columns: impl Iterator<Item = usize>) -> Result<()> {
        for (number, chunk) in columns.flat_map(|column| self.chunks(column)) {
            if let Compression::BROTLI(_) | Compression::LZO = chunk.compression() {
                return Err(self.unread_compression(chunk));
            }
            // The Parquet reader asserts these conditions, and the contents of a file must not make it panic.
            if !self.has_bytes_of(chunk) {
                return Err(self.file.error(impossible(number)));
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

    fn unread_compression(&self, chunk: &ColumnChunkMetaData) -> Error {
        self.file.error(format!(
            "column {} is compressed with {}, which is not read; write the file again with another compression: {}",
            chunk.column_descr().name(),
            match chunk.compression() {
                Compression::BROTLI(_) => "brotli",
                _ => "LZO",
            },
            Conversion::RecompressParquet.command(self.file.path())
        ))
    }

    /// The largest size of a column in a row group, in bytes, decompressed.
    pub fn column_bytes_max(&self, column: usize) -> u64 {
        let bytes = self.chunks(column).filter_map(|(_, chunk)| u64::try_from(chunk.uncompressed_size()).ok());
        bytes.max().unwrap_or(0)
    }

    /// A reader of columns from a row on, which returns up to `rows_max` rows at a time.
    pub fn reader(&self, columns: &[usize], row: u64, rows_max: usize) -> ArrowResult<BatchReader> {
        let first = self.groups.partition_point(|(_, group)| group.first_row <= row) - 1;
        let numbers = self.groups[first..].iter().map(|&(number, _)| number);
        let reader = guarded(|| {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(Chunks(self.file.clone()), self.metadata.clone());
            let projection = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
            let builder = builder.with_projection(projection).with_row_groups(numbers.collect());
            builder.with_offset((row - self.groups[first].1.first_row) as usize).with_batch_size(rows_max).build()
        })?;
        Ok(BatchReader(reader))
    }
}

/// Reads rows of some columns of a Parquet file, front to back.
pub(super) struct BatchReader(ParquetRecordBatchReader);

impl BatchReader {
    /// The next rows. An end is an error: the caller knows that there are more.
    pub fn next_batch(&mut self) -> ArrowResult<RecordBatch> {
        let batch = guarded(|| Ok(self.0.next()))?;
        batch.unwrap_or_else(|| Err(ArrowError::ParquetError("a column has too few values".to_owned())))
    }
}

/// The schema with old timestamps, INT96, in milliseconds. In nanoseconds, the default, days after 2262 would overflow. None if there are
/// no such columns.
fn old_timestamps_in_milliseconds(metadata: &ArrowReaderMetadata) -> Option<SchemaRef> {
    let schema = metadata.parquet_schema();
    let mut are_old = schema
        .root_schema()
        .get_fields()
        .iter()
        .map(|field| field.is_primitive() && field.get_physical_type() == Type::INT96)
        .collect::<Vec<_>>();
    are_old.resize(metadata.schema().fields().len(), false);
    let fields = metadata.schema().fields().iter().zip(&are_old).map(|(field, &is_old)| match is_old {
        true => {
            let kind = DataType::Timestamp(TimeUnit::Millisecond, None);
            Arc::new(Field::clone(field).with_data_type(kind))
        }
        false => field.clone(),
    });
    let fields: Vec<_> = fields.collect();
    let schema = Schema::new_with_metadata(fields, metadata.schema().metadata().clone());
    are_old.contains(&true).then(|| Arc::new(schema))
}

fn impossible(group: usize) -> String {
    format!("row group {group} has impossible sizes; the file is damaged: write it again")
}
