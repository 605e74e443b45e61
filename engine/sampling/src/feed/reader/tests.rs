//! The reads of a window, and the rows that they bring.

use std::{collections::BTreeMap, iter, sync::Arc};

use grappa_formats::{ChunkId, NodeId, aggregates::AggregateKind, manifest::FeatureDtype};
use grappa_io::{
    read::{self, FileIndex},
    slots::Slots,
};
use grappa_storage::{Store, aggregates::Aggregates};
use tempfile::TempDir;

use super::{
    runs::{PAGE, pages_bytes},
    *,
};
use crate::feed::{
    OutputDtype,
    pool::{Pool, PoolClock, PoolLookup, geometry::PoolGeometry},
    rows::{RowContent, RowType},
    tests::{NODES, aggregate, append_aggregates, rows, stored},
};

/// Records the reads of an engine.
struct Recorder {
    engine: Box<dyn ReadEngine>,
    reads: Vec<Read>,
}

impl ReadEngine for Recorder {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn options(&self) -> &read::Options {
        self.engine.options()
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize> {
        let submitted = self.engine.submit(reads)?;
        self.reads.extend(&reads[..submitted]);
        Ok(submitted)
    }

    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        self.engine.complete(done)
    }
}

/// Whether the features of a node follow its pre-aggregated features in their files.
type WithFeatures = bool;

/// A store of f32 features, and an empty pool for them.
struct TestPool {
    _folder: TempDir,
    store: Arc<Store>,
    files: RowFiles,
    format: RowFormat,
    pool: Pool,
    rows: PoolRows,
}

impl TestPool {
    /// Features have `dim` values. The pool has room for `rows` rows.
    fn new(
        dim: u32,
        rows: usize,
        aggregates: Option<(AggregateKind, WithFeatures)>,
        coalescing_gap_bytes: u64,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, dim);
        let aggregates = aggregates.map(|(kind, with_features)| {
            aggregate(&store, kind, with_features);
            Aggregates::open(&store, kind).unwrap().unwrap()
        });
        let layout = store.features(ChunkId(0)).unwrap().unwrap().meta().layout;
        let aggregates: BTreeMap<_, _> = aggregates.into_iter().map(|aggregates| (0, aggregates)).collect();
        let aggregated = aggregates.iter().map(|(&number, rows)| (RowContent::Aggregates(number), rows.layout()));
        let columns: Vec<_> = iter::once((RowContent::Features, layout))
            .chain(aggregated)
            .map(|(content, layout)| (RowType::default(), content, layout))
            .collect();
        let format = RowFormat::new(&columns, OutputDtype::F32);
        let geometry = PoolGeometry::for_rows(rows);
        Self {
            _folder: folder,
            files: RowFiles::open(&grappa_storage::Graph::from_store(&store), &format, &aggregates).unwrap(),
            store,
            pool: Pool::new(geometry).unwrap(),
            rows: PoolRows {
                geometry,
                slots: Slots::new(geometry.slots(), format.slot_bytes()).unwrap(),
                coalescing_gap_bytes,
            },
            format,
        }
    }

    /// The sorted misses of a window that needs the rows of `nodes`.
    fn misses(&mut self, nodes: impl IntoIterator<Item = u64>) -> Vec<Miss> {
        let clock = PoolClock { batch: 0, pinned_from: 0, window_from: 0 };
        let request = |node: u64| match self.pool.request(NodeId(node), clock) {
            PoolLookup::Missing { miss, .. } => miss,
            found => panic!("{found:?}"),
        };
        let mut misses: Vec<Miss> = nodes.into_iter().map(request).collect();
        misses.sort_unstable();
        misses
    }

    fn engine(&self, options: read::Options) -> Box<dyn ReadEngine> {
        read::open(read::Choice::Pread, self.files.files.clone(), options).unwrap()
    }

    fn fetch(&self, misses: &[Miss], engine: &mut dyn ReadEngine, counters: &Counters, stop: bool) -> FetchOutcome {
        let reader = WindowReader { files: &self.files, format: &self.format, pool: &self.rows };
        reader.fetch(misses, engine, counters, &AtomicBool::new(stop)).unwrap()
    }

    /// Checks that the slots of `misses` have the rows of the store.
    fn assert_stored(&self, misses: &[Miss], aggregates: Option<AggregateKind>) {
        let mut expected = rows(&self.store, OutputDtype::F32);
        if let Some(kind) = aggregates {
            append_aggregates(&mut expected, &self.store, kind, OutputDtype::F32);
        }
        for &miss in misses {
            let node = miss.node();
            let slot = self.rows.geometry.slot(miss) as usize;
            let mut found = Vec::new();
            for column in &self.format.columns {
                let mut row = vec![0; column.stored.row_bytes()];
                self.rows.slots.read(slot, column.offset, &mut row);
                found.extend(row);
            }
            assert!(found == expected[node.0 as usize], "node {node}");
        }
    }
}

