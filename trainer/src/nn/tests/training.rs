//! Models learn, alike every time; history stands in for what is out of reach; losses are those by hand.

use grappa_run::model::{Activation, JumpingKnowledge, LayerKind, ModelOptions, NormKind, Precision, Task};
use grappa_sampling::sample::Minibatch;
use tch::{Device, Kind, Tensor, no_grad};

use super::{
    assert_close, devices,
    fixture::{Fixture, rows},
    models::inference,
    parameters::options,
    random,
};
use crate::nn::{self, Block, HistoricalEmbeddings, Input, Model, Pass, Scaling};

/// A minibatch of all nodes of a small graph, with weights of edges.
fn minibatch() -> (Fixture, Minibatch) {
    let fixture = Fixture::read("pinsage-1");
    let all: Vec<u32> = (0..fixture.graph.rows.len() as u32).collect();
    let minibatch = fixture.graph.full(&all, 2);
    (fixture, minibatch)
}

/// Trains with plain gradient descent; the loss of each step.
fn train(options: ModelOptions, device: Device, seed: u64, steps: u64) -> (Model, Vec<f64>) {
    let (fixture, minibatch) = minibatch();
    let model = Model::new(options, seed, device).expect("a model");
    let blocks = fixture.graph.blocks(&minibatch, device);
    let nodes = minibatch.nodes.len() as i64;
    let x = random(9, &[nodes, 5]).to_device(device);
    let labels = Tensor::arange(nodes, (Kind::Int64, device)).remainder(3);
    let mut losses = Vec::new();
    for step in 0..steps {
        let pass = Pass { training: Some(step), scaling: Scaling::HorvitzThompson, names: None };
        let logits = model.forward(&blocks, Input::features(&x), &[], pass);
        let loss = nn::Loss::of_classes(Task::MultiClass, 0.0).losses(&logits, &labels).mean(Kind::Float);
        loss.backward();
        losses.push(loss.double_value(&[]));
        no_grad(|| {
            let step = model.parameters().flat_gradient() * 0.3;
            let _ = model.parameters().flat_values().subtract_(&step);
        });
        model.parameters().zero_gradient();
    }
    (model, losses)
}

/// Trains, and asserts that the loss gets smaller. Labels are arbitrary, and layers that mix a node with its neighbors are slow to tell it
/// apart.
fn learns(options: ModelOptions, device: Device, case: &str) -> Model {
    // The initial values of HGT scale rows down four times on the way.
    let steps = if options.layer == LayerKind::Hgt { 200 } else { 60 };
    let (model, losses) = train(options, device, 1, steps);
    let last = &losses[losses.len() - 10..];
    assert!(last.iter().sum::<f64>() / 10.0 < 0.95 * losses[0], "{case}, {device:?}: {losses:?}");
    model
}

#[test]
fn every_kind_of_model_learns_on_every_device_and_with_either_precision() {
    for device in devices() {
        for &kind in LayerKind::ALL {
            for precision in [Precision::F32, Precision::Bf16] {
                for (norm, residual) in [(NormKind::None, false), (NormKind::Batch, true), (NormKind::Layer, false)] {
                    let options = ModelOptions { precision, norm, residual, hidden: 32, dropout: 0.1, ..options(kind) };
                    learns(options, device, &format!("{kind}, {precision:?}, {norm}"));
                }
            }
        }
    }
}

#[test]
fn training_twice_gives_the_same_bits_and_the_seed_of_a_step_matters() {
    for &kind in LayerKind::ALL {
        let (model, losses) = train(options(kind), Device::Cpu, 1, 5);
        // libtorch's generator is not asked.
        tch::manual_seed(77);
        let (again, losses_again) = train(options(kind), Device::Cpu, 1, 5);
        assert_eq!(losses, losses_again, "{kind}");
        assert_eq!(model.parameters().flat_values(), again.parameters().flat_values(), "{kind}");
    }
    let (fixture, minibatch) = minibatch();
    let model = Model::new(options(LayerKind::Sage), 1, Device::Cpu).expect("a model");
    let blocks = fixture.graph.blocks(&minibatch, Device::Cpu);
    let x = random(9, &[minibatch.nodes.len() as i64, 5]);
    let run = |training| {
        let pass = Pass { training, ..Pass::default() };
        model.forward(&blocks, Input::features(&x), &[], pass)
    };
    assert_ne!(run(Some(1)), run(Some(2)));
    assert_eq!(run(Some(1)), run(Some(1)));
    assert_eq!(run(None), run(None));
}

#[test]
fn dropout_of_features_and_attention_is_of_the_step_and_only_in_training() {
    let (fixture, minibatch) = minibatch();
    let blocks = fixture.graph.blocks(&minibatch, Device::Cpu);
    let x = random(9, &[minibatch.nodes.len() as i64, 5]);
    for (input_dropout, attention_dropout) in [(0.5, 0.0), (0.0, 0.5)] {
        let options = ModelOptions {
            dropout: 0.0,
            norm: NormKind::None,
            input_dropout,
            attention_dropout,
            ..options(LayerKind::Gat)
        };
        let plain = ModelOptions { input_dropout: 0.0, attention_dropout: 0.0, ..options.clone() };
        let run = |options: &ModelOptions, training| {
            let model = Model::new(options.clone(), 1, Device::Cpu).expect("a model");
            let pass = Pass { training, ..Pass::default() };
            model.forward(&blocks, Input::features(&x), &[], pass)
        };
        assert_eq!(run(&options, None), run(&plain, None));
        assert_eq!(run(&options, Some(1)), run(&options, Some(1)));
        assert_ne!(run(&options, Some(1)), run(&options, Some(2)));
        assert_ne!(run(&options, Some(1)), run(&plain, Some(1)));
    }
}

