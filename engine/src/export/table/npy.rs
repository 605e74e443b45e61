//! Tables as NumPy arrays. One column of numbers is an array of one dimension. Several columns, or one of lists, are the columns of an array.

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::DataType;
use grappa_io::npy;

use super::shape::TableShape;

/// The header of the array.
pub(super) fn header(shape: &TableShape) -> [u8; npy::HEADER_BYTES] {
    let columns = shape.schema.fields();
    match (columns[0].data_type(), columns.len() as u64) {
        (DataType::FixedSizeList(element, width), _) => {
            npy::header(type_name(element.data_type()), &[shape.rows, u64::from(width.unsigned_abs())])
        }
        (number, 1) => npy::header(type_name(number), &[shape.rows]),
        (number, columns) => npy::header(type_name(number), &[shape.rows, columns]),
    }
}

/// NumPy's name for a type.
fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 => "|i1",
        DataType::Int64 => "<i8",
        DataType::UInt64 => "<u8",
        DataType::Float16 => "<f2",
        DataType::Float32 => "<f4",
        other => unreachable!("no array has the type {other}"),
    }
}

/// Appends rows.
pub(super) fn append(batch: &RecordBatch, out: &mut Vec<u8>) {
    let values = |column: &ArrayRef| match column.data_type() {
        DataType::FixedSizeList(..) => column.as_fixed_size_list().values().to_data(),
        _ => column.to_data(),
    };
    let columns: Vec<_> = batch.columns().iter().map(values).collect();
    let bytes: Vec<&[u8]> = columns.iter().map(|column| column.buffers()[0].as_slice()).collect();
    match (bytes.as_slice(), columns[0].data_type().primitive_width()) {
        ([column], _) => out.extend_from_slice(column),
        (columns, Some(4)) => interleave::<4>(columns, out),
        (columns, _) => interleave::<8>(columns, out),
    }
}

/// Appends the first value of each column, then the second of each, and so on. Values have `N` bytes.
fn interleave<const N: usize>(columns: &[&[u8]], out: &mut Vec<u8>) {
    let columns: Vec<&[[u8; N]]> = columns.iter().map(|column| column.as_chunks().0).collect();
    out.reserve(N * columns.len() * columns[0].len());
    for row in 0..columns[0].len() {
        for column in &columns {
            out.extend_from_slice(&column[row]);
        }
    }
}
