//! Loads the times of edges into memory: each thread decodes the lists of a chunk to their place.

use std::sync::{Mutex, PoisonError};

use grappa_formats::ChunkId;
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{Chunk, Store};

use super::{edge_filter::EdgeFilter, list_starts::ListStarts, sources::Source};

/// Fills `decoded` with the positions of the edges of a view on the axis of time, in the order of its adjacency lists, which start at
/// `starts`.
pub(super) fn load<S: Source>(
    filter: &EdgeFilter<'_>,
    starts: ListStarts<'_>,
    threads: usize,
    progress: &dyn Progress,
    decoded: &mut [S],
) -> Result<()> {
    let chunks = Mutex::new(places(filter, starts, decoded).into_iter());
    workers::run(threads.max(1), |worker| {
        let mut positions = Vec::new();
        while worker.goes_on() {
            check_stopped(progress)?;
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(ChunkPlace { chunk, first, edges }) = next else { break };
            load_chunk(filter.store, chunk, (starts, first), &mut positions, edges)?;
        }
        Ok(())
    })
}

/// A chunk, the index of its first list, and the place of its positions.
struct ChunkPlace<'a, S> {
    chunk: ChunkId,
    first: usize,
    edges: &'a mut [S],
}

fn places<'a, S>(filter: &EdgeFilter<'_>, starts: ListStarts<'_>, mut decoded: &'a mut [S]) -> Vec<ChunkPlace<'a, S>> {
    let mut places = Vec::new();
    let mut first = 0;
    for chunk in filter.owned.chunks() {
        let nodes = filter.store.chunks().range(chunk);
        let end = first + (nodes.end - nodes.start) as usize;
        let (edges, rest) = decoded.split_at_mut((starts.start(end) - starts.start(first)) as usize);
        decoded = rest;
        places.push(ChunkPlace { chunk, first, edges });
        first = end;
    }
    places
}

fn load_chunk<S: Source>(
    store: &Store,
    chunk: ChunkId,
    (starts, first): (ListStarts<'_>, usize),
    positions: &mut Vec<u64>,
    edges: &mut [S],
) -> Result<()> {
    if edges.is_empty() {
        return Ok(());
    }
    let chunk = store.chunk_in_order(chunk)?;
    let lists = chunk.times().expect("edges have times");
    let mut edges = edges.iter_mut();
    for (list, index) in lists.range(0..lists.rows()).zip(first..) {
        let list = list?;
        if list.degree() != starts.start(index + 1) - starts.start(index) {
            return Err(disagrees(&chunk));
        }
        positions.clear();
        list.decode_into(positions);
        edges.by_ref().zip(&*positions).for_each(|(edge, &position)| *edge = S::from_u64(position));
    }
    Ok(())
}

/// The error for lists of times that have other lengths than the adjacency lists.
pub(super) fn disagrees(chunk: &Chunk) -> Error {
    let problem = "the adjacency lists have more or fewer edges than times; find the damage with `grappa-store verify`";
    Error::input(chunk.path(), Position::Whole, problem)
}
