//! Batches that are as large as the pool allows get slots, whatever had slots when they were planned first.

use std::collections::{BTreeMap, HashMap};

use grappa_io::slots::Slots;

use super::{
    rows::{RowContent, RowType},
    *,
};
use crate::feed::{
    access::StoredRows,
    files::RowFiles,
    planner::{PlanOutcome, Planner, Window},
    pool::{Pool, PoolRows, geometry::PoolGeometry},
    rows::RowFormat,
    stats::Counters,
};

/// A planner with the smallest pool for batches of `rows` rows, and a model of what the reader writes to the pool.
struct Planning {
    planner: Planner,
    geometry: PoolGeometry,
    /// The row in each slot after the windows that were read.
    in_slots: HashMap<u32, NodeId>,
    counters: Counters,
}

impl Planning {
    fn new(store: &Arc<Store>, rows: usize, coalescing_gap_bytes: u64) -> Self {
        let layout = RowFormat::features(store.manifest().features.as_ref().unwrap());
        let format = RowFormat::new(&[(RowType::default(), RowContent::Features, layout)], OutputDtype::F32);
        let geometry = PoolGeometry::for_rows(rows);
        let rows = StoredRows {
            files: RowFiles::open(&grappa_storage::Graph::from_store(store), &format, &BTreeMap::new()).unwrap(),
            resident: None,
            pool: Some(PoolRows {
                geometry,
                slots: Slots::new(geometry.slots(), format.slot_bytes()).unwrap(),
                coalescing_gap_bytes,
            }),
        };
        Self {
            planner: Planner::new(Pool::new(geometry).unwrap(), Arc::new(rows)),
            geometry,
            in_slots: HashMap::new(),
            counters: Counters::default(),
        }
    }

    fn plan(&mut self, nodes: &[NodeId], slots: &mut Vec<u32>, batch: u64, pinned_from: u64) -> PlanOutcome {
        let planned = self.planner.plan(nodes, slots, batch, pinned_from, &self.counters);
        planned.unwrap()
    }

    fn close(&mut self, next_batch: u64) -> Window {
        self.planner.close(next_batch, Vec::new(), &self.counters)
    }

    fn read(&mut self, window: &Window) {
        let mut written = std::collections::HashSet::new();
        for &miss in &window.misses {
            let slot = self.geometry.slot(miss);
            assert!(written.insert(slot), "two rows of a window have slot {slot}");
            self.in_slots.insert(slot, miss.node());
        }
    }
}

#[test]
fn a_batch_that_was_planned_while_others_filled_the_pool_gets_slots_when_they_are_assembled() {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, 4);
    let cases = [(30, 0), (30, 1 << 20), (400, 0), (400, 160)].into_iter().cycle();
    for (seed, (rows, gap_bytes)) in (0..200).zip(cases) {
        let source = SkewedSource::new(seed, 60).with_fault(0, InjectedFault::GrowFrom(rows));
        let mut planning = Planning::new(&store, rows as usize, gap_bytes);
        planning.planner.begin(0);
        let mut full = 0;
        let mut unread = None;
        for batch in 0..source.batches {
            let nodes = source.minibatch(batch).nodes;
            let mut slots = Vec::new();
            // The batch before waits for its window, which may or may not have been read.
            let mut outcome = planning.plan(&nodes, &mut slots, batch, batch.saturating_sub(1));
            if outcome == PlanOutcome::PoolFull {
                full += 1;
                let window = planning.close(batch);
                if batch % 3 == 0 {
                    unread = Some(window);
                } else {
                    planning.read(&window);
                }
                outcome = planning.plan(&nodes, &mut slots, batch, batch);
            }
            assert_eq!(outcome, PlanOutcome::Complete, "seed {seed}, batch {batch}, {} rows", slots.len());
            for window in unread.take().into_iter().chain([planning.close(batch + 1)]) {
                planning.read(&window);
            }
            for (slot, node) in slots.iter().zip(&nodes) {
                assert_eq!(planning.in_slots.get(slot), Some(node), "seed {seed}, batch {batch}");
            }
        }
        assert!(full > 10, "{full} batches found the pool full");
        let stats = planning.counters.stats();
        assert_eq!(stats.rows_wanted, rows * source.batches);
    }
}
