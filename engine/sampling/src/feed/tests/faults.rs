//! Under any injected fault, a feed delivers the same batches or an error, and never hangs.

use std::os::unix::fs::FileExt;

use grappa_io::read::fault::{Faults, Reordered};

use super::*;

/// A feed with a small pool, whose reads meet `faults`.
fn open(store: &Arc<Store>, source: &SkewedSource, faults: Faults, reorder: Option<u64>) -> Result<Feed> {
    let options = FeedOptions { lookahead: Some(4), ..options(0, 2) };
    let options = with_little(store, source, 30 << 10, options);
    FeedPlan::new(&grappa_storage::Graph::from_store(store), &[], source, &options)?.open_with(|files, options| {
        let engine = read::open(options.engine, files.files.clone(), faults.meet(options.read.clone()))?;
        Ok(match reorder {
            Some(seed) => Box::new(Reordered::new(engine, seed)),
            None => engine,
        })
    })
}

#[test]
fn short_refused_and_reordered_reads_do_not_change_the_batches() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(1, 30);
        for seed in 0..6 {
            let faults = Faults { seed, short_one_in: 3, refuse_one_in: 5, ..Faults::default() };
            let feed = open(&store, &source, faults, (seed % 2 == 0).then_some(seed)).unwrap();
            consume_all(&feed, &source, &rows);
            assert!(feed.stats().rows_missed > 0);
        }
    });
}

#[test]
fn a_failed_read_in_any_position_is_an_error_with_file_and_offset() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(2, 12);
        let mut passed = false;
        for position in 0.. {
            let faults = Faults { fail_from: Some(position), ..Faults::default() };
            let feed = open(&store, &source, faults, (position % 2 == 0).then_some(position)).unwrap();
            let (taken, error) = consume(&feed, &source, &rows);
            match error {
                Some(error) => {
                    let text = error.to_string();
                    assert!(text.contains("features at offset"), "{text}");
                    assert!(taken < source.batches);
                    // The next epoch fails too. It does not hang, and does not deliver rows that were never read.
                    let (_, error) = consume(&feed, &source, &rows);
                    assert!(error.is_some());
                }
                None => {
                    assert_eq!(taken, source.batches);
                    passed = true;
                    break;
                }
            }
        }
        assert!(passed);
    });
}

#[test]
fn a_consumer_that_waits_for_a_batch_gets_none_when_another_thread_ends_the_epoch() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(3, 30);
        static GATE: AtomicBool = AtomicBool::new(false);
        let held = Arc::new(source.clone().with_fault(0, InjectedFault::HoldUntil(&GATE)));
        let feed = Feed::open(&store, &[], &source, &options(2 << 20, 2)).unwrap();
        let core = feed.core.clone();
        let mut epoch = feed.epoch(&held);
        let stopper = epoch.stopper();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let ended = epoch.next().is_none();
                GATE.store(true, Ordering::Relaxed);
                ended
            });
            while !core.lock().consumer.waits {
                std::thread::yield_now();
            }
            stopper.stop();
            assert!(waiting.join().unwrap(), "a batch came");
        });
        consume_all(&feed, &source, &rows);
    });
}

#[test]
fn a_feed_is_usable_after_an_error_and_after_an_early_end() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(3, 30);
        for threads in [1, 3] {
            for owned in [&[][..], &[ChunkId(0), ChunkId(4)], &all_chunks()] {
                let feed = Feed::open(&store, owned, &source, &options(2 << 20, threads)).unwrap();
                for at in 0..source.batches {
                    let failing = source.clone().with_fault(at, InjectedFault::Error);
                    let (taken, error) = consume(&feed, &failing, &rows);
                    assert_eq!(error.unwrap().to_string(), "this batch fails; try another");
                    assert!(taken <= at);
                    {
                        let mut epoch = feed.epoch(&Arc::new(source.clone()));
                        for _ in 0..at {
                            check(&epoch.next().unwrap().unwrap(), &source, &rows);
                        }
                    }
                    if at % 8 == 0 {
                        consume_all(&feed, &source, &rows);
                    }
                }
                consume_all(&feed, &source, &rows);
            }
        }
    });
}

#[test]
fn a_panic_of_a_worker_continues_in_the_consumer() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 8);
        let source = SkewedSource::new(4, 30);
        for (at, threads) in [(0, 1), (7, 2), (29, 3)] {
            let feed = Feed::open(&store, &[], &source, &options(2 << 20, threads)).unwrap();
            let panicking = Arc::new(source.clone().with_fault(at, InjectedFault::Panic));
            let consumer = std::panic::AssertUnwindSafe(|| feed.epoch(&panicking).for_each(drop));
            let panic = std::panic::catch_unwind(consumer).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"this batch panics"));
        }
    });
}

#[test]
fn a_file_that_changed_is_an_error() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(5, 30);
        let feed = Feed::open(&store, &[], &source, &with_little(&store, &source, 0, options(0, 2))).unwrap();
        let mut epoch = feed.epoch(&Arc::new(source.clone()));
        check(&epoch.next().unwrap().unwrap(), &source, &rows);
        for chunk in 0..CHUNKS {
            let path = store.path().join(format!("chunk-{chunk}/features"));
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.write_all_at(&[0xAA; 64 << 10], 4096).unwrap();
        }
        let mut error = None;
        for batch in epoch {
            match batch {
                Ok(batch) => check(&batch, &source, &rows),
                Err(e) => error = Some(e),
            }
        }
        assert!(matches!(error, Some(Error::Changed { .. })), "{error:?}");
    });
}

