//! Sets of nodes, and the position of each node in its set.
//!
//! Exact inference computes states only for the nodes that the result depends on. Their rows are stored without gaps, so the
//! row of a node is at the node's *position*: the number of smaller nodes in the set. A lookup costs one cache line.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::NodeId;
use grappa_io::prefetch::prefetch;

/// Words of bits in a line.
const LINE_WORDS: usize = 6;
/// Bits of a number of nodes in a line.
const COUNT_BITS: u32 = 9;
/// Nodes in a line.
const LINE_NODES: u64 = 64 * LINE_WORDS as u64;
/// Nodes that [`NodeSet::positions`] and [`GrowingSet::add_all`] prefetch.
const AHEAD: usize = 16;
/// Nodes that [`NodeSet::iter`] looks up at a time.
const PIECE_NODES: u64 = 4096;

/// A set of nodes of a store.
#[derive(Debug, Clone)]
pub struct NodeSet {
    nodes: u64,
    count: u64,
    /// None if the set has all nodes.
    lines: Option<Vec<Line>>,
}

/// One bit for each of [`LINE_NODES`] nodes, and the number of nodes before them. It fills a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    before: u64,
    /// The number of nodes in the words before each word, [`COUNT_BITS`] for each. A sum over the words would take a loop whose end
    /// processors cannot predict, so that cache misses of successive lookups would not overlap.
    before_words: u64,
    words: [u64; LINE_WORDS],
}

impl Line {
    fn of(words: [u64; LINE_WORDS]) -> Self {
        Self {
            words,
            ..Self::default()
        }
    }

    /// Counts the nodes, of which `before` are before the line. Returns how many are before the next line.
    fn count(&mut self, before: u64) -> u64 {
        (self.before, self.before_words) = (before, 0);
        let mut count = 0;
        for (word, bits) in (0..).zip(self.words) {
            self.before_words |= count << (COUNT_BITS * word);
            count += u64::from(bits.count_ones());
        }
        before + count
    }

    /// Number of nodes before a bit of a word.
    #[inline(always)]
    fn position(&self, word: usize, bit: u32) -> u64 {
        let in_words = self.before_words >> (COUNT_BITS * word as u32) & ((1 << COUNT_BITS) - 1);
        let in_word = (self.words[word] & ((1 << bit) - 1)).count_ones();
        self.before + in_words + u64::from(in_word)
    }
}

impl NodeSet {
    /// All nodes of a graph with `nodes` nodes.
    pub fn all(nodes: u64) -> Self {
        Self {
            nodes,
            count: nodes,
            lines: None,
        }
    }

    /// The given nodes of a graph with `nodes` nodes, in any order.
    ///
    /// # Panics
    /// If a node is not below `nodes`.
    pub fn of(nodes: u64, members: impl IntoIterator<Item = NodeId>) -> Self {
        let mut lines = vec![Line::default(); nodes.div_ceil(LINE_NODES) as usize];
        for NodeId(node) in members {
            assert!(node < nodes, "node {node} of {nodes}");
            let (line, word, bit) = place(node);
            lines[line].words[word] |= 1 << bit;
        }
        Self::counted(nodes, lines)
    }

    fn counted(nodes: u64, mut lines: Vec<Line>) -> Self {
        let mut count = 0;
        for line in &mut lines {
            count = line.count(count);
        }
        let lines = (count < nodes).then_some(lines);
        Self { nodes, count, lines }
    }

