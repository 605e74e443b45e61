//! Predictions as Parquet: id, class, probability.

use std::{borrow::Cow, fs::File, ops::Range, path::Path, sync::Arc};

use grappa_engine::export::made::MadeRows;
use grappa_formats::{DenseId, manifest::ExternalIds};
use grappa_io::{
    Error as EngineError,
    durable::Temporary,
    progress::{Progress, check_stopped},
};
use grappa_run::class_names;
use grappa_storage::Store;
use parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

use crate::{Error, Result};

/// Bytes of a row of the scratch file: the class, an i64, -1 for none; then its probability, an f32.
pub(super) const ROW_BYTES: usize = 12;

/// Rows of a row group. A whole row group is in memory at once.
const GROUP_ROWS: u64 = 1 << 17;

/// The dense ids of rows.
pub(super) enum DenseIds {
    /// Those of all nodes: their number.
    All(u64),
    Some(Vec<DenseId>),
}

impl DenseIds {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::All(nodes) => *nodes,
            Self::Some(ids) => ids.len() as u64,
        }
    }

    fn of(&self, rows: Range<u64>) -> Vec<DenseId> {
        match self {
            Self::All(_) => rows.map(DenseId).collect(),
            Self::Some(ids) => ids[rows.start as usize..rows.end as usize].to_vec(),
        }
    }
}

/// Writes the rows of nodes, in the order of external ids, to the new file `path`. Returns its length in bytes.
pub(super) fn write(
    path: &Path,
    store: &Store,
    rows: &MadeRows,
    ids: &DenseIds,
    names: &[String],
    progress: &dyn Progress,
) -> Result<u64> {
    let (all, nodes) = (store.manifest().nodes, ids.len());
    progress.stage("writing Parquet", Some(nodes * ROW_BYTES as u64));
    let temporary = Temporary::create(path)?;
    let failed = |error: ParquetError| {
        let cause = std::io::Error::other(error);
        Error::from(EngineError::io("write", path)(cause))
    };
    let id = match store.manifest().ids.external {
        ExternalIds::String => "binary id (STRING)",
        ExternalIds::Dense => "int64 id",
        ExternalIds::Sparse if all > 0 && store.ids().integer_at(DenseId(all - 1))? > i64::MAX as u64 => {
            "int64 id (INTEGER(64,false))"
        }
        ExternalIds::Sparse => "int64 id",
    };
    let class = if names.is_empty() {
        "int64 class"
    } else {
        "binary class (STRING)"
    };
    let schema = format!("message predictions {{ required {id}; optional {class}; required float probability; }}");
    let schema = parse_message_type(&schema).expect("it is a schema");
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer =
        SerializedFileWriter::new(&temporary.file, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
    let mut bytes = Vec::new();
    for first in (0..nodes).step_by(GROUP_ROWS as usize) {
        let count = GROUP_ROWS.min(nodes - first);
        bytes.resize(count as usize * ROW_BYTES, 0);
        rows.read(first, &mut bytes)?;
        write_group(
            &mut writer,
            store,
            &ids.of(first..first + count),
            &bytes,
            names,
            &failed,
        )?;
        progress.advance(bytes.len() as u64, 0);
        check_stopped(progress)?;
    }
    writer.close().map_err(failed)?;
    let length = temporary.file.metadata().map_err(EngineError::io("read", path))?.len();
    temporary.finish()?;
    Ok(length)
}

fn write_group(
    writer: &mut SerializedFileWriter<&File>,
    store: &Store,
    ids: &[DenseId],
    bytes: &[u8],
    names: &[String],
    failed: &impl Fn(ParquetError) -> Error,
) -> Result<()> {
    let (rows, _) = bytes.as_chunks::<ROW_BYTES>();
    let class = |row: &[u8; ROW_BYTES]| i64::from_le_bytes(*row.first_chunk().expect("8 of 12 bytes"));
    let probability = |row: &[u8; ROW_BYTES]| f32::from_le_bytes(*row.last_chunk().expect("4 of 12 bytes"));
    let classes: Vec<i64> = rows.iter().map(class).collect();
    let known: Vec<i64> = classes.iter().copied().filter(|&class| class >= 0).collect();
    let is_known: Vec<i16> = classes.iter().map(|&class| i16::from(class >= 0)).collect();

    let mut group = writer.next_row_group().map_err(failed)?;
    let mut column = 0;
    while let Some(mut next) = group.next_column().map_err(failed)? {
        let written = match (column, next.untyped()) {
            (0, ColumnWriter::Int64ColumnWriter(writer)) => {
                let id = |id: &DenseId| Ok(store.ids().integer_at(*id)?.cast_signed());
                let ids: Vec<i64> = ids.iter().map(id).collect::<Result<_>>()?;
                writer.write_batch(&ids, None, None)
            }
            (0, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let ids: Vec<ByteArray> = ids.iter().map(|&id| text_id(store, id)).collect::<Result<_>>()?;
                writer.write_batch(&ids, None, None)
            }
            (1, ColumnWriter::Int64ColumnWriter(writer)) => writer.write_batch(&known, Some(&is_known), None),
            (1, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let names: Vec<ByteArray> = names.iter().map(|name| ByteArray::from(name.as_str())).collect();
                let of_class = |class: &i64| match names.get(*class as usize) {
                    Some(name) => name.clone(),
                    None => ByteArray::from(class_names::name(&[], *class as u64).as_str()),
                };
                let known: Vec<ByteArray> = known.iter().map(of_class).collect();
                writer.write_batch(&known, Some(&is_known), None)
            }
            (2, ColumnWriter::FloatColumnWriter(writer)) => {
                let probabilities: Vec<f32> = rows.iter().map(probability).collect();
                writer.write_batch(&probabilities, None, None)
            }
            _ => unreachable!("the schema has no such column"),
        };
        written.map_err(failed)?;
        next.close().map_err(failed)?;
        column += 1;
    }
    group.close().map_err(failed)?;
    Ok(())
}

/// A string, with bytes that are not UTF-8 escaped.
fn text_id(store: &Store, id: DenseId) -> Result<ByteArray> {
    let mut text = Vec::new();
    store.ids().append_text_at(id, &mut text)?;
    let text = match std::str::from_utf8(&text) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(text.escape_ascii().to_string()),
    };
    Ok(ByteArray::from(&*text))
}
