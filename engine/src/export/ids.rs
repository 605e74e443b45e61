//! Exports lists of external ids: those of all nodes, or of a split.

use std::io::Write;

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_io::{
    Error, Position, Result,
    durable::Destination,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::export::{
    Exported, id_descr, is_npy,
    node_table::{DenseIds, NodeTable},
    table::{TableFormat, TableOut},
};

/// Ids that are written at once.
const IDS_AT_ONCE: u64 = 1 << 14;

/// Writes the sorted external ids of all nodes to a new file, as [`export_split`] does. Rows of exported features and labels are in this
/// order.
///
/// # Errors
/// As [`export_split`].
pub fn export_ids<'a>(store: &Store, out: impl Into<Destination<'a>>, progress: &dyn Progress) -> Result<Exported> {
    progress.stage("writing ids", None);
    write_ids(store, out.into(), &DenseIds::All(store.manifest().nodes), progress)
}

/// Writes the ids that [`export_ids`] writes as text to `out`, such as standard output.
///
/// # Errors
/// If an id cannot stand in a line, or writing fails.
pub fn print_ids(store: &Store, out: &mut impl Write, progress: &dyn Progress) -> Result<()> {
    progress.stage("writing ids", None);
    let mut text = IdText {
        store,
        bytes: Vec::new(),
    };
    text.write_all(&DenseIds::All(store.manifest().nodes), progress, |bytes| {
        out.write_all(bytes).map_err(Error::io("write to", "standard output"))
    })
}

/// Writes the ids that [`export_split`] writes as text to `out`, such as standard output.
///
/// # Errors
/// If there is no such split, an id cannot stand in a line, or writing fails.
pub fn print_split(store: &Store, name: &str, out: &mut impl Write, progress: &dyn Progress) -> Result<()> {
    let ids = ids_of_split(store, name)?;
    progress.stage(&format!("writing the split {name}"), None);
    let mut text = IdText {
        store,
        bytes: Vec::new(),
    };
    text.write_all(&ids, progress, |bytes| {
        out.write_all(bytes).map_err(Error::io("write to", "standard output"))
    })
}

/// Writes the sorted external ids of the nodes of the split `name` to a new file: NumPy integers if it is called `.npy`, a column `id` if it
/// is called `.parquet`, else a line for each id.
///
/// Memory: twice the size of the split in the store.
///
/// # Errors
/// If there is no such split, ids are strings and the file is called `.npy`, an id cannot stand in a line, or a file cannot be read or
/// written.
pub fn export_split<'a>(
    store: &Store,
    name: &str,
    out: impl Into<Destination<'a>>,
    progress: &dyn Progress,
) -> Result<Exported> {
    let ids = ids_of_split(store, name)?;
    progress.stage(&format!("writing the split {name}"), None);
    write_ids(store, out.into(), &ids, progress)
}

fn ids_of_split(store: &Store, name: &str) -> Result<DenseIds> {
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
    let ids = store.ids();
    let mut dense_ids = RoaringTreemap::new();
    for node in &nodes {
        dense_ids.insert(ids.dense_id(NodeId(node))?.0);
    }
    Ok(DenseIds::Set(dense_ids))
}

fn write_ids(store: &Store, out: Destination<'_>, dense_ids: &DenseIds, progress: &dyn Progress) -> Result<Exported> {
    let rows = dense_ids.len();
    if TableFormat::of(out.path) == Some(TableFormat::Parquet) {
        let table = NodeTable {
            store,
            ids: dense_ids,
            columns: Vec::new(),
            escapes_ids: false,
        };
        let bytes = table.write_ids(TableOut::File(out, TableFormat::Parquet), progress)?;
        return Ok(Exported { rows, bytes });
    }
    let header = match is_npy(out.path) {
        true => Some(npy::header(id_descr(store)?, &[rows])),
        false => None,
    };
    let temporary = out.begin()?;
    match header {
        None => IdText {
            store,
            bytes: Vec::new(),
        }
        .write_all(dense_ids, progress, |bytes| temporary.write_all(bytes))?,
        Some(header) => {
            let mut bytes = header.to_vec();
            for group in dense_ids.groups(IDS_AT_ONCE) {
                for id in dense_ids.of(group) {
                    bytes.extend_from_slice(&store.ids().integer_at(id)?.to_le_bytes());
                }
                temporary.write_all(&bytes)?;
                progress.advance(bytes.len() as u64, 0);
                check_stopped(progress)?;
                bytes.clear();
            }
            // Without ids there is the header alone.
            temporary.write_all(&bytes)?;
        }
    }
    let bytes = temporary
        .file
        .metadata()
        .map_err(Error::io("read", &temporary.path))?
        .len();
    temporary.finish()?;
    Ok(Exported { rows, bytes })
}

/// Ids as lines of text.
struct IdText<'a> {
    store: &'a Store,
    bytes: Vec<u8>,
}

impl IdText<'_> {
    /// Passes the lines of all ids to `write`, in large pieces.
    fn write_all(
        &mut self,
        dense_ids: &DenseIds,
        progress: &dyn Progress,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let strings = self.store.manifest().ids.external == ExternalIds::String;
        for group in dense_ids.groups(IDS_AT_ONCE) {
            for id in dense_ids.of(group) {
                let start = self.bytes.len();
                self.store.ids().append_text_at(id, &mut self.bytes)?;
                if strings {
                    expect_line(self.store, &self.bytes[start..])?;
                }
                self.bytes.push(b'\n');
            }
            write(&self.bytes)?;
            progress.advance(self.bytes.len() as u64, 0);
            check_stopped(progress)?;
            self.bytes.clear();
        }
        Ok(())
    }
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
