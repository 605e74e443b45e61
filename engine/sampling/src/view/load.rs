//! Loads adjacency lists into memory: [`stream`](super::stream) reads pieces of them, threads decode them in parallel,
//! and their places follow in order.
//!
//! The place of a piece is known only when the pieces before it are decoded, because the number of sources that a piece
//! keeps is not stored. So each thread works like this:
//!
//! ```text
//! take the next piece and the heads of its lists
//! decode it into the thread's own buffer
//! wait until all earlier pieces have their places; take the next place
//! copy the buffer to the place
//! ```
//!
//! Each list is decoded once, by any number of threads. Besides the lists, memory holds one decoded piece per thread
//! and the ring of the stream.

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
    edge_filter::{ArrangeScratch, EdgeFilter},
    sources::Source,
    stream::{DecoderMessage, OpenEngine, Piece, StreamPlan, disagrees},
};

/// A decoded piece: the buffer of a thread.
#[derive(Debug, Default)]
struct DecodedPiece {
    sources: Vec<u64>,
    edge_weights: Vec<f32>,
    arrange: ArrangeScratch,
}

/// The state that decoding threads share.
struct Decoders<'a, S> {
    filter: &'a EdgeFilter<'a>,
    progress: &'a dyn Progress,
    queue: Mutex<PieceQueue<'a>>,
    to_reader: Sender<DecoderMessage>,
    free: Mutex<FreeSpace<'a, S>>,
    /// Notified when a piece got its place, or a thread failed.
    changed: Condvar,
}

/// The pieces that no thread has taken yet.
struct PieceQueue<'a> {
    ready: Receiver<Piece>,
    /// The number of pieces that were taken.
    taken: usize,
    /// The heads of the lists in pieces that were not taken.
    heads: &'a mut [u64],
}

/// The memory after the pieces that have their places.
struct FreeSpace<'a, S> {
    /// The number of pieces that have their places, and of their edges.
    pieces: usize,
    edges: u64,
    sources: &'a mut [S],
    edge_weights: &'a mut [f32],
    /// A thread failed, so waiting is in vain.
    failed: bool,
}

/// Fills `heads`, `sources` and `edge_weights` with the adjacency lists that `filter` includes. Their lengths must be
/// those that the manifest implies. Asks `progress` before each piece whether to stop.
pub(super) fn load<S: Source>(
    filter: &EdgeFilter<'_>,
    threads: usize,
    open: OpenEngine<'_>,
    progress: &dyn Progress,
    heads: &mut [u64],
    sources: &mut [S],
    edge_weights: &mut [f32],
) -> Result<()> {
    let plan = StreamPlan::new(filter)?;
    let Some(last) = plan.last_chunk() else { return Ok(()) };
    let wanted = sources.len() as u64;
    let (send, ready) = unbounded();
    let (to_reader, messages) = unbounded();
    let decoders = Decoders {
        filter,
        progress,
        queue: Mutex::new(PieceQueue { ready, taken: 0, heads }),
        to_reader,
        free: Mutex::new(FreeSpace { pieces: 0, edges: 0, sources, edge_weights, failed: false }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        // The reader owns the sender. When it ends, the channel closes and the decoders end too.
        let reader = workers::spawn(scope, || {
            let send = send;
            plan.read(filter.store, open, &send, &messages)
        })?;
        let decoded = workers::run(threads.clamp(1, plan.pieces()), |_| decoders.work());
        if decoded.is_err() {
            // A decoder that fails tells the reader, but perhaps none could be started.
            let _ = decoders.to_reader.send(DecoderMessage::Stop);
        }
        // If reading failed or the file changed, an error of the decoders is only a consequence.
        workers::join(reader).and(decoded)
    })?;
    if decoders.lock_free().edges != wanted {
        return Err(disagrees(filter.store, last));
    }
    Ok(())
}

impl<'a, S: Source> Decoders<'a, S> {
    fn work(&self) -> Result<()> {
        let failure = TellFailure(self);
        let mut decoded = DecodedPiece::default();
        while let Some((number, piece, heads)) = self.take() {
            check_stopped(self.progress)?;
            decoded.fill(self.filter, &piece, heads)?;
            let chunk = piece.chunk;
            // If the reader has failed, it returns the error.
            let _ = self.to_reader.send(DecoderMessage::Decoded(piece.into_memory()));
            let Some((first, sources, edge_weights)) = self.place(number, decoded.sources.len()) else {
                break;
            };
            if sources.len() != decoded.sources.len() {
                return Err(disagrees(self.filter.store, chunk));
            }
            // `fill` let the lists of the piece start at 0.
            for start in heads.iter_mut().step_by(self.numbers_per_head()) {
                *start += first;
            }
            for (place, &source) in sources.iter_mut().zip(&decoded.sources) {
                *place = S::from_u64(source);
            }
            if self.filter.edge_data.weights {
                edge_weights.copy_from_slice(&decoded.edge_weights);
            }
        }
        mem::forget(failure);
        Ok(())
    }

