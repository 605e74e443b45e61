//! Exports splits as lists of external ids.

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

use crate::export::{Exported, id_descr};

/// Bytes of a write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes the sorted external ids of the nodes of the split `name` to the new file `path`: NumPy integers, or one line for
/// each string id.
///
/// Memory: twice the size of the split in the store.
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
    let strings = store.manifest().ids.external == ExternalIds::String;
    progress.stage(&format!("writing the split {name}"), None);
    let ids = store.ids();
    let mut dense_ids = RoaringTreemap::new();
    for node in &nodes {
        dense_ids.insert(ids.dense_id(NodeId(node))?.0);
    }
    let temporary = Temporary::create(path)?;
    let mut file = &temporary.file;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(Error::io("write", &temporary.path));
    let mut out = match strings {
        true => Vec::new(),
        false => npy::header(id_descr(store)?, &[nodes.len()]).to_vec(),
    };
    let mut bytes = 0;
    for id in dense_ids.iter().map(DenseId) {
        if strings {
            let start = out.len();
            ids.append_text_at(id, &mut out)?;
            expect_line(store, &out[start..])?;
            out.push(b'\n');
        } else {
            out.extend_from_slice(&ids.integer_at(id)?.to_le_bytes());
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
    Ok(Exported {
        rows: nodes.len(),
        bytes,
    })
}

/// Fails if a line with this id would be read as something else.
fn expect_line(store: &Store, id: &[u8]) -> Result<()> {
    let ends_in_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_comment = matches!(id.first(), None | Some(b'#' | b'%'));
    if is_comment
        || ends_in_blank(id.first())
        || ends_in_blank(id.last())
        || id.iter().any(|b| matches!(b, b'\n' | b'\r'))
    {
        let what = format!("the id \"{}\" cannot stand in a line of its own", id.escape_ascii());
        return Err(Error::input(store.path(), Position::Whole, what));
    }
    Ok(())
}
