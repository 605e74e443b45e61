//! Models that take the weights or the features of edges.

use std::{
    fs,
    num::{NonZeroU32, NonZeroUsize},
    path::Path,
    sync::Arc,
};

use grappa_engine::aggregate::store_features;
use grappa_formats::{NodeId, aggregates::AggregateKind};
use grappa_io::progress::Silent;
use grappa_run::{
    config::{Auto, EdgeData, Evaluate, FirstHop, HaloMode, TrainConfig},
    folder::RunFolder,
    model::{EdgeInput, LayerKind, ModelOptions, NormKind, Task},
};
use grappa_sampling::{InNeighbors, ListScratch, NeighborSample, NodeSet};
use grappa_storage::{MappedChunks, Store, aggregates::folder as aggregates_at};
use grappa_trainer::{
    nn::Model,
    predict::{Values, predict_file},
    train::{
        inference::{Inference, Needed, NeededGraph, NeededOptions},
        train,
        trained_model::Trained,
    },
};
use tch::Device;

use crate::{
    evaluation::{BUDGETS, logits, minibatch, needed_options, outputs_of},
    stores::{
        BUDGET, CLASSES, DENSE, EDGE_FEATURES, NODES, Seen, Shape, config, inference, refused_at, store, train_at,
    },
};

const EDGE_DATA: Shape = Shape { edge_data: true, ..DENSE };

const MODELS: [LayerKind; 6] =
    [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin, LayerKind::Gatv2, LayerKind::Gine, LayerKind::Transformer];

/// What a model takes of the edges of the test store.
fn input_of(model: LayerKind) -> EdgeInput {
    match model {
        LayerKind::Sage | LayerKind::Gcn | LayerKind::Gin => EdgeInput::Weights,
        _ => EdgeInput::Features(EDGE_FEATURES),
    }
}

/// The sum of the weights of each node's in-edges.
fn weight_sums(chunks: &MappedChunks) -> Arc<[f32]> {
    let lists = InNeighbors::all(chunks).with_values(EdgeInput::Weights.values());
    let mut sums = Vec::new();
    let nodes: Vec<NodeId> = (0..NODES).map(NodeId).collect();
    let each = lists.each(&nodes, &mut ListScratch::default(), |_, list| {
        let mut weights = Vec::new();
        list.append_values(0..list.len(), &mut weights)?;
        sums.push(weights.iter().sum());
        Ok(())
    });
    each.unwrap();
    sums.into()
}

#[test]
fn inference_in_any_memory_gives_the_logits_of_minibatches_with_edge_data() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), EDGE_DATA);
    let chunks = Arc::new(MappedChunks::open(&store).unwrap());
    let features = store_features(&store).unwrap();
    let wanted: Vec<NodeId> = (0..NODES).filter(|node| node % 23 < 2).map(NodeId).collect();
    let sums = weight_sums(&chunks);
    let sample = |per_node, replace| Some(NeighborSample { per_node, replace, seed: 8 });
    for layer in MODELS {
        for samples in [[None, None], [sample(2, false), sample(3, false)], [sample(3, true), sample(2, true)]] {
            let config = TrainConfig { model: layer, layers: 2, ..config() };
            let options = ModelOptions {
                edges: input_of(layer),
                ..config.model_options(DENSE.dim as usize, CLASSES as usize, Task::MultiClass)
            };
            let model = Model::new(options, 3, Device::Cpu).unwrap();
            let minibatch = minibatch(&chunks, &wanted, &samples, input_of(layer).values());
            let degrees: Vec<f32> = minibatch.nodes.iter().map(|node| sums[node.0 as usize]).collect();
            let expected = outputs_of(&model, &minibatch, &degrees, &*features);
            let options = NeededOptions { samples: &samples, ..needed_options(2, false, f64::INFINITY) };
            let set = NodeSet::from_members(NODES, wanted.iter().copied());
            let needed = Needed::compute(
                &NeededGraph::untyped(&chunks, set.universe(), options.layers),
                vec![set],
                &options,
                &Silent,
            )
            .unwrap();
            let needed = needed.expect("there is no limit");
            let mut first = None;
            for budget in BUDGETS {
                let inference = Inference {
                    weight_sums: Some(&sums),
                    ..inference(&store, &chunks, &*features, None, budget, folder.path())
                };
                let found = logits(&inference, &model, &needed);
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    let apart = (found - expected).abs() / expected.abs().max(1.0);
                    assert!(apart < 1e-5, "{layer}, {samples:?}: {found} for {expected}");
                }
                // Memory changes no bit.
                assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{layer}, {budget:?}");
            }
        }
    }
}

