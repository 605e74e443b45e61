//! The seed nodes of a partition.

use std::ops::Range;

use grappa_formats::NodeId;

/// Nodes in an order, accessible by index. A list takes 8 bytes per node. Ranges take 24 bytes each, however many nodes
/// they contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedNodes {
    kind: Kind,
    /// Whether a node is there more than once.
    has_repeats: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    List(Vec<NodeId>),
    Runs(Runs),
}

/// Nodes as the smallest number of ranges, and their number in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// Ascending, not empty, not adjacent.
    pub ranges: Vec<Range<u64>>,
    /// The index of the first node of each range.
    firsts: Vec<u64>,
    pub nodes: u64,
}

impl Runs {
    /// Adds a range after all others.
    pub fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.nodes;
        self.nodes += range.end - range.start;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                self.ranges.push(range);
                self.firsts.push(first);
            }
        }
    }

    /// The node at an index, which must be in range.
    #[inline]
    pub fn at(&self, index: u64) -> NodeId {
        let range = self.firsts.partition_point(|&first| first <= index) - 1;
        NodeId(self.ranges[range].start + (index - self.firsts[range]))
    }
}

impl SeedNodes {
    /// All nodes of some ranges, which ascend.
    pub(super) fn ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut runs = Runs::default();
        ranges.into_iter().for_each(|range| runs.push(range));
        Self { kind: Kind::Runs(runs), has_repeats: false }
    }

    /// Whether a node is there more than once.
    pub fn has_repeats(&self) -> bool {
        self.has_repeats
    }

    /// Number of nodes.
    pub fn len(&self) -> u64 {
        match &self.kind {
            Kind::List(list) => list.len() as u64,
            Kind::Runs(runs) => runs.nodes,
        }
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node at `index`.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[inline]
    pub fn get(&self, index: u64) -> NodeId {
        match &self.kind {
            Kind::List(list) => list[index as usize],
            Kind::Runs(runs) => {
                assert!(index < runs.nodes, "seed {index} of {}", runs.nodes);
                runs.at(index)
            }
        }
    }

    /// All nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Bytes of memory that the list or the ranges take.
    pub fn bytes(&self) -> u64 {
        let bytes = match &self.kind {
            Kind::List(list) => list.capacity() * size_of::<NodeId>(),
            Kind::Runs(Runs { ranges, firsts, .. }) => {
                ranges.capacity() * size_of::<Range<u64>>() + firsts.capacity() * size_of::<u64>()
            }
        };
        bytes as u64
    }
}

impl From<Vec<NodeId>> for SeedNodes {
    /// Takes a copy of a list that does not ascend, to find nodes that are there more than once.
    fn from(list: Vec<NodeId>) -> Self {
        let has_repeats = !list.is_sorted_by(|a, b| a < b) && {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        };
        Self { kind: Kind::List(list), has_repeats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_number_their_nodes_as_a_list_does() {
        let far = (1 << 40) - 3;
        let ranges = SeedNodes::ranges([3..4, 10..12, 12..14, far..1 << 40]);
        let list = SeedNodes::from([3, 10, 11, 12, 13, far, far + 1, far + 2].map(NodeId).to_vec());
        assert!(ranges.iter().eq(list.iter()));
        assert_eq!((ranges.len(), list.len(), ranges.is_empty()), (8, 8, false));
        assert!(SeedNodes::ranges([]).is_empty());
    }

    #[test]
    fn all_nodes_of_a_graph_take_no_memory_to_speak_of() {
        let all = SeedNodes::ranges(std::iter::once(0..1 << 40));
        assert_eq!((all.len(), all.get((1 << 40) - 1)), (1 << 40, NodeId((1 << 40) - 1)));
        assert!(all.bytes() < 100);
    }

    #[test]
    fn repeats_are_found_in_any_order() {
        let has_repeats =
            |nodes: &[u64]| SeedNodes::from(nodes.iter().copied().map(NodeId).collect::<Vec<_>>()).has_repeats();
        assert!([&[] as &[u64], &[5], &[1, 2, 9], &[9, 1, 2]].iter().all(|nodes| !has_repeats(nodes)));
        assert!(has_repeats(&[1, 1]) && has_repeats(&[4, 9, 1, 9]));
    }

    #[test]
    #[should_panic(expected = "seed 5 of 5")]
    fn there_is_no_seed_beyond_the_last() {
        SeedNodes::ranges([0..2, 7..10]).get(5);
    }
}
