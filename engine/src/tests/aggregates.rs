//! Pre-aggregated features: made, interrupted, continued, replaced, damaged.

use std::{fs, path::Path, sync::Arc};

use grappa_formats::{
    NodeId,
    aggregates::{AggregateIndex, AggregateKind},
    features::FeatureLayout,
    manifest::{ExternalIds, FeatureDtype},
};
use grappa_io::{
    Error,
    progress::{Progress, Silent},
};
use grappa_sampling::Loader;
use grappa_storage::{
    Store,
    aggregates::{Aggregates, manifest_digest},
    feature_rows::FeatureRowsWriter,
};

use super::sample::{DIM, NODES, Sample, in_folder};
use crate::{
    aggregate::{Budget, NodeRows, StoredRows, store_features},
    derive::preaggregate::{AggregateOptions, preaggregate},
    verify::verify,
};

pub const OPTIONS: AggregateOptions = AggregateOptions::new(AggregateKind::Mean, Budget::new(3 << 20, 2));

fn sample(folder: &Path) -> Store {
    sample_of(folder, false)
}

fn sample_of(folder: &Path, weighted: bool) -> Store {
    let sample = Sample { ids: ExternalIds::Dense, dtype: FeatureDtype::F32, weighted, ..Sample::STRINGS };
    Store::open(&sample.write(folder)).unwrap()
}

fn rows(aggregates: &Aggregates) -> Vec<f32> {
    let layout: FeatureLayout = aggregates.layout();
    let mut all = Vec::new();
    for file in aggregates.files().iter().flatten() {
        let payload = file.open().unwrap().read_payload().unwrap();
        let mut values = vec![0.0; payload.len() / layout.stride as usize * DIM as usize];
        layout.decode_rows(&payload, &mut values);
        all.extend(values);
    }
    all
}

fn expected(kind: AggregateKind) -> Vec<f32> {
    (0..NODES)
        .flat_map(|node| {
            let sources = Sample::sources(node);
            let weight = move |node, source| match kind.is_weighted() {
                true => Sample::weight(node, source),
                false => 1.0,
            };
            let total = move |node| -> f32 { Sample::sources(node).into_iter().map(|u| weight(node, u)).sum() };
            (0..u64::from(DIM)).map(move |i| {
                let term = |&u: &u64| weight(node, u) * Sample::feature(u, i);
                match kind {
                    AggregateKind::Sum | AggregateKind::WeightedSum => sources.iter().map(term).sum(),
                    AggregateKind::Mean | AggregateKind::WeightedMean => {
                        let sum: f32 = sources.iter().map(term).sum();
                        if total(node) > 0.0 { sum / total(node) } else { 0.0 }
                    }
                    AggregateKind::Gcn | AggregateKind::WeightedGcn => {
                        let scaled = |u: &u64| term(u) / ((total(*u) + 1.0) * (total(node) + 1.0)).sqrt();
                        sources.iter().map(scaled).sum()
                    }
                }
            })
        })
        .collect()
}

#[test]
fn every_kind_is_what_its_name_says() {
    let (_folder, store) = in_folder(|folder| sample_of(folder, true));
    for kind in AggregateKind::ALL {
        assert!(Aggregates::open(&store, kind).unwrap().is_none());
        let made = preaggregate(&store, &AggregateOptions { kind, ..OPTIONS }, &Silent).unwrap();
        let opened = Aggregates::open(&store, kind).unwrap().expect("just made");
        assert_eq!((made.nodes, made.bytes, made.chunks_kept), (NODES, opened.bytes(), 0));
        for (found, expected) in rows(&opened).iter().zip(expected(kind)) {
            let apart = (found - expected).abs() / expected.abs().max(1.0);
            assert!(apart < 1e-5, "{kind}: {found} for {expected}");
        }
    }
    // The store opens as before.
    Store::open(store.path()).unwrap();
}

