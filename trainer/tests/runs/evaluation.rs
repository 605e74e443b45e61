//! Evaluation of a part of the nodes, exactly and by sampling.

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use grappa_engine::aggregate::{Aggregation, Budget, NodeRows, StateRows, store_features};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::{Progress, Silent};
use grappa_run::{
    config::{Auto, Evaluate, FirstHop, TrainConfig},
    folder::RunFolder,
    model::{FeatureNorm, JumpingKnowledge, LayerKind, Task},
};
use grappa_sampling::{
    EdgeValues, InNeighbors, List, ListScratch, NeighborSample, NodeSet,
    sample::{Block, Minibatch},
};
use grappa_storage::{MappedChunks, Store};
use grappa_trainer::{
    nn::{self, Model},
    predict::predict_nodes,
    train::{
        Trainer,
        inference::{FirstInputs, Inference, Needed, NeededGraph, NeededOptions},
        train,
        trained_model::Trained,
    },
};
use tch::{Device, Kind, Tensor};

use crate::{
    full_disk::{SmallDisk, fill},
    stores::{BUDGET, CLASSES, DENSE, NODES, Unseen, config, inference, store, train_at},
};

const MODELS: [LayerKind; 7] = [
    LayerKind::Sage,
    LayerKind::SageMax,
    LayerKind::Gcn,
    LayerKind::Gin,
    LayerKind::Gat,
    LayerKind::Gatv2,
    LayerKind::PinSage,
];

/// The logits of the wanted nodes, row after row.
pub fn logits(inference: &Inference<'_>, model: &Model, needed: &Needed) -> Vec<f32> {
    let mut found = Vec::new();
    let mut take = |positions: Range<u64>, rows: &Tensor| {
        assert_eq!(positions.start as usize * CLASSES as usize, found.len());
        let rows = rows.to_kind(Kind::Float).contiguous().view([-1]);
        found.extend(Vec::<f32>::try_from(rows).unwrap());
        Ok(())
    };
    inference.run_needed(model, needed, &Silent, &mut take).unwrap();
    found
}

pub fn needed_options(layers: usize, knows_first_hop: bool, work_max: f64) -> NeededOptions<'static> {
    NeededOptions { layers, samples: &[], knows_first_hop, also: &[], work_max, threads: 2 }
}

/// The means of the in-neighbors' features of all nodes.
fn means(store: &Store, features: &dyn NodeRows) -> StateRows {
    let all = NodeSet::all(NODES);
    let chunks = MappedChunks::open(store).unwrap();
    let mut rows = StateRows::new(NODES, features.width()).unwrap();
    let aggregation = Aggregation {
        store,
        lists: InNeighbors::all(&chunks),
        sources: &all,
        rows: features,
        destinations: &all,
        budget: BUDGETS[0],
    };
    let mean = grappa_engine::aggregate::Mean { width: features.width() };
    let mut sink = |nodes: Range<u64>, means: &mut Vec<f32>| rows.write(nodes.start, means);
    aggregation.run(&mean, 0, None, &Silent, &mut sink).unwrap();
    rows
}

/// States in memory; in memory only at the layers that need few; in scratch files.
pub const BUDGETS: [Budget; 3] = [Budget::new(64 << 20, 2), Budget::new(100_000, 1), Budget::new(24_000, 2)];

