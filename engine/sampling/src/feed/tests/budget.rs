//! A feed takes the memory that it was given, and no more.

use std::{
    thread,
    time::{Duration, Instant},
};

use grappa_io::{ledger::leased_bytes, machine::peak_rss_bytes};

use super::*;

#[test]
fn a_budget_that_is_too_small_names_the_smallest_sufficient_one() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(1, 20);
        let read = read::Options::default();
        let kept = FeedOptions { keeps_margin: true, ..options(0, 2) };
        for options in [kept.clone(), FeedOptions { read, ..kept }] {
            let options = with_little(&store, &source, 0, options);
            for less in [1, 100, 5000] {
                let options = FeedOptions { memory_bytes: options.memory_bytes - less, ..options.clone() };
                let error = Feed::open(&store, &[], &source, &options).err();
                assert!(matches!(error, Some(Error::Budget { .. })), "{less} bytes less: {error:?}");
            }
            let feed = Feed::open(&store, &[], &source, &options).unwrap();
            consume_all(&feed, &source, &rows);
        }
    });
}

#[test]
fn a_budget_too_small_for_seeds_is_an_error_before_anything_is_sampled() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 40);
        let source = SkewedSource::new(1, 20).with_fault(0, InjectedFault::Panic);
        let error = Feed::open(&store, &[], &source, &options(1000, 2)).err();
        let Some(Error::Budget { operation, given: 1000, .. }) = error else { panic!("{error:?}") };
        assert!(operation.contains("only seeds"), "{operation}");
    });
}

#[test]
fn a_budget_too_small_for_the_margin_is_enough_unless_that_is_kept() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(1, 20);
        let options_with = |keeps_margin| FeedOptions { keeps_margin, ..options(0, 2) };
        // The error names memory for the margin, kept or not.
        let [named, with_margin] =
            [false, true].map(|keeps_margin| smallest(&store, &source, &options_with(keeps_margin)));
        assert_eq!(named, with_margin);
        for memory_bytes in [with_margin - (16 << 10), with_margin - (8 << 10), with_margin - 1] {
            let kept = FeedOptions { memory_bytes, ..options_with(true) };
            let error = Feed::open(&store, &[], &source, &kept).err();
            assert!(matches!(error, Some(Error::Budget { .. })), "{memory_bytes}: {error:?}");
            let shrinking = FeedOptions { keeps_margin: false, ..kept };
            let feed = Feed::open(&store, &[], &source, &shrinking).unwrap();
            consume_all(&feed, &source, &rows);
        }
    });
}

#[test]
fn leases_of_a_feed_fill_its_memory_and_never_exceed_it() {
    watched(|| {
        let (_folder, store, _) = f32_rows(40);
        let source = SkewedSource::new(1, 20);
        let least = with_little(&store, &source, 0, options(0, 2)).memory_bytes;
        let resident = all_chunks();
        for owned in [&[][..], &resident] {
            for memory in [least, least + 1000, least + (100 << 10), 64 << 20, 256 << 20] {
                let feed = Feed::open(&store, owned, &source, &options(memory, 2)).unwrap();
                let leased = leased_bytes(feed.leases());
                assert!(leased <= memory, "{leased} of {memory}: {:?}", feed.leases());
                let bytes = |name: &str| {
                    feed.leases().iter().filter(|lease| lease.name == name).map(|lease| lease.bytes).sum::<u64>()
                };
                assert_eq!(bytes("resident rows"), feed.resident_bytes());
                assert!(bytes("row pool") >= (feed.pool_rows() * 40 * size_of::<f32>()) as u64);
                // The smallest memory has nothing to spare.
                assert!(memory > least + 1000 || leased > memory - memory / 16, "{leased} of {memory}");
            }
        }
    });
}

#[test]
fn batches_may_grow_into_the_reserve_and_no_further() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(2, 41);
        // The feed is opened with a source that has no large batch.
        for (large, fits) in [(300, true), (2000, false)] {
            let growing = source.clone().with_fault(20, InjectedFault::Grow(large));
            let feed = Feed::open(&store, &[], &source, &options(2 << 20, 2)).unwrap();
            let (taken, error) = consume(&feed, &growing, &rows);
            match error {
                None => assert!(fits && taken == 41, "{large} rows"),
                Some(error) => {
                    assert!(!fits, "{error}");
                    assert!(error.to_string().contains("minibatch"), "{error}");
                    consume_all(&feed, &source, &rows);
                }
            }
        }
    });
}

