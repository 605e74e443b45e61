//! Local indices: the index of a node among the nodes of a minibatch.
//!
//! There are two tables. Both are reused from batch to batch. Whether a node is new cannot be predicted, so neither
//! table branches on it: the node is always written to the next free index, and the number of nodes grows by 0 or 1.
//!
//! - [`Direct`] has an entry for each node of the graph: the batch that saw the node last, and its local index. One
//!   load per edge, from a table of 4 bytes per node.
//! - [`Hashed`] uses open addressing. Its slots hold local indices, so the table for a batch is as small as the batch.
//!   Two loads per edge.

#[cfg(test)]
mod tests;

use grappa_formats::{NodeId, random::GOLDEN};
use grappa_io::prefetch::prefetch;

/// How many edges ahead table entries are prefetched.
const AHEAD: usize = 24;

/// The maximum number of nodes of a graph for which the direct table is faster than hashing. The table then takes 8
/// MiB, which fits into a core's own caches and its share of the last-level cache.
const DIRECT_NODES_MAX: u64 = 1 << 21;

/// The initial number of bits of a local index. It grows with the largest batch.
const INDEX_BITS_MIN: u32 = 16;

/// Assigns local indices to nodes.
pub(super) trait Relabel {
    /// Begins a batch: no node has a local index.
    fn begin(&mut self);

    /// Writes the local index of each source to `indices`. Appends new sources to `nodes`, the nodes of the minibatch. A node
    /// that is among them twice has the index of the first one.
    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, indices: &mut [u32]);
}

/// The faster table for each graph.
#[derive(Debug, Default)]
pub(super) struct RelabelTable {
    hashed: Hashed,
    direct: Option<Direct>,
}

impl RelabelTable {
    /// The table for a graph of `nodes` nodes.
    pub(super) fn table_for(&mut self, nodes: u64) -> &mut dyn Relabel {
        if nodes > DIRECT_NODES_MAX {
            return &mut self.hashed;
        }
        if self.direct.as_ref().is_none_or(|table| table.table.len() as u64 != nodes) {
            self.direct = None;
        }
        self.direct.get_or_insert_with(|| Direct::new(nodes))
    }

    /// Bytes of memory after a batch of `nodes` nodes.
    pub(super) fn bytes(&self, nodes: usize) -> u64 {
        match &self.direct {
            Some(direct) => (direct.table.capacity() * size_of::<u32>()) as u64,
            None => self.hashed.bytes(nodes),
        }
    }
}

/// A table with an entry for each node of the graph.
///
/// ```text
/// entry   [ batch number | local index: index_bits ]
/// ```
///
/// An entry is valid if it has the number of the current batch. So a new batch clears the table by counting up. When
/// the numbers run out, the table is filled with zeros.
#[derive(Debug)]
pub(super) struct Direct {
    table: Vec<u32>,
    index_bits: u32,
    /// The number of the current batch; at least 1 after `begin`.
    batch: u32,
}

impl Direct {
    pub(super) fn new(nodes: u64) -> Self {
        Self { table: vec![0; nodes as usize], index_bits: INDEX_BITS_MIN, batch: 0 }
    }

    /// Widens local indices for `count` nodes, and enters `nodes` again.
    #[cold]
    fn widen(&mut self, count: usize, nodes: &[NodeId]) {
        while count > 1 << self.index_bits {
            self.index_bits += 1;
        }
        self.table.fill(0);
        self.batch = 1;
        // The first of two equal nodes is entered last.
        for (index, node) in nodes.iter().enumerate().rev() {
            self.table[node.0 as usize] = self.batch << self.index_bits | index as u32;
        }
    }
}

