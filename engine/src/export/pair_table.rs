//! Tables of pairs of nodes with a score: the columns `source`, `target` and `score`.

use grappa_formats::NodeId;
use grappa_io::{
    Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;

use crate::export::{
    node_table::{id_scalar, id_values},
    table::{Column, Scalar, Shape, TableFormat, TableOut, Values, group_rows, write_table},
};

/// Bytes of a row in memory: two ids as text, and the score.
const ROW_BYTES: usize = 64;

/// Writes pairs, source and target, and their scores. Bytes of ids that are not UTF-8 are escaped in Parquet. Returns the number of bytes.
///
/// # Errors
/// If the store cannot be read or the table cannot be written, or progress says to stop.
pub fn write_scored_pairs(
    store: &Store,
    out: TableOut<'_>,
    rows: &[(NodeId, NodeId, f32)],
    progress: &dyn Progress,
) -> Result<u64> {
    let escapes = matches!(out, TableOut::File(_, TableFormat::Parquet));
    let ids = id_scalar(store)?;
    let columns = [
        Column { repeats: true, ..Column::new("source", ids, Shape::One) },
        Column::new("target", ids, Shape::One),
        Column::new("score", Scalar::Float, Shape::One),
    ];
    write_table(out, &columns, |sink| {
        for rows in rows.chunks(group_rows(ROW_BYTES, rows.len() as u64) as usize) {
            check_stopped(progress)?;
            let ends = |end: fn(&(NodeId, NodeId, f32)) -> NodeId| {
                let ids = rows.iter().map(|row| store.ids().dense_id(end(row)));
                id_values(store, ids.collect::<Result<Vec<_>>>()?.into_iter(), escapes)
            };
            let scores = rows.iter().map(|row| row.2).collect();
            sink.write(&[ends(|row| row.0)?.into(), ends(|row| row.1)?.into(), Values::Floats(scores).into()])?;
        }
        Ok(())
    })
}
