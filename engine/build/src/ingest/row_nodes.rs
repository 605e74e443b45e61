//! The node of each row of features and labels.
//!
//! Rows are in ascending order of external ids, so the row is the dense id, or in the order of a file that has the id of
//! each row. Then all ids are looked up once, and their nodes are written to a scratch file:
//!
//! ```text
//! byte 5 * k: the node of row k, in 5 bytes
//! ```
//!
//! The file has no name, so a resumed run makes it again.
//!
//! Cost: a lookup per row ([`IdMap`]), on all threads, and one sequential pass over the scratch file per column. Memory: a
//! bit per node while ids are looked up, to find those that appear twice.

use std::{
    fs::File,
    io::Write,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{
    NodeId,
    manifest::ExternalIds,
    permutation_table::{ENTRY_BYTES, encode_entries},
};
use grappa_input::SplitSource;
use grappa_io::{Error, Position, Result, progress::check_stopped, unnamed::unnamed_file};
use grappa_storage::NodePermutation;
use roaring::RoaringTreemap;

use crate::{
    ids::IdMap,
    ingest::{
        Run,
        id_lists::{self, Lookup, Strings},
        nodes::NodeFiles,
        options::{id_kind, open_node_ids},
    },
};

/// Bytes per write.
const WRITE_BYTES: usize = 64 << 10;
/// Entries per read.
const READ_ENTRIES: usize = 8 << 10;

/// Maps rows to nodes.
pub enum RowNodes {
    /// Rows are in the order of dense ids.
    Ascending(NodePermutation),
    /// The nodes are in a file without a name.
    Listed {
        /// The file.
        nodes: File,
        /// Its folder, for errors.
        folder: PathBuf,
    },
}

impl RowNodes {
    /// The node of a row.
    pub fn node(&self, row: u64) -> Result<NodeId> {
        let mut nodes = Vec::new();
        self.read(row..row + 1, &mut nodes)?;
        Ok(NodeId(nodes[0]))
    }

    /// Replaces the contents of `nodes` with the nodes of a range of rows.
    pub fn read(&self, rows: Range<u64>, nodes: &mut Vec<u64>) -> Result<()> {
        nodes.clear();
        match self {
            Self::Ascending(permutation) => {
                nodes.extend(rows);
                permutation.nodes(nodes);
            }
            Self::Listed { nodes: file, folder } => {
                let mut entries = [[0; ENTRY_BYTES]; READ_ENTRIES];
                for first in rows.clone().step_by(READ_ENTRIES) {
                    let count = (rows.end - first).min(READ_ENTRIES as u64) as usize;
                    let piece = &mut entries[..count];
                    file.read_exact_at(piece.as_flattened_mut(), first * ENTRY_BYTES as u64)
                        .map_err(Error::io("read a scratch file in", folder))?;
                    nodes.extend(
                        piece
                            .iter()
                            .map(|&[a, b, c, d, e]| u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])),
                    );
                }
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// The node of each row of `files`. Looks up the ids of the rows, if there is a file with them.
    pub(super) fn row_nodes(&self, ids: &IdMap, nodes: u64, files: &NodeFiles) -> Result<RowNodes> {
        let Some(source) = open_node_ids(self.options)? else {
            return Ok(RowNodes::Ascending(ids.permutation().clone()));
        };
        self.progress.stage("looking up the ids of rows", None);
        let path = source.path().to_owned();
        let folder = self.folder.lasting_scratch().to_owned();
        let mut file = unnamed_file(&folder)?;
        let found = self.look_up(source, ids, nodes, &mut |bytes| {
            check_stopped(self.progress)?;
            file.write_all(bytes)
                .map_err(Error::io("write a scratch file in", &folder))
        })?;
        files.check_number_of_ids(&path, found.len())?;
        check_complete(&path, &found, ids, nodes, files)?;
        Ok(RowNodes::Listed { nodes: file, folder })
    }

    /// Passes the encoded nodes of all ids of `source` to `write`. Returns the set of these nodes, in which each id has its
    /// own.
    fn look_up(
        &self,
        mut source: SplitSource,
        ids: &IdMap,
        nodes: u64,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<RoaringTreemap> {
        let path = source.path().to_owned();
        let (mut found, mut bytes) = (RoaringTreemap::new(), Vec::new());
        let kind = id_kind(self.options.ids);
        let lookup = Lookup {
            ids,
            strings: Strings::Known,
            threads: self.options.threads,
        };
        id_lists::for_each_node(&mut source, kind, &lookup, |position, node, id| {
            let Some(NodeId(node)) = node else {
                return Err(Error::input(&path, position, self.unknown(&id(), nodes)));
            };
            if !found.insert(node) {
                let what = format!("the id {} is in this file twice; give the id of each row once", id());
                return Err(Error::input(&path, position, what));
            }
            encode_entries(&[node], &mut bytes);
            if bytes.len() >= WRITE_BYTES {
                write(&bytes)?;
                bytes.clear();
            }
            Ok(())
        })?;
        write(&bytes)?;
        Ok(found)
    }

    /// The message about an id that no node has.
    fn unknown(&self, id: &str, nodes: u64) -> String {
        match self.options.nodes {
            _ if self.options.ids != ExternalIds::Dense => "the file changed while it was read; start again".to_owned(),
            Some(_) => format!("the id {id} is not below --nodes {nodes}; raise --nodes, or correct the id"),
            None => format!(
                "the id {id} is not below the number of nodes, {nodes}; give --nodes if there are more, or correct the id"
            ),
        }
    }
}

/// Fails if there are rows, and `found`, the nodes of the ids in `path`, are not all nodes.
fn check_complete(path: &Path, found: &RoaringTreemap, ids: &IdMap, nodes: u64, files: &NodeFiles) -> Result<()> {
    let (rows, lacks) = (files.names(), nodes - found.len());
    if rows.is_empty() || lacks == 0 {
        return Ok(());
    }
    let next = (0..).zip(found).find(|(node, found)| node != found);
    let missing = next.map_or(found.len(), |(node, _)| node);
    let what = format!(
        "{lacks} of the {nodes} nodes of the graph are not in this file, for example {}; add their ids, and their rows to {}",
        ids.external(NodeId(missing))?,
        rows.join(" and ")
    );
    Err(Error::input(path, Position::Whole, what))
}
