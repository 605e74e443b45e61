//! Resident, pooled and computed rows are the rows of the store.

use super::*;

const DTYPES: [FeatureDtype; 4] = [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::Int8];
const OUTPUTS: [OutputDtype; 2] = [OutputDtype::F32, OutputDtype::Bf16];

#[test]
fn resident_and_pooled_rows_of_every_dtype_are_those_of_the_store() {
    watched(|| {
        for dtype in DTYPES {
            let folder = tempfile::tempdir().unwrap();
            let store = stored(folder.path(), dtype, 37);
            let source = SkewedSource::new(1, 25);
            for output in OUTPUTS {
                let rows = rows(&store, output);
                let two = [ChunkId(1), ChunkId(3)];
                for (owned, memory) in [(&all_chunks()[..], 64 << 20), (&two, 64 << 20), (&[], 64 << 20)] {
                    let mut options = options(memory, 2);
                    options.rows.output = output;
                    let feed = Feed::open(&store, owned, &source, &options).unwrap();
                    assert_eq!(feed.resident_bytes() > 0, !owned.is_empty());
                    assert_eq!(feed.is_resident(), owned.len() == CHUNKS as usize);
                    assert_eq!(feed.pool_rows() > 0, !feed.is_resident());
                    consume_all(&feed, &source, &rows);
                    let stats = feed.stats();
                    let wanted: usize = (0..25).map(|index| source.minibatch(index).nodes.len()).sum();
                    assert_eq!((stats.batches, stats.rows_wanted), (25, wanted as u64));
                    assert_eq!(stats.rows_resident + stats.rows_pooled + stats.rows_missed, stats.rows_wanted);
                    assert_eq!(stats.rows_resident > 0, !owned.is_empty());
                    assert_eq!(stats.bytes_read > 0, owned.len() < CHUNKS as usize);
                }
            }
        }
    });
}

#[test]
fn aggregates_are_delivered_with_resident_and_pooled_features() {
    watched(|| {
        for (dtype, of_aggregates, kind, with_features) in [
            (FeatureDtype::F32, FeatureDtype::F32, AggregateKind::Mean, false),
            (FeatureDtype::Int8, FeatureDtype::F16, AggregateKind::Sum, false),
            (FeatureDtype::F16, FeatureDtype::F32, AggregateKind::Gcn, false),
            (FeatureDtype::F32, FeatureDtype::F32, AggregateKind::Sum, true),
            (FeatureDtype::F16, FeatureDtype::F16, AggregateKind::Gcn, true),
            (FeatureDtype::Int8, FeatureDtype::Int8, AggregateKind::Mean, true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = stored(folder.path(), dtype, 37);
            aggregate_as(&store, kind, Some(of_aggregates), with_features);
            for output in OUTPUTS {
                let mut rows = rows(&store, output);
                append_aggregates(&mut rows, &store, kind, output);
                let source = SkewedSource::new(9, 25);
                let mut wanted = options(64 << 20, 2);
                wanted.rows.output = output;
                wanted.rows.aggregates = Some(kind);
                for owned in [&all_chunks()[..], &[ChunkId(1), ChunkId(3)], &[]] {
                    let feed = Feed::open(&store, owned, &source, &wanted).unwrap();
                    assert_eq!(feed.is_resident(), owned.len() == CHUNKS as usize);
                    consume_all(&feed, &source, &rows);
                    let stats = feed.stats();
                    let bytes = 37 * (dtype.row_bytes(37) / 37 + of_aggregates.row_bytes(37) / 37);
                    assert!(stats.bytes_wanted / stats.rows_wanted >= u64::from(bytes), "{stats:?}");
                }
                // Rows are evicted, and gaps are read.
                for coalescing_gap_bytes in [0, 12 << 10] {
                    let little = with_little(&store, &source, 20 << 10, wanted.clone());
                    let little = FeedOptions { coalescing_gap_bytes: Some(coalescing_gap_bytes), ..little };
                    let feed = Feed::open(&store, &[], &source, &little).unwrap();
                    assert!(feed.pool_rows() < NODES as usize, "{} rows", feed.pool_rows());
                    consume_all(&feed, &source, &rows);
                    consume_all(&feed, &SkewedSource::new(10, 20), &rows);
                }
            }
        }
    });
}

#[test]
fn missing_aggregates_are_an_error_that_names_their_kind() {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(folder.path(), FeatureDtype::F32, 4);
    let source = SkewedSource::new(1, 1);
    let mut wanted = options(64 << 20, 1);
    wanted.rows.aggregates = Some(AggregateKind::Mean);
    let error = |store: &Arc<Store>| Feed::open(store, &[], &source, &wanted).err().unwrap().to_string();
    let text = error(&store);
    assert!(text.contains("grappa-store preaggregate") && text.contains("--kind mean"), "{text}");
    // Pre-aggregated features of another kind do not help.
    aggregate(&store, AggregateKind::Sum, false);
    assert_eq!(error(&store), text);
    aggregate(&store, AggregateKind::Mean, false);
    assert!(Feed::open(&store, &[], &source, &wanted).is_ok());

    let folder = tempfile::tempdir().unwrap();
    let computed = super::store(folder.path(), Some((FeatureDtype::F32, 4, FeatureSource::Procedural)));
    let text = error(&computed);
    assert!(text.contains("computed"), "{text}");
}

#[test]
fn the_smallest_pool_delivers_the_same_with_any_threads_and_windows() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let source = SkewedSource::new(2, 60);
        for threads in 1..=4 {
            for (more, lookahead) in [(0, None), (20 << 10, Some(1)), (50 << 10, Some(2)), (100 << 10, Some(7))] {
                let options = FeedOptions { lookahead, ..options(0, threads) };
                let options = with_little(&store, &source, more, options);
                let feed = Feed::open(&store, &[], &source, &options).unwrap();
                assert!(feed.pool_rows() < NODES as usize, "{} rows", feed.pool_rows());
                consume_all(&feed, &source, &rows);
                let stats = feed.stats();
                assert!(stats.windows > 1 && stats.rows_missed > stats.rows_wanted / 8, "{stats:?}");
                // The next epoch begins with the pool of the first one.
                consume_all(&feed, &SkewedSource::new(3, 20), &rows);
            }
        }
    });
}

