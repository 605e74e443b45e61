//! Runs on graphs with types.

use std::fs;

use grappa_engine::{
    derive::features::{FeatureTarget, NeighborMeans},
    place::{PlaceOptions, SliceEdges, place},
};
use grappa_formats::NodeId;
use grappa_ingestion::generate::graph::{GraphOptions, generate_graph};
use grappa_run::{config::Evaluate, model::RelationAggregate};
use grappa_storage::Graph;
use grappa_synthetic::{Degrees, GraphRecipe, NodeTypeRecipe, RelationRecipe};
use grappa_trainer::{
    predict::{Values, predict_file},
    train::trained_model::Trained,
};

use super::*;

/// Users, and the items that they buy, which have four classes. Only items have features, unless `all_features` are wanted.
pub fn shop(folder: &Path, all_features: bool) -> Graph {
    generate(folder, recipe(5), all_features)
}

/// The shop of a seed.
pub fn recipe(seed: u64) -> GraphRecipe {
    let node_type = |name: &str, nodes, classes| NodeTypeRecipe { name: name.to_owned(), nodes, classes, splits: None };
    let relation = |source, name: &str, destination, edges, reverse: Option<&str>| RelationRecipe {
        source,
        name: name.to_owned(),
        destination,
        edges,
        degrees: Degrees::Even,
        reverse: reverse.map(str::to_owned),
    };
    GraphRecipe {
        version: Recipe::VERSION,
        seed,
        node_types: vec![node_type("user", 500, 0), node_type("item", 2000, 4)],
        relations: vec![relation(0, "buys", 1, 4000, Some("bought_by")), relation(1, "like", 1, 3000, None)],
    }
}

pub fn generate(folder: &Path, recipe: GraphRecipe, all_features: bool) -> Graph {
    let stored = |dim| Some(FeatureOptions::new(dim, FeatureDtype::F32, FeatureSource::Stored));
    let path = folder.join("shop.grappa");
    let features = vec![stored(6).filter(|_| all_features), stored(16)];
    generate_graph(&GraphOptions { features, ..GraphOptions::new(recipe, &path) }, &Silent).unwrap();
    Graph::open(&path).unwrap()
}

const MODELS: [LayerKind; 4] = [LayerKind::Rsage, LayerKind::Rgcn, LayerKind::Rgat, LayerKind::Hgt];

pub fn typed(model: LayerKind) -> TrainConfig {
    TrainConfig {
        model,
        fanouts: Auto::Value("5,5".parse().unwrap()),
        batch: Auto::Value(NonZeroUsize::new(64).unwrap()),
        epochs: 12,
        dropout: 0.2,
        ..config()
    }
}

/// Trains, and returns the summary, what was watched, and the parameters of the last checkpoint.
pub fn run_typed(graph: &Graph, config: &TrainConfig, path: &Path) -> (Summary, Watched, Vec<(String, Vec<u8>)>) {
    let folder = RunFolder::create(path, config).unwrap();
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut watched = Watched::default();
    let summary = train(graph.clone(), config.clone(), &folder, false, Device::Cpu, &mut watched).unwrap();
    let parameters = parameters(&folder);
    (summary, watched, parameters)
}

#[test]
fn every_model_learns_a_type_whole_and_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    for model in MODELS {
        for partitions in [1, 4] {
            let config = TrainConfig { partitions: Auto::Value(partitions), ..typed(model) };
            let name = format!("{model}-{partitions}");
            let (summary, watched, _) = run_typed(&graph, &config, &folder.path().join(&name));
            let accuracy = summary.test_accuracy.expect("there are nodes to test on");
            // A quarter by chance.
            assert!(accuracy > 0.4, "{name}: {accuracy}");
            assert!(watched.warnings.is_empty(), "{name}: {:?}", watched.warnings);
            let coverage = watched.records[11].coverage_mean.unwrap();
            assert!((coverage == 1.0) == (partitions == 1), "{name}: {coverage}");
            let report = fs::read_to_string(folder.path().join(&name).join("report.html")).unwrap();
            assert!(report.contains("user:buys:item") && report.contains("learned type"), "{name}");
        }
    }
}

#[test]
fn a_run_has_the_same_bits_for_any_number_of_threads_and_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    for model in MODELS {
        let batch = Auto::Value(NonZeroUsize::new(64).unwrap());
        let config = TrainConfig { partitions: Auto::Value(4), epochs: 4, batch, ..typed(model) };
        let path = |name: &str| folder.path().join(format!("{model}-{name}"));
        let (_, _, expected) = run_typed(&graph, &config, &path("whole"));
        let one = TrainConfig { threads: Auto::Value(NonZeroUsize::new(1).unwrap()), ..config.clone() };
        assert!(run_typed(&graph, &one, &path("one")).2 == expected, "{model}: with one thread");
        let half = TrainConfig { epochs: 2, ..config.clone() };
        run_typed(&graph, &half, &path("stopped"));
        let run_folder = RunFolder::resume(&path("stopped")).unwrap();
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        train(graph.clone(), config.clone(), &run_folder, true, Device::Cpu, &mut Watched::default()).unwrap();
        assert!(parameters(&run_folder) == expected, "{model}: after a stop");
    }
}

