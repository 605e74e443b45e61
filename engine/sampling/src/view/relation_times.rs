//! The times by which the draws of a relation are limited: the times of its edges, or of its sources.
//!
//! Adjacency lists of edges with times are in the order of time, and have lists of times beside them. A view in memory has these lists
//! decoded, beside the sources: 4 bytes an edge, or 8 if the axis has more than 2^32 points. A mapped view decodes what a search reads.
//!
//! Nodes with times are in the order of time, and adjacency lists without times are in the order of their sources. So the edges from sources
//! that are not later than a time are a prefix of each list: the sources below a node. Times of nodes thus take no bits per edge: searches
//! read the adjacency lists themselves.

use std::sync::Arc;

use grappa_formats::time_axis::TimeAxis;
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::{NodeTimes, Store};

use super::{
    edge_filter::EdgeFilter,
    files::MappedFiles,
    memory::ListStarts,
    opened::Storage,
    sources::{NARROW_NODES_MAX, Sources},
    spare::ReturnedArena,
    time_lists::{TimeLists, TimeScale},
    time_load::load,
};
use crate::partition::Owned;

/// The times of the edges of a relation: each edge has one, or has the time of its source.
#[derive(Debug)]
pub(super) enum RelationTimes {
    Edges(EdgeTimes),
    Sources(Arc<NodeTimes>),
}

/// The times of all edges of a view.
#[derive(Debug)]
pub(super) struct EdgeTimes {
    axis: Arc<TimeAxis>,
    /// The positions of the edges of all lists on the axis. None if they are in mapped files.
    decoded: Option<ReturnedArena>,
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
                TimeLists::in_memory(TimeScale::Axis(&times.axis), times.in_memory())
            }
            (Self::Edges(times), Storage::Mapped(mapped)) => {
                let files = MappedFiles::searched(mapped, owned, |chunk| chunk.times().expect("edges have times"));
                TimeLists::mapped(TimeScale::Axis(&times.axis), files)
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

/// Whether positions take 32 bits in memory.
fn is_narrow(axis: &TimeAxis) -> bool {
    axis.positions() <= NARROW_NODES_MAX
}

impl EdgeTimes {
    /// The times of a store, in its mapped files. None if its edges have none.
    ///
    /// # Errors
    /// If the axis cannot be read.
    fn open(store: &Store) -> Result<Option<Self>> {
        Ok(store.time_axis()?.map(|axis| Self { axis: axis.clone(), decoded: None }))
    }

    /// Loads the times into memory.
    fn load(
        &mut self,
        filter: &EdgeFilter<'_>,
        starts: ListStarts<'_>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut decoded = ReturnedArena::new(Self::bytes(filter) as usize, None)?;
        match is_narrow(&self.axis) {
            true => load::<u32>(filter, starts, threads, progress, decoded.values_mut())?,
            false => load::<u64>(filter, starts, threads, progress, decoded.values_mut())?,
        }
        self.decoded = Some(decoded);
        Ok(())
    }

    /// The bytes that the times of a view take in memory; 0 if edges have none. Reads the axis; if that is damaged, the view is not opened.
    pub fn bytes(filter: &EdgeFilter<'_>) -> u64 {
        let Some(axis) = filter.store.time_axis().ok().flatten() else { return 0 };
        let bytes = if is_narrow(axis) { size_of::<u32>() } else { size_of::<u64>() };
        bytes as u64 * filter.edges()
    }

    /// The positions of all edges in memory.
    ///
    /// # Panics
    /// If they are in mapped files.
    fn in_memory(&self) -> Sources<'_> {
        let decoded = self.decoded.as_ref().expect("a view in memory has its times there");
        match is_narrow(&self.axis) {
            true => Sources::Narrow(decoded.values()),
            false => Sources::Wide(decoded.values()),
        }
    }
}
