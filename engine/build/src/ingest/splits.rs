//! Splits: from lists of external ids to sets of nodes.

use std::path::{Path, PathBuf};

use grappa_formats::NodeId;
use grappa_input::{IdKind, IdLimit, SplitSource};
use grappa_io::{Error, Position, Result};
use roaring::RoaringTreemap;

use crate::{
    ids::IdMap,
    ingest::id_lists::{self, Strings},
};

/// A split, as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// The file with its ids.
    pub path: PathBuf,
}

/// Reads the ids of a split and looks up their nodes.
pub fn read(path: &Path, kind: IdKind, limit: IdLimit, ids: &IdMap) -> Result<RoaringTreemap> {
    let mut source = SplitSource::open(path, kind, limit)?;
    let mut nodes = RoaringTreemap::new();
    id_lists::for_each_node(&mut source, kind, ids, Strings::Any, |position, node, id| match node {
        Some(node) => {
            nodes.insert(node.0);
            Ok(())
        }
        None => {
            let what = format!("the graph has no node with the id {}; remove it from the split", id());
            Err(Error::input(path, position, what))
        }
    })?;
    if nodes.is_empty() {
        return Err(Error::input(path, Position::Whole, "the split has no ids; omit it"));
    }
    Ok(nodes)
}

/// Fails if two splits share a node.
pub fn check_disjoint(
    splits: &[(SplitFile, RoaringTreemap)],
    external: impl Fn(NodeId) -> Result<String>,
) -> Result<()> {
    for (at, (a, nodes)) in splits.iter().enumerate() {
        for (b, others) in &splits[..at] {
            let shared = nodes & others;
            if let Some(node) = shared.min() {
                let what = format!(
                    "{} node(s) are also in the split {} ({}), for example {}; splits must not overlap",
                    shared.len(),
                    b.name,
                    b.path.display(),
                    external(NodeId(node))?
                );
                return Err(Error::input(&a.path, Position::Whole, what));
            }
        }
    }
    Ok(())
}
