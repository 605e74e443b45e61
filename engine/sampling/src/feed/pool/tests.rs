//! Rows keep their slots while they are pinned, and hot rows stay.

use std::collections::HashMap;

use grappa_formats::random;

use super::*;

fn at(batch: u64, pinned_from: u64) -> PoolClock {
    PoolClock { batch, pinned_from, window_from: pinned_from }
}

/// The rows of a batch: node n with a probability proportional to 1/n.
fn skewed(batch: u64, rows: usize, nodes: f64) -> Vec<NodeId> {
    let mut needed: Vec<u64> = (0..2 * rows as u64)
        .map(|i| random::hash(batch << 32 | i) as f64 / u64::MAX as f64)
        .map(|uniform| nodes.powf(uniform) as u64 - 1)
        .collect();
    needed.sort_unstable();
    needed.dedup();
    needed.truncate(rows);
    needed.into_iter().map(NodeId).collect()
}

#[test]
fn no_two_rows_share_a_slot_and_pinned_rows_keep_theirs() {
    let mut pool = Pool::new(PoolGeometry::within(3000)).unwrap();
    let mut model: HashMap<u32, u64> = HashMap::new();
    let (mut pinned, mut full): (Vec<Vec<(NodeId, u32)>>, u32) = (Vec::new(), 0);
    for batch in 0..500u64 {
        let oldest = batch.saturating_sub(3);
        let mut rows = Vec::new();
        for node in skewed(batch, 600, 1e6) {
            match pool.request(node, at(batch, oldest)) {
                PoolLookup::Present { slot, .. } => {
                    assert_eq!(model.get(&slot), Some(&node.0), "batch {batch}");
                    rows.push((node, slot));
                }
                PoolLookup::Missing { slot, miss } => {
                    assert_eq!((miss.node(), pool.geometry.slot(miss)), (node, slot));
                    assert!((slot as usize) < pool.geometry.slots());
                    // A spare slot that was freed still has its row in the model, but the pool does not find it.
                    model.retain(|_, other| *other != node.0);
                    model.insert(slot, node.0);
                    rows.push((node, slot));
                }
                PoolLookup::Full => full += 1,
            }
        }
        pinned.push(rows);
        for (node, slot) in pinned[oldest as usize..].iter().flatten() {
            assert_eq!(model[slot], node.0, "batch {batch}");
        }
    }
    // Four batches need 2400 rows, many of them more than once: they fit.
    assert_eq!(full, 0);
}

#[test]
fn as_many_rows_as_asked_for_fit_at_once() {
    for rows in [1, 10, 100, 1000, 30_000] {
        let mut pool = Pool::new(PoolGeometry::for_rows(rows)).unwrap();
        for node in 0..rows as u64 {
            let found = pool.request(NodeId(node << 20 | node), at(0, 0));
            assert!(matches!(found, PoolLookup::Missing { .. }), "row {node} of {rows}: {found:?}");
        }
    }
}

#[test]
fn a_full_pool_says_so_and_has_room_when_batches_are_assembled() {
    let mut pool = Pool::new(PoolGeometry::within(64)).unwrap();
    let mut needed = (0..).map(NodeId);
    let missing = |found| matches!(found, PoolLookup::Missing { .. });
    while missing(pool.request(needed.next().unwrap(), at(7, 7))) {}
    assert_eq!(pool.request(NodeId(1 << 39), at(8, 7)), PoolLookup::Full);
    // A row that a later batch needs stays pinned.
    let PoolLookup::Present { slot, first } = pool.request(NodeId(3), at(8, 8)) else {
        panic!("row 3 was pinned");
    };
    assert!(first);
    assert!(missing(pool.request(NodeId(1 << 39), at(8, 8))));
    for node in 1000..1020 {
        match pool.request(NodeId(node), at(9, 8)) {
            PoolLookup::Missing { slot: other, .. } => assert_ne!(other, slot),
            found => assert_eq!(found, PoolLookup::Full),
        }
    }
}

#[test]
fn a_row_counts_once_for_a_window() {
    let mut pool = Pool::new(PoolGeometry::within(1000)).unwrap();
    let now = |batch| PoolClock { batch, pinned_from: 0, window_from: 5 };
    let first = |found| matches!(found, PoolLookup::Present { first: true, .. });
    pool.request(NodeId(1), now(5));
    assert!(!first(pool.request(NodeId(1), now(6))));
    let next = PoolClock { window_from: 7, ..now(7) };
    assert!(first(pool.request(NodeId(1), next)));
    assert!(!first(pool.request(NodeId(1), PoolClock { batch: 8, ..next })));
}

