//! Sets of nodes, and the position of each node in its set.
//!
//! Exact inference computes states only for the nodes that the result depends on. Their rows are stored without gaps,
//! so the row of a node is at the node's *position*: the number of smaller nodes in the set. A lookup costs one cache
//! line, and an entry of a table that is a 400th of the size.
//!
//! Nodes are bits in *lines*, and lines are in *pages*. Pages without nodes are left out: a slice of a graph with 10^10
//! nodes evaluates a few thousand of them.

mod growing;

use std::ops::Range;

use grappa_formats::NodeId;
use grappa_io::prefetch::prefetch;

pub(crate) use self::growing::GrowingSet;

/// Words of bits in a line.
const LINE_WORDS: usize = 6;
/// Bits of a number of nodes in a line.
const COUNT_BITS: u32 = 9;
/// Nodes in a line.
const LINE_NODES: u64 = 64 * LINE_WORDS as u64;
/// Lines in a page.
const PAGE_LINES: usize = 8;
/// Words of bits in a page.
const PAGE_WORDS: usize = LINE_WORDS * PAGE_LINES;
/// Nodes in a page.
const PAGE_NODES: u64 = LINE_NODES * PAGE_LINES as u64;
/// Says that a page has no nodes. See [`Bits::table`].
const EMPTY: u64 = 1 << 63;
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
    bits: Option<Bits>,
}

/// The nodes of a set as bits.
#[derive(Debug, Clone)]
struct Bits {
    /// For each page the index of its first line in `lines`. For a page without nodes the number of nodes before it,
    /// and [`EMPTY`].
    table: Vec<u64>,
    /// The lines of pages that have nodes. Their order is that in which pages got their first node.
    lines: Vec<Line>,
}

/// One bit for each of [`LINE_NODES`] nodes, and the number of nodes before them. It fills a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    before: u64,
    /// The number of nodes in the words before each word, [`COUNT_BITS`] for each. A sum over the words would take a
    /// loop whose end processors cannot predict, so that cache misses of successive lookups would not overlap.
    before_words: u64,
    words: [u64; LINE_WORDS],
}

impl Line {
    /// Counts the nodes. `before` nodes are before the line. Returns how many are before the next line.
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

impl Bits {
    fn empty(nodes: u64) -> Self {
        Self { table: vec![EMPTY; nodes.div_ceil(PAGE_NODES) as usize], lines: Vec::new() }
    }

    fn all(nodes: u64) -> Self {
        let mut bits = Self::empty(nodes);
        bits.lines.reserve_exact(bits.table.len() * PAGE_LINES);
        for page in 0..bits.table.len() {
            let mut left = nodes - page as u64 * PAGE_NODES;
            for line in bits.page_mut(page) {
                for word in &mut line.words {
                    *word = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
                    left = left.saturating_sub(64);
                }
            }
        }
        bits
    }

    /// The lines of a page, none if it has no nodes.
    #[inline]
    fn page(&self, page: usize) -> Option<&[Line]> {
        match self.table[page] {
            entry if entry & EMPTY != 0 => None,
            first => Some(&self.lines[first as usize..][..PAGE_LINES]),
        }
    }

    /// The lines of a page, to add nodes to.
    fn page_mut(&mut self, page: usize) -> &mut [Line] {
        let lines = &mut self.lines;
        if self.table[page] & EMPTY != 0 {
            // By a quarter, because a set may take most of the memory.
            if lines.len() == lines.capacity() {
                lines.reserve_exact((lines.len() / 4).max(64 * PAGE_LINES));
            }
            self.table[page] = lines.len() as u64;
            lines.resize(lines.len() + PAGE_LINES, Line::default());
        }
        &mut lines[self.table[page] as usize..][..PAGE_LINES]
    }

    fn pages(&self) -> impl Iterator<Item = (usize, &[Line])> {
        (0..self.table.len()).filter_map(|page| Some((page, self.page(page)?)))
    }

    /// The line, or the number of nodes before it if its page has none.
    ///
    /// # Panics
    /// If the graph has no such line.
    #[inline(always)]
    fn line(&self, line: usize) -> Result<&Line, u64> {
        match self.table[line / PAGE_LINES] {
            entry if entry & EMPTY != 0 => Err(entry & !EMPTY),
            first => Ok(&self.lines[first as usize + line % PAGE_LINES]),
        }
    }

    /// Number of nodes before the page of a table entry.
    fn before(&self, entry: u64) -> u64 {
        match entry & EMPTY {
            0 => self.lines[entry as usize].before,
            _ => entry & !EMPTY,
        }
    }