/// Trains a model of the test store.
fn trained_with(store: &Arc<Store>, path: &Path, config: &TrainConfig) -> (f64, Seen) {
    let (summary, seen) = train_at(store, config, path).unwrap();
    (summary.val_accuracy.unwrap(), seen)
}

/// Predicted logits of all nodes.
fn predicted(run: &Path, store: &Store, out: &Path) -> Vec<u8> {
    let trained = Trained::open(run, Device::Cpu).unwrap();
    predict_file(&trained, store, out, Values::Logits, BUDGET, &Silent).unwrap();
    fs::read(out).unwrap()
}

#[test]
fn runs_take_edge_data_tell_it_and_resume_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("with"), EDGE_DATA);
    for model in MODELS {
        for (evaluate, partitions) in [(Evaluate::Exact, 1), (Evaluate::Sampled, 1), (Evaluate::Exact, 2)] {
            let at = |name: &str| folder.path().join(format!("{model} {evaluate} {partitions} {name}"));
            let config = TrainConfig {
                model,
                epochs: 6,
                evaluate,
                partitions: Auto::Value(partitions),
                edge_data: EdgeData::Use,
                ..config()
            };
            let (accuracy, seen) = trained_with(&store, &at("used"), &config);
            assert!(accuracy > 0.5, "{model}: {accuracy}");
            let is_used = |message: &&String| message.contains("are used");
            assert_eq!(seen.told.iter().filter(is_used).count(), 1, "{seen:?}");
            let logits = predicted(&at("used"), &store, &at("used.npy"));
            // Without edge data the model is another one. Gine needs them.
            if model != LayerKind::Gine {
                let ignored =
                    TrainConfig { edge_data: EdgeData::Ignore, first_hop: FirstHop::Sampled, ..config.clone() };
                let (_, seen) = trained_with(&store, &at("ignored"), &ignored);
                let not_used = seen.told.iter().filter(|message| message.contains("are not used"));
                assert_eq!(not_used.count(), 2, "{seen:?}");
                let others = predicted(&at("ignored"), &store, &at("ignored.npy"));
                assert!(logits != others, "{model}");
            }
            // A run that is stopped and resumed ends with the same model.
            let half = TrainConfig { epochs: 3, ..config.clone() };
            trained_with(&store, &at("resumed"), &half);
            let run = RunFolder::resume(&at("resumed")).unwrap();
            train(store.clone(), config, &run, true, Device::Cpu, &mut Seen::default()).unwrap();
            assert!(logits == predicted(&at("resumed"), &store, &at("resumed.npy")), "{model}");
        }
        let other = crate::stores::store(&folder.path().join(format!("without {model}")), DENSE);
        let run = folder.path().join(format!("{model} exact 1 used"));
        let trained = Trained::open(&run, Device::Cpu).unwrap();
        let error = trained.check_graph(&other).unwrap_err().to_string();
        assert!(error.contains("edge data that the store lacks"), "{error}");
    }
}

#[test]
fn partitions_with_all_neighbors_of_halo_nodes_learn_from_edge_data_what_the_whole_graph_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("with"), EDGE_DATA);
    for model in MODELS {
        let losses = |partitions: u32| {
            let config = TrainConfig {
                model,
                partitions: Auto::Value(partitions),
                edge_data: EdgeData::Use,
                epochs: 3,
                layers: 3,
                halo: HaloMode::Neighbors,
                halo_neighbors: Auto::Value(NonZeroU32::new(1000).unwrap()),
                fanouts: Auto::Value("-1,-1,-1".parse().unwrap()),
                batch: Auto::Value(NonZeroUsize::new(3000).unwrap()),
                norm: Auto::Value(NormKind::None),
                dropout: 0.0,
                lr: 0.003,
                ..config()
            };
            let (_, seen) = train_at(&store, &config, &folder.path().join(format!("{model}-{partitions}"))).unwrap();
            seen.records.iter().map(|record| record.loss).collect::<Vec<f64>>()
        };
        let (whole, parts) = (losses(1), losses(4));
        for (whole, part) in whole.iter().zip(&parts) {
            assert!((whole - part).abs() <= 1e-4 * whole.abs(), "{model}: {whole} and {part}");
        }
    }
}