#[test]
fn adopted_rows_get_empty_slots_only() {
    let mut pool = Pool::new(PoolGeometry::within(80)).unwrap();
    assert_eq!(pool.unused, 64);
    let needed = pool.request(NodeId(0), at(0, 0));
    let adopted: Vec<Miss> = (0..10_000).filter_map(|node| pool.adopt(NodeId(node), 0)).collect();
    assert_eq!((adopted.len(), pool.unused), (63, 0));
    let mut slots: Vec<u32> = adopted.iter().map(|&miss| pool.geometry.slot(miss)).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 63);
    let PoolLookup::Missing { slot, .. } = needed else {
        panic!("an empty pool has no rows");
    };
    assert!(!slots.contains(&slot));
    // Requests find them, and they are evicted first.
    assert!(matches!(pool.request(adopted[5].node(), at(1, 1)), PoolLookup::Present { .. }));
    assert!(matches!(pool.request(NodeId(1 << 30), at(1, 1)), PoolLookup::Missing { .. }));
}

#[test]
fn a_row_that_was_not_read_is_forgotten() {
    for slots in [64, 16] {
        let mut pool = Pool::new(PoolGeometry::within(slots)).unwrap();
        let PoolLookup::Missing { miss, .. } = pool.request(NodeId(9), at(0, 0)) else {
            panic!("an empty pool has no rows");
        };
        assert!(matches!(pool.request(NodeId(9), at(0, 0)), PoolLookup::Present { .. }));
        pool.forget(miss);
        assert!(matches!(pool.request(NodeId(9), at(0, 0)), PoolLookup::Missing { .. }));
    }
}

#[test]
fn ids_of_forty_bits_and_old_stamps_are_kept_apart() {
    let mut pool = Pool::new(PoolGeometry::within(1 << 12)).unwrap();
    let last = NodeId((1 << 40) - 1);
    for (node, batch) in [(last, 3), (NodeId(0), 4)] {
        let PoolLookup::Missing { miss, .. } = pool.request(node, at(batch, batch)) else {
            panic!("an empty pool has no rows");
        };
        assert_eq!(miss.node(), node);
    }
    for batch in [1 << 16, 1 << 17, 5 << 16] {
        assert!(matches!(pool.request(last, at(batch, batch)), PoolLookup::Present { .. }));
    }
}

#[test]
fn a_pool_has_no_more_slots_than_its_numbers_can_address() {
    use crate::{feed::resident::RESIDENT, sample::MINIBATCH_NODES_MAX};
    // As many slots as 1 TiB pays for, and more.
    for slots in [1 << 34, usize::MAX] {
        let geometry = PoolGeometry::within(slots);
        assert!(geometry.slots() < RESIDENT as usize, "{geometry:?}");
        assert!(geometry.slots() > RESIDENT as usize - 2 * WAYS, "{geometry:?}");
        let last = 2 * WAYS as u64 + geometry.spare as u64 - 1;
        let miss = Miss::new(NodeId((1 << 40) - 1), last);
        assert_eq!((miss.node(), miss.target() as u64), (NodeId((1 << 40) - 1), last));
        assert_eq!(geometry.slot(miss) as usize, geometry.slots() - 1);
    }
    // The largest minibatch fits.
    let geometry = PoolGeometry::for_rows(MINIBATCH_NODES_MAX);
    assert!((MINIBATCH_NODES_MAX..RESIDENT as usize).contains(&geometry.slots()), "{geometry:?}");
}

/// The rate of misses stays near the rate of a pool that always holds the hottest rows of the whole run.
#[test]
fn hot_rows_stay() {
    let mut pool = Pool::new(PoolGeometry::within(20_000)).unwrap();
    let batches: Vec<Vec<NodeId>> = (0..400).map(|batch| skewed(batch, 2000, 4e5)).collect();
    let mut requests: HashMap<NodeId, u32> = HashMap::new();
    batches.iter().flatten().for_each(|&node| *requests.entry(node).or_default() += 1);
    let mut hottest: Vec<(NodeId, u32)> = requests.into_iter().collect();
    hottest.sort_unstable_by_key(|&(node, count)| (std::cmp::Reverse(count), node));
    let hottest: HashMap<NodeId, u32> = hottest.into_iter().take(20_000).collect();
    let (mut missed, mut missed_by_oracle) = (0, 0);
    for (batch, nodes) in (0..).zip(&batches) {
        for &node in nodes {
            let found = pool.request(node, at(batch, batch));
            if batch >= 200 {
                missed += u32::from(matches!(found, PoolLookup::Missing { .. }));
                missed_by_oracle += u32::from(!hottest.contains_key(&node));
            }
        }
    }
    assert!(
        f64::from(missed) < 1.6 * f64::from(missed_by_oracle),
        "{missed} missed, {missed_by_oracle} with the hottest rows"
    );
}
