//! Splits: from lists of external ids to sets of nodes.

use std::path::{Path, PathBuf};

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_input::{Conversion, IdKind, IdLimit, Place, SplitSource};
use grappa_io::{Error, Position, Result};
use roaring::RoaringTreemap;

use crate::ingest::{
    id_lists::{self, Lookup},
    options::{IngestOptions, id_kind, id_limit},
};

/// A split, as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// The file with its ids, or a folder of Parquet files.
    pub path: PathBuf,
}

/// Opens the file of a split of a graph with `nodes` nodes.
pub fn open(path: &Path, options: &IngestOptions, nodes: u64) -> Result<SplitSource> {
    let (kind, limit) = (id_kind(options.ids), id_limit(options.ids, Some(nodes)));
    SplitSource::open_with(path, kind, limit, &options.tables)
}

/// Reads the ids of a split of a graph with `nodes` nodes and looks up its nodes. `rows_are_ids`: row N of a mask is the node with the
/// id N.
pub fn read(
    path: &Path,
    options: &IngestOptions,
    nodes: u64,
    rows_are_ids: bool,
    lookup: &Lookup<'_>,
) -> Result<RoaringTreemap> {
    let (open, kind) = (|| open(path, options, nodes), options.ids);
    let source = open()?;
    if source.is_mask() && !rows_are_ids {
        let what = "a mask needs --ids dense without --node-ids, where row N is the node N; with --node-ids or --ids sparse, \
                    give a list of the ids of its nodes";
        return Err(Error::input(path, Position::Whole, what));
    }
    source.expect_rows(nodes, "give --nodes if there are more nodes than the edges show")?;
    let mut set = RoaringTreemap::new();
    let each = |_, place: Place<'_>, node: Option<NodeId>, id: &dyn Fn() -> String| {
        let what = match node {
            Some(node) if set.insert(node.0) => return Ok(()),
            Some(_) => format!(
                "the id {} is there already, {}; list each id once. If the file is a mask, it must be a .npy of type bool: {}",
                id(),
                first_place(open()?, id_kind(kind), &id())?,
                Conversion::IntegersToMask.command(path)
            ),
            None => format!("the graph has no node with the id {}; remove it from the split", id()),
        };
        Err(place.error(what))
    };
    drop(source);
    id_lists::for_each_node(open, id_kind(kind), lookup, each)?;
    if set.is_empty() {
        return Err(Error::input(path, Position::Whole, "the split has no ids; omit it"));
    }
    Ok(set)
}

/// Fails if two splits share a node.
pub fn check_disjoint(
    splits: &[(SplitFile, RoaringTreemap)],
    kind: ExternalIds,
    external: impl Fn(NodeId) -> Result<String>,
) -> Result<()> {
    for (at, (a, nodes)) in splits.iter().enumerate() {
        for (b, others) in &splits[..at] {
            let shared = nodes & others;
            if let Some(node) = shared.min() {
                let id = external(NodeId(node))?;
                let is_header = shared.len() == 1
                    && kind == ExternalIds::String
                    && is_first_line(&a.path, &id)?
                    && is_first_line(&b.path, &id)?;
                let what = format!(
                    "{} node(s) are also in the split {} ({}), for example {id}; splits must not overlap{}",
                    shared.len(),
                    b.name,
                    b.path.display(),
                    match is_header {
                        true => format!(
                            "; it is the first line of both files: if that is a header, remove it: {}",
                            Conversion::RemoveHeader.command(&a.path)
                        ),
                        false => String::new(),
                    }
                );
                return Err(Error::input(&a.path, Position::Whole, what));
            }
        }
    }
    Ok(())
}

/// Whether the first line of a list of strings is `id`.
fn is_first_line(path: &Path, id: &str) -> Result<bool> {
    let mut source = SplitSource::open(path, IdKind::String, IdLimit::Sparse)?;
    let place = id_lists::place_of(&mut source, IdKind::String, id)?;
    Ok(place.is_some_and(|place| place.position == Position::Line(1)))
}

/// The place of the first `id` of a split, for a message. It reads the file again.
fn first_place(mut source: SplitSource, kind: IdKind, id: &str) -> Result<String> {
    let list = source.path().to_owned();
    let Some(Place { path, position }) = id_lists::place_of(&mut source, kind, id)? else {
        return Ok("before".to_owned());
    };
    let of = match path == list {
        true => String::new(),
        false => format!(" of {}", path.display()),
    };
    Ok(match position {
        Position::Line(line) => format!("in line {line}{of}"),
        Position::Row(row) => format!("at row {row}{of}"),
        Position::Whole | Position::Offset(_) => "before".to_owned(),
    })
}