#[test]
fn logits_of_a_part_of_the_nodes_have_the_bits_of_those_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let chunks = Arc::new(MappedChunks::open(&store).unwrap());
    let features = store_features(&store).unwrap();
    let means = means(&store, &*features);
    let wanted: Vec<NodeId> = (0..NODES).filter(|node| node % 23 < 2).map(NodeId).collect();
    for layer in MODELS {
        for layers in [1, 2, 3] {
            let config = TrainConfig { model: layer, layers, ..config() };
            let options = config.model_options(DENSE.dim as usize, CLASSES as usize, Task::MultiClass);
            let model = Model::new(options, 3, Device::Cpu).unwrap();
            for first_hop in [None, Some(&means as &dyn NodeRows)] {
                if first_hop.is_some() && layer != LayerKind::Sage {
                    continue;
                }
                let in_memory = FirstInputs::new(64 << 20, folder.path(), 0);
                let in_file = FirstInputs::new(0, folder.path(), 64 << 20);
                let inference = |budget, first_inputs| Inference {
                    first_inputs,
                    ..inference(&store, &chunks, &*features, first_hop, budget, folder.path())
                };
                let whole = logits(
                    &inference(BUDGETS[0], None),
                    &model,
                    &Needed::all(&NeededGraph::untyped(&chunks, NODES, layers)),
                );
                let expected: Vec<f32> = wanted
                    .iter()
                    .flat_map(|node| &whole[node.0 as usize * CLASSES as usize..][..CLASSES as usize])
                    .copied()
                    .collect();
                let set = NodeSet::from_members(NODES, wanted.iter().copied());
                let options = needed_options(layers, first_hop.is_some(), f64::INFINITY);
                let needed = Needed::compute(
                    &NeededGraph::untyped(&chunks, set.universe(), options.layers),
                    vec![set],
                    &options,
                    &Silent,
                )
                .unwrap();
                let needed = needed.expect("there is no limit");
                assert!(layers > 1 || needed.inputs(0).len() < NODES, "fewer nodes are needed");
                // The second inference that keeps inputs takes the inputs of the first.
                let runs = BUDGETS.map(|budget| (budget, None));
                // Without a folder nothing is kept, and nothing is lost.
                let nowhere = FirstInputs::new(0, &folder.path().join("absent"), 64 << 20);
                let keep = [&in_memory, &in_memory, &in_file, &in_file, &nowhere].map(|kept| (BUDGETS[0], Some(kept)));
                for (budget, kept) in runs.into_iter().chain(keep) {
                    let found = logits(&inference(budget, kept), &model, &needed);
                    let name = format!("{layer}, {layers} layers, {budget:?}, {}", first_hop.is_some());
                    assert!(found == expected, "{name}: {found:?} {expected:?}");
                }
                let largest = expected.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
                for budget in BUDGETS {
                    let rounded = Inference { rounded_states: FeatureDtype::Bf16, ..inference(budget, None) };
                    let found = logits(&rounded, &model, &needed);
                    let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                    let apart = apart.fold(0.0, f32::max) / largest;
                    let name = format!("{layer}, {layers} layers, {budget:?}: {apart}");
                    assert!(apart < 0.02, "{name}");
                    // Memory that holds the states has them as f32.
                    assert!(apart == 0.0 || budget.memory < BUDGETS[0].memory, "{name}");
                    assert!(apart > 0.0 || layers < 3 || budget.memory > BUDGETS[2].memory, "{name}");
                }
                assert!(in_memory.bytes() > 0, "{layer}");
                assert_eq!(in_file.bytes(), 0);
            }
        }
    }
}

/// Stops when it was asked a number of times.
struct StopsAfter(AtomicUsize);

impl Progress for StopsAfter {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {}

    fn is_stopped(&self) -> bool {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.is_err()
    }
}

#[test]
fn logits_of_many_classes_come_in_pieces_of_16_mib() {
    const MANY: usize = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let chunks = Arc::new(MappedChunks::open(&store).unwrap());
    let features = store_features(&store).unwrap();
    let means = means(&store, &*features);
    for layers in [1, 2] {
        let config = TrainConfig { layers, ..config() };
        let options = config.model_options(DENSE.dim as usize, MANY, Task::MultiClass);
        let model = Model::new(options, 3, Device::Cpu).unwrap();
        let first_inputs = FirstInputs::new(0, folder.path(), 64 << 20);
        let inference = Inference {
            first_inputs: Some(&first_inputs),
            ..inference(&store, &chunks, &*features, Some(&means), BUDGETS[0], folder.path())
        };
        let needed = Needed::all(&NeededGraph::untyped(&chunks, NODES, layers));
        // The second time, the inputs of the first layer are those that the first time left.
        for _ in 0..2 {
            let (mut nodes, mut largest) = (0, 0);
            let mut count = |positions: Range<u64>, _: &Tensor| {
                largest = largest.max(positions.end - positions.start);
                nodes += positions.end - positions.start;
                Ok(())
            };
            inference.run_needed(&model, &needed, &Silent, &mut count).unwrap();
            assert_eq!(nodes, store.manifest().nodes);
            assert!(largest * 4 * MANY as u64 <= 16 << 20, "{largest} nodes at once");
        }
    }
}

