//! Tables with a row for each node: its id, and columns that a program made.

use std::{ops::Range, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use grappa_formats::DenseId;
use grappa_io::{
    Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{
    id_column::{IdColumn, StringIds},
    order::{READ_BYTES, RowSink},
    table::{TableFormat, TableOut, TableShape, TableWriter, write_table},
};

pub(super) const ID: &str = "id";

/// Bytes of an id in memory, about.
const ID_BYTES: usize = 8;

/// The dense ids of rows.
#[derive(Debug)]
pub enum DenseIds {
    /// The ids of all nodes: their number.
    All(u64),
    /// These, in this order.
    Some(Vec<DenseId>),
    /// A set, ascending.
    Set(RoaringTreemap),
}

impl DenseIds {
    /// The number of rows.
    pub fn len(&self) -> u64 {
        match self {
            Self::All(nodes) => *nodes,
            Self::Some(ids) => ids.len() as u64,
            Self::Set(ids) => ids.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of some rows.
    fn range(&self, rows: Range<u64>) -> Box<dyn Iterator<Item = DenseId> + '_> {
        match self {
            Self::All(_) => Box::new(rows.map(DenseId)),
            Self::Some(ids) => Box::new(ids[rows.start as usize..rows.end as usize].iter().copied()),
            Self::Set(ids) => {
                let mut members = ids.iter();
                if let Some(first) = ids.select(rows.start) {
                    members.advance_to(first);
                }
                Box::new(members.take((rows.end - rows.start) as usize).map(DenseId))
            }
        }
    }
}

/// A table of nodes. Its first column is called `id` and has integers or strings, as the store. An array has the other columns alone, if
/// there are any.
#[derive(Debug)]
pub struct NodeTable<'a> {
    /// The store of the nodes.
    pub store: &'a Store,
    /// The format.
    pub format: TableFormat,
    /// The id of each row.
    pub ids: &'a DenseIds,
    /// The columns beside the id.
    pub columns: Vec<Field>,
    /// Whether to escape bytes of ids that are not UTF-8 in Parquet, instead of refusing them.
    pub escapes_ids: bool,
}

impl NodeTable<'_> {
    /// Writes a table of ids alone. Returns the number of bytes.
    ///
    /// # Errors
    /// If the store cannot be read or the table cannot be written, or progress says to stop.
    pub fn write_ids(&self, out: TableOut<'_>, progress: &dyn Progress) -> Result<u64> {
        self.write_table(out, 0, |rows| {
            let rows_at_once = READ_BYTES / ID_BYTES;
            (0..self.ids.len()).step_by(rows_at_once).try_for_each(|first| {
                let end = self.ids.len().min(first + rows_at_once as u64);
                rows.write(first..end, Vec::new())?;
                progress.advance((end - first) * ID_BYTES as u64, 0);
                check_stopped(progress)
            })
        })
    }

    /// Writes the table. `read` passes rows of `row_bytes` bytes to its argument, in the order of the ids, and `arrays` makes the columns
    /// of some rows. Returns the number of bytes.
    ///
    /// # Errors
    /// If `read` fails, or as [`NodeTable::write_ids`].
    pub fn write(
        &self,
        out: TableOut<'_>,
        row_bytes: usize,
        read: impl FnOnce(&mut RowSink<'_>) -> Result<()>,
        arrays: impl Fn(&[u8]) -> Vec<ArrayRef> + Sync,
    ) -> Result<u64> {
        // Arrays are a copy of the bytes.
        let bytes_at_once = (READ_BYTES / row_bytes).max(1) * row_bytes;
        self.write_table(out, row_bytes, |rows| {
            let mut first = 0;
            read(&mut |bytes| {
                bytes.chunks(bytes_at_once).try_for_each(|bytes| {
                    let end = first + (bytes.len() / row_bytes) as u64;
                    rows.write(first..end, arrays(bytes))?;
                    first = end;
                    Ok(())
                })
            })
        })
    }

    fn write_table(
        &self,
        out: TableOut<'_>,
        row_bytes: usize,
        fill: impl FnOnce(&mut RowWriter<'_, '_>) -> Result<()>,
    ) -> Result<u64> {
        let strings = match self.format {
            TableFormat::Parquet if self.escapes_ids => StringIds::Escaped,
            TableFormat::Lines => StringIds::Lines,
            _ => StringIds::Verbatim,
        };
        let has_ids = self.format != TableFormat::Npy || self.columns.is_empty();
        let ids =
            has_ids.then(|| IdColumn::new(self.store.ids(), self.store.path(), self.format, strings)).transpose()?;
        let columns = ids.iter().map(|ids| ids.field(ID)).chain(self.columns.iter().cloned());
        let schema = Arc::new(Schema::new(columns.collect::<Vec<_>>()));
        let shape = TableShape {
            format: self.format,
            schema: schema.clone(),
            rows: self.ids.len(),
            row_bytes: (ID_BYTES + row_bytes) as u64,
        };
        write_table(out, &shape, |writer| fill(&mut RowWriter { table: self, ids, schema, writer }))
    }
}

/// Adds ids to rows, and writes them.
struct RowWriter<'a, 'w> {
    table: &'a NodeTable<'a>,
    ids: Option<IdColumn<'a>>,
    schema: Arc<Schema>,
    writer: &'a mut TableWriter<'w>,
}

impl RowWriter<'_, '_> {
    fn write(&mut self, rows: Range<u64>, arrays: Vec<ArrayRef>) -> Result<()> {
        let ids = self.ids.as_ref().map(|ids| ids.array(self.table.ids.range(rows))).transpose()?;
        let columns = ids.into_iter().chain(arrays).collect();
        self.writer.write(RecordBatch::try_new(self.schema.clone(), columns).expect("columns have their types"))
    }
}
