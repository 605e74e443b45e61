//! Exported models do in PyTorch Geometric what they do here.
//!
//! That takes a Python with torch, torch_geometric, safetensors and numpy, which GRAPPA_PYG_PYTHON names:
//!
//!     GRAPPA_PYG_PYTHON=/path/to/venv/bin/python cargo test -p grappa-trainer --test runs export

use std::{fs, path::PathBuf, process::Command};

use grappa_engine::{
    EdgePart,
    export::{
        Budget,
        columns::export_features,
        edges::{EdgeColumns, export_edges},
    },
};
use grappa_formats::manifest::SelfLoops;
use grappa_io::progress::Silent;
use grappa_run::{
    checkpoint::read_tensors,
    config::{Auto, FirstHop, TrainConfig},
    model::{Activation, EdgeInput, FeatureNorm, JumpingKnowledge, LayerKind, NormKind},
};
use grappa_trainer::{
    export::export,
    nn::Model,
    predict::{Values, predict_file},
};
use tch::Device;

use crate::stores::{BUDGET, DENSE, NAMES, Shape, config, store, trained, trained_as};

/// Loads each model, computes the logits of its whole graph, and compares. The modules are loaded once, because that is
/// slow.
const CHECK: &str = r#"
import json, pathlib, sys
import numpy, torch
sys.path.insert(0, sys.argv[1])
from grappa import model as grappa_model

names = json.loads(sys.argv[2])
for folder, task in json.loads(sys.argv[3]):
    model = grappa_model.load(f"{folder}/model.safetensors")
    assert (model.task, model.class_names) == (task, names), (folder, model.task, model.class_names)
    x = torch.from_numpy(numpy.load(f"{folder}/x.npy"))
    edges = torch.from_numpy(numpy.load(f"{folder}/edges.npy"))
    expected = torch.from_numpy(numpy.load(f"{folder}/logits.npy"))
    edges = edges.T if edges.shape[1] == 2 else edges
    path = pathlib.Path(folder, "edge_data.npy")
    edge_data = [torch.from_numpy(numpy.load(path))] if path.exists() else []
    with torch.no_grad():
        logits = model(x, edges, *edge_data)
    difference = float((logits - expected).abs().max() / expected.abs().max().clamp(min=1))
    print(folder, difference)
    # Nodes differ, or this would show nothing.
    assert expected.std(0).max() > 1e-3, (folder, expected.std(0))
    assert logits.shape == expected.shape and difference < 1e-5, (folder, difference)
"#;

/// Trains a model, and writes it with its inputs and outputs into `folder`. Returns the folder and the task.
fn exported(folder: PathBuf, shape: Shape, config: TrainConfig) -> (PathBuf, &'static str) {
    let store = store(&folder, shape);
    let (trained, _) = trained_as(&store, &folder, config);
    let path = |name: &str| folder.join(name);
    export(&trained, &path("model.safetensors")).unwrap();
    predict_file(&trained, &store, &path("logits.npy"), Values::Logits, BUDGET, &Silent).unwrap();
    let budget = Budget { threads: 2, memory: 64 << 20 };
    export_features(&store, &path("x.npy"), &budget, &Silent).unwrap();
    let edges_to = |name: &str, columns| {
        export_edges(&store, EdgePart::Graph, columns, &path(name), &budget, &Silent).unwrap();
    };
    edges_to("edges.npy", EdgeColumns::All);
    match trained.model().options().edges {
        EdgeInput::Nothing => {}
        EdgeInput::Weights => edges_to("edge_data.npy", EdgeColumns::Weights),
        EdgeInput::Features(_) => edges_to("edge_data.npy", EdgeColumns::Features),
    }
    (folder, if shape.sets { "multi-label" } else { "multi-class" })
}