/// Calls `check` with an inference whose second layer takes the states of the first one as they are written to
/// `scratch`.
fn with_overlapped_layers(scratch: &Path, check: impl Fn(&dyn Fn(&dyn Progress) -> grappa_trainer::Result<()>)) {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let chunks = Arc::new(MappedChunks::open(&store).unwrap());
    let features = store_features(&store).unwrap();
    let means = means(&store, &*features);
    // The last layer would take products of the states.
    let config = TrainConfig { layers: 3, ..config() };
    let options = config.model_options(DENSE.dim as usize, CLASSES as usize, Task::MultiClass);
    let model = Model::new(options, 3, Device::Cpu).unwrap();
    let inference = inference(&store, &chunks, &*features, Some(&means), BUDGETS[2], scratch);
    let needed = Needed::all(&NeededGraph::untyped(&chunks, NODES, 2));
    check(&|progress| inference.run_needed(&model, &needed, progress, &mut |_, _| Ok(())));
}

#[test]
fn an_inference_ends_whenever_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    with_overlapped_layers(folder.path(), |run| {
        let stopped = (0..).take_while(|&after| match run(&StopsAfter(AtomicUsize::new(after))) {
            Ok(()) => false,
            Err(error) => {
                assert!(error.is_stopped(), "{error}");
                true
            }
        });
        assert!(stopped.count() > 10);
    });
}

#[test]
fn an_inference_on_a_full_disk_ends_with_that_error() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let _disk = match SmallDisk::mount(&disk) {
        Ok(disk) => disk,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    with_overlapped_layers(&disk, |run| {
        run(&Silent).unwrap();
        let ballast = fill(&disk);
        let error = run(&Silent).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        std::fs::remove_file(ballast).unwrap();
        run(&Silent).unwrap();
    });
}

/// The minibatch of some seeds whose hops list what the layers of an inference aggregate.
pub fn minibatch(
    chunks: &MappedChunks,
    seeds: &[NodeId],
    samples: &[Option<NeighborSample>],
    values: EdgeValues,
) -> Minibatch {
    let mut nodes = seeds.to_vec();
    let mut blocks = Vec::new();
    for sample in samples.iter().rev() {
        let mut block =
            Block { destinations: nodes.len(), offsets: vec![0], halo: vec![false; nodes.len()], ..Block::default() };
        for node in nodes.clone() {
            let take = |_, list: List<'_>| {
                let mut sources = Vec::new();
                list.decode_into(&mut sources);
                let out = match values {
                    EdgeValues::Features => &mut block.edge_features,
                    EdgeValues::Nothing | EdgeValues::Weight => &mut block.edge_weights,
                };
                list.append_values(0..list.len(), out)?;
                for source in sources.into_iter().map(NodeId) {
                    let known = nodes.iter().position(|node| *node == source);
                    block.indices.push(known.unwrap_or(nodes.len()) as u32);
                    if known.is_none() {
                        nodes.push(source);
                    }
                }
                block.offsets.push(block.indices.len() as u32);
                block.global.push(list.degree());
                Ok(())
            };
            let lists = InNeighbors::sampled(chunks, *sample).with_values(values);
            lists.each(&[node], &mut ListScratch::default(), take).unwrap();
        }
        block.visible.clone_from(&block.global);
        block.sources = nodes.len();
        blocks.push(block);
    }
    Minibatch { seeds: seeds.len(), nodes, blocks, ..Minibatch::default() }
}

