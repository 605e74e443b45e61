//! The times of edges, by which draws are limited.
//!
//! Adjacency lists are in the order of time, so the edges that a draw may have are a range of positions: those until a time, and since an
//! earlier one if draws have a window. Both ends are searches in the list of times, which is mapped.

use std::{ops::Range, sync::Arc};

use grappa_formats::{NodeId, time_axis::TimeAxis};
use grappa_io::{Error, Position, Result};
use grappa_storage::{Chunk, MappedChunks, Store};

/// The mapped times of all edges of a store.
#[derive(Debug)]
pub(crate) struct EdgeTimes {
    axis: Arc<TimeAxis>,
    chunks: MappedChunks,
}

/// Which times the edges of a draw may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    /// No edge is later.
    pub time: i64,
    /// Whether edges at this time count.
    pub equal: bool,
    /// If given, no edge is earlier by more than this.
    pub window: Option<i64>,
}

impl EdgeTimes {
    /// Maps the times of a store. None if its edges have none.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(store: &Store) -> Result<Option<Self>> {
        let Some(axis) = store.time_axis()? else { return Ok(None) };
        Ok(Some(Self { axis: axis.clone(), chunks: MappedChunks::open(store)? }))
    }

    /// The positions in the adjacency list of a node, which has `degree` edges, of those within a limit.
    ///
    /// # Errors
    /// If a file is damaged.
    ///
    /// # Panics
    /// If the store is a slice without the chunk of the node.
    pub fn within(&self, node: NodeId, degree: u64, limit: TimeLimit) -> Result<Range<u64>> {
        let until = match limit.equal {
            true => self.axis.not_later(limit.time),
            false => self.axis.earlier(limit.time),
        };
        let since = limit.window.map_or(0, |window| self.axis.earlier(limit.time.saturating_sub(window)));
        let (chunk, row) = self.chunks.locate(node);
        let times = chunk.times().expect("edges have times").row(row)?;
        if times.degree() != degree {
            return Err(disagrees(chunk));
        }
        let end = times.lower_bound(until);
        let start = if since == 0 { 0 } else { times.lower_bound(since) };
        Ok(start.min(end)..end)
    }

    /// Calls `each` with the time of each of some edges of a node, given by their positions in its adjacency list.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn each_time(
        &self,
        node: NodeId,
        positions: impl Iterator<Item = u64>,
        mut each: impl FnMut(i64),
    ) -> Result<()> {
        let (chunk, row) = self.chunks.locate(node);
        let times = chunk.times().expect("edges have times").row(row)?;
        for position in positions {
            if position >= times.degree() {
                return Err(disagrees(chunk));
            }
            each(self.axis.time(times.get(position)));
        }
        Ok(())
    }
}

/// The error for lists of times that have other lengths than the adjacency lists.
fn disagrees(chunk: &Chunk) -> Error {
    let problem = "the adjacency lists have more or fewer edges than times; find the damage with `grappa-store verify`";
    Error::input(chunk.path(), Position::Whole, problem)
}