#[test]
fn a_row_that_a_slice_lacks_is_an_error() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let spec = (FeatureDtype::F32, 8, FeatureSource::Stored);
        let store = store_with(folder.path(), Some(spec), |options| {
            options.only_chunks = Some(vec![0..=1, 3..=3]);
        });
        let rows = rows(&store, OutputDtype::F32);
        let within = SkewedSource { nodes: store.chunks().range(ChunkId(1)).end, ..SkewedSource::new(6, 10) };
        let beyond = SkewedSource::new(6, 10);
        for owned in [&[][..], &[ChunkId(0)], &all_chunks()] {
            let feed = Feed::open(&store, owned, &within, &options(2 << 20, 2)).unwrap();
            consume_all(&feed, &within, &rows);
            let (_, error) = consume(&feed, &beyond, &rows);
            let text = error.unwrap().to_string();
            assert!(text.contains("slice without the features of chunk"), "{text}");
            consume_all(&feed, &within, &rows);
        }
    });
}

/// Flips bytes of the features of some chunks, and checks the error of feeds that need all rows. If the store has
/// `aggregates`, their files have the features too.
fn flips_are_found(store: &Arc<Store>, aggregates: Option<AggregateKind>, choices: &[read::Choice]) {
    let mut rows = rows(store, OutputDtype::F32);
    if let Some(kind) = aggregates {
        append_aggregates(&mut rows, store, kind, OutputDtype::F32);
    }
    let options = |memory, threads| FeedOptions {
        rows: RowOptions { features: true, aggregates, ..RowOptions::default() },
        ..options(memory, threads)
    };
    let path_of = |chunk: u64| match aggregates {
        Some(kind) => store.path().join(format!("aggregates/{kind}/chunk-{chunk}")),
        None => store.path().join(format!("chunk-{chunk}/features")),
    };
    let source = SkewedSource { rows: NODES / 2, ..SkewedSource::new(4, 6) };
    let length = grappa_forge::payload_of(&path_of(1));
    let length = length.end - length.start;
    for (chunk, at) in [(0, 0), (1, length / 2), (1, length - 1), (4, 5000)] {
        let path = path_of(chunk);
        let offset = grappa_forge::payload_of(&path).start + at;
        let message = grappa_forge::message_about(&path, offset);
        grappa_forge::with_flip(&path, offset, || {
            for &engine in choices {
                // All chunks are resident, one, and none.
                for owned in [&all_chunks()[..], &[ChunkId(1)], &[]] {
                    let options = FeedOptions { engine, ..options(8 << 20, 2) };
                    let feed = match owned {
                        [] => Feed::open(store, owned, &source, &with_little(store, &source, 200 << 10, options)),
                        _ => Feed::open(store, owned, &source, &options),
                    };
                    let error = feed.map_or_else(Some, |feed| consume(&feed, &source, &rows).1);
                    let error = error.expect("a row of the block was needed").to_string();
                    assert!(error.contains(&message), "{engine:?}: {error}, not {message}");
                }
            }
        });
    }
    // The bytes are restored.
    let feed = Feed::open(store, &[], &source, &with_little(store, &source, 200 << 10, options(0, 2))).unwrap();
    consume_all(&feed, &source, &rows);
}

#[test]
fn a_flipped_byte_of_features_is_an_error_and_never_a_row() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 40);
        let choices = [read::Choice::Auto, read::Choice::Pread];
        flips_are_found(&store, None, &choices);
        aggregate(&store, AggregateKind::Sum, true);
        flips_are_found(&store, Some(AggregateKind::Sum), &choices);
    });
}

#[test]
fn a_flipped_byte_of_features_is_found_in_files_with_any_blocks() {
    watched(|| {
        for block_bytes in [64 << 10, 1000, 1 << 20] {
            let folder = tempfile::tempdir().unwrap();
            let store = stored(folder.path(), FeatureDtype::F32, 40);
            grappa_forge::rewrite_all(store.path(), block_bytes);
            let store = Arc::new(Store::open(store.path()).unwrap());
            flips_are_found(&store, None, &[read::Choice::Auto]);
        }
    });
}

/// A feed whose batches have 200 rows, and 400 from batch `at` on. Only the small ones are sampled in advance.
fn with_growing(store: &Arc<Store>, at: u64, threads: usize) -> (SkewedSource, Feed) {
    let source = SkewedSource::new(3, 200).with_fault(at, InjectedFault::GrowFrom(400));
    let options = FeedOptions { lookahead: Some(64), keeps_margin: true, ..options(0, threads) };
    let options = with_little(store, &source, 800 << 10, options);
    let feed = Feed::open(store, &[], &source, &options).unwrap();
    (source, feed)
}

#[test]
fn batches_that_are_all_larger_than_expected_wait_in_smaller_numbers() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(4);
        for threads in [1, 2, 5] {
            let (source, feed) = with_growing(&store, 10, threads);
            let in_flight = feed.core.lock().stock.in_flight();
            consume_all(&feed, &source, &rows);
            // Batches of 200 rows took the memory of fewer batches of 400.
            assert!(feed.core.lock().stock.in_flight() < in_flight, "{in_flight}");
            assert!(!feed.core.reserve.is_overdrawn());
            consume_all(&feed, &source, &rows);
        }
    });
}

#[test]
fn a_batch_that_is_larger_than_expected_waits_until_a_slow_consumer_returns_others() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(4);
        for threads in [1, 2, 5] {
            let (source, feed) = with_growing(&store, 150, threads);
            let core = feed.core.clone();
            let mut waited = false;
            for batch in feed.epoch(&Arc::new(source.clone())) {
                check(&batch.unwrap(), &source, &rows);
                while core.lock().is_sampling() {
                    std::thread::yield_now();
                }
                waited |= core.lock().first_unreserved().is_some();
            }
            assert!(waited, "all batches fitted the reserve");
        }
    });
}