/// The outputs of a model on a minibatch. `degrees` are the in-degrees of its nodes, or sums of weights.
pub fn outputs_of(model: &Model, minibatch: &Minibatch, degrees: &[f32], features: &dyn NodeRows) -> Vec<f32> {
    let blocks = nn::Block::of_minibatch(minibatch, Some(degrees), Device::Cpu);
    let (nodes, width) = (minibatch.nodes.len(), features.width());
    let mut rows = vec![0.0; nodes * width];
    for (node, row) in minibatch.nodes.iter().zip(rows.chunks_exact_mut(width)) {
        features.read(node.0..node.0 + 1, row).unwrap();
    }
    let rows = Tensor::from_slice(&rows).view([nodes as i64, width as i64]);
    let pass = nn::Pass { training: None, names: None, scaling: nn::Scaling::HorvitzThompson };
    let outputs = tch::no_grad(|| model.forward(&blocks, nn::Input::features(&rows), &[], pass));
    Vec::<f32>::try_from(outputs.contiguous().view([-1])).unwrap()
}

#[test]
fn samples_of_in_neighbors_give_the_logits_of_their_minibatch() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let chunks = Arc::new(MappedChunks::open(&store).unwrap());
    let features = store_features(&store).unwrap();
    let wanted: Vec<NodeId> = (0..NODES).filter(|node| node % 23 < 2).map(NodeId).collect();
    for layer in MODELS.into_iter().filter(|layer| *layer != LayerKind::PinSage) {
        for replace in [false, true] {
            let config = TrainConfig { model: layer, layers: 2, ..config() };
            let model = Model::new(
                config.model_options(DENSE.dim as usize, CLASSES as usize, Task::MultiClass),
                3,
                Device::Cpu,
            )
            .unwrap();
            let sample = |per_node, seed| NeighborSample { per_node, replace, seed };
            let samples = [Some(sample(2, 8)), Some(sample(3, 9))];

            let minibatch = minibatch(&chunks, &wanted, &samples, EdgeValues::Nothing);
            let degrees: Vec<f32> = minibatch.nodes.iter().map(|node| chunks.degree(*node).unwrap() as f32).collect();
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
            assert!(needed.is_sampled());
            for budget in BUDGETS {
                let inference = inference(&store, &chunks, &*features, None, budget, folder.path());
                let found = logits(&inference, &model, &needed);
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    let apart = (found - expected).abs() / expected.abs().max(1.0);
                    assert!(apart < 1e-5, "{layer}, {replace}: {found} for {expected}");
                }
            }
        }
    }
}

#[test]
fn work_beyond_a_limit_is_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let chunks = MappedChunks::open(&store).unwrap();
    let needed = |work_max| {
        let set = NodeSet::from_members(NODES, [NodeId(3)]);
        Needed::compute(
            &NeededGraph::untyped(&chunks, set.universe(), 2),
            vec![set],
            &needed_options(2, false, work_max),
            &Silent,
        )
        .unwrap()
    };
    let work = needed(f64::INFINITY).expect("there is no limit").work();
    assert!(needed(work).is_some() && needed(work - 1.0).is_none() && needed(1.0).is_none());
}

fn trainer(store: &Arc<Store>, folder: &Path, config: TrainConfig) -> Trainer {
    Trainer::new(store.clone(), config, None, Device::Cpu, folder.to_owned()).unwrap()
}

/// Evaluates a trainer after an epoch.
fn evaluated(store: &Arc<Store>, folder: &Path, config: &TrainConfig, evaluate: Evaluate) -> (f64, f64) {
    let config = TrainConfig { evaluate, ..config.clone() };
    let mut trainer = trainer(store, folder, config.clone());
    trainer.measure(&Silent).unwrap();
    trainer.epoch(0, &|_, _| config.lr, &Silent).unwrap();
    let evaluation = trainer.evaluate(0, &|_| true, &Silent).unwrap().unwrap();
    assert_eq!(evaluation.method, evaluate);
    let test = evaluation.test.expect("validation improved");
    (evaluation.val.accuracy.unwrap(), test.accuracy.unwrap())
}

