//! Tests of `relabel`.

use std::collections::HashMap;

use super::*;

/// Compares with a hash map on pseudo-random batches that are relabelled in pieces.
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
            // Half of the pieces draw from a small part of the graph, so that many sources are known.
            let end = if draw(2) == 0 { nodes_of_graph } else { nodes_of_graph.min(100) };
            let sources: Vec<_> = (0..draw(length)).map(|_| NodeId(draw(end))).collect();
            let expected: Vec<u32> = sources
                .iter()
                .map(|&source| {
                    let next = expected_nodes.len() as u32;
                    let index = *known.entry(source).or_insert(next);
                    if index == next {
                        expected_nodes.push(source);
                    }
                    index
                })
                .collect();
            let mut indices = vec![0; sources.len()];
            relabel.relabel(&sources, &mut nodes, &mut indices);
            assert_eq!(indices, expected);
        }
        assert_eq!(nodes, expected_nodes);
    }
}

#[test]
fn both_tables_number_nodes_in_the_order_they_are_met() {
    // Small batches, and batches that make both tables grow several times.
    for (batches, pieces, length) in [(300, 4, 20), (10, 30, 9000)] {
        relabels(&mut Direct::new(200_000), 200_000, batches, pieces, length);
        relabels(&mut Hashed::default(), 200_000, batches, pieces, length);
        relabels(&mut Hashed::default(), 1 << 40, batches, pieces, length);
    }
}

#[test]
fn a_node_that_is_there_twice_has_its_first_index_however_the_table_grows() {
    let repeated: Vec<NodeId> = [3, 4, 3].map(NodeId).to_vec();
    let many: Vec<NodeId> = (10..100_000).map(NodeId).collect();
    for table in [&mut Direct::new(200_000) as &mut dyn Relabel, &mut Hashed::default()] {
        table.begin();
        let (mut nodes, mut indices) = (Vec::new(), vec![0; many.len()]);
        table.relabel(&repeated[..2], &mut nodes, &mut indices[..2]);
        nodes.push(repeated[2]);
        for sources in [&repeated[..], &many, &repeated] {
            table.relabel(sources, &mut nodes, &mut indices[..sources.len()]);
        }
        assert_eq!((&indices[..3], nodes.len()), (&[0, 1, 0][..], 3 + many.len()));
    }
}

#[test]
fn a_direct_table_forgets_before_batch_numbers_come_again() {
    let mut direct = Direct::new(10);
    let wrap = 1u32 << (32 - INDEX_BITS_MIN);
    for batch in 0..wrap + 2 {
        direct.begin();
        let mut nodes = Vec::new();
        let mut indices = [9; 2];
        // Node 5 is only in batches that would have the same number if the numbers wrapped around.
        let rare = if batch % (wrap - 1) == 0 { 5 } else { 6 };
        direct.relabel(&[NodeId(rare), NodeId(7)], &mut nodes, &mut indices);
        assert_eq!(indices, [0, 1], "batch {batch}");
    }
}