    /// Counts the nodes before each line. Returns the number of all.
    fn count(&mut self) -> u64 {
        let mut count = 0;
        for entry in &mut self.table {
            match *entry & EMPTY {
                0 => {
                    let lines = &mut self.lines[*entry as usize..][..PAGE_LINES];
                    count = lines.iter_mut().fold(count, |count, line| line.count(count));
                }
                _ => *entry = count | EMPTY,
            }
        }
        count
    }
}

impl NodeSet {
    /// All nodes of a graph with `nodes` nodes.
    pub fn all(nodes: u64) -> Self {
        Self { nodes, count: nodes, bits: None }
    }

    /// The given nodes of a graph with `nodes` nodes, in any order.
    ///
    /// # Panics
    /// If a node is not below `nodes`.
    pub fn from_members(nodes: u64, members: impl IntoIterator<Item = NodeId>) -> Self {
        let mut bits = Bits::empty(nodes);
        for NodeId(node) in members {
            assert!(node < nodes, "node {node} of {nodes}");
            let (line, word, bit) = place(node);
            bits.page_mut(line / PAGE_LINES)[line % PAGE_LINES].words[word] |= 1 << bit;
        }
        Self::counted(nodes, bits)
    }

    fn counted(nodes: u64, mut bits: Bits) -> Self {
        let count = bits.count();
        let bits = (count < nodes).then_some(bits);
        Self { nodes, count, bits }
    }

    /// The nodes of the set that are in the given ranges of nodes, and the others. Takes as long as to copy the set,
    /// however many nodes it has.
    ///
    /// # Panics
    /// If a range ends beyond the nodes of the graph.
    #[must_use]
    pub fn split(&self, ranges: &[Range<u64>]) -> (Self, Self) {
        let mut outside = self.to_bits();
        let mut inside = Bits::empty(self.nodes);
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            assert!(range.end <= self.nodes, "nodes {range:?} of {}", self.nodes);
            let pages = range.start / PAGE_NODES..range.end.div_ceil(PAGE_NODES);
            for page in pages.map(|page| page as usize) {
                if outside.page(page).is_none() {
                    continue;
                }
                let words = outside.page_mut(page).iter_mut().flat_map(|line| &mut line.words);
                let others = inside.page_mut(page).iter_mut().flat_map(|line| &mut line.words);
                let firsts = (page as u64 * PAGE_NODES..).step_by(64);
                for ((word, other), first) in words.zip(others).zip(firsts) {
                    let chosen =
                        *word & bits_between(range.start.saturating_sub(first), range.end.saturating_sub(first));
                    *other |= chosen;
                    *word &= !chosen;
                }
            }
        }
        (Self::counted(self.nodes, inside), Self::counted(self.nodes, outside))
    }