#[test]
fn weighted_kinds_have_the_same_bits_in_any_memory() {
    let (_folder, store) = in_folder(|folder| sample_of(folder, true));
    for kind in AggregateKind::ALL.into_iter().filter(|kind| kind.is_weighted()) {
        let made = |memory| {
            let options = AggregateOptions { budget: Budget::new(memory, 2), kind, replace: true, ..OPTIONS };
            preaggregate(&store, &options, &Silent)?;
            Ok(rows(&Aggregates::open(&store, kind).unwrap().unwrap()))
        };
        let least = match made(0) {
            Err(Error::Budget { least, .. }) => least,
            other => panic!("{other:?}"),
        };
        // With the least memory, features are streamed.
        assert_eq!(made(least).unwrap(), made(1 << 30).unwrap(), "{kind}");
    }
}

#[test]
fn weighted_kinds_refuse_weights_that_they_cannot_take() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let made = |store: &Store, kind| {
        let made = preaggregate(store, &AggregateOptions { kind, ..OPTIONS }, &Silent);
        made.map_err(|error| error.to_string())
    };
    let without = sample(folders[0].path());
    let error = made(&without, AggregateKind::WeightedMean).unwrap_err();
    assert!(error.contains("weighted-mean takes the weights of edges") && error.contains("--weights"), "{error}");
    let negative = Sample { weight_scale: -1.0, ..Sample::ALL_PARTS };
    let negative = Store::open(&negative.write(folders[1].path())).unwrap();
    for kind in [AggregateKind::WeightedMean, AggregateKind::WeightedGcn] {
        let error = made(&negative, kind).unwrap_err();
        let expected = format!("{kind} needs finite weights of at least 0");
        assert!(error.contains("has weight -") && error.contains(&expected), "{error}");
        assert!(!negative.path().join("aggregates").exists());
    }
    made(&negative, AggregateKind::WeightedSum).unwrap();
}

#[test]
fn rows_in_the_memory_of_a_feed_are_those_in_files() {
    let (_folder, store) = in_folder(|folder| Arc::new(sample(folder)));
    for with_features in [false, true] {
        let options = AggregateOptions { with_features, replace: true, ..OPTIONS };
        preaggregate(&store, &options, &Silent).unwrap();
        check_rows_in_memory(&store);
    }
}

/// Compares the rows that a feed has in memory with those in files.
fn check_rows_in_memory(store: &Arc<Store>) {
    let mut loader = Loader::open(store)
        .fanouts([2])
        .batch(4)
        .memory(64 << 20)
        .options(|options| options.rows.aggregates = Some(OPTIONS.kind))
        .start()
        .unwrap();
    loader.batches(0, |batches| batches).unwrap();
    let feed = loader.feed().unwrap();
    let aggregates = Aggregates::open(store, OPTIONS.kind).unwrap().unwrap();
    let columns: [&dyn NodeRows; 2] = [&*store_features(store).unwrap(), &StoredRows::of_aggregates(store, aggregates)];
    for (column, expected) in columns.into_iter().enumerate() {
        let rows = feed.resident_rows(column).expect("they fit");
        assert_eq!(rows.width(), expected.width());
        for nodes in [0..NODES, 3..4, NODES - 5..NODES] {
            let read = |rows: &dyn NodeRows| {
                let mut values = vec![0.0; (nodes.end - nodes.start) as usize * rows.width()];
                rows.read(nodes.clone(), &mut values).unwrap();
                values
            };
            assert_eq!(read(&rows), read(expected), "column {column}, {nodes:?}");
            let values = rows.in_memory().expect("they are f32");
            let in_place = nodes.clone().flat_map(|node| values.row(node, rows.width()).to_vec());
            assert_eq!(in_place.collect::<Vec<_>>(), read(expected));
        }
    }
    assert!(feed.resident_rows(2).is_none());
}

