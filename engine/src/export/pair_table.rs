//! Tables of pairs of nodes with a score: the columns `source`, `target` and `score`.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use grappa_formats::{DenseId, NodeId};
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Store, StoreIds};

use crate::export::{
    id_column::{IdColumn, StringIds},
    table::{TableFormat, TableOut, TableShape, repeating, write_table},
};

/// Bytes of a row in memory: two ids as text, and the score.
const ROW_BYTES: u64 = 64;

/// Source, target and score.
pub type ScoredPair = (NodeId, NodeId, f32);

/// Writes pairs of a store or a relation, source and target, and their scores. `find` passes them to its argument, some at a time, at most `rows_max` in all. Bytes of ids that are not UTF-8
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
    let [source_ids, ids] = [store.source_ids(), store.ids()];
    let column_of = |ids| IdColumn::new(ids, store.path(), format, strings);
    let [sources, targets] = [column_of(source_ids)?, column_of(ids)?];
    let score = Field::new("score", DataType::Float32, false);
    let schema = Arc::new(Schema::new(vec![repeating(sources.field("source")), targets.field("target"), score]));
    let shape = TableShape { format, schema: schema.clone(), rows: rows_max, row_bytes: ROW_BYTES };
    write_table(out, &shape, |writer| {
        find(&mut |rows| {
            check_stopped(progress)?;
            let array = |column: &IdColumn<'_>, ids: &StoreIds, end: fn(&ScoredPair) -> NodeId| {
                let nodes: Vec<NodeId> = rows.iter().map(end).collect();
                column.array(ids.dense_ids(&nodes)?.into_iter().map(DenseId))
            };
            let ends = [array(&sources, source_ids, |row| row.0)?, array(&targets, ids, |row| row.1)?];
            let scores = Float32Array::from_iter_values(rows.iter().map(|row| row.2));
            let columns = ends.into_iter().chain([Arc::new(scores) as ArrayRef]).collect();
            writer.write(RecordBatch::try_new(schema.clone(), columns).expect("columns have their types"))
        })
    })
}