#[test]
fn jumping_knowledge_trains_with_every_kind_of_layer() {
    for &kind in LayerKind::ALL {
        for &jumping_knowledge in &JumpingKnowledge::ALL[1..] {
            let options = ModelOptions { jumping_knowledge, hidden: 32, dropout: 0.1, ..options(kind) };
            let model = learns(options, Device::Cpu, &format!("{kind}, {jumping_knowledge}"));
            let (name, weight) = &model.parameters().named()[model.parameters().named().len() - 2];
            let inputs = if jumping_knowledge == JumpingKnowledge::Cat { 64 } else { 32 };
            assert_eq!((name.as_str(), weight.size()), ("head.weight", vec![3, inputs]));
        }
    }
}

#[test]
fn every_activation_trains_on_every_device_and_with_either_precision() {
    for device in devices() {
        for &activation in Activation::ALL {
            for precision in [Precision::F32, Precision::Bf16] {
                let options =
                    ModelOptions { activation, precision, hidden: 32, dropout: 0.1, ..options(LayerKind::Sage) };
                let model = learns(options, device, &format!("{activation}, {precision:?}"));
                let slope = model.parameters().named().iter().find(|(name, _)| name == "activations.0.weight");
                assert_eq!(slope.is_some(), activation == Activation::Prelu);
                assert!(slope.is_none_or(|(_, slope)| (slope.double_value(&[0]) - 0.25).abs() > 1e-3));
            }
        }
    }
}

#[test]
fn exact_history_makes_up_for_halo_nodes_that_have_no_edges() {
    let fixture = Fixture::read("sage-3");
    for &kind in LayerKind::ALL.iter().filter(|kind| !kind.is_relational()) {
        let options =
            ModelOptions { layers: 3, hidden: 6, dropout: 0.0, norm: NormKind::None, residual: false, ..options(kind) };
        let model = Model::new(options, 4, Device::Cpu).expect("a model");
        let seeds = fixture.seeds();
        let minibatch = fixture.graph.full(&seeds, 3);
        let blocks = fixture.graph.blocks(&minibatch, Device::Cpu);
        let x = fixture.array("x").index_select(0, &rows(&minibatch, Device::Cpu));
        let expected = model.forward(&blocks, Input::features(&x), &[], Pass::default());

        let (_, aggregates) = inference(&model, &fixture);
        // Every third node beyond the seeds is a halo node.
        let mut cut = minibatch.clone();
        let mut historical = Vec::new();
        for (block, aggregated) in cut.blocks.iter_mut().zip(aggregates.iter().rev()) {
            let halo: Vec<i64> = (seeds.len()..block.destinations).step_by(3).map(|place| place as i64).collect();
            let full = block.clone();
            block.offsets = vec![0];
            block.indices.clear();
            block.edge_features.clear();
            let features = full.edge_features.len() / full.indices.len();
            for destination in 0..full.destinations {
                if !halo.contains(&(destination as i64)) {
                    let edges = full.edges_of(destination);
                    block.indices.extend_from_slice(&full.indices[edges.clone()]);
                    let of_edges = edges.start * features..edges.end * features;
                    block.edge_features.extend_from_slice(&full.edge_features[of_edges]);
                }
                block.offsets.push(block.indices.len() as u32);
            }
            let destinations = Tensor::from_slice(&halo);
            let nodes = rows(&minibatch, Device::Cpu).index_select(0, &destinations);
            // The destinations of the last layer are seeds.
            historical.push((!halo.is_empty()).then(|| HistoricalEmbeddings {
                rows: aggregated.index_select(0, &nodes),
                destinations,
                neighbor: None,
            }));
        }
        let blocks = Block::of_minibatch(&cut, Some(&fixture.graph.degrees(&cut)), Device::Cpu);
        let without = model.forward(&blocks, Input::features(&x), &[], Pass::default());
        assert!((&without - &expected).abs().max().double_value(&[]) > 0.01, "{kind} needs what was cut");
        let with = model.forward(&blocks, Input::features(&x), &historical, Pass::default());
        assert_close(&with, &expected, 1e-5, &kind.to_string());
    }
}

#[test]
fn losses_are_those_by_hand_and_not_reduced() {
    for device in devices() {
        let logits = Tensor::from_slice(&[0.0f32, 0.0, 2.0, 0.0]).view([2, 2]).to_device(device);
        let classes = Tensor::from_slice(&[1i64, 0]).to_device(device);
        let expected = [2f32.ln(), (1.0 + (-2f32).exp()).ln()];
        let losses = nn::Loss::of_classes(Task::MultiClass, 0.0).losses(&logits, &classes);
        assert_close(&losses, &Tensor::from_slice(&expected), 1e-6, "cross-entropy");
        // A tenth of the targets is halved between the two classes.
        let smooth = [2f32.ln(), 0.95 * expected[1] + 0.05 * (expected[1] + 2.0)];
        let losses = nn::Loss::of_classes(Task::MultiClass, 0.1).losses(&logits, &classes);
        assert_close(&losses, &Tensor::from_slice(&smooth), 1e-6, "smoothed cross-entropy");

        let labels = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0]).view([2, 2]).to_device(device);
        let expected = [2f32.ln(), ((1.0 + 2f32.exp()).ln() + 2f32.ln()) / 2.0];
        let losses = nn::Loss::of_classes(Task::MultiLabel, 0.0).losses(&logits, &labels);
        assert_close(&losses, &Tensor::from_slice(&expected), 1e-6, "binary cross-entropy");
    }
}
