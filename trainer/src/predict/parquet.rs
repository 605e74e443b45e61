//! Predictions as Parquet: an id, and what is predicted.

use std::{borrow::Cow, fs::File, ops::Range, path::Path, sync::Arc};

use grappa_engine::export::made::MadeRows;
use grappa_formats::{DenseId, manifest::ExternalIds};
use grappa_io::{
    Error as EngineError,
    durable::Temporary,
    progress::{Progress, check_stopped},
};
use grappa_run::{class_names, scores::is_undecided};
use grappa_storage::Store;
use parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use super::predicted;
use crate::{Error, Result, train::trained::Trained};

/// Bytes of a row of the scratch file of classes: the class, an i64, -1 for none; then its probability, an f32.
pub(super) const ROW_BYTES: usize = 12;

/// Rows of a row group at most, and bytes of them. A whole row group is in memory at once.
const GROUP_ROWS: u64 = 1 << 17;
const GROUP_BYTES: u64 = 8 << 20;

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

/// The columns beside the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// `class` and `probability`.
    Class,
    /// `classes` and `probabilities`, lists, from this many logits.
    Set(usize),
    /// A list of this many numbers, with the name of the column.
    Numbers(&'static str, usize),
}

impl Columns {
    fn row_bytes(self) -> usize {
        match self {
            Self::Class => ROW_BYTES,
            Self::Set(logits) => 4 * logits,
            Self::Numbers(_, numbers) => 4 * numbers,
        }
    }

    /// The fields of the schema.
    fn described(self, names: &[String]) -> String {
        let list =
            |field: &str, element: &str| format!("{field} (LIST) {{ repeated group list {{ required {element}; }} }}");
        let class = |name: &str| match names {
            [] => format!("int64 {name}"),
            _ => format!("binary {name} (STRING)"),
        };
        match self {
            Self::Class => format!("optional {}; required float probability;", class("class")),
            Self::Set(_) => format!(
                "{} {}",
                list("optional group classes", &class("element")),
                list("optional group probabilities", "float element")
            ),
            Self::Numbers(name, _) => list(&format!("required group {name}"), "float element"),
        }
    }
}

