//! Versions of inputs, and digests of data in memory.
//!
//! Equal data has equal digests, however it is divided into batches. Other data has others, except by chance: XXH3 has 128 bits here.
//!
//! **Cost**: numbers are read at memory bandwidth, strings take about 10 ns each.

use std::{fs, io, path::Path, time::UNIX_EPOCH};

use arrow_array::{Array, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, SchemaRef};
use grappa_io::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    columnar::{types::is_string, values::text},
    input::{Input, MemoryArray, MemoryData, MemoryMatrix},
};

impl Input {
    /// The version of the content, by which a resumed run knows that it is the same: of a file its length and the time when it was
    /// modified, of data in memory a digest.
    ///
    /// # Errors
    /// If the file or the data cannot be read.
    pub fn version(&self) -> Result<String> {
        match self {
            Self::Path(path) => version_of_file(path),
            Self::Parts(parts) => {
                let versions = parts.files.iter().map(|path| version_of_file(path));
                Ok(versions.collect::<Result<Vec<_>>>()?.join(", "))
            }
            Self::Memory(input) => {
                let digest = digest_of(&input.data).map_err(Error::io("read", &input.name))?;
                Ok(format!("{} (data with the digest {digest:032x})", input.name.display()))
            }
        }
    }
}

fn version_of_file(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanoseconds = modified.map_or(0, |time| time.as_nanos());
    Ok(format!("{} ({} bytes, modified at {nanoseconds})", path.display(), metadata.len()))
}

/// Bytes of an array that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The digest of data.
fn digest_of(data: &MemoryData) -> io::Result<u128> {
    let mut digest = Xxh3::new();
    match data {
        MemoryData::Array(array) | MemoryData::Parquet(array) => add_array(array, &mut digest)?,
        MemoryData::Matrix(MemoryMatrix { format, shape, data, lines, others }) => {
            digest.update(format!("{format} {shape:?}").as_bytes());
            for array in [data, lines, others] {
                add_array(array, &mut digest)?;
            }
        }
        MemoryData::Table(schema, batches) => add_table(schema, batches, &mut digest),
    }
    Ok(digest.digest128())
}

fn add_array(array: &MemoryArray, digest: &mut Xxh3) -> io::Result<()> {
    let MemoryArray { bytes, descr, shape, column_major, is_edge_index } = array;
    digest.update(format!("{descr} {shape:?} {column_major} {is_edge_index}").as_bytes());
    let total = array.total_bytes();
    let mut piece = vec![0; total.min(PIECE_BYTES as u64) as usize];
    for offset in (0..total).step_by(PIECE_BYTES) {
        let piece = &mut piece[..(total - offset).min(PIECE_BYTES as u64) as usize];
        bytes.read_exact_at(piece, offset)?;
        digest.update(piece);
    }
    Ok(())
}

/// Adds a table column by column.
fn add_table(schema: &SchemaRef, batches: &[RecordBatch], digest: &mut Xxh3) {
    for (index, field) in schema.fields().iter().enumerate() {
        digest.update(format!("{} {}\n", field.name(), field.data_type()).as_bytes());
        let arrays = batches.iter().map(|batch| batch.column(index));
        if arrays.clone().any(|array| array.null_count() > 0) {
            arrays.clone().for_each(|array| add_presence(array, digest));
        }
        arrays.for_each(|array| add_values(array, digest));
    }
}

/// Adds a byte for each row: whether it has a value.
fn add_presence(array: &dyn Array, digest: &mut Xxh3) {
    let presence: Vec<u8> = (0..array.len()).map(|row| array.is_valid(row).into()).collect();
    digest.update(&presence);
}

fn add_values(array: &dyn Array, digest: &mut Xxh3) {
    match array.data_type() {
        kind if kind.primitive_width().is_some() => {
            let (data, width) = (array.to_data(), kind.primitive_width().unwrap_or(0));
            digest.update(&data.buffers()[0][data.offset() * width..][..data.len() * width]);
        }
        kind if is_string(kind) => (0..array.len()).for_each(|row| {
            let text = text(array, row).unwrap_or_default();
            digest.update(&(text.len() as u64).to_le_bytes());
            digest.update(text);
        }),
        DataType::Boolean => {
            let values: Vec<u8> = array.as_boolean().values().iter().map(u8::from).collect();
            digest.update(&values);
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            add_values(dictionary.keys(), digest);
            add_values(dictionary.values(), digest);
        }
        DataType::List(_) => add_lists((0..array.len()).map(|row| array.as_list::<i32>().value(row)), digest),
        DataType::LargeList(_) => add_lists((0..array.len()).map(|row| array.as_list::<i64>().value(row)), digest),
        DataType::FixedSizeList(..) => {
            add_lists((0..array.len()).map(|row| array.as_fixed_size_list().value(row)), digest);
        }
        // Columns of other types are not read.
        _ => {}
    }
}

fn add_lists(lists: impl Iterator<Item = arrow_array::ArrayRef>, digest: &mut Xxh3) {
    for list in lists {
        digest.update(&(list.len() as u64).to_le_bytes());
        add_presence(&list, digest);
        add_values(&list, digest);
    }
}
