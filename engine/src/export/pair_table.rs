//! Tables of pairs of nodes with a score: the columns `source`, `target` and `score`.

use std::sync::Arc;

use arrow_array::{Float32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use grappa_formats::{DenseId, NodeId};
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;

use crate::export::{
    id_column::{IdColumn, StringIds},
    table::{TableFormat, TableOut, TableShape, repeating, write_table},
};

/// Bytes of a row in memory: two ids as text, and the score.
const ROW_BYTES: u64 = 64;

/// Source, target and score.
pub type ScoredPair = (NodeId, NodeId, f32);

/// Writes pairs, source and target, and their scores. `find` passes them to its argument, some at a time, at most `rows_max` in all. Bytes of ids that are not UTF-8
/// are escaped in Parquet. Returns the number of bytes.
///
/// # Errors
/// If `find` fails, the store cannot be read or the table cannot be written, or progress says to stop.
pub fn write_scored_pairs<E: From<Error>>(
    store: &Store,
    out: TableOut<'_>,
    rows_max: u64,
    progress: &dyn Progress,
    find: impl FnOnce(&mut dyn FnMut(&[ScoredPair]) -> Result<()>) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let format = out.format(TableFormat::Csv);
    let strings = if format == TableFormat::Parquet { StringIds::Escaped } else { StringIds::Verbatim };
    let ids = IdColumn::new(store.ids(), store.path(), format, strings)?;
    let score = Field::new("score", DataType::Float32, false);
    let schema = Arc::new(Schema::new(vec![repeating(ids.field("source")), ids.field("target"), score]));
    let shape = TableShape { format, schema: schema.clone(), rows: rows_max, row_bytes: ROW_BYTES };
    write_table(out, &shape, |writer| {
        find(&mut |rows| {
            check_stopped(progress)?;
            let column = |end: fn(&ScoredPair) -> NodeId| {
                let nodes: Vec<NodeId> = rows.iter().map(end).collect();
                ids.array(store.ids().dense_ids(&nodes)?.into_iter().map(DenseId))
            };
            let scores = Float32Array::from_iter_values(rows.iter().map(|row| row.2));
            let columns = vec![column(|row| row.0)?, column(|row| row.1)?, Arc::new(scores)];
            writer.write(RecordBatch::try_new(schema.clone(), columns).expect("columns have their types"))
        })
    })
}
