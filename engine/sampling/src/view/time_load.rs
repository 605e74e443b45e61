//! Loads the times of edges into memory: each thread decodes the lists of a chunk to their place.

use std::sync::{Mutex, PoisonError};

use grappa_formats::ChunkId;
use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{Chunk, Store};

use super::sources::Source;

/// Fills `decoded` with the positions of the edges of a store on its axis of time, in the order of its adjacency lists. `starts` has the
/// first edge of each list, and the end of the last one.
pub(super) fn load<S: Source>(
    store: &Store,
    starts: &[u64],
    threads: usize,
    progress: &dyn Progress,
    decoded: &mut [S],
) -> Result<()> {
    let chunks = Mutex::new(places(store, starts, decoded).into_iter());
    workers::run(threads.max(1), |worker| {
        let mut positions = Vec::new();
        while worker.goes_on() {
            check_stopped(progress)?;
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((chunk, starts, place)) = next else { break };
            load_chunk(store, chunk, starts, &mut positions, place)?;
        }
        Ok(())
    })
}

/// Each chunk, the starts of its lists, and the place of its positions.
fn places<'a, S>(store: &Store, starts: &'a [u64], mut decoded: &'a mut [S]) -> Vec<(ChunkId, &'a [u64], &'a mut [S])> {
    let mut places = Vec::new();
    for chunk in (0..store.chunks().chunks()).map(ChunkId) {
        let nodes = store.chunks().range(chunk);
        let starts = &starts[nodes.start as usize..=nodes.end as usize];
        let edges = (starts[starts.len() - 1] - starts[0]) as usize;
        let (place, rest) = decoded.split_at_mut(edges);
        decoded = rest;
        places.push((chunk, starts, place));
    }
    places
}

fn load_chunk<S: Source>(
    store: &Store,
    chunk: ChunkId,
    starts: &[u64],
    positions: &mut Vec<u64>,
    place: &mut [S],
) -> Result<()> {
    if place.is_empty() {
        return Ok(());
    }
    let chunk = store.chunk_in_order(chunk)?;
    let lists = chunk.times().expect("edges have times");
    let mut place = place.iter_mut();
    for (list, bounds) in lists.range(0..lists.rows()).zip(starts.windows(2)) {
        let list = list?;
        if list.degree() != bounds[1] - bounds[0] {
            return Err(disagrees(&chunk));
        }
        positions.clear();
        list.decode_into(positions);
        place.by_ref().zip(&*positions).for_each(|(place, &position)| *place = S::from_u64(position));
    }
    Ok(())
}

/// The error for lists of times that have other lengths than the adjacency lists.
pub(super) fn disagrees(chunk: &Chunk) -> Error {
    let problem = "the adjacency lists have more or fewer edges than times; find the damage with `grappa-store verify`";
    Error::input(chunk.path(), Position::Whole, problem)
}
