use grappa_formats::{
    DenseId, NodeId,
    container::FileKind,
    permutation_table::{PermutationTable, PermutationTableMeta, encode_entries},
};
use proptest::prelude::*;

use crate::{file, open};

pub fn table_file(nodes: &[u64]) -> Vec<u8> {
    let mut ids = vec![0; nodes.len()];
    for (id, &node) in nodes.iter().enumerate() {
        ids[node as usize] = id as u64;
    }
    let mut payload = Vec::new();
    encode_entries(nodes, &mut payload);
    encode_entries(&ids, &mut payload);
    file(FileKind::PERMUTATION, PermutationTableMeta { nodes: nodes.len() as u64 }.encode(), &payload)
}

proptest! {
    #[test]
    fn a_table_is_read_both_ways(nodes in (0..300u64).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle())) {
        let file = table_file(&nodes);
        let (header, payload) = open(&file, FileKind::PERMUTATION);
        let table = PermutationTable::new(&header, payload).unwrap();
        prop_assert_eq!(table.nodes(), nodes.len() as u64);
        prop_assert!(table.check(0..table.nodes()).is_ok());
        for (id, &node) in nodes.iter().enumerate() {
            prop_assert_eq!(table.node(DenseId(id as u64)).unwrap(), NodeId(node));
            prop_assert_eq!(table.dense_id(NodeId(node)).unwrap(), DenseId(id as u64));
        }
    }
}
