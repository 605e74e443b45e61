use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn positions_and_nodes_are_those_of_a_sorted_list(
        nodes in 1u64..20_000,
        picks in prop::collection::btree_set(0u64..20_000, 0..400),
        ends in (0usize..400, 0usize..400),
    ) {
        let members: Vec<u64> = picks.into_iter().filter(|&node| node < nodes).collect();
        let set = NodeSet::from_members(nodes, members.iter().rev().map(|&node| NodeId(node)));
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
        nodes in 1u64..20_000,
        a in prop::collection::btree_set(0u64..20_000, 0..300),
        b in prop::collection::btree_set(0u64..20_000, 0..300),
        whole in any::<bool>(),
    ) {
        let below = |picks: BTreeSet<u64>| -> BTreeSet<u64> { picks.into_iter().filter(|&node| node < nodes).collect() };
        let a = if whole { (0..nodes).collect() } else { below(a) };
        let b = below(b);
        let set = |members: &BTreeSet<u64>| NodeSet::from_members(nodes, members.iter().map(|&node| NodeId(node)));
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

proptest! {
    #[test]
    fn what_threads_add_is_in_the_set(
        nodes in 1u64..20_000,
        before in prop::collection::vec(0u64..20_000, 0..50),
        added in prop::collection::vec(0u64..20_000, 0..300),
    ) {
        let below = |picks: Vec<u64>| -> Vec<u64> { picks.into_iter().filter(|&node| node < nodes).collect() };
        let (before, added) = (below(before), below(added));
        let grown = GrowingSet::from(&NodeSet::from_members(nodes, before.iter().map(|&node| NodeId(node))));
        std::thread::scope(|scope| {
            for part in added.chunks(100) {
                let grown = &grown;
                scope.spawn(move || grown.add_all(part));
            }
        });
        let expected: BTreeSet<u64> = before.into_iter().chain(added).collect();
        let found: BTreeSet<u64> = grown.finish().iter().map(|node| node.0).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn few_nodes_of_a_large_graph_take_little_memory() {
    let nodes = 1 << 36;
    let members = [5, 3 << 20, (1 << 36) - 1].map(NodeId);
    let set = NodeSet::from_members(nodes, members);
    assert_eq!(set.bytes(), NodeSet::bytes_of_members(nodes, 3));
    assert!(NodeSet::bytes_of_members(nodes, 3) < NodeSet::bytes_of(nodes) / 60);
    assert_eq!(set.iter().collect::<Vec<_>>(), members);
    assert_eq!(members.map(|node| set.position(node)), [0, 1, 2]);
    assert_eq!(set.position(NodeId(1 << 35)), 2);
    assert!(set.contains(members[1]) && !set.contains(NodeId(1 << 35)));
}

#[test]
fn the_set_of_all_nodes_needs_no_bits() {
    let set = NodeSet::from_members(500, (0..500).map(NodeId));
    assert!(set.is_all() && set.bits.is_none());
    assert_eq!(set.position(NodeId(499)), 499);
    assert!(!NodeSet::all(500).contains(NodeId(500)));
}