    /// The nodes that are in this set or in another one of the same graph.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        assert_eq!(self.nodes, other.nodes, "one graph");
        match &other.bits {
            _ if self.is_all() => Self::all(self.nodes),
            None => Self::all(self.nodes),
            Some(others) => {
                let mut bits = self.to_bits();
                for (page, others) in others.pages() {
                    let lines = bits.page_mut(page).iter_mut().flat_map(|line| &mut line.words);
                    let others = others.iter().flat_map(|line| &line.words);
                    lines.zip(others).for_each(|(word, other)| *word |= other);
                }
                Self::counted(self.nodes, bits)
            }
        }
    }

    fn to_bits(&self) -> Bits {
        self.bits.clone().unwrap_or_else(|| Bits::all(self.nodes))
    }

    /// The set as bits: bit b of word w is node 64 w + b. Sets of one graph have the same number of words.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![0; words_of(self.nodes)];
        let pages = words.chunks_mut(PAGE_WORDS).enumerate();
        let bits = self.to_bits();
        for (page, words) in pages {
            let lines = bits.page(page).into_iter().flatten();
            let found = lines.flat_map(|line| line.words);
            words.iter_mut().zip(found).for_each(|(word, found)| *word = found);
        }
        words
    }

    /// The set that [`NodeSet::to_words`] made bits of, in a graph with `nodes` nodes.
    ///
    /// # Panics
    /// If it was a graph of another size.
    pub fn of_words(nodes: u64, words: &[u64]) -> Self {
        assert_eq!(words.len(), words_of(nodes), "words of a set of the same graph");
        let mut bits = Bits::empty(nodes);
        for (page, found) in words.chunks(PAGE_WORDS).enumerate() {
            if found.iter().any(|&word| word != 0) {
                let words = bits.page_mut(page).iter_mut().flat_map(|line| &mut line.words);
                words.zip(found).for_each(|(word, found)| *word = *found);
            }
        }
        Self::counted(nodes, bits)
    }

    /// Number of nodes of the graph.
    pub fn universe(&self) -> u64 {
        self.nodes
    }

    /// Memory in bytes that a set of a graph with `nodes` nodes takes at most.
    pub fn bytes_of(nodes: u64) -> u64 {
        Self::bytes_of_members(nodes, nodes)
    }

    /// Memory in bytes that this set takes.
    pub fn bytes(&self) -> u64 {
        match &self.bits {
            Some(bits) => (size_of_val(&bits.table[..]) + size_of_val(&bits.lines[..])) as u64,
            None => 0,
        }
    }

    /// Memory in bytes that a set of `members` of the `nodes` nodes of a graph takes at most.
    pub fn bytes_of_members(nodes: u64, members: u64) -> u64 {
        let pages = nodes.div_ceil(PAGE_NODES);
        pages * size_of::<u64>() as u64 + pages.min(members) * (PAGE_LINES * size_of::<Line>()) as u64
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
        self.bits.is_none()
    }

    /// Whether the set has a node.
    pub fn contains(&self, node: NodeId) -> bool {
        match &self.bits {
            _ if node.0 >= self.nodes => false,
            None => true,
            Some(bits) => {
                let (line, word, bit) = place(node.0);
                bits.line(line).is_ok_and(|line| line.words[word] >> bit & 1 == 1)
            }
        }
    }

    /// Prefetches what [`NodeSet::contains`] and [`NodeSet::position`] read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, node: NodeId) {
        if let Some(Bits { table, lines }) = &self.bits {
            let line = place(node.0).0;
            if let Some(first) = table.get(line / PAGE_LINES) {
                // Of a page without nodes, this is out of range, and nothing is prefetched.
                prefetch(lines, *first as usize + line % PAGE_LINES);
            }
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
        let Some(bits) = &self.bits else { return node.0 };
        let (line, word, bit) = place(node.0);
        match bits.line(line) {
            Ok(line) => line.position(word, bit),
            Err(before) => before,
        }
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

    /// The node at a position.
    ///
    /// # Panics
    /// If the position is out of range.
    pub fn at(&self, position: u64) -> NodeId {
        assert!(position < self.count, "position {position} of {}", self.count);
        let Some(bits) = &self.bits else { return NodeId(position) };
        let page = bits.table.partition_point(|&entry| bits.before(entry) <= position) - 1;
        let mut left = position - bits.before(bits.table[page]);
        let words = bits.page(page).into_iter().flatten().flat_map(|line| line.words);
        for (mut word, first) in words.zip((page as u64 * PAGE_NODES..).step_by(64)) {
            let count = u64::from(word.count_ones());
            if left < count {
                (0..left).for_each(|_| word &= word - 1);
                return NodeId(first + u64::from(word.trailing_zeros()));
            }
            left -= count;
        }
        unreachable!("the page has the node at a position before the next page's")
    }

    /// Appends the nodes at some positions, ascending.
    ///
    /// # Panics
    /// If the positions are out of range.
    pub fn nodes_at(&self, positions: Range<u64>, out: &mut Vec<NodeId>) {
        assert!(positions.end <= self.count, "positions {positions:?} of {}", self.count);
        let Some(bits) = &self.bits else {
            out.extend(positions.map(NodeId));
            return;
        };
        if positions.is_empty() {
            return;
        }
        let first = bits.table.partition_point(|&entry| bits.before(entry) <= positions.start) - 1;
        let mut skip = positions.start - bits.before(bits.table[first]);
        let mut missing = (positions.end - positions.start) as usize;
        for page in first..bits.table.len() {
            let words = bits.page(page).into_iter().flatten().flat_map(|line| line.words);
            for (mut word, first) in words.zip((page as u64 * PAGE_NODES..).step_by(64)) {
                while word != 0 {
                    let bit = word.trailing_zeros();
                    word &= word - 1;
                    if skip > 0 {
                        skip -= 1;
                        continue;
                    }
                    out.push(NodeId(first + u64::from(bit)));
                    missing -= 1;
                    if missing == 0 {
                        return;
                    }
                }
            }
        }
    }
}

/// Words of [`NodeSet::to_words`].
fn words_of(nodes: u64) -> usize {
    nodes.div_ceil(LINE_NODES) as usize * LINE_WORDS
}

/// A word with the bits from `start` to before `end`.
fn bits_between(start: u64, end: u64) -> u64 {
    bits_below(end) & !bits_below(start)
}

fn bits_below(end: u64) -> u64 {
    if end >= 64 { u64::MAX } else { (1 << end) - 1 }
}

/// The line, word and bit of a node.
#[inline]
fn place(node: u64) -> (usize, usize, u32) {
    let (line, within) = (node / LINE_NODES, node % LINE_NODES);
    (line as usize, (within / 64) as usize, (within % 64) as u32)
}

#[cfg(test)]
mod tests;
