//! The memory of buffers is registered until it is released.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Mutex, MutexGuard},
};

use super::*;
use crate::feed::{RegisterMemory, Registration};

/// The ends of all registered memory, by their start.
#[derive(Debug, Default, Clone)]
struct Registered(Arc<Mutex<BTreeMap<usize, usize>>>);

struct Entry(Registered, usize);

impl Registered {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.0.lock().unwrap()
    }

    fn has(&self, bytes: &[u8]) -> bool {
        let Range { start, end } = bytes.as_ptr_range();
        let ranges = self.ranges();
        let before = ranges.range(..=start.addr()).next_back();
        before.is_some_and(|(_, &registered_end)| end.addr() <= registered_end)
    }
}

impl RegisterMemory for Registered {
    fn register(&self, memory: &[u8]) -> Option<Registration> {
        let Range { start, end } = memory.as_ptr_range();
        let other = self.ranges().insert(start.addr(), end.addr());
        assert!(other.is_none(), "the memory is registered already");
        Some(Box::new(Entry(self.clone(), start.addr())))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        assert!(self.0.ranges().remove(&self.1).is_some());
    }
}

#[test]
fn delivered_features_are_in_registered_memory_even_after_buffers_grew() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 40);
        let source = SkewedSource::new(2, 41);
        let registered = Registered::default();
        let mut options = options(2 << 20, 2);
        options.rows.register = Some(Arc::new(registered.clone()));
        let feed = Feed::open(&store, &[], &source, &options).unwrap();
        let buffers = registered.ranges().len();
        assert!(buffers >= 2);
        let growing = Arc::new(source.with_fault(20, InjectedFault::Grow(300)));
        let mut taken = 0;
        for batch in feed.epoch(&growing) {
            let batch = batch.unwrap();
            assert!(registered.has(batch.features().unwrap().bytes()), "batch {taken}");
            taken += 1;
        }
        assert_eq!(taken, 41);
        assert_eq!(registered.ranges().len(), buffers);
        drop(feed);
        assert!(registered.ranges().is_empty());
    });
}