#[test]
fn features_follow_aggregates_with_the_bytes_that_the_store_has() {
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Int8] {
        let folder = tempfile::tempdir().unwrap();
        let sample = Sample { dtype, ..Sample::STRINGS };
        let store = Store::open(&sample.write(folder.path())).unwrap();
        preaggregate(&store, &OPTIONS, &Silent).unwrap();
        let expected = rows(&Aggregates::open(&store, OPTIONS.kind).unwrap().unwrap());
        let options = AggregateOptions { with_features: true, replace: true, ..OPTIONS };
        let made = preaggregate(&store, &options, &Silent).unwrap();
        assert_eq!(made.chunks_kept, 0);
        let aggregates = Aggregates::open(&store, OPTIONS.kind).unwrap().unwrap();
        assert!(aggregates.with_features());
        assert_eq!(rows(&aggregates), expected);
        let (layout, features) = (aggregates.layout(), store_features(&store).unwrap());
        let mut node = 0;
        for file in aggregates.files().iter().flatten() {
            let payload = file.open().unwrap().read_payload().unwrap();
            for row in payload.chunks_exact(layout.stride as usize) {
                let mut own = vec![0; features.layout().stride as usize];
                features.read_encoded(node..node + 1, &mut own).unwrap();
                assert_eq!(row[layout.features_offset()..][..layout.row_bytes()], own[..layout.row_bytes()]);
                node += 1;
            }
        }
        assert_eq!(node, NODES);
        assert!(verify(store.path(), 2, &Silent).unwrap().problems.is_empty());
    }
}

#[test]
fn features_follow_aggregates_only_if_both_are_stored_alike() {
    let (_folder, store) = in_folder(sample);
    let options = AggregateOptions { with_features: true, dtype: Some(FeatureDtype::F16), ..OPTIONS };
    let error = preaggregate(&store, &options, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("type f32 and aggregates would have f16") && error.contains("leave out --with-features"),
        "{error}"
    );
    assert!(!store.path().join("aggregates").exists());
    // Files of a stopped run without features are made again.
    preaggregate(&store, &OPTIONS, &Silent).unwrap();
    let [done, partial] = ["mean", "mean.partial"].map(|name| store.path().join("aggregates").join(name));
    fs::rename(&done, &partial).unwrap();
    let options = AggregateOptions { dtype: None, ..options };
    assert_eq!(preaggregate(&store, &options, &Silent).unwrap().chunks_kept, 0);
    fs::rename(&done, &partial).unwrap();
    assert_eq!(preaggregate(&store, &options, &Silent).unwrap().chunks_kept, 3);
}

#[test]
fn another_dtype_rounds_the_same_values() {
    let (_folder, store) = in_folder(sample);
    let options = AggregateOptions { dtype: Some(FeatureDtype::F16), ..OPTIONS };
    preaggregate(&store, &options, &Silent).unwrap();
    let opened = Aggregates::open(&store, AggregateKind::Mean).unwrap().unwrap();
    assert_eq!(opened.layout().dtype, FeatureDtype::F16);
    for (found, expected) in rows(&opened).iter().zip(expected(AggregateKind::Mean)) {
        assert!((found - expected).abs() <= expected.abs() / 1024.0, "{found} for {expected}");
    }
}

/// Panics after a number of aggregated tiles.
struct Stop(std::sync::atomic::AtomicU32);

impl Progress for Stop {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {
        if self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1 {
            std::panic::resume_unwind(Box::new("stopped"));
        }
    }
}

#[test]
fn a_stopped_run_is_continued_and_ends_with_the_same_bytes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [whole, stopped] = folders.each_ref().map(|folder| sample(folder.path()));
    // A budget of several tiles, beyond what the writer takes.
    let options = AggregateOptions { budget: Budget::new((1 << 20) + 256 * 20 + 7000, 2), ..OPTIONS };
    preaggregate(&whole, &options, &Silent).unwrap();
    let stop = Stop(1.into());
    let run = std::panic::AssertUnwindSafe(|| preaggregate(&stopped, &options, &stop));
    assert!(std::panic::catch_unwind(run).is_err(), "it was stopped");
    assert!(Aggregates::open(&stopped, AggregateKind::Mean).unwrap().is_none());
    let partial = stopped.path().join("aggregates/mean.partial");
    assert!(partial.join("chunk-0").exists() && !partial.join("chunk-2").exists());

    let made = preaggregate(&stopped, &options, &Silent).unwrap();
    assert!(made.chunks_kept >= 1);
    for name in ["index", "chunk-0", "chunk-1", "chunk-2"] {
        let [whole, stopped] =
            [&whole, &stopped].map(|store| fs::read(store.path().join("aggregates/mean").join(name)).unwrap());
        // The index names the manifests, which are the same.
        assert!(whole == stopped, "{name}");
    }
    assert!(!partial.exists());
}

