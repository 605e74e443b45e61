//! Runs on a slice: a store that has some chunks of its graph.

use std::{fmt::Write as _, fs, ops::RangeInclusive, path::Path, sync::Arc};

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, preaggregate},
    place::{PlaceOptions, SliceEdges, place},
};
use grappa_formats::{
    ChunkId, NodeId,
    aggregates::{AggregateIndex, AggregateKind},
    manifest::{FeatureDtype, FeatureSource},
};
use grappa_ingestion::{
    generate::store::{FeatureOptions, StoreOptions, generate_store},
    ingest::{Assign, IngestOptions, NodeData, NodeIngest, NodeSplits, Resources, SplitFile, StoreLayout, ingest},
};
use grappa_io::{npy, progress::Silent};
use grappa_run::{
    config::{Auto, Evaluate, FirstHop, HaloMode, TrainConfig},
    journal::EpochRecord,
    model::{LayerKind, NormKind},
};
use grappa_storage::{
    Graph, Store,
    aggregates::{folder as folder_of_aggregates, manifest_digest, read_index},
    files,
};
use grappa_synthetic::{AdjacencyBuffer, BlockModel, Generator, Model, Recipe};
use grappa_trainer::{
    Error,
    predict::{FileNodes, FileOptions, Prediction, Predictions, Values, predict_file, predict_nodes, split_of},
    train::trained_model::Trained,
};
use tch::Device;

use crate::stores::{BUDGET, config, refused_at, train_at};

const NODES: u64 = 600;
const CHUNKS: u32 = 6;
const PRESENT: [u32; 3] = [1, 2, 5];
const DIM: usize = 8;

fn recipe() -> Recipe {
    let model = BlockModel { classes: 3, noise: 2.0, ..BlockModel::new(NODES, 8.0) };
    Recipe::new(Model::Sbm(model), 5)
}

fn generated(out: &Path, source: FeatureSource, only_chunks: Option<Vec<RangeInclusive<u32>>>) -> Arc<Store> {
    let options = StoreOptions {
        random_permutation: false,
        chunks: Some(CHUNKS),
        only_chunks,
        features: Some(FeatureOptions::new(DIM as u32, FeatureDtype::F32, source)),
        ..StoreOptions::new(recipe(), out)
    };
    generate_store(&options, &Silent).unwrap();
    Arc::new(Store::open(out).unwrap())
}

fn slice(out: &Path, source: FeatureSource) -> Arc<Store> {
    generated(out, source, Some(PRESENT.map(|chunk| chunk..=chunk).to_vec()))
}

/// The whole store of a graph without the edges and the splits of the other chunks. With [`SliceEdges::Inside`], also
/// without edges from them.
fn without_other_chunks(slice: &Store, folder: &Path, kept: SliceEdges) -> Arc<Store> {
    fs::create_dir_all(folder).unwrap();
    let generator = Generator::new(recipe()).unwrap();
    let is_present = |label: u64| slice.is_present(slice.chunks().chunk_of(NodeId(label)));
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let (mut edges, mut buffer) = (String::new(), AdjacencyBuffer::default());
    for label in (0..NODES).filter(|&label| is_present(label)) {
        for source in generator.sources(label, &mut buffer) {
            if kept == SliceEdges::All || is_present(*source) {
                writeln!(edges, "{source}\t{label}").unwrap();
            }
        }
    }
    let array = |name: &str, descr: &str, sizes: &[u64], values: Vec<u8>| {
        file(name, &[&npy::header(descr, sizes)[..], &values].concat())
    };
    let (features, mut row) = (generator.features(DIM), vec![0.0; DIM]);
    let rows = (0..NODES).flat_map(|label| {
        features.row(label, &mut row);
        row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()
    });
    let classes = (0..NODES).flat_map(|label| u64::from(generator.class(label).unwrap()).to_le_bytes());
    let splits = ["train", "val", "test"].map(|name| {
        let labels = (0..NODES).filter(|&label| is_present(label));
        let labels = labels.filter(|&label| generator.split(label).is_some_and(|split| split.name() == name));
        let text: String = labels.map(|label| format!("{label}\n")).collect();
        SplitFile { name, ids: file(&format!("{name}.txt"), text.as_bytes()).into() }
    });
    let out = folder.join("whole.grappa");
    let options = IngestOptions {
        resources: Resources { memory: 64 << 20, ..Resources::default() },
        nodes: NodeIngest {
            number: Some(NODES),
            layout: StoreLayout { assign: Assign::Range, chunks: Some(CHUNKS), ..StoreLayout::default() },
            data: NodeData {
                features: Some(array("features.npy", "<f4", &[NODES, DIM as u64], rows.collect()).into()),
                labels: Some(array("labels.npy", "<i8", &[NODES], classes.collect()).into()),
                ..NodeData::default()
            },
            splits: NodeSplits { files: splits.to_vec(), ..NodeSplits::default() },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![file("edges.tsv", edges.as_bytes())], out.clone())
    };
    ingest(&options, &Silent).unwrap();
    let store = Store::open(&out).unwrap();
    assert_eq!(store.manifest().edges, slice.manifest().edges);
    Arc::new(store)
}

