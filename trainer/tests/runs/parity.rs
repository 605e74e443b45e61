//! Training equals PyTorch Geometric's, step by step: the same initial weights, without dropout, on Cora.
//!
//! Each kind of layer is trained with two of the optimizers and schedules, so each of these is tried with three kinds
//! of layers. PinSAGE is left out, because PyTorch Geometric does not have it. [`super::export`] has how to run it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use grappa_ingestion::ingest::{IngestOptions, NodeData, NodeIngest, NodeSplits, Resources, SplitFile, ingest};
use grappa_io::progress::Silent;
use grappa_run::{
    config::{LrSchedule, Optimizer, TrainConfig},
    model::{Activation, FeatureNorm, JumpingKnowledge, LayerKind, Task},
};
use grappa_storage::Store;
use grappa_trainer::nn::Model;
use serde_json::{Value, json};
use tch::Device;

use crate::stores::train_at;

/// One step per epoch.
const STEPS: u64 = 100;
/// The largest relative difference of losses.
const TOLERANCE: f64 = 1e-5;

/// The steps that agree to [`TOLERANCE`].
///
/// Where a rounding error moves a value across the bend of a ReLU, the gradient jumps. GATv2 has such a bend within its
/// attention, and sums make the values of deep GINs large. From their first jump, losses differ by more than rounding;
/// PyTorch Geometric's own do in f32 and f64.
fn exact_steps(config: &TrainConfig) -> usize {
    match config.model {
        LayerKind::Gatv2 => 10,
        LayerKind::Gin if config.layers > 2 => 10,
        _ => STEPS as usize,
    }
}

/// The largest relative difference after them.
const LOOSE: f64 = 0.02;

fn largest_difference(ours: &[f64], theirs: &[f64]) -> f64 {
    let relative = |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() / theirs.abs();
    ours.iter().zip(theirs).map(relative).fold(0.0, f64::max)
}

fn cora_files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cora")
}

/// Runs the script beside this file, and returns what it prints.
fn script(python: &str, args: &[&Path]) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/parity.py");
    let output = Command::new(python).arg(script).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn cora(folder: &Path, features: &Path) -> Arc<Store> {
    let file = |name: &str| cora_files().join(name);
    let split = |name: &'static str| SplitFile { name, ids: file(&format!("{name}.npy")).into() };
    let out = folder.join("cora.grappa");
    let mut options = IngestOptions {
        resources: Resources { memory: 64 << 20, ..Resources::default() },
        nodes: NodeIngest {
            data: NodeData {
                features: Some(features.to_owned().into()),
                labels: Some(file("labels.npy").into()),
                ..NodeData::default()
            },
            splits: NodeSplits { files: vec![split("train"), split("val"), split("test")], ..NodeSplits::default() },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![file("edges.tsv")], out.clone())
    };
    options.edges.options.undirected = true;
    ingest(&options, &Silent).unwrap();
    Arc::new(Store::open(&out).unwrap())
}

fn base() -> TrainConfig {
    TrainConfig {
        hidden: 16,
        heads: 4,
        dropout: 0.0,
        // Batch norms see all nodes in PyTorch Geometric, and here those that the training nodes reach.
        norm: "none".parse().unwrap(),
        full_graph: true,
        lr: 0.01,
        epochs: STEPS,
        eval_every: STEPS,
        checkpoint_every: 0,
        ..TrainConfig::default()
    }
}

/// Each optimizer and each schedule, with the options that belong to them.
fn trainings() -> Vec<TrainConfig> {
    let adam = || TrainConfig { optimizer: Optimizer::Adam, weight_decay: "0.0005,0".parse().unwrap(), ..base() };
    vec![
        TrainConfig { warmup: 10.0, ..adam() },
        TrainConfig {
            lr_schedule: LrSchedule::Cosine,
            lr_min: 0.001,
            optimizer: Optimizer::AdamW,
            weight_decay: "0.01".parse().unwrap(),
            ..base()
        },
        TrainConfig {
            lr_schedule: LrSchedule::Step,
            lr_step: 30,
            lr_factor: 0.1,
            optimizer: Optimizer::Sgd,
            momentum: 0.9,
            weight_decay: "0.0005".parse().unwrap(),
            clip: 1.0,
            ..base()
        },
        TrainConfig { lr_schedule: LrSchedule::Plateau, lr_patience: 3, eval_every: 1, ..adam() },
    ]
}

