//! Tables as Parquet.

use std::{io, io::Write, path::Path, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch, StringArray, cast::AsArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::coalesce::BatchCoalescer;
use grappa_io::{Error, Position, Result};
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::Compression,
    file::properties::WriterProperties,
    schema::types::ColumnPath,
};

use super::shape::{REPEATS, TableShape};

pub(super) struct ParquetWriter<'a> {
    writer: ArrowWriter<Box<dyn Write + Send + 'a>>,
    /// The path of the file, for errors.
    path: &'a Path,
    schema: Arc<Schema>,
    /// The rows of the next group. Batches follow from memory and threads, and groups must not.
    group: BatchCoalescer,
}

impl<'a> ParquetWriter<'a> {
    /// Begins the file.
    pub fn new(out: Box<dyn Write + Send + 'a>, path: &'a Path, shape: &TableShape) -> Result<Self> {
        // Ids and numbers hardly repeat.
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(false)
            .set_max_row_group_row_count(None);
        for field in shape.schema.fields().iter().filter(|field| field.metadata().contains_key(REPEATS)) {
            let inside: &[&str] = if field.data_type().is_nested() { &["list", "element"] } else { &[] };
            let parts = [&[field.name().as_str()], inside].concat();
            let path = ColumnPath::new(parts.into_iter().map(str::to_owned).collect());
            properties = properties.set_column_dictionary_enabled(path, true);
        }
        let fields: Vec<Field> = shape.schema.fields().iter().map(|field| with_utf8(field)).collect();
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true)
            .with_schema_root("table".to_owned());
        let writer = ArrowWriter::try_new_with_options(out, schema.clone(), options).map_err(failed(path))?;
        let group = BatchCoalescer::new(shape.schema.clone(), shape.group_rows() as usize);
        Ok(Self { writer, path, schema, group })
    }

    pub fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.group.push_batch(batch).map_err(failed(self.path))?;
        self.write_groups()
    }

    /// Writes the end of the file. Returns its length in bytes.
    pub fn finish(mut self) -> Result<u64> {
        self.group.finish_buffered_batch().map_err(failed(self.path))?;
        self.write_groups()?;
        self.writer.finish().map_err(failed(self.path))?;
        Ok(self.writer.bytes_written() as u64)
    }

    fn write_groups(&mut self) -> Result<()> {
        while let Some(batch) = self.group.next_completed_batch() {
            let columns = batch.columns().iter().map(|column| self.utf8(column)).collect::<Result<_>>()?;
            let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(failed(self.path))?;
            self.writer.write(&batch).and_then(|()| self.writer.flush()).map_err(failed(self.path))?;
        }
        Ok(())
    }

    /// A column with strings instead of bytes.
    fn utf8(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let Some(texts) = column.as_binary_opt::<i32>() else { return Ok(column.clone()) };
        match StringArray::try_from_binary(texts.clone()) {
            Ok(strings) => Ok(Arc::new(strings)),
            Err(_) => {
                let text = texts.iter().flatten().find(|text| str::from_utf8(text).is_err()).unwrap_or_default();
                let problem = format!(
                    "\"{}\" is not UTF-8, and strings in Parquet are: write to a file called .csv instead",
                    text.escape_ascii()
                );
                Err(Error::input(self.path, Position::Whole, problem))
            }
        }
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(path: &Path) -> impl FnOnce(E) -> Error + '_ {
    move |error| Error::io("write", path)(io::Error::other(error))
}

/// A column of strings instead of bytes.
fn with_utf8(field: &Field) -> Field {
    match field.data_type() {
        DataType::Binary => field.clone().with_data_type(DataType::Utf8),
        _ => field.clone(),
    }
}
