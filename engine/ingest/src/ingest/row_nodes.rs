//! The node of each row of features and labels.
//!
//! Rows are in ascending order of external ids, so the row is the dense id, or a file has the id of each row: a list, or the table of the
//! rows itself. Then all ids are looked up once, and their nodes are written to a scratch file:
//!
//! ```text
//! byte 5 * k: the node of row k, in 5 bytes
//! ```
//!
//! The file has no name, so a resumed run makes it again, unless labels and features are written.
//!
//! Cost: a lookup per row in the table of [`IdMap`], on all threads, and one sequential pass over the scratch file per column. If memory
//! has no room for the table, the ids are cut into the segments in which edges need them later, and the file of ids is read once for each
//! segment. Memory: a bit per node while ids are looked up, to find those that appear twice.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_formats::{
    NodeId,
    manifest::ExternalIds,
    permutation_table::{ENTRY_BYTES, entry},
};
use grappa_input::InputPlace;
use grappa_io::{Error, Position, Result, progress::check_stopped, unnamed::unnamed_file};
use grappa_storage::NodePermutation;

use crate::{
    ids::{IdMap, Strings},
    ingest::{
        id_lists::{self, Join, Lookup},
        job::IngestJob,
        node_files::NodeFiles,
        node_ingest::{NodeIngest, RowIds, id_kind},
        plan::check_sets,
        row_set::RowSet,
        stage::Stage,
    },
};

/// Entries per read and per write.
const READ_ENTRIES: usize = 8 << 10;

/// Maps rows to nodes.
pub enum RowNodes {
    /// Rows are in the order of dense ids.
    Ascending(NodePermutation),
    /// The nodes are in a file without a name.
    Listed { nodes: File, folder: PathBuf },
    /// Labels and features are written, so no row is read any more.
    Written,
}

impl RowNodes {
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
            Self::Written => unreachable!("labels and features are written before edges are read"),
            Self::Listed { nodes: file, folder } => {
                let mut entries = [[0; ENTRY_BYTES]; READ_ENTRIES];
                for first in rows.clone().step_by(READ_ENTRIES) {
                    let count = (rows.end - first).min(READ_ENTRIES as u64) as usize;
                    let piece = &mut entries[..count];
                    file.read_exact_at(piece.as_flattened_mut(), first * ENTRY_BYTES as u64)
                        .map_err(Error::io("read a scratch file in", folder))?;
                    nodes.extend(piece.iter().map(|&[a, b, c, d, e]| u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])));
                }
            }
        }
        Ok(())
    }
}

/// The nodes of the rows of features and labels.
pub struct NodesOfFiles {
    pub features: Arc<RowNodes>,
    pub labels: Arc<RowNodes>,
}

impl NodesOfFiles {
    /// The nodes of the rows of `files`. Looks up the ids of rows, as far as rows have ids.
    pub fn look_up(job: &IngestJob<'_>, ids: &IdMap, join: Option<Join<'_>>, files: &NodeFiles) -> Result<Self> {
        let lookup = Lookup { ids, strings: Strings::Known, join, threads: job.resources.threads };
        let without_ids = files.names();
        let listed = Arc::new(match &job.nodes.data.ids {
            None => RowNodes::Ascending(ids.permutation().clone()),
            Some(input) => nodes_of_ids(job, RowIds::List(input), &lookup, Some(&without_ids), files)?,
        });
        if let Some(table) = &job.nodes.data.table {
            // They are the ids of all nodes. This finds those that are there twice.
            nodes_of_ids(job, RowIds::Table(table), &lookup, Some(&[]), files)?;
        }
        let table = files.ids_of_features();
        let features = match table {
            None => Arc::clone(&listed),
            Some(table) => {
                let name = [table.name().display().to_string()];
                Arc::new(nodes_of_ids(job, table, &lookup, Some(&name), files)?)
            }
        };
        let labels = match files.ids_of_labels() {
            None => listed,
            // They are columns of one table.
            Some(labels) if table.is_some_and(|table| table.name() == labels.name()) => Arc::clone(&features),
            Some(labels) => {
                // A node without a label needs no row, and an id that no node has is told.
                let any = Lookup { strings: Strings::Any, ..lookup };
                Arc::new(nodes_of_ids(job, labels, &any, None, files)?)
            }
        };
        Ok(Self { features, labels })
    }

    /// The nodes of the rows of the table with the times of all nodes.
    pub fn look_up_times(
        job: &IngestJob<'_>,
        ids: &IdMap,
        join: Option<Join<'_>>,
        files: &NodeFiles,
    ) -> Result<RowNodes> {
        let lookup = Lookup { ids, strings: Strings::Known, join, threads: job.resources.threads };
        let list = files.ids_of_times().or(job.nodes.data.ids.as_ref().map(RowIds::List));
        match list {
            None => Ok(RowNodes::Ascending(ids.permutation().clone())),
            Some(list) => {
                let name = [list.name().display().to_string()];
                nodes_of_ids(job, list, &lookup, Some(&name), files)
            }
        }
    }
}

