//! A set of nodes that grows.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use grappa_io::prefetch::prefetch;

use super::{AHEAD, Bits, NodeSet, PAGE_LINES, PAGE_NODES, PAGE_WORDS};

/// A set that several threads add nodes to.
#[derive(Debug)]
pub(crate) struct GrowingSet {
    nodes: u64,
    /// A page has memory from its first node on.
    pages: Vec<OnceLock<Box<GrowingPage>>>,
}

/// The bits of a page.
type GrowingPage = [AtomicU64; PAGE_WORDS];

impl GrowingSet {
    /// No nodes, of a graph with `nodes` nodes.
    pub(crate) fn new(nodes: u64) -> Self {
        let pages = nodes.div_ceil(PAGE_NODES);
        Self { nodes, pages: (0..pages).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn from(set: &NodeSet) -> Self {
        let bits = set.to_bits();
        let pages = (0..bits.table.len()).map(|at| {
            let Some(page) = bits.page(at) else {
                return OnceLock::new();
            };
            let words: Vec<u64> = page.iter().flat_map(|line| line.words).collect();
            OnceLock::from(Box::new(std::array::from_fn(|word| AtomicU64::new(words[word]))))
        });
        Self { nodes: set.nodes, pages: pages.collect() }
    }

    /// Adds a node.
    #[inline(always)]
    pub(crate) fn add(&self, node: u64) {
        let page = self.pages[(node / PAGE_NODES) as usize]
            .get_or_init(|| Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]));
        let (word, bit) = (&page[(node % PAGE_NODES / 64) as usize], node % 64);
        // Most nodes are in the set already, and reading does not take the line from other cores.
        if word.load(Ordering::Relaxed) >> bit & 1 == 0 {
            word.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }

    /// Adds some nodes. Faster than one by one, because cache misses overlap even where nobody can predict which nodes
    /// are new.
    pub(crate) fn add_all(&self, nodes: &[u64]) {
        for (at, &node) in nodes.iter().enumerate() {
            if let Some(ahead) = nodes.get(at + 2 * AHEAD) {
                prefetch(&self.pages, (ahead / PAGE_NODES) as usize);
            }
            if let Some(ahead) = nodes.get(at + AHEAD)
                && let Some(page) = self.pages[(ahead / PAGE_NODES) as usize].get()
            {
                prefetch(&page[..], (ahead % PAGE_NODES / 64) as usize);
            }
            self.add(node);
        }
    }

    pub(crate) fn finish(self) -> NodeSet {
        let mut bits = Bits::empty(self.nodes);
        let with_nodes = self.pages.iter().filter(|page| page.get().is_some()).count();
        bits.lines.reserve_exact(with_nodes * PAGE_LINES);
        for (at, page) in self.pages.into_iter().enumerate() {
            if let Some(page) = page.into_inner() {
                let words = bits.page_mut(at).iter_mut().flat_map(|line| &mut line.words);
                words.zip(*page).for_each(|(word, found)| *word = found.into_inner());
            }
        }
        NodeSet::counted(self.nodes, bits)
    }
}
