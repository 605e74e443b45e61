//! Rows from chunk files into memory: decoded in parallel, placed in order.
//!
//! The rows are cut into pieces. A thread takes the next piece, decodes it into memory of its own, waits until the pieces
//! before have their places, takes the next place, lets the others go on, and copies. So rows are decoded once, by any
//! number of threads, though nobody knows beforehand how many sources a piece will have; and memory beyond the rows is a
//! piece a thread.

use std::{
    mem,
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use grappa_formats::{ChunkId, FormatError};

use super::{
    kept::{Aside, Kept},
    memory::Source,
};
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

/// What a thread decodes a piece into.
#[derive(Debug, Default)]
struct Decoded {
    sources: Vec<u64>,
    weights: Vec<f32>,
    aside: Aside,
}

/// Where the pieces go.
struct Places<'a, S> {
    kept: &'a Kept<'a>,
    pieces: &'a [Piece],
    /// Pieces that were taken, and where their rows' heads go.
    taken: Mutex<Taken<'a>>,
    /// Pieces that have their place, and what is left for the others.
    placed: Mutex<Placed<'a, S>>,
    turned: Condvar,
}

struct Taken<'a> {
    pieces: usize,
    heads: &'a mut [u64],
}

struct Placed<'a, S> {
    pieces: usize,
    edges: u64,
    sources: &'a mut [S],
    weights: &'a mut [f32],
    /// A thread gave up: nobody's turn will come.
    failed: bool,
}

/// The place of a piece.
struct Place<'a, S> {
    /// Edges before it.
    first: u64,
    sources: &'a mut [S],
    weights: &'a mut [f32],
}

/// Fills `heads`, `sources` and `weights` with the rows of a store that are kept. They must be as long as that takes, which
/// the manifest knows.
pub(super) fn load<S: Source>(
    kept: &Kept<'_>,
    threads: usize,
    heads: &mut [u64],
    sources: &mut [S],
    weights: &mut [f32],
) -> Result<()> {
    let pieces = pieces(kept);
    let wanted = sources.len() as u64;
    let places = Places {
        kept,
        pieces: &pieces,
        taken: Mutex::new(Taken { pieces: 0, heads }),
        placed: Mutex::new(Placed {
            pieces: 0,
            edges: 0,
            sources,
            weights,
            failed: false,
        }),
        turned: Condvar::new(),
    };
    workers::run(threads.min(pieces.len()), |_| places.work())?;
    let placed = places.lock_placed().edges;
    match pieces.last() {
        Some(last) if placed != wanted => Err(disagrees(kept.store, last.chunk)),
        _ => Ok(()),
    }
}

fn pieces(kept: &Kept<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for chunk in kept.owned.chunks() {
        let rows = kept.store.chunks().len(chunk);
        let edges = kept.store.manifest().chunks[chunk.0 as usize].edges;
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
    fn work(&self) -> Result<()> {
        let ends = Ends(self);
        let mut open: Option<Chunk> = None;
        let mut decoded = Decoded::default();
        while let Some((number, heads)) = self.take() {
            let piece = &self.pieces[number];
            let chunk = match open.take() {
                Some(chunk) if chunk.span().chunk == piece.chunk => chunk,
                _ => self.kept.store.chunk_in_order(piece.chunk)?,
            };
            decoded.fill(self.kept, &chunk, piece, heads)?;
            let Some(place) = self.place(number, decoded.sources.len()) else {
                break;
            };
            if place.sources.len() != decoded.sources.len() {
                return Err(disagrees(self.kept.store, piece.chunk));
            }
            for start in heads.iter_mut().step_by(self.numbers_a_head()) {
                *start += place.first;
            }
            for (place, &source) in place.sources.iter_mut().zip(&decoded.sources) {
                *place = S::from_node(source);
            }
            if self.kept.weights {
                place.weights.copy_from_slice(&decoded.weights);
            }
            chunk.release_rows(piece.rows.clone());
            open = Some(chunk);
        }
        mem::forget(ends);
        Ok(())
    }

    fn numbers_a_head(&self) -> usize {
        if self.kept.is_whole() { 1 } else { 2 }
    }

    /// The next piece, and where its rows' heads go.
    fn take(&self) -> Option<(usize, &'a mut [u64])> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.pieces;
        let rows = &self.pieces.get(number)?.rows;
        taken.pieces += 1;
        let numbers = (rows.end - rows.start) as usize * self.numbers_a_head();
        Some((number, split_off(&mut taken.heads, numbers)))
    }

    /// Waits until the pieces before have their places, and gives the place of the next `edges`, or of fewer if there is
    /// no room for so many; none if another thread gave up.
    fn place(&self, piece: usize, edges: usize) -> Option<Place<'a, S>> {
        let mut placed = self.lock_placed();
        while placed.pieces < piece && !placed.failed {
            placed = self.turned.wait(placed).unwrap_or_else(PoisonError::into_inner);
        }
        if placed.failed {
            return None;
        }
        let place = Place {
            first: placed.edges,
            sources: split_off(&mut placed.sources, edges),
            weights: split_off(&mut placed.weights, edges),
        };
        placed.edges += edges as u64;
        placed.pieces += 1;
        self.turned.notify_all();
        Some(place)
    }

    fn lock_placed(&self) -> MutexGuard<'_, Placed<'a, S>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the first `count` from a slice, or all if it has fewer.
fn split_off<'a, T>(slice: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let all = mem::take(slice);
    let (first, rest) = all.split_at_mut(count.min(all.len()));
    *slice = rest;
    first
}

/// Dropped when a thread ends before its work does, by an error or a panic: tells the others, who may wait for it.
struct Ends<'a, 'b, S: Source>(&'a Places<'b, S>);

impl<S: Source> Drop for Ends<'_, '_, S> {
    fn drop(&mut self) {
        self.0.lock_placed().failed = true;
        self.0.turned.notify_all();
    }
}

impl Decoded {
    /// Decodes a piece: its rows' heads, where rows start at 0, and its edges.
    fn fill(&mut self, kept: &Kept<'_>, chunk: &Chunk, piece: &Piece, heads: &mut [u64]) -> Result<()> {
        let Self {
            sources,
            weights,
            aside,
        } = self;
        sources.clear();
        weights.clear();
        let rows = chunk.rows();
        let edges = rows.edges();
        let mut weights_of = match chunk.weights() {
            Some(all) if kept.weights && !piece.rows.is_empty() => {
                let first = all.range(piece.rows.start, |row| rows.degree(row));
                let path = || kept.store.path().join(files::of_chunk(piece.chunk, "weights"));
                Some((all, first.map_err(|e| Error::format(path())(e))?.start))
            }
            _ => None,
        };
        let mut all_edges = 0;
        let mut heads = heads.iter_mut();
        for row in rows.range(piece.rows.clone()) {
            let (start, degree) = (sources.len(), row.degree());
            // Damaged rows may say that they have any number.
            all_edges += degree;
            if all_edges > edges {
                return Err(disagrees(kept.store, piece.chunk));
            }
            row.decode_into(sources);
            if let Some((all, next)) = &mut weights_of {
                let range = *next..*next + degree;
                if range.end > edges {
                    return Err(disagrees(kept.store, piece.chunk));
                }
                weights.resize(sources.len(), 0.0);
                all.copy(range.clone(), &mut weights[start..]);
                *next = range.end;
            }
            let mut push = |number| *heads.next().expect("there are heads for all rows") = number;
            push(start as u64);
            if !kept.is_whole() {
                let visible = kept.arrange(sources, weights, start, aside);
                push(if kept.keeps_halo() { visible } else { degree });
            }
        }
        Ok(())
    }
}
