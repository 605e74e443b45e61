//! The times by which the draws of a relation are limited: the times of its edges, or of its sources.
//!
//! Adjacency lists of edges with times are in the order of time, and have lists of times beside them. A view in memory has these lists
//! decoded, beside the sources: 4 bytes an edge, or 8 if the axis has more than 2^32 points. A mapped view decodes what a search reads.
//!
//! Nodes with times are in the order of time, and adjacency lists without times are in the order of their sources. So the edges from sources
//! that are not later than a time are a prefix of each list: the sources below a node. Times of nodes thus take no bits per edge: searches
//! read the adjacency lists themselves.

use std::sync::Arc;

use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::{NodeTimes, Store};

use super::{
    edge_filter::EdgeFilter,
    edge_times::EdgeTimes,
    files::MappedFiles,
    list_starts::ListStarts,
    storage::Storage,
    time_lists::{TimeLists, TimeScale},
};
use crate::partition::Owned;

/// The times of the edges of a relation: each edge has one, or has the time of its source.
#[derive(Debug)]
pub(super) enum RelationTimes {
    Edges(EdgeTimes),
    Sources(Arc<NodeTimes>),
}

impl RelationTimes {
    /// Opens the times of the edges in `store`. `of_sources` are the times of the sources, unless these are nodes of the store.
    ///
    /// # Errors
    /// If neither edges nor sources have times, or a file cannot be opened.
    pub fn open(store: &Store, of_sources: Option<&Arc<NodeTimes>>) -> Result<Self> {
        if let Some(times) = EdgeTimes::open(store)? {
            return Ok(Self::Edges(times));
        }
        let of_store = store.node_times()?;
        of_sources.or(of_store).cloned().map(Self::Sources).ok_or_else(|| {
            let remedy = "sample without times, or ingest edges with --time, or nodes with --node-time";
            Error::missing("times of edges or nodes", store.path(), remedy)
        })
    }

    /// Loads the times of edges into memory. `starts` tells where adjacency lists start.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged, there is not enough memory, and [`Error::Stopped`](grappa_io::Error::Stopped) if `progress` asks to stop.
    pub fn load(
        &mut self,
        filter: &EdgeFilter<'_>,
        starts: ListStarts<'_>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        match self {
            Self::Edges(times) => times.load(filter, starts, threads, progress),
            Self::Sources(_) => Ok(()),
        }
    }

    /// The lists that searches read, ready to be read by one thread.
    pub fn lists<'a>(&'a self, adjacency: &'a Storage, owned: &'a Owned) -> TimeLists<'a> {
        match (self, adjacency) {
            (Self::Edges(times), Storage::Memory(_)) => {
                TimeLists::in_memory(TimeScale::Axis(times.axis()), times.in_memory())
            }
            (Self::Edges(times), Storage::Mapped(mapped)) => {
                let files = MappedFiles::searched(mapped, owned, |chunk| chunk.times().expect("edges have times"));
                TimeLists::mapped(TimeScale::Axis(times.axis()), files)
            }
            (Self::Sources(times), Storage::Memory(csr)) => {
                TimeLists::in_memory(TimeScale::Nodes(times), csr.sources())
            }
            (Self::Sources(times), Storage::Mapped(mapped)) => {
                TimeLists::mapped(TimeScale::Nodes(times), MappedFiles::searched(mapped, owned, |chunk| chunk.rows()))
            }
        }
    }
}
