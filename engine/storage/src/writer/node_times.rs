//! Writes the times of the nodes of a type.

use grappa_formats::{
    EdgePart,
    container::FileKind,
    manifest::FileEntry,
    rows::{RowCodec, RowsEncoder},
    time_axis::TimeAxis,
};
use grappa_io::Result;

use super::{StoreFolder, list_files::ListFiles};
use crate::{files, node_times::SPAN};

/// Writes the times of all nodes of a type, synced: their positions on an axis, in the order of nodes.
///
/// # Errors
/// If a file can't be written.
///
/// # Panics
/// If positions do not ascend, or are not on the axis.
pub fn write_node_times(store: &StoreFolder, axis: &TimeAxis, positions: &[u64]) -> Result<Vec<FileEntry>> {
    let names = [(files::NODE_TIMES, FileKind::TIMES), (files::NODE_TIME_DEGREES, FileKind::TIME_DEGREES)];
    let mut lists = ListFiles::create(store.path(), EdgePart::Graph, names)?;
    let mut encoder = RowsEncoder::new(RowCodec::EliasFano, axis.positions(), 0);
    encoder.push(positions);
    lists.drain(&mut encoder)?;
    let (_, files) = lists.finish(encoder, SPAN)?;
    let mut entries = vec![store.write_file(files::NODE_TIME_AXIS, axis.encode())?];
    for file in files {
        file.sync()?;
        entries.push(store.entry(&file));
    }
    Ok(entries)
}
