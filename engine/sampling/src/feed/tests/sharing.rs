//! Feeds of several processes share the resident rows, or each opens alone. Here the processes are threads.

use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use super::*;

/// Messages of processes: in each exchange, the numbers of each. And whether one of them has ended.
#[derive(Debug, Default)]
struct Told {
    exchanges: Vec<Vec<Option<Vec<u64>>>>,
    has_ended: bool,
}

/// A process of several.
#[derive(Debug)]
struct Process {
    index: usize,
    count: usize,
    exchanged: AtomicUsize,
    told: Arc<(Mutex<Told>, Condvar)>,
}

impl HostProcesses for Process {
    fn count(&self) -> u32 {
        self.count as u32
    }

    fn index(&self) -> u32 {
        self.index as u32
    }

    fn exchange(&self, numbers: &[u64]) -> Result<Vec<Vec<u64>>> {
        let exchange = self.exchanged.fetch_add(1, Relaxed);
        let (told, changed) = &*self.told;
        let mut told = told.lock().unwrap();
        while told.exchanges.len() <= exchange {
            told.exchanges.push(vec![None; self.count]);
        }
        told.exchanges[exchange][self.index] = Some(numbers.to_vec());
        changed.notify_all();
        let told =
            changed.wait_while(told, |told| !told.has_ended && told.exchanges[exchange].contains(&None)).unwrap();
        let numbers = told.exchanges[exchange].iter().cloned().collect();
        Option::ok_or(numbers, Error::Stopped)
    }
}

impl Process {
    /// Makes `count` processes.
    fn several(count: usize) -> Vec<Arc<Self>> {
        let told = Arc::default();
        let process = |index| Self { index, count, exchanged: AtomicUsize::new(0), told: Arc::clone(&told) };
        (0..count).map(process).map(Arc::new).collect()
    }

    /// Tells the others that this one has ended.
    fn end(&self) {
        self.told.0.lock().unwrap().has_ended = true;
        self.told.1.notify_all();
    }
}

/// Opens a feed in each process, with the stores and the options of each.
fn open(processes: &[Arc<Process>], with: &[(Arc<Store>, FeedOptions)], source: &SkewedSource) -> Vec<Result<Feed>> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (process, (store, options)) in processes.iter().zip(with) {
            let options = FeedOptions { host: Some(process.clone()), ..options.clone() };
            threads.push(scope.spawn(move || {
                let feed = Feed::open(store, &all_chunks(), source, &options);
                if feed.is_err() {
                    process.end();
                }
                feed
            }));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The smallest budget with which a feed keeps all rows, to a page.
fn enough_to_keep(store: &Arc<Store>, source: &SkewedSource) -> u64 {
    let keeps = |memory| {
        let feed = Feed::open(store, &all_chunks(), source, &options(memory, 1));
        feed.is_ok_and(|feed| feed.is_resident())
    };
    let (mut few, mut enough) = (0, 64 << 20);
    while enough - few > 4096 {
        let middle = few + (enough - few) / 2;
        match keeps(middle) {
            true => enough = middle,
            false => few = middle,
        }
    }
    enough
}

/// Options with room for three quarters of the rows.
fn tight(store: &Arc<Store>, source: &SkewedSource) -> FeedOptions {
    options(enough_to_keep(store, source) - NODES * 64, 1)
}

#[test]
fn processes_share_rows_that_none_of_them_has_room_for() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 64);
        aggregate(&store, AggregateKind::Mean, false);
        let mut rows = rows(&store, OutputDtype::F32);
        append_aggregates(&mut rows, &store, AggregateKind::Mean, OutputDtype::F32);
        let source = SkewedSource::new(4, 10);
        let all_bytes = 2 * NODES * 64 * 4;
        for count in [2, 3, 8] {
            let mut each = options(enough_to_keep(&store, &source) + all_bytes / 4, 1);
            each.rows.aggregates = Some(AggregateKind::Mean);
            // Two columns do not fit.
            let alone = Feed::open(&store, &all_chunks(), &source, &each).unwrap();
            assert!(!alone.is_resident());
            let feeds = open(&Process::several(count), &vec![(store.clone(), each); count], &source);
            for feed in feeds {
                let feed = feed.unwrap();
                assert!(feed.is_resident());
                assert_eq!(feed.resident_bytes(), all_bytes.div_ceil(count as u64));
                consume_all(&feed, &source, &rows);
                let stats = feed.stats();
                assert_eq!((stats.rows_resident, stats.bytes_read), (stats.rows_wanted, 0));
                let (shared, alone) = (feed.resident_rows(1).unwrap(), NODES - 1..NODES);
                let mut last = vec![0.0; 64];
                shared.read(alone, &mut last);
                let last: Vec<u8> = last.iter().flat_map(|value| value.to_ne_bytes()).collect();
                assert_eq!(last, rows[NODES as usize - 1][64 * 4..]);
            }
        }
    });
}

#[test]
fn each_opens_alone_if_all_have_room_or_one_has_none_or_means_other_rows() {
    watched(|| {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = stored(folder.path(), FeatureDtype::F32, 64);
        let another = store_with(other.path(), Some((FeatureDtype::F32, 64, FeatureSource::Stored)), |options| {
            options.recipe.seed += 1;
        });
        let source = SkewedSource::new(5, 10);
        let (much, tight) = (options(64 << 20, 1), tight(&store, &source));
        let little = with_little(&store, &source, 0, much.clone());
        let computed = store_with(
            tempfile::tempdir().unwrap().path(),
            Some((FeatureDtype::F32, 64, FeatureSource::Procedural)),
            |_| {},
        );
        let all_bytes = NODES * 64 * 4;
        for (first, other, second, kept) in [
            (&much, &store, &much, [all_bytes; 2]),
            (&tight, &store, &little, [0; 2]),
            (&tight, &another, &tight, [0; 2]),
            (&tight, &computed, &much, [0; 2]),
            (&much, &another, &tight, [all_bytes, 0]),
        ] {
            let with = [(store.clone(), first.clone()), (other.clone(), second.clone())];
            let feeds = open(&Process::several(2), &with, &source);
            for ((feed, (store, _)), kept) in feeds.into_iter().zip(&with).zip(kept) {
                let feed = feed.unwrap();
                assert_eq!(feed.resident_bytes(), kept);
                consume_all(&feed, &source, &rows(store, OutputDtype::F32));
            }
        }
    });
}

#[test]
fn a_process_that_fails_is_an_error_for_all() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 64);
        let source = SkewedSource::new(6, 10);
        let with = vec![(store.clone(), tight(&store, &source)); 2];
        let path = store.path().join(format!("chunk-{}/features", CHUNKS - 1));
        let offset = grappa_forge::payload_of(&path).start;
        let message = grappa_forge::message_about(&path, offset);
        let feeds = grappa_forge::with_flip(&path, offset, || open(&Process::several(2), &with, &source));
        let [first, second] = feeds.try_into().ok().unwrap();
        assert!(matches!(first.err(), Some(Error::Stopped)));
        let error = second.err().unwrap().to_string();
        assert!(error.contains(&message), "{error}");
    });
}
