use grappa_formats::{
    container::FileKind,
    order_table::{OrderMeta, OrderTable, encode_entries},
};
use proptest::prelude::*;

use crate::{file, open};

pub fn order_file(nodes: &[u64]) -> Vec<u8> {
    let mut ranks = vec![0; nodes.len()];
    for (rank, &node) in nodes.iter().enumerate() {
        ranks[node as usize] = rank as u64;
    }
    let mut payload = Vec::new();
    encode_entries(nodes, &mut payload);
    encode_entries(&ranks, &mut payload);
    file(
        FileKind::ORDER,
        OrderMeta {
            nodes: nodes.len() as u64,
        }
        .encode(),
        &payload,
    )
}

proptest! {
    #[test]
    fn an_order_is_read_both_ways(nodes in (0..300u64).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle())) {
        let file = order_file(&nodes);
        let (header, payload) = open(&file, FileKind::ORDER);
        let order = OrderTable::new(&header, payload).unwrap();
        prop_assert_eq!(order.nodes(), nodes.len() as u64);
        prop_assert!(order.check(0..order.nodes()).is_ok());
        for (rank, &node) in nodes.iter().enumerate() {
            prop_assert_eq!(order.forward(rank as u64).unwrap(), node);
            prop_assert_eq!(order.inverse(node).unwrap(), rank as u64);
        }
    }
}
