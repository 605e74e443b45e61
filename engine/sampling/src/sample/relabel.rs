//! From nodes to their places in a minibatch.
//!
//! Two tables do it. Both are reused from batch to batch, and neither has a branch that depends on whether a node is new,
//! which no processor could predict: the node is always written to the next free place, and the place counts or not.
//!
//! - [`Direct`]: one entry a node of the graph, which says in which batch the node was seen last and at which place. One
//!   load an edge, from a table of 4 bytes a node.
//! - [`Hashed`]: open addressing, whose slots hold places, so that a table for a batch is as small as the batch. Two loads
//!   an edge.

use grappa_formats::{NodeId, random::GOLDEN};
use grappa_io::prefetch::prefetch;

/// How many edges ahead a table is asked for.
const AHEAD: usize = 24;

/// A place is below this.
pub(crate) const PLACES_MAX: usize = 1 << 31;

/// Room for so many bits of a place, before a batch is known that has more.
const PLACE_BITS_MIN: u32 = 16;

/// Gives nodes places in a minibatch.
pub(super) trait Relabel {
    /// Begins a batch: no node has a place.
    fn begin(&mut self);

    /// Writes the place of each of `sources` in `nodes` to `places`, and appends those that are new.
    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, places: &mut [u32]);
}

/// A table with an entry for each node of the graph.
#[derive(Debug)]
pub(super) struct Direct {
    /// The number of the batch, and below it the place.
    table: Vec<u32>,
    place_bits: u32,
    batch: u32,
}

impl Direct {
    /// A table for the nodes `0..nodes`.
    pub(super) fn new(nodes: u64) -> Self {
        Self {
            table: vec![0; nodes as usize],
            place_bits: PLACE_BITS_MIN,
            batch: 0,
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.table.capacity() * size_of::<u32>()) as u64
    }

    /// The number of nodes that it has entries for.
    pub(super) fn nodes(&self) -> u64 {
        self.table.len() as u64
    }

    /// Makes room for `places` in all, of which `nodes` are given.
    #[cold]
    fn widen(&mut self, places: usize, nodes: &[NodeId]) {
        while places > 1 << self.place_bits {
            self.place_bits += 1;
        }
        self.table.fill(0);
        self.batch = 1;
        for (place, node) in (0..).zip(nodes) {
            self.table[node.0 as usize] = self.batch << self.place_bits | place;
        }
    }
}

impl Relabel for Direct {
    fn begin(&mut self) {
        self.batch += 1;
        if self.batch >> (32 - self.place_bits) != 0 {
            self.table.fill(0);
            self.batch = 1;
        }
    }

    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, places: &mut [u32]) {
        let mut next = nodes.len();
        let end = next + sources.len();
        if end > 1 << self.place_bits {
            self.widen(end, nodes);
        }
        nodes.resize(end, NodeId(0));
        let table = &mut self.table[..];
        let (batch, mask) = (self.batch << self.place_bits, (1 << self.place_bits) - 1);
        for (i, (&source, place)) in sources.iter().zip(places).enumerate() {
            if let Some(&later) = sources.get(i + AHEAD) {
                prefetch(table, later.0 as usize);
            }
            let entry = &mut table[source.0 as usize];
            let new = *entry & !mask != batch;
            let found = if new { next as u32 } else { *entry & mask };
            *entry = batch | found;
            nodes[next] = source;
            *place = found;
            next += usize::from(new);
        }
        nodes.truncate(next);
    }
}

/// A table with room for four times the nodes of a batch.
#[derive(Debug)]
pub(super) struct Hashed {
    /// Places, or [`EMPTY`].
    slots: Vec<u32>,
    shift: u32,
}

const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 1 << 10;

impl Default for Hashed {
    fn default() -> Self {
        Self {
            slots: vec![EMPTY; SLOTS_MIN],
            shift: 64 - SLOTS_MIN.ilog2(),
        }
    }
}

impl Hashed {
    #[inline(always)]
    fn slot(node: NodeId, shift: u32) -> usize {
        (node.0.wrapping_mul(GOLDEN) >> shift) as usize
    }

    /// Bytes of memory that it takes once it had this number of `places` in a batch.
    pub(super) fn bytes(&self, places: usize) -> u64 {
        (Self::slots_for(places).max(self.slots.capacity()) * size_of::<u32>()) as u64
    }

