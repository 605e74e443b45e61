//! Tables with named columns: a schema, then Arrow record batches, which are written as they come.
//!
//! | type of a column | Parquet | CSV, and text with tabs | `.npy` |
//! |---|---|---|---|
//! | `Int64`, `UInt64`, `Float32` | a value or null | a value or nothing | a value |
//! | `Binary`, `Utf8` | a string or null | bytes or nothing | |
//! | `FixedSizeList` | a list | a column for each value: `NAME_0`, `NAME_1`, ... | a row |
//! | `List` | a list or null | values with semicolons between them, or nothing | |
//!
//! An array also has columns of `Float16` and `Int8`. If it has several columns, these are the columns of the array.
//!
//! Memory: a batch and, for Parquet, a group of rows. The bytes of a file do not depend on how rows are divided into batches.

mod npy;
mod parquet;
mod shape;
mod text;

use std::{io::Write, path::Path};

use arrow_array::RecordBatch;
use grappa_io::{
    Error,
    durable::{self, Destination},
};

use self::parquet::ParquetWriter;
pub use self::shape::{TableFormat, TableShape, repeating};

/// The place of a table.
pub enum TableOut<'a> {
    /// A new file, which gets its name when it is complete and synced. Its ending says the format.
    File(Destination<'a>),
    /// Standard output or the like.
    Stream(&'a mut (dyn Write + Send), TableFormat),
}

impl TableOut<'_> {
    /// The format of the table. A file with another ending gets the default.
    pub fn format(&self, default: TableFormat) -> TableFormat {
        match self {
            Self::File(file) => TableFormat::from_path(file.path).unwrap_or(default),
            Self::Stream(_, format) => *format,
        }
    }

    /// The folder for scratch files: of the file, or the current one.
    pub(super) fn scratch(&self) -> &Path {
        match self {
            Self::File(file) => durable::parent(file.path),
            Self::Stream(..) => Path::new("."),
        }
    }
}

impl<'a> From<Destination<'a>> for TableOut<'a> {
    fn from(file: Destination<'a>) -> Self {
        Self::File(file)
    }
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for TableOut<'a> {
    /// A file that must not exist.
    fn from(path: &'a P) -> Self {
        Self::File(path.into())
    }
}

/// Rows in the encoding of a format.
#[derive(Default)]
pub(super) struct EncodedBlock {
    /// The rows, unless the format is Parquet. Their capacity is reused.
    bytes: Vec<u8>,
    /// The rows in Parquet, which are encoded in groups.
    batch: Option<RecordBatch>,
}

impl EncodedBlock {
    /// Encodes rows. [`TableWriter::write_block`] writes them.
    pub(super) fn encode(&mut self, format: TableFormat, batch: RecordBatch) {
        self.bytes.clear();
        match format {
            TableFormat::Npy => npy::append(&batch, &mut self.bytes),
            TableFormat::Csv | TableFormat::Tsv | TableFormat::Lines => text::append(format, &batch, &mut self.bytes),
            TableFormat::Parquet => self.batch = Some(batch),
        }
    }
}

/// Writes the rows of a table.
pub struct TableWriter<'a> {
    format: TableFormat,
    sink: Sink<'a>,
    block: EncodedBlock,
}

enum Sink<'a> {
    Bytes { out: Box<dyn Write + Send + 'a>, path: &'a Path, bytes: u64 },
    Parquet(Box<ParquetWriter<'a>>),
}

impl<'a> TableWriter<'a> {
    /// Writes the header.
    fn new(out: Box<dyn Write + Send + 'a>, path: &'a Path, shape: &TableShape) -> Result<Self, Error> {
        let format = shape.format;
        let mut block = EncodedBlock::default();
        let sink = match format {
            TableFormat::Parquet => Sink::Parquet(Box::new(ParquetWriter::new(out, path, shape)?)),
            _ => Sink::Bytes { out, path, bytes: 0 },
        };
        match format {
            TableFormat::Npy => block.bytes.extend(npy::header(shape)),
            TableFormat::Csv | TableFormat::Tsv => text::append_header(format, &shape.schema, &mut block.bytes),
            TableFormat::Lines | TableFormat::Parquet => {}
        }
        let mut writer = Self { format, sink, block: EncodedBlock::default() };
        writer.write_block(&mut block)?;
        Ok(writer)
    }

