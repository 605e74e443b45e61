//! Edges with times as events, compared with lists of all events.

use std::collections::BTreeSet;

use grappa_engine::{NodeId, Silent, Store};
use grappa_formats::random::draw_at;
use grappa_sampling::links::{EdgeBank, EndTimes, TimeRange, split_by_time};

use super::times::store_of;

/// Events of 50 nodes: source, destination and time. Many have the same time.
fn events(count: u64, times: u64) -> Vec<(u64, u64, i64)> {
    (0..count).map(|k| (draw_at(1, k) % 50, draw_at(2, k) % 50, (draw_at(3, k) % times) as i64 - 20)).collect()
}

fn stored(events: &[(u64, u64, i64)]) -> (tempfile::TempDir, Store) {
    // All nodes are there, whatever the events.
    let lines: String = events.iter().map(|(source, target, time)| format!("{source},{target},{time}\n")).collect();
    let (folder, path) = store_of(&lines);
    (folder, Store::open(&path).unwrap())
}

#[test]
fn edges_are_divided_by_time_as_a_sorted_list_is() {
    for (count, times) in [(1, 1), (40, 5), (1000, 3), (1000, 200), (2000, 1 << 40)] {
        let events = events(count, times);
        let (_folder, store) = stored(&events);
        let mut sorted: Vec<i64> = events.iter().map(|event| event.2).collect();
        sorted.sort_unstable();
        for shares in [[0.7, 0.15], [0.5, 0.5], [0.0, 0.3], [1.0, 0.0], [0.01, 0.01], [0.0, 0.0]] {
            let parts = split_by_time(&store, &EndTimes::default(), shares, &Silent).unwrap();
            // The last event of a part is the one of its rank, with all at its time.
            let last = |share: f64| match (count as f64 * share).round() as usize {
                0 => i64::MIN,
                rank => sorted[rank - 1],
            };
            let ends = [last(shares[0]), last(shares[0] + shares[1])];
            let expected = [
                TimeRange { first: i64::MIN, last: ends[0] },
                TimeRange { first: ends[0].saturating_add(1), last: ends[1] },
                TimeRange { first: ends[1].saturating_add(1), last: i64::MAX },
            ];
            assert_eq!(parts, expected, "{count} events, {shares:?}");
            let parts_of = |time: i64| parts.iter().filter(|part| part.first <= time && time <= part.last).count();
            assert!(sorted.iter().all(|&time| shares == [0.0, 0.0] || parts_of(time) == 1), "each event has one part");
        }
    }
}

#[test]
fn edge_bank_knows_the_edges_before_a_time() {
    let events = events(800, 60);
    let (_folder, store) = stored(&events);
    let bank = EdgeBank::open(&store).unwrap().unwrap();
    let (mut known, mut asked) = (0, 0);
    for time in [i64::MIN, -20, 0, 17, 39, 40, i64::MAX] {
        let before: BTreeSet<(u64, u64)> =
            events.iter().filter(|event| event.2 < time).map(|event| (event.0, event.1)).collect();
        for (source, target) in (0..50).flat_map(|source| (0..50).map(move |target| (source, target))) {
            let ends = [source, target].map(|number| node(&store, number));
            let expected = before.contains(&(source, target));
            assert_eq!(
                bank.contains((ends[0], ends[1]), time).unwrap(),
                expected,
                "{source} to {target} before {time}"
            );
            (known, asked) = (known + usize::from(expected), asked + 1);
        }
    }
    assert!(known > 1000 && known < asked / 2, "{known} of {asked}");
    // Edges without times have no bank.
    let (_folder, untimed) = grappa_cora::Cora::ingest();
    assert!(EdgeBank::open(&untimed).unwrap().is_none());
}

/// The node of a number: ids are dense, and nodes in their order.
fn node(store: &Store, number: u64) -> NodeId {
    assert!(number < store.manifest().nodes);
    NodeId(number)
}