    /// The nodes of the set that are in the given ranges of nodes, and the others. Takes as long as to copy the set, however many nodes it
    /// has.
    ///
    /// # Panics
    /// If a range ends beyond the nodes of the graph.
    #[must_use]
    pub fn split(&self, ranges: &[Range<u64>]) -> (Self, Self) {
        let mut outside = self.to_lines();
        let mut inside = vec![Line::default(); outside.len()];
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            assert!(range.end <= self.nodes, "nodes {range:?} of {}", self.nodes);
            let (first, last) = (range.start / 64, (range.end - 1) / 64);
            for at in first..=last {
                let from = if at == first {
                    u64::MAX << (range.start % 64)
                } else {
                    u64::MAX
                };
                let to = if at == last {
                    u64::MAX >> (63 - (range.end - 1) % 64)
                } else {
                    u64::MAX
                };
                let (line, word, _) = place(64 * at);
                let bits = &mut outside[line].words[word];
                inside[line].words[word] |= *bits & from & to;
                *bits &= !(from & to);
            }
        }
        (Self::counted(self.nodes, inside), Self::counted(self.nodes, outside))
    }

    /// The nodes that are in this set or in another one of the same graph.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        assert_eq!(self.nodes, other.nodes, "one graph");
        match &other.lines {
            _ if self.is_all() => Self::all(self.nodes),
            None => Self::all(self.nodes),
            Some(others) => {
                let mut lines = self.to_lines();
                for (line, other) in lines.iter_mut().zip(others) {
                    line.words
                        .iter_mut()
                        .zip(other.words)
                        .for_each(|(word, other)| *word |= other);
                }
                Self::counted(self.nodes, lines)
            }
        }
    }

    fn to_lines(&self) -> Vec<Line> {
        match &self.lines {
            Some(lines) => lines.clone(),
            None => {
                let mut lines = vec![Line::of([u64::MAX; LINE_WORDS]); self.nodes.div_ceil(LINE_NODES) as usize];
                if let Some(last) = lines.last_mut() {
                    // The last line has no bits after the last node.
                    let in_last = (self.nodes - 1) % LINE_NODES + 1;
                    for (word, bits) in last.words.iter_mut().enumerate() {
                        let left = in_last.saturating_sub(64 * word as u64);
                        *bits = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
                    }
                }
                lines
            }
        }
    }

    /// The set as bits: bit b of word w is node 64 w + b. Sets of one graph have the same number of words.
    pub fn to_words(&self) -> Vec<u64> {
        self.to_lines().iter().flat_map(|line| line.words).collect()
    }

    /// The set that [`NodeSet::to_words`] made bits of, in a graph with `nodes` nodes.
    ///
    /// # Panics
    /// If it was a graph of another size.
    pub fn of_words(nodes: u64, words: &[u64]) -> Self {
        let lines = words
            .chunks(LINE_WORDS)
            .map(|words| Line::of(words.try_into().expect("lines are whole")));
        let lines: Vec<Line> = lines.collect();
        assert_eq!(
            lines.len() as u64,
            nodes.div_ceil(LINE_NODES),
            "words of a set of the same graph"
        );
        Self::counted(nodes, lines)
    }

    /// Number of nodes of the graph.
    pub fn universe(&self) -> u64 {
        self.nodes
    }

    /// Memory in bytes that a set of a graph with `nodes` nodes takes.
    pub fn bytes_of(nodes: u64) -> u64 {
        nodes.div_ceil(LINE_NODES) * size_of::<Line>() as u64
    }

    /// Number of nodes in the set.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the set has all nodes, so that positions are nodes.
    pub fn is_all(&self) -> bool {
        self.lines.is_none()
    }

    /// Whether the set has a node.
    pub fn contains(&self, node: NodeId) -> bool {
        match &self.lines {
            None => node.0 < self.nodes,
            Some(lines) => {
                let (line, word, bit) = place(node.0);
                lines.get(line).is_some_and(|line| line.words[word] >> bit & 1 == 1)
            }
        }
    }

    /// Prefetches what [`NodeSet::contains`] and [`NodeSet::position`] read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, node: NodeId) {
        if let Some(lines) = &self.lines {
            prefetch(lines, place(node.0).0);
        }
    }

    /// The nodes of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (mut nodes, mut next) = (Vec::new(), 0);
        let pieces = std::iter::from_fn(move || {
            let piece = next..(next + PIECE_NODES).min(self.count);
            next = piece.end;
            nodes.clear();
            self.nodes_at(piece.clone(), &mut nodes);
            (!piece.is_empty()).then(|| nodes.clone())
        });
        pieces.flatten()
    }

    /// The position of a node of the set. For other nodes, the position that the next larger one has.
    ///
    /// # Panics
    /// If the graph has no such node.
    #[inline]
    pub fn position(&self, node: NodeId) -> u64 {
        let Some(lines) = &self.lines else { return node.0 };
        let (line, word, bit) = place(node.0);
        lines[line].position(word, bit)
    }

    /// The [positions](NodeSet::position) of some nodes. Lookups overlap: each is a cache miss in a large set.
    ///
    /// # Panics
    /// If the graph has no such node.
    #[inline]
    pub fn positions<'a>(&'a self, nodes: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        nodes.iter().take(AHEAD).for_each(|&node| self.prefetch(NodeId(node)));
        nodes.iter().enumerate().map(|(at, &node)| {
            if let Some(&ahead) = nodes.get(at + AHEAD) {
                self.prefetch(NodeId(ahead));
            }
            self.position(NodeId(node))
        })
    }

    /// Appends the nodes at some positions, ascending.
    ///
    /// # Panics
    /// If the positions are out of range.
    pub fn nodes_at(&self, positions: Range<u64>, out: &mut Vec<NodeId>) {
        assert!(positions.end <= self.count, "positions {positions:?} of {}", self.count);
        let Some(lines) = &self.lines else {
            out.extend(positions.map(NodeId));
            return;
        };
        if positions.is_empty() {
            return;
        }
        let first = lines.partition_point(|line| line.before <= positions.start) - 1;
        let mut skip = positions.start - lines[first].before;
        let mut missing = (positions.end - positions.start) as usize;
        for (at, line) in lines.iter().enumerate().skip(first) {
            for (word, bits) in line.words.iter().enumerate() {
                let mut bits = *bits;
                while bits != 0 {
                    let bit = bits.trailing_zeros();
                    bits &= bits - 1;
                    if skip > 0 {
                        skip -= 1;
                        continue;
                    }
                    out.push(NodeId(at as u64 * LINE_NODES + 64 * word as u64 + u64::from(bit)));
                    missing -= 1;
                    if missing == 0 {
                        return;
                    }
                }
            }
        }
    }
}

