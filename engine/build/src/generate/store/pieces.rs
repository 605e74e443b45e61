//! A chunk's rows in pieces, which threads make side by side.

use std::ops::Range;

use grappa_formats::permutation::Feistel;
use grappa_io::memory::MemoryReservation;
use grappa_synthetic::{Generator, RowBuffer};

/// Edges, at worst, in a piece of more than one row: 1 MiB of them, and a third of that as a rule.
pub const PIECE_EDGES: u64 = 1 << 17;
/// The most rows in a piece.
const PIECE_ROWS: usize = 1 << 12;
/// Labels computed at a time.
const LABEL_BLOCK: u64 = 1 << 10;

/// Some rows that follow each other.
#[derive(Default)]
pub struct Piece<'a> {
    /// The node of the first row.
    pub first_node: u64,
    /// The label of each row.
    pub labels: Vec<u64>,
    /// Edges at worst.
    pub bound: u64,
    /// The rows, once they are made.
    pub rows: RowBuffer,
    /// Edges that were drawn.
    pub drawn: u64,
    /// Whether it is a row that does not fit a window, and so has memory of its own.
    pub is_large: bool,
    /// That memory.
    pub taken: Option<MemoryReservation<'a>>,
}

impl Piece<'_> {
    /// Takes the labels of its rows, none if there are no more. Returns its cost.
    pub fn plan(&mut self, labels: &mut Labels<'_>, generator: &Generator) -> u64 {
        self.labels.clear();
        self.first_node = labels.next_node();
        self.bound = 0;
        while let Some(label) = labels.peek() {
            let bound = generator.degree_bound(label);
            let is_full = self.labels.len() == PIECE_ROWS || self.bound + bound > PIECE_EDGES;
            if is_full && !self.labels.is_empty() {
                break;
            }
            self.labels.push(label);
            self.bound += bound;
            labels.skip();
        }
        self.bound
    }
}

/// The labels of consecutive nodes, computed in blocks.
pub struct Labels<'a> {
    order: Option<&'a Feistel>,
    /// Nodes whose labels are not in the block yet.
    nodes: Range<u64>,
    block: Vec<u64>,
    /// How many labels of the block are used up.
    used: usize,
}

impl<'a> Labels<'a> {
    /// The labels of `nodes` in the given order of the store.
    pub fn new(order: Option<&'a Feistel>, nodes: Range<u64>) -> Self {
        Self {
            order,
            nodes,
            block: Vec::new(),
            used: 0,
        }
    }

    /// The node whose label is next.
    fn next_node(&self) -> u64 {
        self.nodes.start - (self.block.len() - self.used) as u64
    }

    #[inline]
    fn peek(&mut self) -> Option<u64> {
        if self.used == self.block.len() {
            self.refill();
        }
        self.block.get(self.used).copied()
    }

    #[inline]
    fn skip(&mut self) {
        self.used += 1;
    }

    #[cold]
    fn refill(&mut self) {
        let end = self.nodes.end.min(self.nodes.start + LABEL_BLOCK);
        self.block.clear();
        self.block.extend(self.nodes.start..end);
        if let Some(order) = self.order {
            order.inverse_all(&mut self.block);
        }
        (self.nodes.start, self.used) = (end, 0);
    }
}

impl Iterator for Labels<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let label = self.peek()?;
        self.skip();
        Some(label)
    }
}
