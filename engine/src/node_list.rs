//! Reads lists of nodes from files of external ids.

use std::path::Path;

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_input::{IdKind, IdLimit, Keys, SplitSource};
use grappa_io::Result;
use grappa_storage::{ExternalId, Store};

/// Reads the nodes that a file lists by external id. The formats are the formats of ingested splits: `.npy` of integers or a mask,
/// Parquet with a column of ids (a file or a folder of files), or text with one id a line.
///
/// # Errors
/// If the file cannot be read, or no node has a listed id; the message says where.
pub fn read_nodes(store: &Store, path: &Path) -> Result<Vec<NodeId>> {
    let mut nodes = Vec::new();
    let mut find = |source: &SplitSource, index: usize, id: ExternalId| match store.node(&id)? {
        Some(node) => {
            nodes.push(node);
            Ok(())
        }
        None => {
            let problem = format!("no node of {} has the id {id}", store.path().display());
            Err(source.place(index).error(problem))
        }
    };
    match store.manifest().ids.external {
        ExternalIds::String => {
            let mut source = SplitSource::open(path, IdKind::String, IdLimit::Sparse)?;
            let mut keys = Keys::default();
            while source.next_keys(&mut keys)? {
                for (index, key) in keys.iter().enumerate() {
                    find(&source, index, ExternalId::String(key.to_owned()))?;
                }
            }
        }
        ExternalIds::Dense | ExternalIds::Sparse => {
            let mut source = SplitSource::open(path, IdKind::Integer, IdLimit::Sparse)?;
            let mut ids = Vec::new();
            while source.next_ids(&mut ids)? {
                for (index, &id) in ids.iter().enumerate() {
                    find(&source, index, ExternalId::Integer(id))?;
                }
            }
        }
    }
    Ok(nodes)
}
