//! Tables as Parquet.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_io::{Error, Result};
use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::{ParquetError, Result as ParquetResult},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::{ColumnPath, Type, TypePtr},
};

use super::cells::{Cells, Column, GroupSink, Scalar, Shape, Values};

pub(super) struct ParquetWriter<'a> {
    writer: SerializedFileWriter<&'a File>,
    /// The path of the file, for errors.
    path: PathBuf,
    columns: &'a [Column],
}

impl<'a> ParquetWriter<'a> {
    /// Begins the file.
    pub fn new(file: &'a File, path: &Path, columns: &'a [Column]) -> Result<Self> {
        let fields: ParquetResult<Vec<TypePtr>> = columns.iter().map(|column| field(column).map(Arc::new)).collect();
        let schema = fields.and_then(|fields| Type::group_type_builder("table").with_fields(fields).build());
        // Ids and numbers hardly repeat.
        let mut properties =
            WriterProperties::builder().set_compression(Compression::SNAPPY).set_dictionary_enabled(false);
        for column in columns.iter().filter(|column| column.repeats) {
            let inside: &[&str] = match column.shape {
                Shape::One | Shape::Optional => &[],
                Shape::Vector(_) | Shape::List => &["list", "element"],
            };
            let path = [&[column.name.as_str()], inside].concat();
            let path = path.into_iter().map(str::to_owned).collect();
            properties = properties.set_column_dictionary_enabled(ColumnPath::new(path), true);
        }
        let writer = schema
            .and_then(|schema| SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())))
            .map_err(failed(path))?;
        Ok(Self { writer, path: path.to_owned(), columns })
    }

    fn write_group(&mut self, cells: &[Cells]) -> ParquetResult<()> {
        let mut group = self.writer.next_row_group()?;
        for (column, cells) in self.columns.iter().zip(cells) {
            let mut writer = group.next_column()?.expect("the schema has it");
            put(writer.untyped(), column, cells)?;
            writer.close()?;
        }
        group.close().map(drop)
    }

    /// Writes the end of the file.
    pub fn finish(self) -> Result<()> {
        self.writer.close().map(drop).map_err(failed(&self.path))
    }
}

impl GroupSink for ParquetWriter<'_> {
    fn write(&mut self, cells: &[Cells]) -> Result<()> {
        let mut texts = cells.iter().filter_map(|cells| match &cells.values {
            Values::Texts(texts) => texts.iter().find(|text| std::str::from_utf8(text).is_err()),
            Values::Integers(_) | Values::Floats(_) => None,
        });
        if let Some(text) = texts.next() {
            let what = format!(
                "\"{}\" is not UTF-8, and strings in Parquet are: write to a file called .csv instead",
                text.escape_ascii()
            );
            return Err(Error::input(&self.path, grappa_io::Position::Whole, what));
        }
        self.write_group(cells).map_err(failed(&self.path))
    }
}

fn failed(path: &Path) -> impl FnOnce(ParquetError) -> Error + '_ {
    move |error| Error::io("write", path)(io::Error::other(error))
}

fn field(column: &Column) -> ParquetResult<Type> {
    match column.shape {
        Shape::One => scalar(column.scalar, &column.name, Repetition::REQUIRED),
        Shape::Optional => scalar(column.scalar, &column.name, Repetition::OPTIONAL),
        Shape::Vector(_) => list(column, Repetition::REQUIRED),
        Shape::List => list(column, Repetition::OPTIONAL),
    }
}

fn scalar(scalar: Scalar, name: &str, repetition: Repetition) -> ParquetResult<Type> {
    let (physical, logical) = match scalar {
        Scalar::Integer => (Physical::INT64, None),
        Scalar::Unsigned => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Scalar::Float => (Physical::FLOAT, None),
        Scalar::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical).build()
}

fn list(column: &Column, repetition: Repetition) -> ParquetResult<Type> {
    let element = scalar(column.scalar, "element", Repetition::REQUIRED)?;
    let group = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    Type::group_type_builder(&column.name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(group)])
        .build()
}

/// The definition and repetition levels of a column.
fn levels(column: &Column, cells: &Cells) -> (Option<Vec<i16>>, Option<Vec<i16>>) {
    let counts = (0..cells.rows(column)).map(|row| cells.count(column, row));
    match column.shape {
        Shape::One => (None, None),
        Shape::Optional => (Some(counts.map(|count| i16::from(count.is_some())).collect()), None),
        Shape::Vector(_) | Shape::List => {
            // An optional list has one more level: that there is a list.
            let there = i16::from(column.shape == Shape::List);
            let (mut defined, mut repeated) = (Vec::new(), Vec::new());
            for count in counts {
                let length = count.unwrap_or(0).max(1);
                let level = match count {
                    None => 0,
                    Some(0) => there,
                    Some(_) => there + 1,
                };
                defined.resize(defined.len() + length, level);
                repeated.extend((0..length).map(|at| i16::from(at > 0)));
            }
            (Some(defined), Some(repeated))
        }
    }
}

fn put(writer: &mut ColumnWriter<'_>, column: &Column, cells: &Cells) -> ParquetResult<()> {
    let (defined, repeated) = levels(column, cells);
    let (defined, repeated) = (defined.as_deref(), repeated.as_deref());
    match (writer, &cells.values) {
        (ColumnWriter::Int64ColumnWriter(writer), Values::Integers(values)) => {
            writer.write_batch(values, defined, repeated)?
        }
        (ColumnWriter::FloatColumnWriter(writer), Values::Floats(values)) => {
            writer.write_batch(values, defined, repeated)?
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Texts(values)) => {
            let values: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(text.clone())).collect();
            writer.write_batch(&values, defined, repeated)?
        }
        _ => unreachable!("cells have the type of their column"),
    };
    Ok(())
}
