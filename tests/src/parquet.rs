//! Parquet files with edges, and with data of nodes.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use parquet::{
    data_type::{BoolType, ByteArrayType, FloatType, Int32Type, Int64Type},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};

/// Writes edges, and edge weights if given, in row groups of at most 100.
pub fn write_parquet(path: &Path, edges: &[(u64, u64)], weights: Option<&[f32]>) {
    let sources: Vec<i64> = edges.iter().map(|edge| edge.0 as i64).collect();
    let targets: Vec<i64> = edges.iter().map(|edge| edge.1 as i64).collect();
    let mut columns = vec![("src", Column::Integers(&sources)), ("dst", Column::Integers(&targets))];
    columns.extend(weights.map(|weights| ("weight", Column::Floats(weights))));
    write_table(path, &columns, 100);
}

/// The values of a column.
#[derive(Debug, Clone, Copy)]
pub enum Column<'a> {
    /// 64-bit integers.
    Integers(&'a [i64]),
    /// Strings.
    Strings(&'a [String]),
    /// 32-bit floats.
    Floats(&'a [f32]),
    /// Booleans.
    Booleans(&'a [bool]),
    /// Dates: days since 1970-01-01.
    Dates(&'a [i32]),
    /// Moments: milliseconds since 1970-01-01.
    Milliseconds(&'a [i64]),
    /// Lists of this many 32-bit floats.
    Lists(usize, &'a [f32]),
    /// 64-bit integers, some of which are missing.
    Optional(&'a [Option<i64>]),
}

impl Column<'_> {
    fn described(self, name: &str) -> String {
        match self {
            Self::Integers(_) => format!("required int64 {name};"),
            Self::Optional(_) => format!("optional int64 {name};"),
            Self::Strings(_) => format!("required binary {name} (utf8);"),
            Self::Floats(_) => format!("required float {name};"),
            Self::Booleans(_) => format!("required boolean {name};"),
            Self::Dates(_) => format!("required int32 {name} (date);"),
            Self::Milliseconds(_) => format!("required int64 {name} (timestamp_millis);"),
            Self::Lists(..) => {
                format!("required group {name} (list) {{ repeated group list {{ required float element; }} }}")
            }
        }
    }

    fn rows(self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Strings(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Booleans(values) => values.len(),
            Self::Dates(values) => values.len(),
            Self::Milliseconds(values) => values.len(),
            Self::Lists(length, values) => values.len() / length,
            Self::Optional(values) => values.len(),
        }
    }

    fn write(self, rows: Range<usize>, column: &mut SerializedColumnWriter<'_>) {
        match self {
            Self::Booleans(values) => column.typed::<BoolType>().write_batch(&values[rows], None, None).unwrap(),
            Self::Dates(values) => column.typed::<Int32Type>().write_batch(&values[rows], None, None).unwrap(),
            Self::Integers(values) | Self::Milliseconds(values) => {
                column.typed::<Int64Type>().write_batch(&values[rows], None, None).unwrap()
            }
            Self::Strings(values) => {
                let values: Vec<_> = values[rows].iter().map(|value| value.as_str().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap()
            }
            Self::Floats(values) => column.typed::<FloatType>().write_batch(&values[rows], None, None).unwrap(),
            Self::Optional(values) => {
                let levels: Vec<i16> = values[rows.clone()].iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<i64> = values[rows].iter().copied().flatten().collect();
                column.typed::<Int64Type>().write_batch(&values, Some(&levels), None).unwrap()
            }
            Self::Lists(length, values) => {
                let values = &values[rows.start * length..rows.end * length];
                let levels = vec![1; values.len()];
                let repeats: Vec<i16> = (0..values.len()).map(|at| i16::from(at % length > 0)).collect();
                column.typed::<FloatType>().write_batch(values, Some(&levels), Some(&repeats)).unwrap()
            }
        };
    }
}

/// Writes a table of named columns, in row groups of at most `group_rows`.
pub fn write_table(path: &Path, columns: &[(&str, Column<'_>)], group_rows: usize) {
    write_described(path, columns, group_rows, &[]);
}

/// The same with what the file says about itself, by key.
pub fn write_described(path: &Path, columns: &[(&str, Column<'_>)], group_rows: usize, about: &[(&str, &str)]) {
    let about: Vec<_> =
        about.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(about)).build();
    let fields: String = columns.iter().map(|(name, column)| column.described(name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message nodes {{ {fields} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    let rows = columns[0].1.rows();
    for first in (0..rows).step_by(group_rows) {
        let mut group = writer.next_row_group().unwrap();
        for (_, values) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            values.write(first..rows.min(first + group_rows), &mut column);
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}
