//! Edges in pieces of equal size, so that all threads write an adjacency list of 10^9 edges.

use std::sync::Arc;

use grappa_formats::{ChunkId, EdgePart};
use grappa_io::{Error, Position, Result, blocks::Planned};
use grappa_storage::{Chunk, Store};

/// Consecutive edges of a chunk.
pub(super) struct Span {
    pub chunk: Arc<Chunk>,
    /// The node of the first edge, as an index in the chunk.
    pub row: u64,
    /// Edges of that node that come before the span.
    pub skipped: u64,
    /// Number of edges, of that node and the nodes after it.
    pub edges: u64,
    /// The node after the last.
    pub row_end: u64,
}

/// Divides all edges into spans.
pub(super) struct Spans<'a> {
    store: &'a Store,
    part: EdgePart,
    /// Edges of the part.
    expected: u64,
    chunks: Vec<ChunkId>,
    span_edges: u64,
    /// The chunk that is being divided, and the start of its next span.
    current: Option<(Arc<Chunk>, u64, u64)>,
    /// Edges of all spans so far.
    edges: u64,
}

impl<'a> Spans<'a> {
    /// Spans of at most `span_edges` edges of a part, which has `expected` edges.
    pub fn new(store: &'a Store, part: EdgePart, expected: u64, span_edges: u64) -> Self {
        let mut chunks: Vec<_> = store.present_chunks().collect();
        chunks.reverse();
        Self { store, part, expected, chunks, span_edges, current: None, edges: 0 }
    }

    /// The next span. None after the last.
    pub fn next(&mut self) -> Result<Option<Planned<Span>>> {
        loop {
            let Some((chunk, row, skipped)) = self.current.take() else {
                let Some(next) = self.chunks.pop() else {
                    return self.expect_all().map(|()| None);
                };
                self.current = Some((Arc::new(self.store.part_in_order(self.part, next)?), 0, 0));
                continue;
            };
            if let Some(span) = self.span(chunk, row, skipped)? {
                self.edges += span.edges;
                return Ok(Some(Planned { edges: span.edges, block: span }));
            }
        }
    }

    /// Fails unless the spans had all edges. Damage that keeps their number is not noticed here.
    fn expect_all(&self) -> Result<()> {
        match self.edges == self.expected {
            true => Ok(()),
            false => Err(damaged(self.store, format!("{} of {} edges are there", self.edges, self.expected))),
        }
    }

    /// The span that starts here, unless no edges follow.
    fn span(&mut self, chunk: Arc<Chunk>, row: u64, skipped: u64) -> Result<Option<Span>> {
        let rows = chunk.rows();
        let (mut at, mut before, mut edges) = (row, skipped, 0);
        // The adjacency list's own degree: a damaged list counts as empty, whatever the directory says.
        for sources in rows.range(row..rows.rows()) {
            let degree = sources?.degree();
            let taken = (degree - before).min(self.span_edges - edges);
            edges += taken;
            before += taken;
            if before < degree {
                break;
            }
            at += 1;
            before = 0;
            if edges == self.span_edges {
                break;
            }
        }
        if edges == 0 {
            return Ok(None);
        }
        self.current = Some((Arc::clone(&chunk), at, before));
        Ok(Some(Span { chunk, row, skipped, edges, row_end: if before > 0 { at + 1 } else { at } }))
    }
}

pub(super) fn damaged(store: &Store, problem: String) -> Error {
    let problem = format!("{problem}: the store is damaged; `grappa-store verify` tells where");
    Error::input(store.path(), Position::Whole, problem)
}
