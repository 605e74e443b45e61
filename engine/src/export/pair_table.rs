//! Tables of pairs of nodes with a score: the columns `source`, `target` and `score`.

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;

use crate::export::{
    node_table::{id_scalar, id_values},
    table::{Column, Scalar, Shape, TableFormat, TableOut, Values, group_rows, write_table},
};

/// Bytes of a row in memory: two ids as text, and the score.
const ROW_BYTES: usize = 64;

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
    let escapes = matches!(out, TableOut::File(_, TableFormat::Parquet));
    let ids = id_scalar(store)?;
    let columns = [
        Column { repeats: true, ..Column::new("source", ids, Shape::One) },
        Column::new("target", ids, Shape::One),
        Column::new("score", Scalar::Float, Shape::One),
    ];
    let group = group_rows(ROW_BYTES, rows_max) as usize;
    write_table(out, &columns, |sink| {
        let mut write = |rows: &[ScoredPair]| {
            check_stopped(progress)?;
            let ends = |end: fn(&ScoredPair) -> NodeId| {
                let ids = rows.iter().map(|row| store.ids().dense_id(end(row)));
                id_values(store, ids.collect::<Result<Vec<_>>>()?.into_iter(), escapes)
            };
            let scores = rows.iter().map(|row| row.2).collect();
            sink.write(&[ends(|row| row.0)?.into(), ends(|row| row.1)?.into(), Values::Floats(scores).into()])
        };
        // Groups are full ones, however few pairs are found at a time.
        let mut pending: Vec<ScoredPair> = Vec::new();
        find(&mut |mut rows| {
            while pending.len() + rows.len() >= group {
                let (fitting, others) = rows.split_at(group - pending.len());
                pending.extend_from_slice(fitting);
                rows = others;
                write(&pending)?;
                pending.clear();
            }
            pending.extend_from_slice(rows);
            Ok(())
        })?;
        match pending.is_empty() {
            true => Ok(()),
            false => Ok(write(&pending)?),
        }
    })
}