#[test]
fn a_batch_waits_for_the_memory_of_those_that_another_thread_returns() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 40);
        let source = SkewedSource::new(5, 12);
        // The feed is opened with a source that has no large batch.
        let growing = Arc::new(source.clone().with_fault(2, InjectedFault::GrowFrom(600)));
        // This thread returns a batch when it has the next one, and the feed had time to make a third.
        let take_all = |memory_bytes, held, patience| {
            let feed = Feed::open(&store, &[], &source, &options(memory_bytes, 2)).ok()?;
            let core = feed.core.clone();
            let epoch = feed.epoch(&growing);
            if let Some(held) = held {
                epoch.hold_while_waiting(held);
            }
            thread::scope(|scope| {
                let (sender, receiver) = mpsc::sync_channel(0);
                scope.spawn(move || {
                    for batch in epoch.map_while(Result::ok) {
                        sender.send(batch).expect("all are received");
                    }
                });
                let (mut before, mut taken) = (None, 0);
                for batch in receiver {
                    let end = Instant::now() + patience;
                    while before.is_some() && !core.lock().stop && Instant::now() < end {
                        thread::sleep(Duration::from_micros(100));
                    }
                    before = Some(batch);
                    taken += 1;
                }
                (taken == 12).then_some(())
            })
        };
        let (mut less, mut enough) = (0u64, 4 << 20);
        while enough - less > 1 << 10 {
            let memory = less.midpoint(enough);
            match take_all(memory, Some(1), Duration::from_millis(2)) {
                Some(()) => enough = memory,
                None => less = memory,
            }
        }
        assert!(enough < 4 << 20, "{enough}");
        assert_eq!(take_all(enough, None, Duration::from_secs(5)), None);
    });
}

#[test]
fn more_memory_means_fewer_reads() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(3, 100);
        let mut adopted = 0;
        let missed: Vec<u64> = [0, 100, 1000]
            .into_iter()
            .map(|kib| {
                let options = with_little(&store, &source, kib << 10, options(0, 2));
                let feed = Feed::open(&store, &[], &source, &options).unwrap();
                consume_all(&feed, &source, &rows);
                let stats = feed.stats();
                adopted = stats.rows_adopted;
                stats.rows_missed
            })
            .collect();
        assert!(missed[0] > missed[1] && missed[1] > missed[2], "{missed:?}");
        // All rows fit. So each is read once, on its own or in the gap between others, except a few that others
        // evicted.
        let mut wanted: Vec<NodeId> = (0..100).flat_map(|index| source.minibatch(index).nodes).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let read = missed[2] + adopted;
        assert!((wanted.len() as u64..NODES * 21 / 20).contains(&read), "{read} of {}", wanted.len());
    });
}

/// The store of the child process that is measured. Set only in that process.
const CHILD: &str = "GRAPPA_TEST_FEED_STORE";

/// Runs in a child process, so that no other test takes memory.
#[test]
fn peak_memory_stays_within_the_budget() {
    const BUDGET: u64 = 64 << 20;
    if let Some(store) = std::env::var_os(CHILD) {
        return deliver_within(&std::path::PathBuf::from(store), BUDGET);
    }
    if peak_rss_bytes().is_none() {
        grappa_skip::skip!("the system does not report the peak memory of a process");
    }
    // 128 MiB of rows. A minibatch needs 8 MiB.
    let folder = tempfile::tempdir().unwrap();
    let spec = (FeatureDtype::F32, 512, FeatureSource::Stored);
    let store = store_with(folder.path(), Some(spec), |options| {
        options.recipe = Recipe::new(Model::Rmat(Rmat::graph500(16, 1.0)), 3);
    });
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "feed::tests::budget::peak_memory_stays_within_the_budget", "--nocapture"])
        .env(CHILD, store.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let taken = text.split("took ").nth(1).and_then(|rest| rest.split(' ').next());
    let taken: u64 = taken.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!(taken <= BUDGET + (8 << 20), "{taken} bytes of {BUDGET}");
    // A feed that takes much less does not test the limit.
    assert!(taken >= BUDGET / 2, "{taken} bytes of {BUDGET}");
}

fn deliver_within(path: &Path, budget: u64) {
    let store = Arc::new(Store::open(path).unwrap());
    let source = Arc::new(SkewedSource { rows: 4096, nodes: store.manifest().nodes, ..SkewedSource::new(4, 60) });
    let before = peak_rss_bytes().unwrap();
    let options = FeedOptions { memory_bytes: budget, threads: 2, ..FeedOptions::default() };
    let feed = Feed::open(&store, &[], &*source, &options).unwrap();
    assert!(feed.pool_rows() > 0 && feed.pool_rows() < 1 << 15);
    for _ in 0..2 {
        for batch in feed.epoch(&source) {
            assert_eq!(batch.unwrap().features().unwrap().dim(), 512);
        }
    }
    println!("took {} bytes", peak_rss_bytes().unwrap() - before);
}