#[test]
fn memory_that_is_too_small_is_refused_with_one_that_suffices() {
    let (_folder, store) = in_folder(sample);
    let run = |memory| {
        let budget = Budget { memory, threads: 2 };
        preaggregate(&store, &AggregateOptions { budget, ..OPTIONS }, &Silent)
    };
    let mut named = 0;
    for memory in [0, 1000, 1 << 20] {
        match run(memory) {
            Err(Error::Budget { given, least, .. }) => {
                assert_eq!(given, memory);
                named = least.max(named);
            }
            other => panic!("{other:?}"),
        }
    }
    // A run that was refused before it made anything leaves nothing.
    assert!(!store.path().join("aggregates").exists());
    run(named).unwrap();
}

#[test]
fn values_beyond_the_stored_type_name_their_node_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Sample { feature_scale: 1000.0, ..Sample::STRINGS };
    let store = Store::open(&sample.write(folder.path())).unwrap();
    let made = |dtype, kind| {
        let options = AggregateOptions { kind, dtype: Some(dtype), ..OPTIONS };
        preaggregate(&store, &options, &Silent)
    };
    let error = made(FeatureDtype::F16, AggregateKind::Sum).unwrap_err();
    let Error::Unstorable { node, column, value, .. } = &error else {
        panic!("{error}");
    };
    let sums: Vec<f32> = expected(AggregateKind::Sum).iter().map(|sum| sum * 1000.0).collect();
    let at = sums.iter().position(|sum| sum.abs() > 65_504.0).unwrap();
    let name = store.ids().name(NodeId(at as u64 / u64::from(DIM)));
    assert_eq!((node, *column, *value), (&name, at % DIM as usize, sums[at]));
    let text = error.to_string();
    assert!(text.contains("node/") && text.contains("f16") && text.contains("--dtype bf16 or f32"), "{text}");
    assert!(!store.path().join("aggregates").exists());
    // Other aggregates stay.
    made(FeatureDtype::F16, AggregateKind::Mean).unwrap();
    made(FeatureDtype::F16, AggregateKind::Sum).unwrap_err();
    let folders = fs::read_dir(store.path().join("aggregates")).unwrap();
    let names: Vec<_> = folders.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["mean"]);
    made(FeatureDtype::Bf16, AggregateKind::Sum).unwrap();
}

#[test]
fn a_damaged_chunk_of_a_stopped_run_is_made_again() {
    let (_folder, store) = in_folder(sample);
    preaggregate(&store, &OPTIONS, &Silent).unwrap();
    let [done, partial] = ["mean", "mean.partial"].map(|name| store.path().join("aggregates").join(name));
    let index = fs::read(done.join("index")).unwrap();
    fs::rename(&done, &partial).unwrap();
    let truncated = fs::File::options().write(true).open(partial.join("chunk-1")).unwrap();
    truncated.set_len(5000).unwrap();
    let made = preaggregate(&store, &OPTIONS, &Silent).unwrap();
    assert_eq!(made.chunks_kept, 1);
    assert!(fs::read(done.join("index")).unwrap() == index);
}

#[test]
fn existing_aggregates_are_replaced_only_on_request() {
    let (_folder, store) = in_folder(sample);
    preaggregate(&store, &OPTIONS, &Silent).unwrap();
    let error = preaggregate(&store, &OPTIONS, &Silent).unwrap_err().to_string();
    assert!(error.contains("--replace"), "{error}");
    let replace = AggregateOptions { replace: true, dtype: Some(FeatureDtype::Bf16), ..OPTIONS };
    preaggregate(&store, &replace, &Silent).unwrap();
    let opened = Aggregates::open(&store, AggregateKind::Mean).unwrap().unwrap();
    assert_eq!(opened.layout().dtype, FeatureDtype::Bf16);
}