/// All neighbors and no dropout, so that the order of adjacency lists does not matter. No batch norm either: gradients
/// of biases before it are rounding errors alone, and Adam makes steps of them.
fn deterministic() -> TrainConfig {
    TrainConfig {
        norm: Auto::Value(NormKind::Layer),
        fanouts: "-1,-1".parse().unwrap(),
        dropout: 0.0,
        first_hop: FirstHop::Sampled,
        partitions: Auto::Value(1),
        epochs: 4,
        ..config()
    }
}

#[test]
fn a_slice_trains_like_its_graph_without_the_edges_of_other_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let slice = slice(&folder.path().join("slice"), FeatureSource::Procedural);
    let whole = without_other_chunks(&slice, &folder.path().join("input"), SliceEdges::All);
    for model in [LayerKind::Sage, LayerKind::Gin, LayerKind::Gat] {
        for evaluate in [Evaluate::Exact, Evaluate::Sampled] {
            let config = TrainConfig { model, evaluate, ..deterministic() };
            let records_of = |store, name: &str| {
                let path = folder.path().join(format!("{name}-{model}-{evaluate}.run"));
                train_at(store, &config, &path).unwrap().1.records
            };
            let (found, expected) = (records_of(&slice, "slice"), records_of(&whole, "whole"));
            assert_same(&format!("{model}, {evaluate}"), &found, &expected);
        }
    }
}

fn assert_same(name: &str, found: &[EpochRecord], expected: &[EpochRecord]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let same = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-3 * expected.abs().max(0.1), "{name}: {found:?}, {expected:?}");
        };
        assert_eq!((found.step, found.sampled_edges), (expected.step, expected.sampled_edges));
        same(found.loss, expected.loss);
        same(found.val_loss.unwrap(), expected.val_loss.unwrap());
    }
}

fn aggregated(store: &Store, kind: AggregateKind) {
    let options = AggregateOptions::new(kind, Budget::new(64 << 20, 2));
    preaggregate(store, &options, &Silent).unwrap();
}

/// Gives a store the pre-aggregated features of another one with the same nodes.
fn take_aggregates(from: &Store, to: &Store, kind: AggregateKind) {
    let [source, target] = [from, to].map(|store| folder_of_aggregates(store, kind));
    fs::create_dir_all(&target).unwrap();
    for chunk in (0..CHUNKS).map(ChunkId) {
        let name = files::aggregate(chunk);
        fs::copy(source.join(&name), target.join(&name)).unwrap();
    }
    let index = AggregateIndex {
        manifest_digest: manifest_digest(to.path()).unwrap(),
        ..read_index(from.path(), kind, from.chunks()).unwrap()
    };
    fs::write(target.join(files::AGGREGATE_INDEX), index.encode()).unwrap();
}

#[test]
fn a_slice_with_stored_features_trains_like_its_graph_without_the_edges_from_other_chunks() {
    trains_like_its_graph(SliceEdges::Inside);
}

#[test]
fn a_slice_with_halo_features_trains_like_its_graph_without_the_edges_of_other_chunks() {
    trains_like_its_graph(SliceEdges::All);
}