    fn numbers_per_head(&self) -> usize {
        if self.filter.is_whole() { 1 } else { 2 }
    }

    /// The next piece, its number, and the heads of its lists. None after the last piece, or if the reader failed.
    fn take(&self) -> Option<(usize, Piece, &'a mut [u64])> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = queue.ready.recv().ok()?;
        let number = queue.taken;
        queue.taken += 1;
        let numbers = (piece.nodes.end - piece.nodes.start) as usize * self.numbers_per_head();
        let heads = split_off(&mut queue.heads, numbers);
        Some((number, piece, heads))
    }

    /// Waits until all earlier pieces have their places. Returns the number of edges before the piece, and places for the
    /// sources and weights of `edges`, or of fewer if there is no more memory; none if another thread failed.
    fn place(&self, piece: usize, edges: usize) -> Option<(u64, &'a mut [S], &'a mut [f32])> {
        let mut free = self.lock_free();
        while free.pieces < piece && !free.failed {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        if free.failed {
            return None;
        }
        let place = (free.edges, split_off(&mut free.sources, edges), split_off(&mut free.edge_weights, edges));
        free.edges += edges as u64;
        free.pieces += 1;
        self.changed.notify_all();
        Some(place)
    }

    fn lock_free(&self) -> MutexGuard<'_, FreeSpace<'a, S>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the first `count` elements from a slice and returns them, or all if it has fewer.
fn split_off<'a, T>(slice: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let all = mem::take(slice);
    let (first, rest) = all.split_at_mut(count.min(all.len()));
    *slice = rest;
    first
}

/// Dropped when a thread fails or panics: tells the other threads, which may wait for it. A thread that succeeds
/// forgets it.
struct TellFailure<'a, 'b, S: Source>(&'a Decoders<'b, S>);

impl<S: Source> Drop for TellFailure<'_, '_, S> {
    fn drop(&mut self) {
        self.0.lock_free().failed = true;
        self.0.changed.notify_all();
        // If the reader has ended, it need not stop.
        let _ = self.0.to_reader.send(DecoderMessage::Stop);
    }
}

impl DecodedPiece {
    /// Decodes a piece and fills the heads of its lists. The first list starts at 0.
    fn fill(&mut self, filter: &EdgeFilter<'_>, piece: &Piece, heads: &mut [u64]) -> Result<()> {
        piece.check()?;
        let Self { sources, edge_weights, arrange } = self;
        sources.clear();
        edge_weights.clear();
        let lists = piece.lists();
        let edges_max = lists.meta.edges;
        let mut edges = 0;
        let mut encoded_weights = piece.edge_weights();
        let mut heads = heads.iter_mut();
        for list in lists.range(piece.nodes.clone()) {
            let (start, degree) = (sources.len(), list.degree());
            // A damaged list may have any degree. The check keeps it from filling the memory.
            edges += degree;
            if edges > edges_max {
                return Err(disagrees(filter.store, piece.chunk));
            }
            list.decode_into(sources);
            if filter.edge_data.weights {
                let of_list = encoded_weights.split_off(..degree as usize);
                let of_list = of_list.ok_or_else(|| weights_disagree(filter, piece.chunk))?;
                edge_weights.extend(of_list.iter().map(|weight| f32::from_le_bytes(*weight)));
            }
            let mut push = |number| *heads.next().expect("heads for all lists of the piece") = number;
            push(start as u64);
            if !filter.is_whole() {
                let visible = filter.arrange(sources, edge_weights, start, arrange);
                push(if filter.keeps_halo() { visible } else { degree });
            }
        }
        if !encoded_weights.is_empty() {
            return Err(weights_disagree(filter, piece.chunk));
        }
        Ok(())
    }
}

fn weights_disagree(filter: &EdgeFilter<'_>, chunk: ChunkId) -> Error {
    let path = filter.store.path().join(files::of_chunk(chunk, "weights"));
    let problem = "the adjacency lists have more or fewer edges than there are edge weights; find the damage with \
                `grappa-store verify`";
    Error::format(path)(FormatError::invalid(64, problem))
}