#[test]
fn files_that_do_not_belong_are_errors() {
    let (_folder, store) = in_folder(sample);
    for kind in [AggregateKind::Mean, AggregateKind::Sum] {
        preaggregate(&store, &AggregateOptions { kind, ..OPTIONS }, &Silent).unwrap();
    }
    let at = |path: &str| store.path().join("aggregates").join(path);
    let open = |kind| Aggregates::open(&store, kind).unwrap_err().to_string();
    fs::rename(at("mean/chunk-1"), at("mean/moved")).unwrap();
    assert!(open(AggregateKind::Mean).contains("missing"));
    fs::copy(at("sum/chunk-1"), at("mean/chunk-1")).unwrap();
    assert!(open(AggregateKind::Mean).contains("not the file that the index lists"));
    fs::copy(at("sum/index"), at("mean/index")).unwrap();
    assert!(open(AggregateKind::Mean).contains("were folders swapped?"));
    fs::remove_file(at("sum/index")).unwrap();
    assert!(open(AggregateKind::Sum).contains("missing"));
}

#[test]
fn rows_that_cannot_be_of_the_features_are_errors() {
    let (_folder, store) = in_folder(sample);
    let open = |dtype, dim| {
        let of_kind = store.path().join("aggregates/mean");
        let _ = fs::remove_dir_all(&of_kind);
        fs::create_dir_all(&of_kind).unwrap();
        let (layout, features) = (FeatureLayout::with_features(dtype, dim), FeatureLayout::new(dtype, dim));
        let mut writer = FeatureRowsWriter::with_features(&store, &of_kind, layout, features);
        let rows = vec![1.0; NODES as usize * dim as usize];
        writer
            .write_with(0..NODES, &rows, |_, out| {
                out.fill(0);
                Ok(())
            })
            .unwrap();
        writer.complete().unwrap();
        let index = AggregateIndex {
            kind: AggregateKind::Mean,
            manifest_digest: manifest_digest(store.path()).unwrap(),
            files: writer.finished().iter().copied().map(Some).collect(),
        };
        fs::write(of_kind.join("index"), index.encode()).unwrap();
        Aggregates::open(&store, AggregateKind::Mean).map_err(|error| error.to_string())
    };
    assert!(open(FeatureDtype::F32, DIM).unwrap().unwrap().with_features());
    let of_type = open(FeatureDtype::F16, DIM).unwrap_err();
    assert!(of_type.contains("chunk-0") && of_type.contains("type f16 follow"), "{of_type}");
    let problems = verify(store.path(), 2, &Silent).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.description.contains("of type")), "{problems:?}");
    let of_size = open(FeatureDtype::F32, DIM + 1).unwrap_err();
    assert!(of_size.contains(&format!("{} values", DIM + 1)), "{of_size}");
}

#[test]
fn verification_finds_what_is_wrong_with_them() {
    let (_folder, store) = in_folder(sample);
    for kind in [AggregateKind::Mean, AggregateKind::Sum] {
        preaggregate(&store, &AggregateOptions { kind, ..OPTIONS }, &Silent).unwrap();
    }
    let problems = || {
        let report = verify(store.path(), 2, &Silent).unwrap();
        let problems = report.problems.into_iter().map(|p| format!("{} at {}: {}", p.file, p.offset, p.description));
        problems.collect::<Vec<_>>()
    };
    assert_eq!(problems(), [""; 0]);
    // The leftovers of a stopped run are not part of the store, so they are no problem.
    fs::create_dir(store.path().join("aggregates/gcn.partial")).unwrap();
    assert_eq!(problems(), [""; 0]);

    let at = |path: &str| store.path().join("aggregates").join(path);
    let mut bytes = fs::read(at("mean/chunk-1")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(at("mean/chunk-1"), &bytes).unwrap();
    fs::remove_file(at("sum/chunk-2")).unwrap();
    fs::write(at("sum/chunk-9"), "").unwrap();
    let found = problems();
    let starts = [
        "aggregates/mean/chunk-1 at ",
        "aggregates/sum/chunk-2 at 0: this file",
        "aggregates/sum/chunk-9 at 0: this is no",
    ];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}