#[test]
fn sampling_all_neighbors_scores_as_exact_evaluation_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    for model in [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gat] {
        for (partitions, normalize_features, jumping_knowledge) in [
            (1, FeatureNorm::None, JumpingKnowledge::None),
            (3, FeatureNorm::None, JumpingKnowledge::None),
            (1, FeatureNorm::Row, JumpingKnowledge::Max),
            (3, FeatureNorm::Standard, JumpingKnowledge::Cat),
        ] {
            let config = TrainConfig {
                model,
                partitions: Auto::Value(partitions),
                normalize_features,
                jumping_knowledge,
                fanouts: Auto::Value("-1,-1".parse().unwrap()),
                layers: 2,
                halo: grappa_run::config::HaloMode::Stop,
                first_hop: FirstHop::Sampled,
                ..config()
            };
            let [exact, sampled] =
                [Evaluate::Exact, Evaluate::Sampled].map(|how| evaluated(&store, folder.path(), &config, how));
            assert_eq!(exact, sampled, "{model}, {partitions} partitions, {normalize_features}");
        }
    }
}

#[test]
fn sampled_scores_are_close_to_exact_ones_on_average() {
    const SEEDS: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let mut differences = Vec::new();
    for seed in 0..SEEDS {
        let config = TrainConfig {
            seed,
            fanouts: Auto::Value("8,8".parse().unwrap()),
            layers: 2,
            first_hop: FirstHop::Sampled,
            ..config()
        };
        let [exact, sampled] =
            [Evaluate::Exact, Evaluate::Sampled].map(|how| evaluated(&store, folder.path(), &config, how));
        differences.push(sampled.0 - exact.0);
    }
    let mean = differences.iter().sum::<f64>() / SEEDS as f64;
    let variance = differences.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (SEEDS - 1) as f64;
    // Four standard errors, and half a node.
    let bound = 4.0 * (variance / SEEDS as f64).sqrt() + 0.005;
    assert!(mean.abs() <= bound, "{mean} of {differences:?}");
}

#[test]
fn the_summary_of_a_run_says_how_its_scores_were_computed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let run = |evaluate, name: &str| {
        let config = TrainConfig { evaluate, epochs: 3, ..config() };
        train_at(&store, &config, &folder.path().join(name)).unwrap().0
    };
    // The graph is small.
    let [auto, exact, sampled] =
        [Evaluate::Auto, Evaluate::Exact, Evaluate::Sampled].map(|evaluate| run(evaluate, &format!("{evaluate}.run")));
    assert_eq!(auto.evaluated, Some(Evaluate::Exact));
    assert_eq!(exact.evaluated, Some(Evaluate::Exact));
    assert_eq!(sampled.evaluated, Some(Evaluate::Sampled));
    assert_eq!((auto.val_accuracy, auto.test_accuracy), (exact.val_accuracy, exact.test_accuracy));
    assert!(sampled.test_accuracy.is_some());
}

#[test]
fn a_run_that_sampled_ends_with_the_exact_scores_of_its_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let path = folder.path().join("r.run");
    let sampled = TrainConfig {
        evaluate: Evaluate::Sampled,
        fanouts: Auto::Value("1,1".parse().unwrap()),
        layers: 2,
        epochs: 6,
        ..config()
    };
    train_at(&store, &sampled, &path).unwrap();
    let auto = TrainConfig { evaluate: Evaluate::Auto, ..sampled };
    let run = RunFolder::resume(&path).unwrap();
    let summary = train(store.clone(), auto, &run, true, Device::Cpu, &mut Unseen).unwrap();
    assert_eq!(summary.evaluated, Some(Evaluate::Exact));

    let trained = Trained::open(&path, Device::Cpu).unwrap();
    let accuracy = |split: &str| {
        let nodes: Vec<NodeId> = store.split(split).unwrap().unwrap().iter().map(NodeId).collect();
        let predicted = predict_nodes(&trained, &store, &nodes, BUDGET, folder.path(), &Silent).unwrap().nodes;
        let right = predicted.iter().filter(|prediction| {
            let labels = prediction.labels.as_ref().expect("all nodes have labels");
            prediction.classes[0].0 == labels[0]
        });
        right.count() as f64 / nodes.len() as f64
    };
    assert_eq!(summary.val_accuracy, Some(accuracy("val")));
    assert_eq!(summary.test_accuracy, Some(accuracy("test")));
}