#[test]
fn rows_of_any_length_are_read_whole() {
    watched(|| {
        // From several rows in one word to rows that are longer than a read.
        for (dtype, dim) in [
            (FeatureDtype::Int8, 1),
            (FeatureDtype::F16, 3),
            (FeatureDtype::F32, 150),
            (FeatureDtype::Bf16, 1024),
            (FeatureDtype::F32, 1025),
            (FeatureDtype::F32, 5001),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = stored(folder.path(), dtype, dim);
            let rows = rows(&store, OutputDtype::F32);
            let source = SkewedSource { rows: 40, ..SkewedSource::new(4, 30) };
            for coalescing_gap_bytes in [Some(0), Some(12 << 10), None] {
                let options = FeedOptions { coalescing_gap_bytes, ..options(0, 2) };
                let options = with_little(&store, &source, 64 << 10, options);
                let feed = Feed::open(&store, &[], &source, &options).unwrap();
                consume_all(&feed, &source, &rows);
            }
        }
    });
}

#[test]
fn all_engines_deliver_the_same() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F16, 64);
        let rows = rows(&store, OutputDtype::F32);
        let source = SkewedSource::new(5, 40);
        for engine in [read::Choice::Auto, read::Choice::Pread] {
            let options = FeedOptions { engine, ..options(3 << 20, 2) };
            let feed = Feed::open(&store, &[], &source, &options).unwrap();
            if feed.engine_name() == Some("pread") && engine == read::Choice::Auto {
                grappa_skip::skip_part!("io_uring is refused here");
            }
            consume_all(&feed, &source, &rows);
        }
    });
}

#[test]
fn procedural_features_are_computed() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), Some((FeatureDtype::F32, 48, FeatureSource::Procedural)));
        let source = SkewedSource::new(6, 20);
        for output in OUTPUTS {
            let rows = rows(&store, output);
            let mut options = options(32 << 20, 2);
            options.rows.output = output;
            let feed = Feed::open(&store, &all_chunks(), &source, &options).unwrap();
            consume_all(&feed, &source, &rows);
            let stats = feed.stats();
            assert_eq!((stats.rows_generated, stats.bytes_read), (stats.rows_wanted, 0));
            assert!(stats.rows_wanted > 0);
        }
    });
}

#[test]
fn minibatches_have_no_features_if_none_are_requested() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), None);
        let source = SkewedSource::new(7, 50);
        let error = Feed::open(&store, &[], &source, &options(32 << 20, 2)).err().unwrap();
        assert!(error.to_string().contains("no features"), "{error}");
        for threads in [1, 3] {
            let options = FeedOptions { rows: RowOptions::default(), ..options(4 << 20, threads) };
            let feed = Feed::open(&store, &[], &source, &options).unwrap();
            let mut taken = 0;
            for batch in feed.epoch(&Arc::new(source.clone())) {
                let batch = batch.unwrap();
                assert_eq!((batch.index(), batch.features().is_none()), (taken, true));
                assert_eq!(batch.minibatch(), &source.minibatch(taken));
                taken += 1;
            }
            assert_eq!(taken, 50);
            assert_eq!(feed.stats().edges, 150);
        }
    });
}

#[test]
fn an_epoch_may_be_empty() {
    watched(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = stored(folder.path(), FeatureDtype::F32, 8);
        let source = SkewedSource::new(7, 0);
        let feed = Feed::open(&store, &[], &source, &options(8 << 20, 2)).unwrap();
        assert!(feed.epoch(&Arc::new(source)).next().is_none());
    });
}

#[test]
fn slow_consumers_and_slow_samplers_do_not_change_the_batches() {
    watched(|| {
        let (_folder, store, rows) = f32_rows(40);
        let pause = Duration::from_millis(3);
        for source in [SkewedSource::new(8, 40), SkewedSource::new(8, 40).with_fault(0, InjectedFault::Delay(pause))] {
            let feed =
                Feed::open(&store, &[], &source, &with_little(&store, &source, 50 << 10, options(0, 2))).unwrap();
            let mut held = std::collections::VecDeque::new();
            for batch in feed.epoch(&Arc::new(source.clone())) {
                std::thread::sleep(pause / 2);
                held.push_back(batch.unwrap());
                // One batch is kept while the consumer waits for the next.
                if held.len() > 1 {
                    check(&held.pop_front().unwrap(), &source, &rows);
                }
            }
            // A batch may outlive its epoch, and its feed.
            drop(feed);
            check(&held.pop_front().unwrap(), &source, &rows);
        }
    });
}