/// Predicted logits, as numbers.
fn logits_of(run: &Path, store: &Store, out: &Path) -> Vec<f32> {
    let bytes = predicted(run, store, out);
    let values = &bytes[bytes.len() - 4 * (NODES * CLASSES) as usize..];
    values.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

#[test]
fn a_pre_aggregated_first_hop_with_weights_is_what_all_neighbors_say() {
    let folder = tempfile::tempdir().unwrap();
    for (model, kind) in [
        (LayerKind::Sage, AggregateKind::WeightedMean),
        (LayerKind::Gcn, AggregateKind::WeightedGcn),
        (LayerKind::Gin, AggregateKind::WeightedSum),
    ] {
        let store = store(&folder.path().join(format!("with {kind}")), EDGE_DATA);
        for (partitions, evaluate) in [(1, Evaluate::Exact), (1, Evaluate::Sampled), (4, Evaluate::Exact)] {
            let at = |first_hop| folder.path().join(format!("{model} {partitions} {evaluate} {first_hop}"));
            // One step of all training nodes an epoch, from all neighbors at every hop.
            let run = |first_hop| {
                let config = TrainConfig {
                    model,
                    partitions: Auto::Value(partitions),
                    evaluate,
                    first_hop,
                    halo: HaloMode::Neighbors,
                    halo_neighbors: Auto::Value(NonZeroU32::new(1000).unwrap()),
                    fanouts: Auto::Value("-1,-1".parse().unwrap()),
                    batch: Auto::Value(NonZeroUsize::new(3000).unwrap()),
                    norm: Auto::Value(NormKind::None),
                    epochs: 2,
                    dropout: 0.0,
                    lr: 0.003,
                    ..config()
                };
                let (summary, seen) = train_at(&store, &config, &at(first_hop)).unwrap();
                let losses = seen.records.iter().map(|record| record.loss);
                losses.chain(summary.val_accuracy).collect::<Vec<f64>>()
            };
            let (sampled, known) = (run(FirstHop::Sampled), run(FirstHop::Preaggregated));
            for (sampled, known) in sampled.iter().zip(&known) {
                assert!((sampled - known).abs() < 1e-5 * sampled, "{model}: {sampled} and {known}");
            }
            // `auto` takes what is there, and nothing else was made.
            assert_eq!(run(FirstHop::Auto), known);
            let made = AggregateKind::ALL.into_iter().filter(|&kind| aggregates_at(&store, kind).exists());
            assert_eq!(made.collect::<Vec<_>>(), [kind]);
            // Prediction takes them if they are there.
            let run = at(FirstHop::Preaggregated);
            let known = logits_of(&run, &store, &run.with_extension("known.npy"));
            let aside = store.path().join("aside");
            fs::rename(aggregates_at(&store, kind), &aside).unwrap();
            let all = logits_of(&run, &store, &run.with_extension("all.npy"));
            fs::rename(&aside, aggregates_at(&store, kind)).unwrap();
            for (known, all) in known.iter().zip(&all) {
                assert!((known - all).abs() < 1e-5 * all.abs().max(1.0), "{model}: {known} and {all}");
            }
        }
        // Without weights the first hop is another one.
        let ignored = TrainConfig { model, edge_data: EdgeData::Ignore, epochs: 1, ..config() };
        let (_, seen) = train_at(&store, &ignored, &folder.path().join(format!("{model} ignored"))).unwrap();
        assert!(seen.told.iter().any(|message| message.starts_with("pre-aggregated features")), "{seen:?}");
    }
}

#[test]
fn edge_data_that_a_run_cannot_take_are_told_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("with"), EDGE_DATA);
    let at = |name: &str| folder.path().join(name);
    let quick = TrainConfig { epochs: 1, partitions: Auto::Value(1), ..config() };
    let gat = TrainConfig { model: LayerKind::Gat, ..quick.clone() };
    let (_, seen) = trained_with(&store, &at("gat"), &gat);
    let told = ["edge weights are not used: the model gat takes no edge weights", "edge features are not used"];
    for (warning, expected) in seen.warnings.iter().zip(told) {
        assert!(warning.starts_with(expected), "{seen:?}");
    }
    assert_eq!(seen.warnings.len(), 2, "{seen:?}");
    for (name, config, expected) in [
        ("use", TrainConfig { edge_data: EdgeData::Use, ..gat }, "these do: sage, gcn, gin"),
        (
            "preaggregated",
            TrainConfig { model: LayerKind::Gatv2, first_hop: FirstHop::Preaggregated, ..quick.clone() },
            "leave out --first-hop, or use `--edge-data ignore`",
        ),
    ] {
        let error = refused_at(&store, &config, &at(name));
        assert!(error.contains(expected), "{error}");
    }
    // Sage and gcn divide by sums of weights; gin adds up any.
    let negative = Shape { negative_weight: true, ..EDGE_DATA };
    let store = crate::stores::store(&folder.path().join("negative"), negative);
    for model in MODELS {
        let config = TrainConfig { model, ..quick.clone() };
        match model {
            LayerKind::Sage | LayerKind::Gcn => {
                let error = refused_at(&store, &config, &at(&format!("negative {model}")));
                assert!(error.contains("has weight -1") && error.contains("at least 0"), "{error}");
            }
            _ => _ = trained_with(&store, &at(&format!("negative {model}")), &config),
        }
    }
}
