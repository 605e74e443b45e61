//! The seed nodes of a partition.

use std::ops::Range;

use grappa_formats::NodeId;

/// Distinct nodes in an order, accessible by index. A list takes 8 bytes per node. Ranges take 24 bytes each, however many nodes
/// they contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedNodes(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    List(Vec<NodeId>),
    Ranges {
        ranges: Vec<Range<u64>>,
        /// The index of the first node of each range.
        firsts: Vec<u64>,
        nodes: u64,
    },
}

impl SeedNodes {
    /// All nodes of `ranges`, which are ascending, not empty and not adjacent.
    pub(super) fn ranges(ranges: Vec<Range<u64>>) -> Self {
        let mut nodes = 0;
        let firsts = ranges
            .iter()
            .map(|range| {
                let first = nodes;
                nodes += range.end - range.start;
                first
            })
            .collect();
        Self(Kind::Ranges { ranges, firsts, nodes })
    }

    /// Number of nodes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kind::List(list) => list.len() as u64,
            Kind::Ranges { nodes, .. } => *nodes,
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
        match &self.0 {
            Kind::List(list) => list[index as usize],
            Kind::Ranges { ranges, firsts, nodes } => {
                assert!(index < *nodes, "seed {index} of {nodes}");
                let range = firsts.partition_point(|&first| first <= index) - 1;
                NodeId(ranges[range].start + (index - firsts[range]))
            }
        }
    }

    /// All nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Bytes of memory that the list or the ranges take.
    pub fn bytes(&self) -> u64 {
        let bytes = match &self.0 {
            Kind::List(list) => list.capacity() * size_of::<NodeId>(),
            Kind::Ranges { ranges, firsts, .. } => {
                ranges.capacity() * size_of::<Range<u64>>() + firsts.capacity() * size_of::<u64>()
            }
        };
        bytes as u64
    }
}

impl From<Vec<NodeId>> for SeedNodes {
    fn from(list: Vec<NodeId>) -> Self {
        Self(Kind::List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_number_their_nodes_as_a_list_does() {
        let far = (1 << 40) - 3;
        let ranges = SeedNodes::ranges(vec![3..4, 10..14, far..1 << 40]);
        let list = SeedNodes::from([3, 10, 11, 12, 13, far, far + 1, far + 2].map(NodeId).to_vec());
        assert!(ranges.iter().eq(list.iter()));
        assert_eq!((ranges.len(), list.len(), ranges.is_empty()), (8, 8, false));
        assert!(SeedNodes::ranges(Vec::new()).is_empty());
    }

    #[test]
    fn all_nodes_of_a_graph_take_no_memory_to_speak_of() {
        let nodes = 0..1 << 40;
        let all = SeedNodes::ranges(vec![nodes]);
        assert_eq!((all.len(), all.get((1 << 40) - 1)), (1 << 40, NodeId((1 << 40) - 1)));
        assert!(all.bytes() < 100);
    }

    #[test]
    #[should_panic(expected = "seed 5 of 5")]
    fn there_is_no_seed_beyond_the_last() {
        SeedNodes::ranges(vec![0..2, 7..10]).get(5);
    }
}