/// The logits of all items, by a run.
fn logits(graph: &Graph, run: &Path, memory: u64) -> Vec<u8> {
    let trained = Trained::open(run, Device::Cpu).unwrap();
    let out = run.join(format!("{memory}.npy"));
    let on = trained.nodes_of(graph).unwrap();
    predict_file(&trained, on, out.as_path(), Values::Logits, Budget::new(memory, 2), &Silent).unwrap();
    fs::read(out).unwrap()
}

#[test]
fn predictions_and_scores_depend_on_neither_memory_nor_what_is_known_of_the_first_layer() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    for model in MODELS {
        let config = TrainConfig { evaluate: Evaluate::Exact, epochs: 2, ..typed(model) };
        let path = folder.path().join(model.to_string());
        let (summary, ..) = run_typed(&graph, &config, &path);
        let expected = logits(&graph, &path, 64 << 20);
        // Rows of a type take 16 KiB at least, so all are in files.
        assert!(logits(&graph, &path, 400 << 10) == expected, "{model}: out of core");
        let trained = Trained::open(&path, Device::Cpu).unwrap();
        let out = path.join("test.csv");
        let file = grappa_trainer::predict::FileOptions {
            values: Values::Classes,
            nodes: grappa_trainer::predict::FileNodes::Split("test"),
        };
        let on = trained.nodes_of(&graph).unwrap();
        let predicted = predict_file(&trained, on, out.as_path(), file, Budget::new(64 << 20, 2), &Silent).unwrap();
        assert_eq!(predicted.scores.unwrap().accuracy, summary.test_accuracy, "{model}");
    }
}

#[test]
fn an_epoch_of_all_neighbors_is_the_same_with_pre_aggregated_features() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    for aggregate in [RelationAggregate::Sum, RelationAggregate::Mean] {
        let losses = |first_hop: FirstHop| {
            let config = TrainConfig {
                first_hop,
                relation_aggregate: aggregate,
                fanouts: Auto::Value("-1,-1".parse().unwrap()),
                dropout: 0.0,
                ..typed(LayerKind::Rsage)
            };
            let (_, watched, _) = run_typed(&graph, &config, &folder.path().join(format!("{aggregate}-{first_hop}")));
            watched.records.iter().map(|record| record.loss).collect::<Vec<f64>>()
        };
        let (sampled, known) = (losses(FirstHop::Sampled), losses(FirstHop::Preaggregated));
        for (sampled, known) in sampled.iter().zip(&known) {
            assert!((sampled - known).abs() <= 1e-4 * sampled.abs(), "{aggregate}: {sampled} and {known}");
        }
    }
}

#[test]
fn a_type_without_features_is_refused_until_it_has_the_means_of_its_neighbors() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), false);
    let config = typed(LayerKind::Rsage);
    let refused = |graph: &Graph, config: TrainConfig, name: &str| {
        let run_folder = RunFolder::create(&folder.path().join(name), &config).unwrap();
        let trained = train(graph.clone(), config, &run_folder, false, Device::Cpu, &mut Watched::default());
        trained.unwrap_err().to_string()
    };
    let error = refused(&graph, config.clone(), "none");
    assert!(error.contains("--kind mean --type user") && error.contains("--features-from user="), "{error}");
    let options = AddFeatures {
        kind: FeatureKind::Mean(NeighborMeans::new(&graph, 0, &[]).unwrap()),
        dtype: FeatureDtype::F32,
        budget: Budget::new(64 << 20, 2),
        writer: "test".into(),
    };
    add_features(FeatureTarget::node_type(&graph, 0), &options, &Silent).unwrap();
    let graph = Graph::open(graph.path()).unwrap();
    let (summary, ..) = run_typed(&graph, &config, &folder.path().join("means"));
    assert!(summary.test_accuracy.unwrap() > 0.4);

    for (config, part) in grappa_skip::cases![
        TrainConfig { model: LayerKind::Sage, ..config.clone() }, "use --model rsage, rgcn, rgat or hgt";
        TrainConfig { target: Some("seller".into()), ..config.clone() }, "there is no node type seller for --target; there are user, item";
        TrainConfig { target: Some("user".into()), ..config.clone() }, "no labels to learn";
        TrainConfig { halo: HaloMode::History, ..config.clone() }, "--halo history";
    ] {
        let error = refused(&graph, config, &part.replace(' ', "-"));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn predictions_of_nodes_that_a_slice_lacks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    let config = TrainConfig { epochs: 1, ..typed(LayerKind::Rsage) };
    let run = folder.path().join("run");
    run_typed(&graph, &config, &run);
    let items = graph.positions().chunks_of(1);
    assert!(items.len() > 1, "{items:?}");
    let options = PlaceOptions {
        chunks: vec![0..=items.start],
        edges: SliceEdges::All,
        halo_features: true,
        out: folder.path().join("slice.grappa"),
        copy: false,
        threads: 2,
        resume: false,
        replace: false,
    };
    place(&graph, &options, &Silent).unwrap();
    let slice = Graph::open(&options.out).unwrap();
    let trained = Trained::open(&run, Device::Cpu).unwrap();
    let out = run.join("test.csv");
    let last = [NodeId(slice.node_types()[1].manifest().nodes - 1)];
    let file = grappa_trainer::predict::FileOptions {
        values: Values::Classes,
        nodes: grappa_trainer::predict::FileNodes::Listed(&last),
    };
    let on = trained.nodes_of(&slice).unwrap();
    let error = predict_file(&trained, on, out.as_path(), file, Budget::new(64 << 20, 2), &Silent).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("slice.grappa") && error.contains("chunk"), "{error}");
    assert!(!out.exists());
}
