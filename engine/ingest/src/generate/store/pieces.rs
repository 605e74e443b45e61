//! Pieces of a chunk's adjacency lists, which threads generate in parallel.

use std::{iter::Peekable, ops::Range};

use grappa_formats::permutation::Feistel;
use grappa_io::memory::Taken;
use grappa_synthetic::{AdjacencyBuffer, Generator};

/// The maximum number of edges of a piece with more than one adjacency list: 1 MiB of them. By bounds of in-degrees, so a
/// piece typically has a third of that.
pub const PIECE_EDGES: u64 = 1 << 17;
/// The maximum number of adjacency lists of a piece.
const PIECE_LISTS: usize = 1 << 12;
/// Number of labels computed at once.
const LABEL_BLOCK: u64 = 1 << 10;

/// The adjacency lists of some consecutive nodes.
#[derive(Default)]
pub struct Piece<'a> {
    pub first_node: u64,
    pub labels: Vec<u64>,
    /// Upper bound of the number of edges.
    pub bound: u64,
    /// The adjacency lists, once they are generated.
    pub lists: AdjacencyBuffer,
    /// Number of edges drawn, before the edge options were applied.
    pub drawn: u64,
    /// Whether it is one adjacency list that exceeds the window.
    pub is_large: bool,
    /// The memory of such a list.
    pub reserved: Option<Taken<'a>>,
}

impl Piece<'_> {
    /// Takes the labels of the nodes of the next piece. There are none if all nodes were taken. The bound is the cost of the
    /// piece.
    pub fn plan(&mut self, first_node: u64, labels: &mut Peekable<LabelBlocks<'_>>, generator: &Generator) {
        self.labels.clear();
        (self.first_node, self.bound) = (first_node, 0);
        while let Some(&label) = labels.peek() {
            let bound = generator.degree_bound(label);
            let is_full = self.labels.len() == PIECE_LISTS || self.bound + bound > PIECE_EDGES;
            if is_full && !self.labels.is_empty() {
                break;
            }
            self.labels.push(label);
            self.bound += bound;
            labels.next();
        }
    }
}

/// The labels of consecutive nodes, computed in blocks, which is faster than one by one.
pub struct LabelBlocks<'a> {
    permutation: Option<&'a Feistel>,
    /// Nodes whose labels are not computed yet.
    nodes: Range<u64>,
    block: Vec<u64>,
    /// Number of labels of the block that were taken.
    used: usize,
}

impl<'a> LabelBlocks<'a> {
    /// The labels of `nodes`. Without a permutation, a node is its own label.
    pub fn new(permutation: Option<&'a Feistel>, nodes: Range<u64>) -> Self {
        Self { permutation, nodes, block: Vec::new(), used: 0 }
    }

    #[cold]
    fn refill(&mut self) {
        let end = self.nodes.end.min(self.nodes.start + LABEL_BLOCK);
        self.block.clear();
        self.block.extend(self.nodes.start..end);
        if let Some(permutation) = self.permutation {
            permutation.inverse_all(&mut self.block);
        }
        (self.nodes.start, self.used) = (end, 0);
    }
}

impl Iterator for LabelBlocks<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.used == self.block.len() {
            self.refill();
        }
        let label = self.block.get(self.used).copied()?;
        self.used += 1;
        Some(label)
    }
}