/// Compares a slice with stored features, those of other chunks included if their edges are, with its graph without the
/// edges that the slice lacks.
fn trains_like_its_graph(edges: SliceEdges) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), FeatureSource::Stored, None);
    let kinds = [AggregateKind::Mean, AggregateKind::Sum, AggregateKind::Gcn];
    kinds.iter().for_each(|&kind| aggregated(&whole, kind));
    let chunks = || PRESENT.map(|chunk| chunk..=chunk).to_vec();
    let slice = match edges {
        SliceEdges::All => placed_with_halo(&whole, &path("slice"), chunks()),
        SliceEdges::Inside => placed(&whole, &path("slice"), chunks(), edges),
    };
    let reduced = without_other_chunks(&slice, &path("input"), edges);
    kinds.iter().for_each(|&kind| take_aggregates(&whole, &reduced, kind));
    for (model, first_hop) in [
        (LayerKind::Sage, FirstHop::Preaggregated),
        (LayerKind::Gin, FirstHop::Preaggregated),
        (LayerKind::Gcn, FirstHop::Preaggregated),
        (LayerKind::Gcn, FirstHop::Sampled),
        (LayerKind::Sage, FirstHop::Sampled),
        (LayerKind::Gat, FirstHop::Auto),
    ] {
        for (partitions, halo) in [(1, HaloMode::Auto), (3, HaloMode::Stop), (3, HaloMode::Neighbors)] {
            let config = TrainConfig {
                model,
                first_hop,
                halo,
                partitions: Auto::Value(partitions),
                evaluate: Evaluate::Exact,
                epochs: 2,
                ..deterministic()
            };
            let records_of = |store, name: &str| {
                let path = path(&format!("{name}-{model}-{first_hop}-{halo}-{partitions}.run"));
                train_at(store, &config, &path).unwrap().1.records
            };
            // Partitions of the slice have other chunks than partitions of the whole store, so losses differ. They must
            // fall.
            let found = records_of(&slice, "slice");
            // The slice has the in-degrees of halo nodes in the whole graph, and `reduced` lacks their in-edges.
            let other_degrees = (model, edges) == (LayerKind::Gcn, SliceEdges::All);
            match partitions {
                1 if !other_degrees => {
                    assert_same(&format!("{model}, {first_hop}"), &found, &records_of(&reduced, "reduced"))
                }
                _ => assert!(found[1].loss < found[0].loss, "{model}, {first_hop}, {halo}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_slice_cannot_make_preaggregated_features() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), FeatureSource::Stored, None);
    let slice = placed(&whole, &path("slice"), vec![0..=2], SliceEdges::Inside);
    let wanted = TrainConfig { first_hop: FirstHop::Preaggregated, ..config() };
    let error = train_at(&slice, &wanted, &path("wanted.run")).unwrap_err();
    assert!(matches!(error, Error::NoPreaggregation(_)), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("grappa-store preaggregate --kind mean"), "{error}");

    let (_, seen) = train_at(&slice, &config(), &path("auto.run")).unwrap();
    let is_told = seen.warnings.iter().any(|message| message.contains("the first hop is sampled"));
    assert!(is_told, "{seen:?}");
}

#[test]
fn a_slice_is_learned_in_partitions_with_every_halo_mode() {
    let folder = tempfile::tempdir().unwrap();
    let store = slice(&folder.path().join("slice"), FeatureSource::Procedural);
    for halo in [HaloMode::Auto, HaloMode::Stop, HaloMode::Neighbors, HaloMode::None] {
        let config = TrainConfig { halo, partitions: Auto::Value(3), repartition_every: 2, ..config() };
        let path = folder.path().join(format!("{halo}.run"));
        let (summary, seen) = train_at(&store, &config, &path).unwrap();
        assert!(summary.val_accuracy.unwrap() > 0.6, "{halo}: {summary:?}");
        // Each training node of the slice is a seed once in an epoch.
        let steps = store.split("train").unwrap().unwrap().len().div_ceil(16);
        assert!(seen.records[0].step <= steps, "{halo}");
    }
}

#[test]
fn predictions_of_a_slice_are_those_that_its_evaluations_score() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let store = slice(&path("slice"), FeatureSource::Procedural);
    let config = TrainConfig { evaluate: Evaluate::Exact, ..config() };
    let (summary, _) = train_at(&store, &config, &path("run")).unwrap();
    let trained = Trained::open(&path("run"), Device::Cpu).unwrap();
    let val: Vec<NodeId> = split_of(&store, "val").unwrap().iter().map(NodeId).collect();
    let predict = |nodes: &[NodeId]| predict_nodes(&trained, &store, nodes, BUDGET, &path("run"), &Silent);
    let Predictions { nodes: predicted, scores, nan, .. } = predict(&val).unwrap();
    assert_eq!(nan, None);
    let is_right = |prediction: &&Prediction| prediction.labels == Some(vec![prediction.classes[0].0]);
    let right = predicted.iter().filter(is_right).count();
    assert_eq!(summary.val_accuracy, Some(right as f64 / val.len() as f64));
    assert_eq!(summary.val_accuracy, scores.unwrap().accuracy);

    let write = |out: &str, split: Option<&str>, budget| {
        let options = FileOptions { values: Values::Classes, nodes: split.map_or(FileNodes::All, FileNodes::Split) };
        predict_file(&trained, &store, &path(out), options, budget, &Silent)
    };
    let written = write("val.npy", Some("val"), BUDGET).unwrap();
    assert_eq!((written.nodes, written.scores.unwrap().accuracy), (val.len() as u64, summary.val_accuracy));
    let little = Budget { memory: 100, ..BUDGET };
    let absent = NodeId(store.chunks().range(ChunkId(3)).start);
    for (error, expected) in grappa_skip::cases![
        write("all.npy", None, BUDGET).unwrap_err(), "name a --split, or nodes with --nodes or --ids";
        write("test.npy", Some("test"), little).unwrap_err(), "raise --memory";
        predict(&[val[0], absent]).unwrap_err(), "has only the chunks 1-2, 5, not chunk 3";
    ] {
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_slice_with_the_in_degrees_of_halo_nodes_predicts_with_gcn_as_its_graph_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), FeatureSource::Stored, None);
    aggregated(&whole, AggregateKind::Gcn);
    let chunks = PRESENT.map(|chunk| chunk..=chunk).to_vec();
    let slice = placed_with_halo(&whole, &path("slice"), chunks);
    let config = TrainConfig { model: LayerKind::Gcn, partitions: Auto::Value(2), ..config() };
    train_at(&slice, &config, &path("run")).unwrap();
    let trained = Trained::open(&path("run"), Device::Cpu).unwrap();
    let test: Vec<NodeId> = split_of(&slice, "test").unwrap().iter().map(NodeId).collect();
    let predict = |store| predict_nodes(&trained, store, &test, BUDGET, &path("run"), &Silent).unwrap().nodes;
    for (found, expected) in predict(&slice).iter().zip(predict(&whole)) {
        assert_eq!(found.classes, expected.classes);
    }

    // A slice that was made before slices had in-degrees.
    let listed = slice.path().join(files::MANIFEST);
    let mut manifest = slice.manifest().clone();
    for (chunk, entry) in (0..).map(ChunkId).zip(&mut manifest.chunks) {
        if std::mem::take(&mut entry.halo_degrees) {
            manifest.files.retain(|file| file.path != files::of_chunk(chunk, "degrees"));
        }
    }
    fs::write(&listed, manifest.encode()).unwrap();
    fs::remove_dir_all(slice.path().join("aggregates")).unwrap();
    let older = Arc::new(Store::open(slice.path()).unwrap());
    let error = refused_at(&older, &config, &path("older.run"));
    assert!(error.contains("in-degrees") && error.contains("--halo-features"), "{error}");
}

#[test]
fn what_a_slice_cannot_do_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let computed = slice(&folder.path().join("computed"), FeatureSource::Procedural);
    let stored = slice(&folder.path().join("stored"), FeatureSource::Stored);
    let gcn = TrainConfig { model: LayerKind::Gcn, ..config() };
    let history = TrainConfig { halo: HaloMode::History, ..config() };
    for (name, store, config, expected) in [
        ("stored", &stored, config(), "add the chunks 0, 3-4"),
        ("gcn", &computed, gcn, "gcn divides by the in-degrees of sources"),
        ("history", &computed, history, "--halo history aggregates over"),
    ] {
        let error = refused_at(store, &config, &folder.path().join(format!("{name}.run")));
        assert!(error.contains(expected) && error.contains("slice"), "{error}");
    }
}

