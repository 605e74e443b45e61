//! The nodes that a list of ids has named.

use grappa_formats::NodeId;
use grappa_io::{Result, heap};
use roaring::RoaringTreemap;

use crate::ingest::id_lists::SET_ENTRY_BYTES;

/// A set of nodes that ids in any order add to.
///
/// A bit per node is one cache miss per id. If that takes more memory than a compressed set of the nodes, this is the compressed set,
/// which takes several.
pub enum RowSet {
    /// A bit per node.
    Bits {
        /// The bits, the lowest of each word first.
        words: Vec<u64>,
        count: u64,
    },
    Compressed(RoaringTreemap),
}

impl RowSet {
    /// An empty set of a graph with `nodes` nodes, for `listed` ids.
    pub fn new(nodes: u64, listed: u64) -> Result<Self> {
        if listed.saturating_mul(SET_ENTRY_BYTES) < nodes.div_ceil(8) {
            return Ok(Self::Compressed(RoaringTreemap::new()));
        }
        let words = heap::zeroed(nodes.div_ceil(64) as usize, "a bit for each node")?;
        Ok(Self::Bits { words, count: 0 })
    }

    /// Adds a node. False if it is there.
    #[inline]
    pub fn insert(&mut self, node: NodeId) -> bool {
        match self {
            Self::Bits { words, count } => {
                let (word, bit) = (&mut words[(node.0 / 64) as usize], 1 << (node.0 % 64));
                let is_new = *word & bit == 0;
                *word |= bit;
                *count += u64::from(is_new);
                is_new
            }
            Self::Compressed(set) => set.insert(node.0),
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::Bits { count, .. } => *count,
            Self::Compressed(set) => set.len(),
        }
    }

    pub fn first_missing(&self) -> NodeId {
        NodeId(match self {
            Self::Bits { words, .. } => match words.iter().position(|&word| word != u64::MAX) {
                Some(at) => 64 * at as u64 + u64::from(words[at].trailing_ones()),
                None => 64 * words.len() as u64,
            },
            Self::Compressed(set) => {
                let next = (0..).zip(set).find(|(node, found)| node != found);
                next.map_or(set.len(), |(node, _)| node)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_forms_are_sets(nodes in prop::collection::vec(0u64..200, 0..300)) {
            for listed in [0, 1000] {
                let (mut set, mut expected) = (RowSet::new(200, listed).unwrap(), BTreeSet::new());
                for &node in &nodes {
                    prop_assert_eq!(set.insert(NodeId(node)), expected.insert(node));
                }
                prop_assert_eq!(set.len(), expected.len() as u64);
                let missing = (0..).find(|node| !expected.contains(node)).unwrap();
                prop_assert_eq!(set.first_missing(), NodeId(missing));
            }
        }
    }
}
