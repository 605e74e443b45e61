//! Exports lists of external ids: those of all nodes, or of a split.

use std::{io::Write, path::Path};

use grappa_formats::{DenseId, NodeId, manifest::ExternalIds};
use grappa_io::{
    Error, Position, Result,
    durable::Temporary,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{Exported, id_descr, is_npy};

/// Bytes of a write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes the sorted external ids of all nodes to the new file `path`, as [`export_split`] does. Rows of exported features and labels are
/// in this order.
///
/// # Errors
/// As [`export_split`].
pub fn export_ids(store: &Store, path: &Path, progress: &dyn Progress) -> Result<Exported> {
    progress.stage("writing ids", None);
    let nodes = store.manifest().nodes;
    write_ids(store, path, nodes, (0..nodes).map(DenseId), progress)
}

/// Writes the sorted external ids of the nodes of the split `name` to the new file `path`: NumPy integers if it is called `.npy`, else a line
/// for each id.
///
/// Memory: twice the size of the split in the store.
///
/// # Errors
/// If there is no such split, ids are strings and the file is called `.npy`, an id cannot stand in a line, or a file cannot be read or
/// written.
pub fn export_split(store: &Store, name: &str, path: &Path, progress: &dyn Progress) -> Result<Exported> {
    let Some(nodes) = store.split(name)? else {
        let names: Vec<_> = store
            .manifest()
            .splits
            .iter()
            .map(|split| split.name.as_str())
            .collect();
        let has = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let what = format!("there is no split {name:?}; the store has {has}");
        return Err(Error::input(store.path(), Position::Whole, what));
    };
    progress.stage(&format!("writing the split {name}"), None);
    let ids = store.ids();
    let mut dense_ids = RoaringTreemap::new();
    for node in &nodes {
        dense_ids.insert(ids.dense_id(NodeId(node))?.0);
    }
    write_ids(store, path, nodes.len(), dense_ids.iter().map(DenseId), progress)
}

/// Writes `count` ids.
fn write_ids(
    store: &Store,
    path: &Path,
    count: u64,
    dense_ids: impl Iterator<Item = DenseId>,
    progress: &dyn Progress,
) -> Result<Exported> {
    let ids = store.ids();
    let strings = store.manifest().ids.external == ExternalIds::String;
    let mut out = match is_npy(path) {
        true => npy::header(id_descr(store)?, &[count]).to_vec(),
        false => Vec::new(),
    };
    let is_text = out.is_empty();
    let temporary = Temporary::create(path)?;
    let mut file = &temporary.file;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(Error::io("write", &temporary.path));
    let mut bytes = 0;
    for id in dense_ids {
        match (is_text, strings) {
            (false, _) => out.extend_from_slice(&ids.integer_at(id)?.to_le_bytes()),
            (true, false) => writeln!(out, "{}", ids.integer_at(id)?).expect("memory takes all"),
            (true, true) => {
                let start = out.len();
                ids.append_text_at(id, &mut out)?;
                expect_line(store, &out[start..])?;
                out.push(b'\n');
            }
        }
        if out.len() >= WRITE_BYTES {
            write(&out)?;
            bytes += out.len() as u64;
            progress.advance(out.len() as u64, 0);
            check_stopped(progress)?;
            out.clear();
        }
    }
    write(&out)?;
    bytes += out.len() as u64;
    temporary.finish()?;
    Ok(Exported { rows: count, bytes })
}

/// Fails if a line with this id would be read as something else.
fn expect_line(store: &Store, id: &[u8]) -> Result<()> {
    let ends_in_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if id.is_empty()
        || ends_in_blank(id.first())
        || ends_in_blank(id.last())
        || id.iter().any(|b| matches!(b, b'\n' | b'\r'))
    {
        let what = format!("the id \"{}\" cannot stand in a line of its own", id.escape_ascii());
        return Err(Error::input(store.path(), Position::Whole, what));
    }
    Ok(())
}