fn placed(store: &Store, out: &Path, chunks: Vec<RangeInclusive<u32>>, edges: SliceEdges) -> Arc<Store> {
    placed_as(store, out, chunks, edges, false)
}

fn placed_with_halo(store: &Store, out: &Path, chunks: Vec<RangeInclusive<u32>>) -> Arc<Store> {
    placed_as(store, out, chunks, SliceEdges::All, true)
}

fn placed_as(
    store: &Store,
    out: &Path,
    chunks: Vec<RangeInclusive<u32>>,
    edges: SliceEdges,
    halo_features: bool,
) -> Arc<Store> {
    let options = PlaceOptions {
        chunks,
        edges,
        halo_features,
        out: out.to_owned(),
        copy: false,
        threads: 2,
        resume: false,
        replace: false,
    };
    place(&Graph::open(store.path()).unwrap(), &options, &Silent).unwrap();
    Arc::new(Store::open(out).unwrap())
}

#[test]
fn a_placed_slice_trains_like_a_generated_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let generated_slice = slice(&path("generated"), FeatureSource::Procedural);
    let whole = generated(&path("whole"), FeatureSource::Procedural, None);
    let chunks = PRESENT.map(|chunk| chunk..=chunk).to_vec();
    let slice = placed(&whole, &path("placed"), chunks, SliceEdges::All);
    let config = TrainConfig { partitions: Auto::Value(2), epochs: 3, ..config() };
    let losses = |store, name: &str| {
        let (_, seen) = train_at(store, &config, &path(name)).unwrap();
        seen.records.iter().map(|record| (record.loss, record.val_loss)).collect::<Vec<_>>()
    };
    assert_eq!(losses(&slice, "placed.run"), losses(&generated_slice, "generated.run"));

    let stored = generated(&path("stored"), FeatureSource::Stored, None);
    let slice = placed(&stored, &path("placed-stored"), vec![0..=2], SliceEdges::All);
    let error = refused_at(&slice, &config, &path("refused.run"));
    assert!(
        ["add the chunks 3-5", "--halo-features", "--edges inside"].iter().all(|remedy| error.contains(remedy)),
        "{error}"
    );
}