/// Looks up the ids of rows, unless labels and features are written. They must be the ids of all nodes, if these are rows of the files
/// `all_of`.
fn nodes_of_ids(
    job: &IngestJob<'_>,
    list: RowIds<'_>,
    lookup: &Lookup<'_>,
    all_of: Option<&[String]>,
    files: &NodeFiles,
) -> Result<RowNodes> {
    if job.journal.stage(Stage::Edges).plan.is_some() {
        return Ok(RowNodes::Written);
    }
    let (source, path, nodes) = (list.open(job.nodes)?, list.name(), lookup.ids.nodes());
    let operation = format!("a bit for each of {nodes} nodes, to find ids that {} has twice", path.display());
    check_sets(operation, id_lists::set_memory(&source, nodes), &job.budget)?;
    let mut found = RowSet::new(nodes, id_lists::listed(&source))?;
    drop(source);
    job.progress.stage("looking up the ids of rows", None);
    let folder = job.store.lasting_scratch().to_owned();
    let file = unnamed_file(&folder)?;
    let (mut rows, mut unknown) =
        (RowFile { file: &file, folder: &folder, bytes: 0, entries: Vec::new(), first: 0 }, Unknown::default());
    id_lists::for_each_node(
        || list.open(job.nodes),
        id_kind(job.nodes.ids),
        lookup,
        |row, place, node, id| {
            let Some(node) = node else {
                if all_of.is_none() {
                    unknown.add(row, place, id);
                    return Ok(());
                }
                return Err(place.error(not_a_node(job.nodes, &id(), nodes)));
            };
            if !found.insert(node) {
                let problem = format!(
                    "the id {} is in {} twice; give the id of each row once",
                    id(),
                    if place.path == path { "this file" } else { "this folder" }
                );
                return Err(place.error(problem));
            }
            rows.set(row, node, || check_stopped(job.progress))
        },
    )?;
    rows.flush()?;
    if let Some(error) = unknown.error(job.nodes, found.len()) {
        return Err(error);
    }
    if let RowIds::List(input) = list {
        files.check_number_of_ids(input.name(), found.len())?;
    }
    if let Some(names) = all_of {
        check_complete(path, &found, lookup.ids, nodes, names)?;
    }
    Ok(RowNodes::Listed { nodes: file, folder })
}

/// The message about an id that no node has, in a list of all nodes.
fn not_a_node(options: &NodeIngest, id: &str, nodes: u64) -> String {
    match options.number {
        _ if options.ids != ExternalIds::Dense => "the file changed while it was read; start again".to_owned(),
        Some(_) => format!("the id {id} is not below --nodes {nodes}; raise --nodes, or correct the id"),
        None => {
            format!(
                "the id {id} is not below the number of nodes, {nodes}; give --nodes if there are more, or correct the id"
            )
        }
    }
}

/// The ids of a table of labels that no node has.
#[derive(Debug, Default)]
struct Unknown {
    count: u64,
    /// Row, file, position and text of the first one.
    first: Option<(u64, PathBuf, Position, String)>,
}

impl Unknown {
    /// Notes an id. Rows come in any order.
    fn add(&mut self, row: u64, place: InputPlace<'_>, id: &dyn Fn() -> String) {
        self.count += 1;
        if self.first.as_ref().is_none_or(|&(first, ..)| row < first) {
            self.first = Some((row, place.path.to_owned(), place.position, id()));
        }
    }

    /// The error about them, if there are any; `known` other ids are ids of nodes.
    fn error(self, options: &NodeIngest, known: u64) -> Option<Error> {
        let (_, path, position, id) = self.first?;
        let remedy = match options.ids {
            ExternalIds::Dense if options.number.is_some() => "or raise --nodes",
            ExternalIds::Dense => "or give --nodes if there are more nodes than the edges or the features show",
            ExternalIds::Sparse | ExternalIds::String => {
                "or make them nodes without edges: list them in a file for --node-ids, or in a table of features with ids"
            }
        };
        let problem = format!(
            "{} of {} ids belong to no node, and {id} is the first; remove their rows, {remedy}",
            self.count,
            self.count + known
        );
        Some(Error::input(&path, position, problem))
    }
}

/// The nodes of rows in a file, which get their values in several passes from the first row to the last.
struct RowFile<'a> {
    file: &'a File,
    folder: &'a Path,
    /// Length of the file.
    bytes: u64,
    /// The entries from `first` on, as far as they were read.
    entries: Vec<[u8; ENTRY_BYTES]>,
    first: u64,
}

impl RowFile<'_> {
    /// Sets the node of a row. Calls `check` before it goes to other entries of the file.
    fn set(&mut self, row: u64, node: NodeId, check: impl FnOnce() -> Result<()>) -> Result<()> {
        if !(self.first..self.first + self.entries.len() as u64).contains(&row) {
            check()?;
            self.flush()?;
            self.first = row - row % READ_ENTRIES as u64;
            self.entries.resize(READ_ENTRIES, [0; ENTRY_BYTES]);
            self.read()?;
        }
        self.entries[(row - self.first) as usize] = entry(node.0);
        Ok(())
    }

    /// Reads entries. The file grows by zeros where it ends before them.
    fn read(&mut self) -> Result<()> {
        let (bytes, at) = (self.entries.as_flattened_mut(), self.first * ENTRY_BYTES as u64);
        self.bytes = self.bytes.max(at + bytes.len() as u64);
        self.file
            .set_len(self.bytes)
            .and_then(|()| self.file.read_exact_at(bytes, at))
            .map_err(Error::io("read a scratch file in", self.folder))
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = self.entries.as_flattened();
        self.file
            .write_all_at(bytes, self.first * ENTRY_BYTES as u64)
            .map_err(Error::io("write a scratch file in", self.folder))
    }
}

/// Fails if there are files with rows, and `found`, the nodes of the ids in `path`, are not all nodes.
fn check_complete(path: &Path, found: &RowSet, ids: &IdMap, nodes: u64, files: &[String]) -> Result<()> {
    let lacks = nodes - found.len();
    if files.is_empty() || lacks == 0 {
        return Ok(());
    }
    let add = match files {
        [table] if Path::new(table) == path => "add their rows".to_owned(),
        _ => format!("add their ids, and their rows to {}", files.join(" and ")),
    };
    let problem = format!(
        "{lacks} of the {nodes} nodes of the graph are not in it, for example {}; {add}",
        ids.external(found.first_missing())?,
    );
    Err(Error::input(path, Position::Whole, problem))
}