impl Relabel for Direct {
    fn begin(&mut self) {
        self.batch += 1;
        if self.batch >> (32 - self.index_bits) != 0 {
            self.table.fill(0);
            self.batch = 1;
        }
    }

    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, indices: &mut [u32]) {
        let mut next = nodes.len();
        let end = next + sources.len();
        if end > 1 << self.index_bits {
            self.widen(end, nodes);
        }
        nodes.resize(end, NodeId(0));
        let table = &mut self.table[..];
        let (batch, mask) = (self.batch << self.index_bits, (1 << self.index_bits) - 1);
        for (i, (&source, index)) in sources.iter().zip(indices).enumerate() {
            if let Some(&later) = sources.get(i + AHEAD) {
                prefetch(table, later.0 as usize);
            }
            let entry = &mut table[source.0 as usize];
            let new = *entry & !mask != batch;
            let found = if new { next as u32 } else { *entry & mask };
            *entry = batch | found;
            // If the source is not new, the next one overwrites it.
            nodes[next] = source;
            *index = found;
            next += usize::from(new);
        }
        nodes.truncate(next);
    }
}

/// A hash table that grows with the batches. At most half of its slots are used.
#[derive(Debug)]
pub(crate) struct Hashed {
    /// Local indices, or [`EMPTY`].
    slots: Vec<u32>,
    shift: u32,
}

const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 1 << 10;

impl Default for Hashed {
    fn default() -> Self {
        Self { slots: vec![EMPTY; SLOTS_MIN], shift: 64 - SLOTS_MIN.ilog2() }
    }
}

impl Hashed {
    #[inline(always)]
    fn slot(node: NodeId, shift: u32) -> usize {
        (node.0.wrapping_mul(GOLDEN) >> shift) as usize
    }

    /// Bytes of memory after a batch of `nodes` nodes.
    pub(super) fn bytes(&self, nodes: usize) -> u64 {
        (Self::slots_for(nodes).max(self.slots.capacity()) * size_of::<u32>()) as u64
    }

    /// Begins a small batch that starts with `nodes` and is expected to have `expected` nodes. The table is only as large as this needs, so
    /// that it is quickly cleared.
    pub(crate) fn begin_with(&mut self, nodes: &[NodeId], expected: usize) {
        self.grow(nodes.len().max(expected).max(SLOTS_MIN / 64), nodes);
    }

    /// As [`Relabel::relabel`], for a table that is in the cache, and is not prefetched.
    #[inline]
    pub(crate) fn relabel_in_cache(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, indices: &mut [u32]) {
        self.relabel_with::<false>(sources, nodes, indices);
    }

    #[inline(always)]
    fn relabel_with<const PREFETCH: bool>(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, indices: &mut [u32]) {
        let mut next = nodes.len();
        let end = next + sources.len();
        if 2 * end > self.slots.len() {
            self.grow(end, nodes);
        }
        nodes.resize(end, NodeId(0));
        let nodes_now = &mut nodes[..];
        let shift = self.shift;
        let slots = &mut self.slots[..];
        for (i, (&source, index)) in sources.iter().zip(indices).enumerate() {
            if PREFETCH && let Some(&later) = sources.get(i + AHEAD) {
                prefetch(slots, Self::slot(later, shift));
            }
            nodes_now[next] = source;
            let mut slot = Self::slot(source, shift);
            // `min` turns EMPTY into `next`, where the source was just written. So the comparison succeeds at an empty
            // slot as it does at the slot of a known source, and there is one way out of the loop.
            let mut found = (slots[slot] as usize).min(next);
            while nodes_now[found] != source {
                slot = (slot + 1) & (slots.len() - 1);
                found = (slots[slot] as usize).min(next);
            }
            slots[slot] = found as u32;
            *index = found as u32;
            next += usize::from(found == next);
        }
        nodes.truncate(next);
    }

    fn slots_for(nodes: usize) -> usize {
        (2 * nodes).next_power_of_two()
    }

    /// Makes room for `count` nodes, and enters `nodes` again.
    #[cold]
    fn grow(&mut self, count: usize, nodes: &[NodeId]) {
        let slots = Self::slots_for(count);
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        self.shift = 64 - slots.ilog2();
        for (index, &node) in (0..).zip(nodes) {
            let mut slot = Self::slot(node, self.shift);
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = index;
        }
    }
}

impl Relabel for Hashed {
    fn begin(&mut self) {
        self.slots.fill(EMPTY);
    }

    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, indices: &mut [u32]) {
        self.relabel_with::<true>(sources, nodes, indices);
    }
}