/// Writes the rows of nodes, in the order of external ids, to the new file `path`. Returns its length in bytes.
pub(super) fn write(
    path: &Path,
    store: &Store,
    trained: &Trained,
    rows: &MadeRows,
    ids: &DenseIds,
    columns: Columns,
    progress: &dyn Progress,
) -> Result<u64> {
    let (all, nodes, row_bytes) = (store.manifest().nodes, ids.len(), columns.row_bytes());
    progress.stage("writing Parquet", Some(nodes * row_bytes as u64));
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
    let schema = columns.described(trained.class_names());
    let schema = format!("message predictions {{ required {id}; {schema} }}");
    let schema = parse_message_type(&schema).expect("it is a schema");
    let classes = [&["class"][..], &["classes", "list", "element"]];
    // Ids and numbers hardly repeat.
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false);
    for path in classes {
        let path = path.iter().map(|&name| name.to_owned()).collect();
        properties = properties.set_column_dictionary_enabled(ColumnPath::new(path), true);
    }
    let mut writer =
        SerializedFileWriter::new(&temporary.file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
    let group_rows = GROUP_ROWS.min(GROUP_BYTES / row_bytes as u64).max(1);
    let mut bytes = Vec::new();
    for first in (0..nodes).step_by(group_rows as usize) {
        let count = group_rows.min(nodes - first);
        bytes.resize(count as usize * row_bytes, 0);
        rows.read(first, &mut bytes)?;
        write_group(
            &mut writer,
            store,
            trained,
            &ids.of(first..first + count),
            &bytes,
            columns,
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
    trained: &Trained,
    ids: &[DenseId],
    bytes: &[u8],
    columns: Columns,
    failed: &impl Fn(ParquetError) -> Error,
) -> Result<()> {
    let mut group = writer.next_row_group().map_err(failed)?;
    let id_of = |&id: &DenseId| text_id(store, id);
    match store.manifest().ids.external {
        ExternalIds::String => {
            let ids: Vec<ByteArray> = ids.iter().map(id_of).collect::<Result<_>>()?;
            put(&mut group, &Levels::default(), &Values::Text(ids))
        }
        ExternalIds::Dense | ExternalIds::Sparse => {
            let id = |id: &DenseId| Ok(store.ids().integer_at(*id)?.cast_signed());
            let ids: Vec<i64> = ids.iter().map(id).collect::<Result<_>>()?;
            put(&mut group, &Levels::default(), &Values::Integers(ids))
        }
    }
    .map_err(failed)?;
    match columns {
        Columns::Class => put_classes(&mut group, trained, bytes),
        Columns::Set(logits) => put_sets(&mut group, trained, &floats(bytes), logits),
        Columns::Numbers(_, length) => {
            let numbers = floats(bytes);
            let levels = Levels {
                defined: vec![1; numbers.len()],
                repeated: (0..numbers.len()).map(|at| i16::from(at % length > 0)).collect(),
            };
            put(&mut group, &levels, &Values::Floats(numbers))
        }
    }
    .map_err(failed)?;
    group.close().map_err(failed)?;
    Ok(())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks();
    values.iter().map(|&value| f32::from_le_bytes(value)).collect()
}

/// Writes the class of each row, and its probability.
fn put_classes(group: &mut SerializedRowGroupWriter<'_, &File>, trained: &Trained, bytes: &[u8]) -> ParquetResult<()> {
    let (rows, _) = bytes.as_chunks::<ROW_BYTES>();
    let class = |row: &[u8; ROW_BYTES]| i64::from_le_bytes(*row.first_chunk().expect("8 of 12 bytes"));
    let probability = |row: &[u8; ROW_BYTES]| f32::from_le_bytes(*row.last_chunk().expect("4 of 12 bytes"));
    let classes: Vec<i64> = rows.iter().map(class).collect();
    let levels = Levels {
        defined: classes.iter().map(|&class| i16::from(class >= 0)).collect(),
        repeated: Vec::new(),
    };
    let known = classes.into_iter().filter_map(|class| u64::try_from(class).ok());
    put(group, &levels, &Values::classes(trained.class_names(), known))?;
    let probabilities = rows.iter().map(probability).collect();
    put(group, &Levels::default(), &Values::Floats(probabilities))
}

/// Writes the classes that each row of logits says, and their probabilities.
fn put_sets(
    group: &mut SerializedRowGroupWriter<'_, &File>,
    trained: &Trained,
    logits: &[f32],
    columns: usize,
) -> ParquetResult<()> {
    let (mut classes, mut probabilities, mut levels) = (Vec::new(), Vec::new(), Levels::default());
    for row in logits.chunks_exact(columns) {
        let set = predicted(trained.task(), row);
        let length = set.len().max(1);
        let level = match set.is_empty() {
            // No list, as there is no prediction.
            true if is_undecided(row) => 0,
            true => 1,
            false => 2,
        };
        levels.defined.resize(levels.defined.len() + length, level);
        levels.repeated.extend((0..length).map(|at| i16::from(at > 0)));
        for (class, probability) in set {
            classes.push(class);
            probabilities.push(probability);
        }
    }
    let classes = Values::classes(trained.class_names(), classes.into_iter());
    put(group, &levels, &classes)?;
    put(group, &levels, &Values::Floats(probabilities))
}

/// Definition and repetition levels. Empty if a column has one value in each row.
#[derive(Default)]
struct Levels {
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

/// The values of a column.
enum Values {
    Integers(Vec<i64>),
    Text(Vec<ByteArray>),
    Floats(Vec<f32>),
}

impl Values {
    /// Classes by their names, or by their numbers if they have none.
    fn classes(names: &[String], classes: impl Iterator<Item = u64>) -> Self {
        if names.is_empty() {
            return Self::Integers(classes.map(u64::cast_signed).collect());
        }
        let texts: Vec<ByteArray> = names.iter().map(|name| ByteArray::from(name.as_str())).collect();
        let of_class = |class: u64| match texts.get(class as usize) {
            Some(name) => name.clone(),
            None => ByteArray::from(class_names::name(&[], class).as_str()),
        };
        Self::Text(classes.map(of_class).collect())
    }
}

/// Writes the next column of a row group.
fn put(group: &mut SerializedRowGroupWriter<'_, &File>, levels: &Levels, values: &Values) -> ParquetResult<()> {
    let mut column = group.next_column()?.expect("the schema has it");
    let defined = (!levels.defined.is_empty()).then_some(&levels.defined[..]);
    let repeated = (!levels.repeated.is_empty()).then_some(&levels.repeated[..]);
    match (column.untyped(), values) {
        (ColumnWriter::Int64ColumnWriter(writer), Values::Integers(values)) => {
            writer.write_batch(values, defined, repeated)?
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(values)) => {
            writer.write_batch(values, defined, repeated)?
        }
        (ColumnWriter::FloatColumnWriter(writer), Values::Floats(values)) => {
            writer.write_batch(values, defined, repeated)?
        }
        _ => unreachable!("the schema has no such column"),
    };
    column.close()
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
