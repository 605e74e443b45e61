//! Features from the graph: computed rightly, stopped anywhere, refused. What the tests share is here.

mod members;
mod stopped;
mod values;

use std::{collections::BTreeMap, fs, ops::RangeInclusive};

use grappa_ingestion::generate::store::{StoreOptions, generate_store};
use grappa_io::progress::Silent;
use grappa_synthetic::{Model, Recipe, Rmat};

use super::*;
use crate::{aggregate::store_features, tests::sample::in_folder, verify::verify};

const CHUNKS: u32 = 5;
const DIM: u32 = 12;
/// Memory that is held besides the tiles of the last hop, and some reserve.
const OVERHEAD: u64 = 2 * (1 << 20) + 50_000;
const BUDGET: Budget = Budget::new(64 << 20, 2);

fn store(folder: &Path) -> Store {
    generated(folder, None)
}

fn generated(folder: &Path, only_chunks: Option<Vec<RangeInclusive<u32>>>) -> Store {
    let out = folder.join("graph.grappa");
    generate_store(
        &StoreOptions {
            chunks: Some(CHUNKS),
            only_chunks,
            writer: "test".into(),
            ..StoreOptions::new(Recipe::new(Model::Rmat(Rmat::graph500(9, 8.0)), 3), &out)
        },
        &Silent,
    )
    .unwrap();
    Store::open(&out).unwrap()
}

fn fastrp(seed: u64) -> AddFeatures {
    AddFeatures { kind: FeatureKind::FastRp(FastRp { dim: DIM, hop_weights: vec![1.0, 0.0, 0.5], seed }), ..degrees() }
}

fn degrees() -> AddFeatures {
    AddFeatures { kind: FeatureKind::Degrees, dtype: FeatureDtype::F32, budget: BUDGET, writer: "test 1".into() }
}

/// The features of a store that has some now.
fn features(path: &Path) -> Vec<Vec<f32>> {
    let store = Store::open(path).unwrap();
    let rows = store_features(&store).unwrap();
    let mut values = vec![0.0; store.manifest().nodes as usize * rows.width()];
    rows.read(0..store.manifest().nodes, &mut values).unwrap();
    values.chunks_exact(rows.width()).map(<[f32]>::to_vec).collect()
}

/// The files that are added or replaced, with their bytes.
fn added_files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = (0..CHUNKS).map(|chunk| format!("chunk-{chunk}/features"));
    let read = |name: String| (name.clone(), fs::read(path.join(name)).unwrap());
    names.chain([files::MANIFEST.to_owned()]).map(read).collect()
}

fn assert_sound(path: &Path) {
    let report = verify(path, 2, &Silent).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}

#[test]
fn a_store_that_has_features_keeps_them_and_loses_what_a_killed_run_left() {
    let (_folder, store) = in_folder(store);
    add_features(&store, &degrees(), &Silent).unwrap();
    let files = added_files(store.path());
    let left = store.path().join(files::FEATURES_PARTIAL);
    fs::create_dir_all(left.join("hop-1")).unwrap();
    assert_sound(store.path());
    let reopened = Store::open(store.path()).unwrap();
    assert_eq!(reopened.manifest().writer, "test; features: test 1 --kind degrees");
    // The error is the same for a store that was opened before and for one that was opened after.
    for store in [&store, &reopened] {
        let error = add_features(store, &fastrp(1), &Silent).unwrap_err().to_string();
        assert!(error.contains("features already"), "{error}");
        assert!(!left.exists());
    }
    assert!(added_files(store.path()) == files);
}

#[test]
fn only_one_of_two_concurrent_runs_adds_features() {
    let (_folder, store) = in_folder(store);
    let results = std::thread::scope(|scope| {
        let runs = [fastrp(1), fastrp(2)].map(|options| {
            let store = &store;
            scope.spawn(move || add_features(store, &options, &Silent))
        });
        runs.map(|run| run.join().unwrap())
    });
    let errors: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(errors.len(), 1, "{results:?}");
    assert!(errors[0].to_string().contains("features already"), "{}", errors[0]);
    assert!(!store.path().join(files::FEATURES_PARTIAL).exists());
    assert_sound(store.path());
}

#[test]
fn invalid_requests_are_refused_with_a_remedy() {
    let (_folder, store) = in_folder(store);
    let refused = |dim, hop_weights: &[f32]| {
        let kind = FeatureKind::FastRp(FastRp { dim, hop_weights: hop_weights.to_vec(), seed: 1 });
        let options = AddFeatures { kind, ..degrees() };
        add_features(&store, &options, &Silent).unwrap_err().to_string()
    };
    assert!(refused(0, &[1.0]).contains("--dim"));
    assert!(refused(4, &[]).contains("--hops"));
    assert!(refused(4, &[1.0, 0.0]).contains("--hop-weights"));
    assert!(refused(4, &[f32::NAN, 1.0]).contains("--hop-weights"));
    let sliced = tempfile::tempdir().unwrap();
    let slice = generated(sliced.path(), Some(vec![1..=2]));
    let error = add_features(&slice, &degrees(), &Silent).unwrap_err().to_string();
    assert!(error.contains("slice") && error.contains("--only-chunks"), "{error}");
    for options in [degrees(), fastrp(1)] {
        let options = AddFeatures { budget: Budget::new(1000, 1), ..options };
        let error = add_features(&store, &options, &Silent).unwrap_err().to_string();
        assert!(error.contains("MiB is needed"), "{error}");
    }
    assert_sound(store.path());
}