/// Reads the rows of `nodes` from a store with rows of `dim` f32, and checks their slots.
fn fetch(dim: u32, nodes: &[u64], coalescing_gap_bytes: u64, read_bytes_max: u32) -> Vec<Read> {
    fetch_columns(dim, nodes, None, coalescing_gap_bytes, read_bytes_max)
}

/// As [`fetch`], with pre-aggregated features if they are given.
fn fetch_columns(
    dim: u32,
    nodes: &[u64],
    aggregates: Option<(AggregateKind, WithFeatures)>,
    coalescing_gap_bytes: u64,
    read_bytes_max: u32,
) -> Vec<Read> {
    let mut pool = TestPool::new(dim, nodes.len(), aggregates, coalescing_gap_bytes);
    let misses = pool.misses(nodes.iter().copied());
    let options = read::Options { depth: 3, read_bytes_max, ..read::Options::default() };
    let mut engine = Recorder { engine: pool.engine(options), reads: Vec::new() };
    let counters = Counters::default();
    let fetched = pool.fetch(&misses, &mut engine, &counters, false);
    assert_eq!(fetched, FetchOutcome::Complete);
    pool.assert_stored(&misses, aggregates.map(|(kind, _)| kind));
    let stats = counters.stats();
    assert_eq!(stats.reads, engine.reads.len() as u64);
    assert_eq!(stats.bytes_read, engine.reads.iter().map(pages_bytes).sum::<u64>());
    assert!(stats.queue_depth > 0.0 && stats.queue_depth < 3.001, "{}", stats.queue_depth);
    engine.reads
}

#[test]
fn a_page_is_read_once_and_gaps_are_read_if_they_are_short() {
    // A page has eight rows of 512 bytes. Rows 0 and 7 share a page, 8 is on the next one, 30 is 13 rows after 16, and
    // 100 is far away. Pages are read whole, to be verified.
    let nodes = [0, 7, 8, 16, 30, 100];
    let spans = |reads: Vec<Read>| -> Vec<(u64, u64)> {
        let first = reads[0].offset;
        let span = |read: &Read| ((read.offset - first) / 512, u64::from(read.length) / 512);
        reads.iter().map(span).collect()
    };
    assert_eq!(spans(fetch(128, &nodes, 0, 1 << 20)), [(0, 16), (16, 8), (24, 8), (96, 8)]);
    assert_eq!(spans(fetch(128, &nodes, 7 * 512, 1 << 20)), [(0, 24), (24, 8), (96, 8)]);
    assert_eq!(spans(fetch(128, &nodes, 13 * 512, 1 << 20)), [(0, 32), (96, 8)]);
    assert_eq!(spans(fetch(128, &nodes, 1 << 20, 1 << 20)), [(0, 104)]);
    // A read is no longer than the engine allows.
    assert_eq!(spans(fetch(128, &nodes, 1 << 20, 20 * 512)), [(0, 16), (16, 16), (96, 8)]);
}

