//! Which reads a window becomes.

use std::collections::BTreeMap;

use grappa_formats::{ChunkId, NodeId, aggregates::AggregateKind, manifest::FeatureDtype};
use grappa_io::{read, slots::Slots};
use grappa_storage::aggregates::Aggregates;

use super::*;
use crate::feed::{
    OutputDtype,
    pool::{Found, Geometry, Now, Pool},
    tests::{NODES, aggregate, append_aggregates, stored},
};

/// Notes what is read.
struct Recorder {
    engine: Box<dyn ReadEngine>,
    reads: Vec<Read>,
}

impl ReadEngine for Recorder {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn read_bytes_max(&self) -> u32 {
        self.engine.read_bytes_max()
    }

    fn depth(&self) -> usize {
        self.engine.depth()
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

/// Reads the rows of `nodes` from a store of rows of `dim` f32, and checks what is in their slots.
fn fetch(dim: u32, nodes: &[u64], bridge_bytes: u64, read_bytes_max: u32) -> Vec<Read> {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, dim);
    let chunk = store.chunk(ChunkId(0)).unwrap();
    let layout = chunk.features().unwrap().meta().layout;
    let files = RowFiles::open(&store, layout, None).unwrap();
    let format = RowFormat::new(&[layout], OutputDtype::F32);
    let mut pool = Pool::new(Geometry::for_rows(nodes.len()));
    let now = Now {
        batch: 0,
        pinned_from: 0,
        window_from: 0,
    };
    let want = |&node: &u64| match pool.want(NodeId(node), now) {
        Found::Missing { miss, .. } => miss,
        found => panic!("{found:?}"),
    };
    let mut misses: Vec<Miss> = nodes.iter().map(want).collect();
    misses.sort_unstable();
    let rows = PoolRows {
        geometry: pool.geometry(),
        slots: Slots::new(pool.geometry().slots(), (4 * dim as usize).next_multiple_of(8)).unwrap(),
        bridge_bytes,
    };
    let target = Target {
        files: &files,
        format: &format,
        pool: &rows,
    };
    let options = read::Options {
        depth: 3,
        read_bytes_max,
        ..read::Options::default()
    };
    let mut engine = Recorder {
        engine: read::open(read::Choice::Pread, files.files().clone(), options).unwrap(),
        reads: Vec::new(),
    };
    let counters = Counters::default();
    let fetched = target.fetch(&misses, &mut engine, &counters, &AtomicBool::new(false));
    assert_eq!(fetched.unwrap(), Fetched::All);
    for &miss in &misses {
        let id = store.chunks().chunk_of(miss.node());
        let row = miss.node().0 - store.chunks().range(id).start;
        let mut found = vec![0; 4 * dim as usize];
        rows.slots.read(rows.geometry.slot(miss) as usize, 0, &mut found);
        let chunk = store.chunk(id).unwrap();
        assert_eq!(
            found,
            chunk.features().unwrap().row(row).unwrap(),
            "node {}",
            miss.node()
        );
    }
    let stats = counters.stats(4 * dim as usize);
    assert_eq!(stats.reads, engine.reads.len() as u64);
    assert_eq!(stats.bytes_read, engine.reads.iter().map(pages_of).sum::<u64>());
    assert!(
        stats.queue_depth > 0.0 && stats.queue_depth <= 3.0,
        "{}",
        stats.queue_depth
    );
    engine.reads
}

#[test]
fn a_page_is_read_once_and_gaps_are_read_if_they_are_short() {
    // Rows of 512 bytes, eight a page: rows 0 and 7 share one, 8 is on the next, 30 is 13 rows further than 16, and 100
    // is far. Pages are read whole, to be checked.
    let nodes = [0, 7, 8, 16, 30, 100];
    let spans = |reads: Vec<Read>| -> Vec<(u64, u64)> {
        let first = reads[0].offset;
        let span = |read: &Read| ((read.offset - first) / 512, u64::from(read.length) / 512);
        reads.iter().map(span).collect()
    };
    assert_eq!(
        spans(fetch(128, &nodes, 0, 1 << 20)),
        [(0, 16), (16, 8), (24, 8), (96, 8)]
    );
    assert_eq!(spans(fetch(128, &nodes, 7 * 512, 1 << 20)), [(0, 24), (24, 8), (96, 8)]);
    assert_eq!(spans(fetch(128, &nodes, 13 * 512, 1 << 20)), [(0, 32), (96, 8)]);
    assert_eq!(spans(fetch(128, &nodes, 1 << 20, 1 << 20)), [(0, 104)]);
    // A read is no longer than the engine takes.
    assert_eq!(
        spans(fetch(128, &nodes, 1 << 20, 20 * 512)),
        [(0, 16), (16, 16), (96, 8)]
    );
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
    // Five files, and reads as long as they may be.
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

/// A window of more than 2^24 misses, of which nearly all want the same row, so that it takes little time and memory.
#[test]
fn a_window_may_miss_more_rows_than_fit_24_bits() {
    const REPEATED: usize = 1 << 24;
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, 8);
    aggregate(&store, AggregateKind::Mean, None);
    let aggregates = Aggregates::open(&store, AggregateKind::Mean).unwrap().unwrap();
    let layout = store.chunk(ChunkId(0)).unwrap().features().unwrap().meta().layout;
    let files = RowFiles::open(&store, layout, Some(&aggregates)).unwrap();
    let format = RowFormat::new(&[layout, aggregates.layout()], OutputDtype::F32);
    let nodes: Vec<NodeId> = (0..NODES).step_by(5).map(NodeId).collect();
    let mut pool = Pool::new(Geometry::for_rows(nodes.len()));
    let now = Now {
        batch: 0,
        pinned_from: 0,
        window_from: 0,
    };
    let mut misses: Vec<Miss> = nodes
        .iter()
        .map(|&node| match pool.want(node, now) {
            Found::Missing { miss, .. } => miss,
            found => panic!("{found:?}"),
        })
        .collect();
    misses.sort_unstable();
    let different = misses.clone();
    misses.splice(..1, std::iter::repeat_n(misses[0], REPEATED));
    let rows = PoolRows {
        geometry: pool.geometry(),
        slots: Slots::new(pool.geometry().slots(), format.slot_bytes()).unwrap(),
        bridge_bytes: 0,
    };
    let target = Target {
        files: &files,
        format: &format,
        pool: &rows,
    };
    let mut engine = read::open(read::Choice::Pread, files.files().clone(), read::Options::default()).unwrap();
    let fetched = target.fetch(&misses, &mut *engine, &Counters::default(), &AtomicBool::new(false));
    assert_eq!(fetched.unwrap(), Fetched::All);
    let mut expected = crate::feed::tests::rows(&store, OutputDtype::F32);
    append_aggregates(&mut expected, &store, AggregateKind::Mean, OutputDtype::F32);
    for miss in different {
        let mut found = vec![0; format.slot_bytes()];
        rows.slots.read(rows.geometry.slot(miss) as usize, 0, &mut found);
        assert_eq!(found, expected[miss.node().0 as usize], "node {}", miss.node());
    }
}

#[test]
fn a_tag_is_used_again_only_when_its_read_is_complete() {
    let run = |first: usize| Run {
        column: first % 2,
        misses: first..first + 3,
    };
    let mut under_way = UnderWay::default();
    let far = 1 << 40;
    let tags = [far, far + 1, far + 2].map(|first| under_way.add(run(first)));
    assert_eq!(tags, [0, 1, 2]);
    assert_eq!(under_way.remove(1), run(far + 1));
    assert_eq!(under_way.add(run(7)), 1);
    assert_eq!(under_way.add(run(8)), 3);
    for (tag, first) in [(0, far), (3, 8), (2, far + 2), (1, 7)] {
        assert_eq!(under_way.remove(tag), run(first));
    }
}

#[test]
#[should_panic(expected = "completes once")]
fn a_read_that_completes_twice_is_noticed() {
    let mut under_way = UnderWay::default();
    let run = Run {
        column: 0,
        misses: 0..1,
    };
    let tag = under_way.add(run);
    under_way.remove(tag);
    under_way.remove(tag);
}

#[test]
fn a_reader_that_is_stopped_leaves_nothing_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, 8);
    let chunk = store.chunk(ChunkId(0)).unwrap();
    let layout = chunk.features().unwrap().meta().layout;
    let files = RowFiles::open(&store, layout, None).unwrap();
    let format = RowFormat::new(&[layout], OutputDtype::F32);
    let geometry = Geometry::for_rows(10);
    let rows = PoolRows {
        geometry,
        slots: Slots::new(geometry.slots(), 32).unwrap(),
        bridge_bytes: 0,
    };
    let target = Target {
        files: &files,
        format: &format,
        pool: &rows,
    };
    let mut engine = read::open(read::Choice::Pread, files.files().clone(), read::Options::default()).unwrap();
    let read = Read {
        file: FileIndex(0),
        offset: 0,
        length: 100,
        tag: 0,
    };
    assert_eq!(engine.submit(&[read]).unwrap(), 1);
    let fetched = target.fetch(&[], &mut *engine, &Counters::default(), &AtomicBool::new(true));
    assert_eq!((fetched.unwrap(), engine.in_flight()), (Fetched::Stopped, 0));
}
