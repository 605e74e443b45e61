//! Rows from disk into memory: read as [`stream`](super::stream) says, decoded in parallel, placed in order.
//!
//! The rows come in pieces. A thread takes the next piece, decodes it into memory of its own, waits until the pieces
//! before have their places, takes the next place, lets the others go on, and copies. So rows are decoded once, by any
//! number of threads, though nobody knows beforehand how many sources a piece will have; and memory beyond the rows is a
//! piece a thread, and what the stream holds.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crossbeam::channel::{Receiver, Sender, unbounded};
use grappa_formats::{ChunkId, FormatError};
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::files;

use super::{
    kept::{Aside, Kept},
    memory::Source,
    stream::{OpenEngine, Piece, Plan, Told, disagrees},
};

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
    progress: &'a dyn Progress,
    /// Where pieces come from, how many were taken, and where the next ones' heads go.
    taken: Mutex<Taken<'a>>,
    /// To the reader.
    tell: Sender<Told>,
    /// Pieces that have their place, and what is left for the others.
    placed: Mutex<Placed<'a, S>>,
    turned: Condvar,
}

struct Taken<'a> {
    ready: Receiver<Piece>,
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
/// the manifest knows. Asks `progress` before each piece whether to stop.
pub(super) fn load<S: Source>(
    kept: &Kept<'_>,
    threads: usize,
    open: OpenEngine<'_>,
    progress: &dyn Progress,
    heads: &mut [u64],
    sources: &mut [S],
    weights: &mut [f32],
) -> Result<()> {
    let plan = Plan::new(kept)?;
    let Some(last) = plan.last_chunk() else { return Ok(()) };
    let wanted = sources.len() as u64;
    let (send, ready) = unbounded();
    let (tell, told) = unbounded();
    let places = Places {
        kept,
        progress,
        taken: Mutex::new(Taken {
            ready,
            pieces: 0,
            heads,
        }),
        tell,
        placed: Mutex::new(Placed {
            pieces: 0,
            edges: 0,
            sources,
            weights,
            failed: false,
        }),
        turned: Condvar::new(),
    };
    thread::scope(|scope| {
        // The channel ends with the reader, so that decoders do.
        let reader = workers::spawn(scope, || {
            let send = send;
            plan.read(kept.store, open, &send, &told)
        })?;
        let decoded = workers::run(threads.clamp(1, plan.pieces()), |_| places.work());
        // What was decoded of a file that failed or changed says nothing.
        workers::join(reader).and(decoded)
    })?;
    if places.lock_placed().edges != wanted {
        return Err(disagrees(kept.store, last));
    }
    Ok(())
}

impl<'a, S: Source> Places<'a, S> {
    fn work(&self) -> Result<()> {
        let ends = Ends(self);
        let mut decoded = Decoded::default();
        while let Some((number, piece, heads)) = self.take() {
            check_stopped(self.progress)?;
            decoded.fill(self.kept, &piece, heads)?;
            let chunk = piece.chunk;
            // If the reader is gone, it has said why.
            let _ = self.tell.send(Told::Decoded(piece.into_spare()));
            let Some(place) = self.place(number, decoded.sources.len()) else {
                break;
            };
            if place.sources.len() != decoded.sources.len() {
                return Err(disagrees(self.kept.store, chunk));
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
        }
        mem::forget(ends);
        Ok(())
    }

    fn numbers_a_head(&self) -> usize {
        if self.kept.is_whole() { 1 } else { 2 }
    }

    /// The next piece, its number, and where its rows' heads go. None after the last one, or if the reader failed.
    fn take(&self) -> Option<(usize, Piece, &'a mut [u64])> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = taken.ready.recv().ok()?;
        let number = taken.pieces;
        taken.pieces += 1;
        let numbers = (piece.rows.end - piece.rows.start) as usize * self.numbers_a_head();
        let heads = split_off(&mut taken.heads, numbers);
        Some((number, piece, heads))
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
        // If the reader is gone, nobody has to stop.
        let _ = self.0.tell.send(Told::Stop);
    }
}

impl Decoded {
    /// Decodes a piece: its rows' heads, where rows start at 0, and its edges.
    fn fill(&mut self, kept: &Kept<'_>, piece: &Piece, heads: &mut [u64]) -> Result<()> {
        piece.check()?;
        let Self {
            sources,
            weights,
            aside,
        } = self;
        sources.clear();
        weights.clear();
        let rows = piece.rows();
        let edges = rows.edges();
        let mut all_edges = 0;
        let mut of_edges = piece.weights();
        let mut heads = heads.iter_mut();
        for row in rows.range(piece.rows.clone()) {
            let (start, degree) = (sources.len(), row.degree());
            // Damaged rows may say that they have any number.
            all_edges += degree;
            if all_edges > edges {
                return Err(disagrees(kept.store, piece.chunk));
            }
            row.decode_into(sources);
            if kept.weights {
                let of_row = of_edges.split_off(..degree as usize);
                let of_row = of_row.ok_or_else(|| weights_disagree(kept, piece.chunk))?;
                weights.extend(of_row.iter().map(|weight| f32::from_le_bytes(*weight)));
            }
            let mut push = |number| *heads.next().expect("there are heads for all rows") = number;
            push(start as u64);
            if !kept.is_whole() {
                let visible = kept.arrange(sources, weights, start, aside);
                push(if kept.keeps_halo() { visible } else { degree });
            }
        }
        if !of_edges.is_empty() {
            return Err(weights_disagree(kept, piece.chunk));
        }
        Ok(())
    }
}

fn weights_disagree(kept: &Kept<'_>, chunk: ChunkId) -> Error {
    let path = kept.store.path().join(files::of_chunk(chunk, "weights"));
    let what = "the rows have more or fewer edges than weights; `grappa-store verify` tells what is damaged";
    Error::format(path)(FormatError::invalid(64, what))
}