/// A set that several threads add nodes to.
#[derive(Debug)]
pub(crate) struct GrowingSet {
    nodes: u64,
    words: Vec<AtomicU64>,
}

impl GrowingSet {
    /// No nodes, of a graph with `nodes` nodes.
    pub(crate) fn new(nodes: u64) -> Self {
        Self::from(&NodeSet::of(nodes, []))
    }

    /// The nodes of a set.
    pub(crate) fn from(set: &NodeSet) -> Self {
        let words = set.to_lines().into_iter().flat_map(|line| line.words);
        Self {
            nodes: set.nodes,
            words: words.map(AtomicU64::new).collect(),
        }
    }

    /// Adds a node.
    #[inline(always)]
    pub(crate) fn add(&self, node: u64) {
        let (word, bit) = (&self.words[(node / 64) as usize], node % 64);
        // Most nodes are in the set already, and reading does not take the line from other cores.
        if word.load(Ordering::Relaxed) >> bit & 1 == 0 {
            word.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }

    /// Adds some nodes. Faster than one by one, because cache misses overlap even where nobody can predict which nodes are new.
    pub(crate) fn add_all(&self, nodes: &[u64]) {
        for (at, &node) in nodes.iter().enumerate() {
            if let Some(ahead) = nodes.get(at + AHEAD) {
                prefetch(&self.words, (ahead / 64) as usize);
            }
            self.add(node);
        }
    }

    /// The finished set.
    pub(crate) fn finish(self) -> NodeSet {
        let words: Vec<u64> = self.words.into_iter().map(AtomicU64::into_inner).collect();
        let line = |words: &[u64]| Line::of(words.try_into().expect("lines are whole"));
        NodeSet::counted(self.nodes, words.chunks(LINE_WORDS).map(line).collect())
    }
}

/// The line, word and bit of a node.
#[inline]
fn place(node: u64) -> (usize, usize, u32) {
    let (line, within) = (node / LINE_NODES, node % LINE_NODES);
    (line as usize, (within / 64) as usize, (within % 64) as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_and_nodes_are_those_of_a_sorted_list(
            nodes in 1u64..3000,
            picks in prop::collection::btree_set(0u64..3000, 0..400),
            ends in (0usize..400, 0usize..400),
        ) {
            let members: Vec<u64> = picks.into_iter().filter(|&node| node < nodes).collect();
            let set = NodeSet::of(nodes, members.iter().rev().map(|&node| NodeId(node)));
            prop_assert_eq!(set.len(), members.len() as u64);
            prop_assert_eq!(set.is_all(), members.len() as u64 == nodes);
            let all: Vec<u64> = (0..nodes).collect();
            let positions: Vec<u64> = set.positions(&all).collect();
            for node in 0..nodes {
                prop_assert_eq!(positions[node as usize], set.position(NodeId(node)));
                prop_assert_eq!(set.contains(NodeId(node)), members.binary_search(&node).is_ok());
                prop_assert_eq!(set.position(NodeId(node)), members.partition_point(|&member| member < node) as u64);
            }
            let (a, b) = (ends.0.min(members.len()), ends.1.min(members.len()));
            let range = a.min(b)..a.max(b);
            let mut found = Vec::new();
            set.nodes_at(range.start as u64..range.end as u64, &mut found);
            let found: Vec<u64> = found.into_iter().map(|node| node.0).collect();
            prop_assert_eq!(&found[..], &members[range]);
        }
    }

    proptest! {
        #[test]
        fn unions_and_parts_are_those_of_sorted_sets(
            nodes in 1u64..2000,
            a in prop::collection::btree_set(0u64..2000, 0..300),
            b in prop::collection::btree_set(0u64..2000, 0..300),
            whole in any::<bool>(),
        ) {
            let below = |picks: BTreeSet<u64>| -> BTreeSet<u64> { picks.into_iter().filter(|&node| node < nodes).collect() };
            let a = if whole { (0..nodes).collect() } else { below(a) };
            let b = below(b);
            let set = |members: &BTreeSet<u64>| NodeSet::of(nodes, members.iter().map(|&node| NodeId(node)));
            let members = |set: &NodeSet| -> BTreeSet<u64> {
                let mut found = Vec::new();
                set.nodes_at(0..set.len(), &mut found);
                found.into_iter().map(|node| node.0).collect()
            };
            prop_assert_eq!(members(&set(&a).union(&set(&b))), &a | &b);
            prop_assert_eq!(members(&NodeSet::of_words(nodes, &set(&a).to_words())), a.clone());
            prop_assert_eq!(members(&set(&b).union(&set(&a))), &a | &b);
            // Pairs of members are ranges.
            let ends: Vec<u64> = b.iter().copied().collect();
            let ranges: Vec<_> = ends.chunks_exact(2).map(|ends| ends[0]..ends[1]).collect();
            let (inside, outside) = set(&a).split(&ranges);
            let (expected, others): (BTreeSet<u64>, BTreeSet<u64>) =
                a.iter().copied().partition(|node| ranges.iter().any(|range| range.contains(node)));
            prop_assert_eq!((inside.len() as usize, outside.len() as usize), (expected.len(), others.len()));
            prop_assert_eq!((members(&inside), members(&outside)), (expected, others));
        }
    }

    #[test]
    fn the_set_of_all_nodes_needs_no_bits() {
        let set = NodeSet::of(500, (0..500).map(NodeId));
        assert!(set.is_all() && set.lines.is_none());
        assert_eq!(set.position(NodeId(499)), 499);
        assert!(!NodeSet::all(500).contains(NodeId(500)));
    }
}
