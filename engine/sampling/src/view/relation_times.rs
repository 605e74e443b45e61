//! The times by which the draws of a relation are limited: those of its edges, or those of its sources.
//!
//! Nodes with times are in the order of time, and adjacency lists without times are in the order of their sources. So the edges from sources
//! that are not later than a time are a prefix of each list: the sources below a node. One search finds that node, another one its place in
//! the list. Times of nodes thus take no bits per edge.

use std::{ops::Range, sync::Arc};

use grappa_formats::{NodeId, rows::Row};
use grappa_io::{Error, Position, Result};
use grappa_storage::{Chunk, MappedChunks, NodeTimes, Store};

use super::edge_times::{EdgeTimes, TimeLimit};

/// The times of the edges of a relation, each its own or that of its source.
#[derive(Debug)]
pub(crate) enum RelationTimes {
    Edges(EdgeTimes),
    Sources(SourceTimes),
}

/// The mapped adjacency lists of a relation, and the times of its sources.
#[derive(Debug)]
pub(crate) struct SourceTimes {
    times: Arc<NodeTimes>,
    chunks: MappedChunks,
}

impl RelationTimes {
    /// Opens the times of the edges in `store`, whose sources may have times. None if neither have times.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(store: &Store, of_sources: Option<&Arc<NodeTimes>>) -> Result<Option<Self>> {
        if let Some(times) = EdgeTimes::open(store)? {
            return Ok(Some(Self::Edges(times)));
        }
        let Some(times) = of_sources else { return Ok(None) };
        Ok(Some(Self::Sources(SourceTimes { times: times.clone(), chunks: MappedChunks::open(store)? })))
    }

    /// The positions in the adjacency list of a node, which has `degree` edges, of those within a limit.
    ///
    /// # Errors
    /// If a file is damaged.
    ///
    /// # Panics
    /// If the store is a slice without the chunk of the node.
    pub fn within(&self, node: NodeId, degree: u64, limit: TimeLimit) -> Result<Range<u64>> {
        match self {
            Self::Edges(times) => times.within(node, degree, limit),
            Self::Sources(times) => times.within(node, degree, limit),
        }
    }

    /// Calls `each` with the time of each of some edges of a node, given by their positions in its adjacency list.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn each_time(&self, node: NodeId, positions: impl Iterator<Item = u64>, each: impl FnMut(i64)) -> Result<()> {
        match self {
            Self::Edges(times) => times.each_time(node, positions, each),
            Self::Sources(times) => times.each_time(node, positions, each),
        }
    }
}

impl SourceTimes {
    fn within(&self, node: NodeId, degree: u64, limit: TimeLimit) -> Result<Range<u64>> {
        let until = match limit.equal {
            true => self.times.not_later(limit.time),
            false => self.times.earlier(limit.time),
        };
        let since = limit.window.map_or(0, |window| self.times.earlier(limit.time.saturating_sub(window)));
        let (chunk, sources) = self.list(node)?;
        if sources.degree() != degree {
            return Err(disagrees(chunk));
        }
        let end = sources.lower_bound(until);
        let start = if since == 0 { 0 } else { sources.lower_bound(since) };
        Ok(start.min(end)..end)
    }

    fn each_time(&self, node: NodeId, positions: impl Iterator<Item = u64>, mut each: impl FnMut(i64)) -> Result<()> {
        let (chunk, sources) = self.list(node)?;
        for position in positions {
            if position >= sources.degree() {
                return Err(disagrees(chunk));
            }
            each(self.times.time(NodeId(sources.get(position))));
        }
        Ok(())
    }

    /// The adjacency list of a node, and its chunk.
    fn list(&self, node: NodeId) -> Result<(&Chunk, Row<'_>)> {
        let (chunk, row) = self.chunks.locate(node);
        Ok((chunk, chunk.rows().row(row)?))
    }
}

/// The error for a list that has another length than it had in the view.
fn disagrees(chunk: &Chunk) -> Error {
    let problem = "an adjacency list has another length than before; find the damage with `grappa-store verify`";
    Error::input(chunk.path(), Position::Whole, problem)
}