    /// Writes the next rows.
    ///
    /// # Errors
    /// If they cannot be written, or a string is not UTF-8 and the table is Parquet.
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), Error> {
        let mut block = std::mem::take(&mut self.block);
        block.encode(self.format, batch);
        self.write_block(&mut block)?;
        self.block = block;
        Ok(())
    }

    /// Writes the next rows. Returns the number of bytes, 0 for Parquet.
    pub(super) fn write_block(&mut self, block: &mut EncodedBlock) -> Result<u64, Error> {
        match &mut self.sink {
            Sink::Bytes { out, path, bytes } => {
                out.write_all(&block.bytes).map_err(Error::io("write", *path))?;
                *bytes += block.bytes.len() as u64;
            }
            Sink::Parquet(writer) => block.batch.take().map_or(Ok(()), |batch| writer.write(batch))?,
        }
        Ok(block.bytes.len() as u64)
    }

    /// Writes the end. Returns the number of bytes of the table.
    fn finish(self) -> Result<u64, Error> {
        match self.sink {
            Sink::Bytes { mut out, path, bytes } => {
                out.flush().map_err(Error::io("write", path))?;
                Ok(bytes)
            }
            Sink::Parquet(writer) => writer.finish(),
        }
    }
}

/// Writes a table: `fill` writes all rows. A file gets its name when it is complete and synced. Returns the number of bytes.
///
/// # Errors
/// If `fill` fails, the file exists and is not to be replaced, or it cannot be written.
pub fn write_table<E: From<Error>>(
    out: TableOut<'_>,
    shape: &TableShape,
    fill: impl FnOnce(&mut TableWriter<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    match out {
        TableOut::Stream(out, _) => {
            let mut writer = TableWriter::new(Box::new(out), Path::new("standard output"), shape)?;
            fill(&mut writer)?;
            Ok(writer.finish()?)
        }
        TableOut::File(destination) => {
            let temporary = destination.begin()?;
            let mut writer = TableWriter::new(Box::new(&temporary.file), &temporary.path, shape)?;
            fill(&mut writer)?;
            let bytes = writer.finish()?;
            temporary.finish()?;
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use arrow_array::{
        ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int64Array, ListArray, UInt64Array,
        builder::{ListBuilder, StringBuilder},
    };
    use arrow_schema::{DataType, Field, Schema};

    use super::{
        shape::{GROUP_BYTES, GROUP_ROWS, GROUPS_MAX},
        *,
    };

    fn element(data_type: DataType) -> Arc<Field> {
        Arc::new(Field::new("element", data_type, false))
    }

    fn shape(columns: Vec<Field>) -> TableShape {
        TableShape { format: TableFormat::Parquet, schema: Arc::new(Schema::new(columns)), rows: 6, row_bytes: 64 }
    }

    fn batch(shape: &TableShape, columns: Vec<ArrayRef>) -> RecordBatch {
        RecordBatch::try_new(shape.schema.clone(), columns).unwrap()
    }

    /// A column of each type, with 3 rows.
    fn sample() -> (TableShape, RecordBatch) {
        let shape = shape(vec![
            Field::new("id", DataType::Binary, false),
            Field::new("class", DataType::Int64, true),
            Field::new("x", DataType::FixedSizeList(element(DataType::Float32), 2), false),
            Field::new("sets of classes", DataType::List(element(DataType::Utf8)), true),
            Field::new("big", DataType::UInt64, false),
        ]);
        let x = Float32Array::from(vec![0.5, 2.5, f32::NAN, 2.0, 0.25, 3.5]);
        let mut sets = ListBuilder::new(StringBuilder::new()).with_field(element(DataType::Utf8));
        sets.append_value([Some("r"), Some("s")]);
        sets.append_null();
        sets.append(true);
        let sets: ListArray = sets.finish();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from_vec(vec![b"plain", b"a,\"b\"", b" c"])),
            Arc::new(Int64Array::from(vec![Some(-3), None, Some(4)])),
            Arc::new(FixedSizeListArray::new(element(DataType::Float32), 2, Arc::new(x), None)),
            Arc::new(sets),
            Arc::new(UInt64Array::from(vec![0, u64::MAX, 7])),
        ];
        let batch = batch(&shape, columns);
        (shape, batch)
    }

    #[test]
    fn text_has_a_header_and_quotes_where_they_are_needed() {
        let (mut shape, batch) = sample();
        shape.format = TableFormat::Csv;
        let mut text = Vec::new();
        let out = TableOut::Stream(&mut text, TableFormat::Csv);
        let bytes = write_table(out, &shape, |writer| writer.write(batch)).unwrap();
        assert_eq!(bytes, text.len() as u64);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "id,class,x_0,x_1,sets of classes,big\n\
             plain,-3,0.5,2.5,r;s,0\n\
             \"a,\"\"b\"\"\",,NaN,2,,18446744073709551615\n\
             \" c\",4,0.25,3.5,,7\n"
        );
    }

    #[test]
    fn parquet_has_the_same_rows_and_bytes_however_they_are_divided() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let (mut shape, batch) = sample();
        // Groups of 4 rows.
        shape.row_bytes = GROUP_BYTES / 4;
        let bytes = write_table(path.as_path().into(), &shape, |writer| {
            writer.write(batch.clone())?;
            writer.write(batch.clone())
        });
        assert_eq!(bytes.unwrap(), path.metadata().unwrap().len());
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let expected = [
            "{id: \"plain\", class: -3, x: [0.5, 2.5], sets of classes: [\"r\", \"s\"], big: 0}",
            "{id: \"a,\"b\"\", class: null, x: [NaN, 2.0], sets of classes: null, big: 18446744073709551615}",
            "{id: \" c\", class: 4, x: [0.25, 3.5], sets of classes: [], big: 7}",
        ];
        assert_eq!(rows, [expected, expected].concat());
        let by_row = folder.path().join("by-row.parquet");
        write_table(by_row.as_path().into(), &shape, |writer| {
            (0..6).try_for_each(|row| writer.write(batch.slice(row % 3, 1)))
        })
        .unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(&by_row).unwrap());
        let error = write_table(path.as_path().into(), &shape, |writer| writer.write(batch)).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
    }

    #[test]
    fn a_parquet_file_has_no_more_groups_than_it_can_number() {
        let group_rows = |row_bytes, rows| TableShape { rows, row_bytes, ..shape(Vec::new()) }.group_rows();
        for (row_bytes, rows) in [(0, 0), (8, 1 << 20), (4096, 1 << 30), (24, 1 << 40)] {
            let group = group_rows(row_bytes, rows);
            assert!(group > 0 && rows.div_ceil(group) <= GROUPS_MAX, "{row_bytes} {rows}");
        }
        assert_eq!(group_rows(8, 1 << 30), GROUP_ROWS);
        assert_eq!(group_rows(1 << 20, 1000), 8);
    }

    #[test]
    fn text_that_is_not_utf8_is_no_parquet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut shape = shape(vec![Field::new("id", DataType::Binary, false)]);
        let batch = batch(&shape, vec![Arc::new(BinaryArray::from_vec(vec![b"a\xff"]))]);
        let error =
            write_table(path.as_path().into(), &shape, |writer| writer.write(batch.clone())).unwrap_err().to_string();
        assert!(error.contains(r#""a\xff" is not UTF-8"#) && error.contains(".csv"), "{error}");
        assert!(!path.exists());
        shape.format = TableFormat::Csv;
        let mut text = Vec::new();
        let out = TableOut::Stream(&mut text, TableFormat::Csv);
        write_table(out, &shape, |writer| writer.write(batch)).unwrap();
        assert_eq!(text, b"id\na\xff\n");
    }
}