fn configs() -> Vec<TrainConfig> {
    let mut configs = Vec::new();
    // PyTorch Geometric has no PinSAGE, the edges of the store have no features for GINE, and the script has no graphs with types.
    let other = [LayerKind::PinSage, LayerKind::Gine];
    let models = LayerKind::ALL.iter().filter(|kind| !other.contains(kind) && !kind.is_relational());
    for (number, &model) in models.enumerate() {
        // Optimizers and layers do not know each other: each pair of neighbors in the lists is enough.
        let trainings = trainings().into_iter().cycle().skip(number).take(2);
        configs.extend(trainings.map(|config| TrainConfig { model, ..config }));
    }
    let published = |model, activation, normalize_features| TrainConfig {
        model,
        activation,
        normalize_features,
        label_smoothing: 0.1,
        ..base()
    };
    configs.extend([
        TrainConfig {
            last_heads: "1".parse().unwrap(),
            ..published(LayerKind::Gat, Activation::Elu, FeatureNorm::Row)
        },
        published(LayerKind::Gcn, Activation::Prelu, FeatureNorm::Row),
        TrainConfig {
            layers: 3,
            residual: true,
            norm: "layer".parse().unwrap(),
            ..published(LayerKind::Sage, Activation::Gelu, FeatureNorm::Standard)
        },
        TrainConfig {
            layers: 3,
            jumping_knowledge: JumpingKnowledge::Cat,
            lr: 0.001,
            ..published(LayerKind::Gin, Activation::Relu, FeatureNorm::Row)
        },
        TrainConfig {
            last_heads: "2".parse().unwrap(),
            ..published(LayerKind::Gatv2, Activation::LeakyRelu, FeatureNorm::None)
        },
    ]);
    configs
}

/// Trains, and returns what PyTorch Geometric needs to do the same, with the losses.
fn trained(store: &Arc<Store>, folder: &Path, config: &TrainConfig) -> (Value, Vec<f64>) {
    let initial = folder.join("initial.safetensors");
    let manifest = store.manifest();
    let inputs = manifest.features.as_ref().unwrap().dim as usize;
    let outputs = manifest.labels.unwrap().classes as usize;
    // The first checkpoint is after the last step, so the initial weights are made again from the seed.
    let model = Model::new(config.model_options(inputs, outputs, Task::MultiClass), config.seed, Device::Cpu).unwrap();
    model.save(&initial).unwrap();
    let (_, seen) = train_at(store, config, &folder.join("run")).unwrap();
    assert!(seen.warnings.is_empty(), "{seen:?}");
    let scores: Vec<_> = seen.records.iter().map(|record| record.val_accuracy).collect();
    let job = json!({"model": initial, "config": config, "scores": scores});
    (job, seen.records.iter().map(|record| record.loss).collect())
}

#[test]
fn every_model_optimizer_and_schedule_takes_the_steps_of_pytorch_geometric() {
    let Ok(python) = std::env::var("GRAPPA_PYG_PYTHON") else {
        grappa_skip::skip!("GRAPPA_PYG_PYTHON names no Python with torch_geometric");
    };
    let folder = tempfile::tempdir().unwrap();
    let features = folder.path().join("features.npy");
    script(&python, &[Path::new("features"), &cora_files(), &features]);
    let store = cora(folder.path(), &features);
    let configs = configs();
    let ours: Vec<(Value, Vec<f64>)> = configs
        .iter()
        .enumerate()
        .map(|(number, config)| {
            let folder = folder.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            trained(&store, &folder, config)
        })
        .collect();
    let jobs: Vec<&Value> = ours.iter().map(|(job, _)| job).collect();
    let file = folder.path().join("jobs.json");
    fs::write(&file, serde_json::to_vec(&jobs).unwrap()).unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let printed = script(&python, &[Path::new("train"), &cora_files(), &features, &package, &file]);
    let theirs: Vec<Vec<f64>> = serde_json::from_slice(&printed).unwrap();
    let mut wrong = Vec::new();
    for ((config, (_, ours)), theirs) in configs.iter().zip(&ours).zip(&theirs) {
        assert_eq!((ours.len(), theirs.len()), (STEPS as usize, STEPS as usize));
        let exact = exact_steps(config);
        let close = largest_difference(&ours[..exact], &theirs[..exact]);
        let loose = largest_difference(ours, theirs);
        let name = format!("{}, {}, {}, {}", config.model, config.optimizer, config.lr_schedule, config.activation);
        let (first, last) = (ours[0], ours[ours.len() - 1]);
        println!("{name}: {first:.4} to {last:.4}, apart {close:.1e} in {exact} steps, {loose:.1e} in all");
        // A loss that does not fall would show nothing.
        assert!(last < 0.999 * first, "{name}: {ours:?}");
        if !(close <= TOLERANCE && loose <= LOOSE) {
            wrong.push(format!("{name}: {close:.1e}, {loose:.1e}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