#[test]
fn dense_windows_become_passes_over_the_files() {
    let nodes: Vec<u64> = (0..NODES).filter(|node| node % 3 != 1).collect();
    let reads = fetch(96, &nodes, 4096, 64 << 10);
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for read in &reads {
        let before = next.insert(read.file.0, read.offset + u64::from(read.length));
        // The page where a run is cut is read twice.
        assert!(before.is_none_or(|before| before <= read.offset + PAGE), "{read:?}");
    }
    let bytes: u64 = reads.iter().map(|read| u64::from(read.length)).sum();
    assert!(bytes > 96 * 4 * 9 / 10 * NODES);
    // There are five files, and reads are as long as possible.
    assert!(reads.len() as u64 <= 5 + bytes / ((64 << 10) - PAGE - 96 * 4));
}

#[test]
fn rows_longer_than_a_read_are_cut_at_words() {
    let reads = fetch(1001, &[3, 4, 2000], 1 << 20, 1500);
    assert_eq!(reads.len(), 9);
    for read in &reads {
        assert!(read.length <= 1496, "{read:?}");
    }
}

#[test]
fn features_beside_aggregates_take_no_reads_of_their_own() {
    let reads = |dim, nodes: &[u64], with_features, read_bytes_max| {
        let aggregates = Some((AggregateKind::Mean, with_features));
        fetch_columns(dim, nodes, aggregates, 0, read_bytes_max)
    };
    let far_apart: Vec<u64> = (0..NODES).step_by(100).collect();
    let apart = reads(128, &far_apart, false, 1 << 20);
    let together = reads(128, &far_apart, true, 1 << 20);
    assert_eq!((apart.len(), together.len()), (2 * far_apart.len(), far_apart.len()));
    assert!(together.iter().all(|read| u64::from(read.length) == PAGE));
    // Both rows of a node are cut, and features start in the middle of a read.
    let reads = reads(1001, &[3, 4, 2000], true, 1500);
    assert_eq!(reads.len(), 3 * (2 * 4008_usize).div_ceil(1496));
}

/// A window of more than 2^24 misses. Nearly all of them are for the same row, which saves time and memory.
#[test]
fn a_window_may_miss_more_rows_than_fit_24_bits() {
    const REPEATED: usize = 1 << 24;
    let kind = AggregateKind::Mean;
    let nodes: Vec<u64> = (0..NODES).step_by(5).collect();
    let mut pool = TestPool::new(8, nodes.len(), Some((kind, false)), 0);
    let different = pool.misses(nodes);
    let mut misses = different.clone();
    misses.splice(..1, iter::repeat_n(misses[0], REPEATED));
    let mut engine = pool.engine(read::Options::default());
    let fetched = pool.fetch(&misses, &mut *engine, &Counters::default(), false);
    assert_eq!(fetched, FetchOutcome::Complete);
    pool.assert_stored(&different, Some(kind));
}

#[test]
fn a_tag_is_used_again_only_when_its_read_is_complete() {
    let run = |first: usize| Run { columns: first % 2..2, misses: first..first + 3 };
    let mut in_flight = Tags::default();
    let far = 1 << 40;
    let tags = [far, far + 1, far + 2].map(|first| in_flight.add(run(first)));
    assert_eq!(tags, [0, 1, 2]);
    assert_eq!(in_flight.remove(1), run(far + 1));
    assert_eq!(in_flight.add(run(7)), 1);
    assert_eq!(in_flight.add(run(8)), 3);
    for (tag, first) in [(0, far), (3, 8), (2, far + 2), (1, 7)] {
        assert_eq!(in_flight.remove(tag), run(first));
    }
}

#[test]
#[should_panic(expected = "completes once")]
fn a_read_that_completes_twice_is_noticed() {
    let mut in_flight = Tags::default();
    let run = Run { columns: 0..1, misses: 0..1 };
    let tag = in_flight.add(run);
    in_flight.remove(tag);
    in_flight.remove(tag);
}

#[test]
fn a_reader_that_is_stopped_leaves_nothing_in_flight() {
    let pool = TestPool::new(8, 10, None, 0);
    let mut engine = pool.engine(read::Options::default());
    let read = Read { file: FileIndex(0), offset: 0, length: 100, tag: 0 };
    assert_eq!(engine.submit(&[read]).unwrap(), 1);
    let fetched = pool.fetch(&[], &mut *engine, &Counters::default(), true);
    assert_eq!((fetched, engine.in_flight()), (FetchOutcome::Stopped, 0));
}