/// Two halves without edges between them, so that each half has all features that it needs.
#[test]
fn a_placed_slice_with_all_its_sources_trains_on_stored_features() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut edges = String::new();
    for node in 0..NODES {
        let half = NODES / 2 * (node / (NODES / 2));
        for k in 1..6 {
            writeln!(edges, "{}\t{node}", half + (node + 2 * k * k) % (NODES / 2)).unwrap();
        }
    }
    let value = |node: u64, column: u64| ((node * 7 + column * 13) % 11) as f32 / 11.0 + (node % 2) as f32 * 0.3;
    let features = (0..NODES).flat_map(|node| (0..4).flat_map(move |column| value(node, column).to_le_bytes()));
    let classes = (0..NODES).flat_map(|node| (node % 2).to_le_bytes());
    let array = |name: &str, descr: &str, sizes: &[u64], values: Vec<u8>| {
        file(name, &[&npy::header(descr, sizes)[..], &values].concat())
    };
    let split = |name: &'static str, residues: RangeInclusive<u64>| SplitFile {
        name,
        ids: {
            let nodes = (0..NODES).filter(|node| residues.contains(&(node / 2 % 5)));
            file(&format!("{name}.txt"), nodes.map(|node| format!("{node}\n")).collect::<String>().as_bytes()).into()
        },
    };
    let out = folder.path().join("halves.grappa");
    let options = IngestOptions {
        resources: Resources { memory: 64 << 20, ..Resources::default() },
        nodes: NodeIngest {
            number: Some(NODES),
            layout: StoreLayout { assign: Assign::Range, chunks: Some(4), ..StoreLayout::default() },
            data: NodeData {
                features: Some(array("features.npy", "<f4", &[NODES, 4], features.collect()).into()),
                labels: Some(array("labels.npy", "<i8", &[NODES], classes.collect()).into()),
                ..NodeData::default()
            },
            splits: NodeSplits {
                files: vec![split("train", 0..=2), split("val", 3..=3), split("test", 4..=4)],
                ..NodeSplits::default()
            },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![file("edges.tsv", edges.as_bytes())], out.clone())
    };
    ingest(&options, &Silent).unwrap();
    let slice = placed(&Store::open(&out).unwrap(), &folder.path().join("half"), vec![2..=3], SliceEdges::All);
    assert_eq!(slice.split("train").unwrap().unwrap().len(), NODES / 2 * 3 / 5);
    for evaluate in [Evaluate::Exact, Evaluate::Sampled] {
        let config = TrainConfig { evaluate, epochs: 20, ..config() };
        let (summary, _) = train_at(&slice, &config, &folder.path().join(format!("{evaluate}.run"))).unwrap();
        assert!(summary.val_accuracy.unwrap() > 0.8, "{evaluate}: {summary:?}");
    }
}
