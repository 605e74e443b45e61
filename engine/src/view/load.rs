//! Rows from chunk files into memory: decoded in parallel, placed in order.
//!
//! The rows are cut into pieces. A thread takes the next piece, decodes it into memory of its own, waits until the pieces
//! before have their places, takes the next place, lets the others go on, and copies. So rows are decoded once, by any
//! number of threads, though nobody knows beforehand how many sources a piece will have; and memory beyond the rows is a
//! piece a thread.

use std::{
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use grappa_formats::{ChunkId, FormatError};

use super::memory::Source;
use crate::{
    Error, Result,
    store::{Chunk, Store, files},
    workers,
};

/// Edges in a piece, about: a megabyte decoded.
const PIECE_EDGES: u64 = 1 << 17;

/// Rows of a chunk that are decoded at a time.
#[derive(Debug, Clone)]
struct Piece {
    chunk: ChunkId,
    rows: Range<u64>,
}

/// Where the pieces go.
struct Places<'a, S> {
    /// Pieces that were taken, and where their rows' starts go.
    taken: Mutex<Taken<'a>>,
    /// Pieces that have their place, and what is left for the others.
    placed: Mutex<Placed<'a, S>>,
    turned: Condvar,
}

struct Taken<'a> {
    pieces: usize,
    starts: &'a mut [u64],
}

struct Placed<'a, S> {
    pieces: usize,
    edges: u64,
    sources: &'a mut [S],
    /// A thread gave up: nobody's turn will come.
    failed: bool,
}

/// Fills `starts`, one a node, and `sources` with the rows of a store. Both must be as long as that takes; the manifest
/// knows.
pub(super) fn load<S: Source>(store: &Store, threads: usize, starts: &mut [u64], sources: &mut [S]) -> Result<()> {
    let pieces = pieces(store);
    let wanted = sources.len() as u64;
    let places = Places {
        taken: Mutex::new(Taken { pieces: 0, starts }),
        placed: Mutex::new(Placed {
            pieces: 0,
            edges: 0,
            sources,
            failed: false,
        }),
        turned: Condvar::new(),
    };
    workers::run(threads.min(pieces.len()), |_| places.work(store, &pieces))?;
    let placed = places.lock_placed();
    if placed.edges != wanted {
        let last = pieces.last().map_or(ChunkId(0), |piece| piece.chunk);
        return Err(disagrees(store, last));
    }
    Ok(())
}

fn pieces(store: &Store) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for chunk in store.present_chunks() {
        let rows = store.chunks().len(chunk);
        let edges = store.manifest().chunks[chunk.0 as usize].edges;
        let count = edges.div_ceil(PIECE_EDGES).clamp(1, rows.max(1));
        let start = |i: u64| (u128::from(i) * u128::from(rows) / u128::from(count)) as u64;
        pieces.extend((0..count).map(|i| Piece {
            chunk,
            rows: start(i)..start(i + 1),
        }));
    }
    pieces
}

fn disagrees(store: &Store, chunk: ChunkId) -> Error {
    let path = store.path().join(files::of_chunk(chunk, "edges"));
    let what =
        "the rows have more or fewer sources than the manifest says; `grappa-store verify` tells what is damaged";
    Error::format(path)(FormatError::invalid(64, what))
}

impl<'a, S: Source> Places<'a, S> {
    fn work(&self, store: &Store, pieces: &[Piece]) -> Result<()> {
        let ends = Ends(self);
        let mut open: Option<Chunk> = None;
        let mut sources = Vec::new();
        while let Some((number, starts)) = self.take(pieces) {
            let piece = &pieces[number];
            let chunk = match open.take() {
                Some(chunk) if chunk.span().chunk == piece.chunk => chunk,
                _ => store.chunk_in_order(piece.chunk)?,
            };
            decode(store, &chunk, piece, starts, &mut sources)?;
            let Some((first, place)) = self.place(number, sources.len()) else {
                break;
            };
            if place.len() != sources.len() {
                return Err(disagrees(store, piece.chunk));
            }
            starts.iter_mut().for_each(|start| *start += first);
            for (place, &source) in place.iter_mut().zip(&sources) {
                *place = S::from_node(source);
            }
            chunk.release_rows(piece.rows.clone());
            open = Some(chunk);
        }
        std::mem::forget(ends);
        Ok(())
    }

    /// The next piece, and where its rows' starts go.
    fn take(&self, pieces: &[Piece]) -> Option<(usize, &'a mut [u64])> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.pieces;
        let rows = &pieces.get(number)?.rows;
        taken.pieces += 1;
        let (now, later) = std::mem::take(&mut taken.starts).split_at_mut((rows.end - rows.start) as usize);
        taken.starts = later;
        Some((number, now))
    }

    /// Waits until the pieces before have their places. Gives how many sources they have, and the place of the next
    /// `edges`, or of fewer if there is no room for so many; none if another thread gave up.
    fn place(&self, piece: usize, edges: usize) -> Option<(u64, &'a mut [S])> {
        let mut placed = self.lock_placed();
        while placed.pieces < piece && !placed.failed {
            placed = self.turned.wait(placed).unwrap_or_else(PoisonError::into_inner);
        }
        if placed.failed {
            return None;
        }
        let first = placed.edges;
        let rest = std::mem::take(&mut placed.sources);
        let (now, later) = rest.split_at_mut(edges.min(rest.len()));
        placed.sources = later;
        placed.edges += edges as u64;
        placed.pieces += 1;
        self.turned.notify_all();
        Some((first, now))
    }

    fn lock_placed(&self) -> MutexGuard<'_, Placed<'a, S>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when a thread ends before its work does, by an error or a panic: tells the others, who may wait for it.
struct Ends<'a, 'b, S: Source>(&'a Places<'b, S>);

impl<S: Source> Drop for Ends<'_, '_, S> {
    fn drop(&mut self) {
        self.0.lock_placed().failed = true;
        self.0.turned.notify_all();
    }
}

/// Decodes a piece: its rows' sources, and where each row starts among them.
fn decode(store: &Store, chunk: &Chunk, piece: &Piece, starts: &mut [u64], sources: &mut Vec<u64>) -> Result<()> {
    sources.clear();
    let rows = chunk.rows();
    let edges = store.manifest().chunks[piece.chunk.0 as usize].edges;
    for (row, start) in rows.range(piece.rows.clone()).zip(starts) {
        *start = sources.len() as u64;
        // A damaged row may say that it has any number.
        if *start + row.degree() > edges {
            return Err(disagrees(store, piece.chunk));
        }
        row.decode_into(sources);
    }
    Ok(())
}