    /// At most half of the slots are taken.
    fn slots_for(places: usize) -> usize {
        (2 * places).next_power_of_two()
    }

    #[cold]
    fn grow(&mut self, places: usize, nodes: &[NodeId]) {
        let slots = Self::slots_for(places);
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        self.shift = 64 - slots.ilog2();
        for (place, &node) in (0..).zip(nodes) {
            let mut slot = Self::slot(node, self.shift);
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = place;
        }
    }
}

impl Relabel for Hashed {
    fn begin(&mut self) {
        self.slots.fill(EMPTY);
    }

    fn relabel(&mut self, sources: &[NodeId], nodes: &mut Vec<NodeId>, places: &mut [u32]) {
        let mut next = nodes.len();
        let end = next + sources.len();
        if 2 * end > self.slots.len() {
            self.grow(end, nodes);
        }
        nodes.resize(end, NodeId(0));
        let nodes_now = &mut nodes[..];
        let shift = self.shift;
        let slots = &mut self.slots[..];
        for (i, (&source, place)) in sources.iter().zip(places).enumerate() {
            if let Some(&later) = sources.get(i + AHEAD) {
                prefetch(slots, Self::slot(later, shift));
            }
            nodes_now[next] = source;
            let mut slot = Self::slot(source, shift);
            // An empty slot names the place where the node was just written, so it is found there.
            let mut found = (slots[slot] as usize).min(next);
            while nodes_now[found] != source {
                slot = (slot + 1) & (slots.len() - 1);
                found = (slots[slot] as usize).min(next);
            }
            slots[slot] = found as u32;
            *place = found as u32;
            next += usize::from(found == next);
        }
        nodes.truncate(next);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Relabels pseudo-random pieces of batches as a hash map does.
    fn relabels(relabel: &mut impl Relabel, nodes_of_graph: u64, batches: u64, pieces: u64, length: u64) {
        let mut state = 1u64;
        let mut draw = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 20) % end
        };
        for _ in 0..batches {
            relabel.begin();
            let (mut nodes, mut expected_nodes, mut known) = (Vec::new(), Vec::new(), HashMap::new());
            for _ in 0..draw(pieces) {
                // Often from a small part, so that many are known.
                let end = if draw(2) == 0 {
                    nodes_of_graph
                } else {
                    nodes_of_graph.min(100)
                };
                let sources: Vec<_> = (0..draw(length)).map(|_| NodeId(draw(end))).collect();
                let expected: Vec<u32> = sources
                    .iter()
                    .map(|&source| {
                        let next = expected_nodes.len() as u32;
                        let place = *known.entry(source).or_insert(next);
                        if place == next {
                            expected_nodes.push(source);
                        }
                        place
                    })
                    .collect();
                let mut places = vec![0; sources.len()];
                relabel.relabel(&sources, &mut nodes, &mut places);
                assert_eq!(places, expected);
            }
            assert_eq!(nodes, expected_nodes);
        }
    }

    #[test]
    fn both_tables_number_nodes_in_the_order_they_are_met() {
        // Small batches, and ones that make both tables grow, several times and again.
        for (batches, pieces, length) in [(300, 4, 20), (10, 30, 9000)] {
            relabels(&mut Direct::new(200_000), 200_000, batches, pieces, length);
            relabels(&mut Hashed::default(), 200_000, batches, pieces, length);
            relabels(&mut Hashed::default(), 1 << 40, batches, pieces, length);
        }
    }

    #[test]
    fn a_direct_table_forgets_before_batch_numbers_come_again() {
        let mut direct = Direct::new(10);
        let wrap = 1u32 << (32 - PLACE_BITS_MIN);
        for batch in 0..wrap + 2 {
            direct.begin();
            let mut nodes = Vec::new();
            let mut places = [9; 2];
            // Node 5 is only in batches that are far apart: those with the same number.
            let rare = if batch % (wrap - 1) == 0 { 5 } else { 6 };
            direct.relabel(&[NodeId(rare), NodeId(7)], &mut nodes, &mut places);
            assert_eq!(places, [0, 1], "batch {batch}");
        }
    }
}
