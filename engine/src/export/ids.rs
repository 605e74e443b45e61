//! Exports lists of external ids: of all nodes, or of a split.

use std::io::Write;

use grappa_formats::{DenseId, NodeId, manifest::ExternalIds};
use grappa_io::{
    Error, Position, Result,
    durable::Destination,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{
    Exported,
    node_table::{DenseIds, NodeTable, id_descr},
    table::{TableFormat, TableOut},
};

/// Ids that are written at once.
const IDS_AT_ONCE: u64 = 1 << 14;

/// Writes the sorted external ids of the nodes of a split, or of all nodes, to a new file: NumPy integers if it is called `.npy`, a column
/// `id` if it is called `.parquet`, else a line for each id. Rows of exported features and labels are in the order of all ids.
///
/// Memory: twice the size of the split in the store.
///
/// # Errors
/// If there is no such split, ids are strings and the file is called `.npy`, an id cannot stand in a line, or a file cannot be read or
/// written.
pub fn export_ids<'a>(
    store: &Store,
    split: Option<&str>,
    out: impl Into<Destination<'a>>,
    progress: &dyn Progress,
) -> Result<Exported> {
    let ids = ids_of(store, split, progress)?;
    write_ids(store, out.into(), &ids, progress)
}

/// Writes the ids that [`export_ids`] writes as text to `out`, such as standard output.
///
/// # Errors
/// If there is no such split, an id cannot stand in a line, or writing fails.
pub fn print_ids(store: &Store, split: Option<&str>, out: &mut impl Write, progress: &dyn Progress) -> Result<()> {
    let ids = ids_of(store, split, progress)?;
    write_text(store, &ids, progress, |bytes| out.write_all(bytes).map_err(Error::io("write to", "standard output")))
}

fn ids_of(store: &Store, split: Option<&str>, progress: &dyn Progress) -> Result<DenseIds> {
    let Some(name) = split else {
        progress.stage("writing ids", None);
        return Ok(DenseIds::All(store.manifest().nodes));
    };
    let Some(nodes) = store.split(name)? else {
        let names: Vec<_> = store.manifest().splits.iter().map(|split| split.name.as_str()).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let what = format!("there is no split {name:?}; the store has {has}");
        return Err(Error::input(store.path(), Position::Whole, what));
    };
    let ids = store.ids();
    let mut dense_ids = RoaringTreemap::new();
    for node in &nodes {
        dense_ids.insert(ids.dense_id(NodeId(node))?.0);
    }
    progress.stage(&format!("writing the split {name}"), None);
    Ok(DenseIds::Set(dense_ids))
}

fn write_ids(store: &Store, out: Destination<'_>, dense_ids: &DenseIds, progress: &dyn Progress) -> Result<Exported> {
    let rows = dense_ids.len();
    if TableFormat::of(out.path) == Some(TableFormat::Parquet) {
        let table = NodeTable { store, ids: dense_ids, columns: Vec::new(), escapes_ids: false };
        let bytes = table.write_ids(TableOut::File(out, TableFormat::Parquet), progress)?;
        return Ok(Exported { rows, bytes });
    }
    let is_npy = out.path.extension().is_some_and(|extension| extension == "npy");
    let descr = is_npy.then(|| id_descr(store)).transpose()?;
    let temporary = out.begin()?;
    match descr {
        None => write_text(store, dense_ids, progress, |bytes| temporary.write_all(bytes))?,
        Some(descr) => {
            temporary.write_all(&npy::header(descr, &[rows]))?;
            let append = |id, bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(&store.ids().integer_at(id)?.to_le_bytes());
                Ok(())
            };
            write_groups(dense_ids, progress, append, |bytes| temporary.write_all(bytes))?;
        }
    }
    let bytes = temporary.file.metadata().map_err(Error::io("read", &temporary.path))?.len();
    temporary.finish()?;
    Ok(Exported { rows, bytes })
}

/// Passes lines with the ids to `write`.
fn write_text(
    store: &Store,
    dense_ids: &DenseIds,
    progress: &dyn Progress,
    write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let strings = store.manifest().ids.external == ExternalIds::String;
    let append = |id, bytes: &mut Vec<u8>| {
        let start = bytes.len();
        store.ids().append_text_at(id, bytes)?;
        if strings {
            expect_line(store, &bytes[start..])?;
        }
        bytes.push(b'\n');
        Ok(())
    };
    write_groups(dense_ids, progress, append, write)
}

/// Passes the bytes that `append` makes of the ids to `write`, in large pieces.
fn write_groups(
    dense_ids: &DenseIds,
    progress: &dyn Progress,
    append: impl Fn(DenseId, &mut Vec<u8>) -> Result<()>,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = Vec::new();
    for group in dense_ids.groups(IDS_AT_ONCE) {
        dense_ids.of(group).try_for_each(|id| append(id, &mut bytes))?;
        write(&bytes)?;
        progress.advance(bytes.len() as u64, 0);
        check_stopped(progress)?;
        bytes.clear();
    }
    Ok(())
}

/// Fails if a line with this id would be read as something else.
fn expect_line(store: &Store, id: &[u8]) -> Result<()> {
    let ends = [id.first(), id.last()];
    if ends.iter().any(|end| matches!(end, None | Some(b' ' | b'\t'))) || id.iter().any(|b| matches!(b, b'\n' | b'\r'))
    {
        let what = format!("the id \"{}\" cannot stand in a line of its own", id.escape_ascii());
        return Err(Error::input(store.path(), Position::Whole, what));
    }
    Ok(())
}