#[test]
fn exported_models_do_in_pytorch_geometric_what_they_do_here() {
    let Ok(python) = std::env::var("GRAPPA_PYG_PYTHON") else {
        grappa_skip::skip!("GRAPPA_PYG_PYTHON names no Python with torch_geometric");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut jobs = Vec::new();
    for model in [
        LayerKind::Sage,
        LayerKind::SageMax,
        LayerKind::Gcn,
        LayerKind::Gat,
        LayerKind::Gatv2,
        LayerKind::Gin,
        LayerKind::PinSage,
    ] {
        let config = TrainConfig { model, layers: 3, epochs: 2, lr: 0.01, ..config() };
        // Layers of PyTorch Geometric have their own ideas of self-loops.
        let shape = Shape { self_loops: SelfLoops::Add, ..DENSE };
        jobs.push(exported(folder.path().join(model.to_string()), shape, config));
    }
    let published = [
        TrainConfig {
            model: LayerKind::Gat,
            heads: 4,
            last_heads: "1".parse().unwrap(),
            input_dropout: 0.3,
            attention_dropout: 0.3,
            activation: Activation::Elu,
            normalize_features: FeatureNorm::Row,
            ..config()
        },
        TrainConfig {
            model: LayerKind::Gcn,
            activation: Activation::Prelu,
            normalize_features: FeatureNorm::Standard,
            weight_decay: "0.001,0".parse().unwrap(),
            label_smoothing: 0.1,
            ..config()
        },
        TrainConfig {
            model: LayerKind::Sage,
            activation: Activation::Gelu,
            partitions: Auto::Value(4),
            input_dropout: 0.2,
            normalize_features: FeatureNorm::Standard,
            ..config()
        },
        TrainConfig {
            model: LayerKind::Gatv2,
            heads: 2,
            last_heads: "3".parse().unwrap(),
            activation: Activation::LeakyRelu,
            ..config()
        },
        TrainConfig { model: LayerKind::Gin, layers: 3, jumping_knowledge: JumpingKnowledge::Cat, ..config() },
        TrainConfig {
            model: LayerKind::SageMax,
            layers: 3,
            jumping_knowledge: JumpingKnowledge::Max,
            norm: "layer".parse().unwrap(),
            residual: true,
            ..config()
        },
    ];
    for config in published {
        let name = format!("published {}", config.model);
        let config = TrainConfig { first_hop: FirstHop::Sampled, epochs: 4, lr: 0.01, ..config };
        jobs.push(exported(folder.path().join(name), DENSE, config));
    }
    for model in [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin, LayerKind::Gatv2] {
        let config = TrainConfig { model, layers: 3, epochs: 2, lr: 0.01, partitions: Auto::Value(1), ..config() };
        let shape = Shape { edge_data: true, ..DENSE };
        jobs.push(exported(folder.path().join(format!("{model} with edge data")), shape, config));
    }
    for norm in [NormKind::Batch, NormKind::Layer] {
        let config = TrainConfig {
            norm: Auto::Value(norm),
            residual: true,
            first_hop: FirstHop::Sampled,
            epochs: 2,
            lr: 0.01,
            ..config()
        };
        let sets = Shape { sets: true, ..DENSE };
        jobs.push(exported(folder.path().join(norm.to_string()), sets, config));
    }
    let output = Command::new(python)
        .args(["-c", CHECK, concat!(env!("CARGO_MANIFEST_DIR"), "/../python")])
        .arg(serde_json::to_string(&NAMES).unwrap())
        .arg(serde_json::to_string(&jobs).unwrap())
        .output()
        .unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{stdout}{stderr}");
}

#[test]
fn an_exported_model_has_what_the_documentation_says_and_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let (trained, _) = trained(&store, folder.path(), LayerKind::Gin);
    let path = folder.path().join("model.safetensors");
    let exported = export(&trained, &path).unwrap();
    let (tensors, metadata) = read_tensors(&path).unwrap();
    let mut found: Vec<_> = tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect();
    found.sort_unstable();
    let mut expected = Vec::new();
    for (layer, o, i) in [(0, 16, 6), (1, 3, 16)] {
        for (name, shape) in [
            ("eps", vec![1]),
            ("nn.0.weight", vec![16, i]),
            ("nn.0.bias", vec![16]),
            ("nn.1.weight", vec![16]),
            ("nn.1.bias", vec![16]),
            ("nn.3.weight", vec![o, 16]),
            ("nn.3.bias", vec![o]),
        ] {
            expected.push((format!("layers.{layer}.{name}"), shape));
        }
    }
    for name in ["weight", "bias", "running_mean", "running_var"] {
        expected.push((format!("norms.0.{name}"), vec![16]));
    }
    expected.push(("norms.0.num_batches_tracked".into(), vec![]));
    expected.sort();
    let expected: Vec<_> = expected.iter().map(|(name, shape)| (name.as_str(), &shape[..])).collect();
    assert_eq!(found, expected);
    assert_eq!(exported.tensors, expected.len());
    assert_eq!(exported.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(metadata["task"], "\"multi-class\"");
    assert_eq!(metadata["class_names"], serde_json::to_string(&NAMES).unwrap());

    let model = Model::load(&path, Device::Cpu).unwrap();
    assert_eq!(model.options(), trained.model().options());
    assert_eq!(model.parameters().flat_values(), trained.model().parameters().flat_values());
    let error = export(&trained, &path).unwrap_err().to_string();
    assert!(error.contains("model.safetensors exists"), "{error}");
}
