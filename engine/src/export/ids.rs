//! Exports lists of external ids: of all nodes, or of a split.

use grappa_formats::NodeId;
use grappa_io::{Error, Position, Result, ledger::Lease, progress::Progress};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{
    Exported,
    node_table::{DenseIds, NodeTable},
    table::{TableFormat, TableOut},
};

/// Writes the sorted external ids of the nodes of a split, or of all nodes: NumPy integers to a file called `.npy`, a column `id` to one
/// called `.parquet`, else a line for each id. Rows of exported features and labels are in the order of all ids.
///
/// Memory: twice the size of the split in the store.
///
/// # Errors
/// If there is no such split, ids are strings and the file is called `.npy`, an id cannot stand in a line, or a file cannot be read or
/// written.
pub fn export_ids<'a>(
    store: &Store,
    split: Option<&str>,
    out: impl Into<TableOut<'a>>,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    let format = match out.format(TableFormat::Lines) {
        // Readers of lists of ids need no header.
        TableFormat::Csv => TableFormat::Lines,
        format => format,
    };
    let ids = match split {
        None => DenseIds::All(store.manifest().nodes),
        Some(name) => split_ids(store, name)?,
    };
    progress.stage(&split.map_or("writing ids".to_owned(), |name| format!("writing the split {name}")), None);
    let table = NodeTable { store, format, ids: &ids, columns: Vec::new(), escapes_ids: false };
    let set_bytes = if let DenseIds::Set(set) = &ids { set.serialized_size() as u64 } else { 0 };
    let set = Lease::new("ids of the split", set_bytes, "a set of ids takes about as much as the split in the store");
    Ok(Exported { rows: ids.len(), bytes: table.write_ids(out, progress)?, leases: vec![set.beside_limit()] })
}

fn split_ids(store: &Store, name: &str) -> Result<DenseIds> {
    let Some(nodes) = store.split(name)? else {
        let names: Vec<_> = store.manifest().splits.iter().map(|split| split.name.as_str()).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let problem = format!("there is no split {name:?}; the store has {has}");
        return Err(Error::input(store.path(), Position::Whole, problem));
    };
    let ids = nodes.iter().map(|node| Ok(store.ids().dense_id(NodeId(node))?.0));
    Ok(DenseIds::Set(ids.collect::<Result<RoaringTreemap>>()?))
}
