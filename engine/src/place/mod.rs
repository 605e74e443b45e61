//! Makes a slice of a store: a store with some of its chunks.
//!
//! ```text
//! NAME.partial/ while it grows, as for any new store        grappa_storage::writer
//! with --halo-features, on all threads: in-degrees of other chunks, if they are in their adjacency lists   degrees
//! with --edges inside, on all threads: adjacency lists of each chunk with sources in the slice   edges
//! for each other file of the chunks and of the ids, on all threads:
//!     link it, or copy it if that is not possible
//!     compare it with its checksums, and record it in the journal
//! splits with the nodes of the chunks, index of pre-aggregated features, manifest, rename
//! ```
//!
//! The files of a store never change, so stores can share them: hard links take no space and no time, and either store can be
//! removed. Between file systems they are copied. Every file is read once for the comparison. The slice has the node ids of the whole
//! store, and the pre-aggregated features of its nodes, which aggregate over the whole graph. It may have the features, pre-aggregated
//! features and in-degrees of other chunks, too, for halo nodes. Assignments stay behind.
//!
//! A slice of a graph with node types has a slice of each member, one after the other.

mod aggregates;
mod degrees;
mod edges;
mod graph;
mod options;
mod placement;
mod record;
mod slice;

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use grappa_io::{
    Error, Result,
    durable::{self, Destination},
    machine::free_disk_bytes,
    progress::Progress,
    size::ByteSize,
    workers,
};
use grappa_storage::{Graph, writer::StoreFolder};

pub use self::{
    edges::SliceEdges,
    options::{PlaceOptions, Placed},
};
use self::{placement::Placement, slice::SliceChunks};

/// Makes a store of some chunks of a store. Of a graph with node types, makes a graph: its chunks are those of all types, and an edge is in
/// the chunk of its destination.
///
/// # Errors
/// If the graph lacks a chunk, `out` exists, the disk is too small, or a file cannot be read or written or is damaged. After an I/O
/// error the unfinished store stays, and a run with `options.resume` continues it.
pub fn place(graph: &Graph, options: &PlaceOptions, progress: &dyn Progress) -> Result<Placed> {
    workers::check_threads(options.threads)?;
    if let Some(timed) = graph.relations().iter().find(|relation| relation.is_timed()) {
        return Err(Error::conflict(
            format!("{}: edges have times, and slices of such graphs are not written", timed.path().display()),
            "use the whole store, or ingest the edges without --time",
        ));
    }
    if let Some(timed) = graph.node_types().iter().find(|node_type| node_type.has_node_times()) {
        return Err(Error::conflict(
            format!("{}: nodes have times, and slices of such graphs are not written", timed.path().display()),
            "use the whole store, or ingest the nodes with --node-time none",
        ));
    }
    let slice = SliceChunks::new(graph, options)?;
    let placements = slice.members(graph).into_iter().map(|member| Placement::new(member, options, progress));
    let placements = placements.collect::<Result<Vec<_>>>()?;
    let out = Destination { path: &options.out, replaces: options.replace };
    StoreFolder::check(out)?;
    check_disk(graph, &placements, options)?;
    let (folder, begun) = StoreFolder::begin(out, None, options.resume)?;
    let placed = match &placements[..] {
        [store] if !graph.has_types() => store.run(&folder).map(|(_, placed)| placed),
        members => graph::place_members(graph, members, &folder),
    };
    placed.map_err(|error| folder.failed(begun, error))
}

/// Fails if the files that must be copied or written do not fit the disk.
fn check_disk(graph: &Graph, placements: &[Placement<'_>], options: &PlaceOptions) -> Result<()> {
    let target = durable::parent(&options.out);
    let is_copied = options.copy || device(graph.path())? != device(target)?;
    let bytes = placements.iter().map(|placement| placement.new_bytes(is_copied)).sum::<u64>();
    match free_disk_bytes(target) {
        // A resumed run has written a part already.
        Some(free) if !options.resume && bytes > free => Err(Error::conflict(
            format!("the chunks take {}, and {} are free in {}", ByteSize(bytes), ByteSize(free), target.display()),
            "free some, place fewer chunks, or choose a --to on the disk of the store, where files are linked",
        )),
        _ => Ok(()),
    }
}

fn device(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    Ok(metadata.dev())
}
