//! Parameters, their gradients and their files.

use std::{fs, slice};

use grappa_run::model::{EdgeInput, LayerKind, ModelOptions, NormKind};
use tch::{Device, Kind, Tensor};

use super::{assert_close, devices, random};
use crate::{
    Error,
    nn::{Input, Model, Pass},
};

pub(super) fn options(layer: LayerKind) -> ModelOptions {
    ModelOptions {
        layer,
        layers: 2,
        inputs: 5,
        hidden: 8,
        outputs: 3,
        heads: 2,
        dropout: 0.5,
        norm: NormKind::Batch,
        residual: true,
        edges: match layer {
            LayerKind::Gine => EdgeInput::Features(4),
            _ => EdgeInput::Nothing,
        },
        ..ModelOptions::default()
    }
}

fn model(layer: LayerKind, seed: u64) -> Model {
    Model::new(options(layer), seed, Device::Cpu).expect("a model")
}

#[test]
fn initial_values_depend_on_the_seed_alone() {
    for &kind in LayerKind::ALL {
        tch::manual_seed(1);
        let first = model(kind, 7).parameters().flat_values();
        let second = model(kind, 7).parameters().flat_values();
        assert_eq!(first, second, "{kind}");
        assert_ne!(first, model(kind, 8).parameters().flat_values(), "{kind}");
    }
}

#[test]
fn initial_values_spread_as_those_of_pytorch() {
    let options = ModelOptions { inputs: 400, hidden: 100, ..options(LayerKind::Sage) };
    let model = Model::new(options, 1, Device::Cpu).expect("a model");
    let (name, weight) = &model.parameters().named()[0];
    assert_eq!(name, "layers.0.lin_l.weight");
    // Uniform in ± 1 / sqrt(400): as large, with a third of the bound's square as variance.
    assert!((weight.abs().max().double_value(&[]) - 0.05).abs() < 1e-4);
    assert!((weight.var(true).double_value(&[]) * 3.0 - 0.0025).abs() < 1e-4);
}

#[test]
fn flat_vectors_are_the_parameters_and_their_gradients() {
    for device in devices() {
        let one = ModelOptions { layers: 1, ..options(LayerKind::Sage) };
        let model = Model::new(one, 1, device).expect("a model");
        let counts: usize = model.parameters().named().iter().map(|(_, tensor)| tensor.numel()).sum();
        assert_eq!(model.parameters().count(), counts);

        let x = random(1, &[4, 5]).to_device(device);
        let input = Input::Aggregated { own: slice::from_ref(&x), neighbors: slice::from_ref(&x), degrees: None };
        let run = || model.forward(&[], input, &[], Pass::default());
        let before = run();
        before.sum(Kind::Float).backward();
        run().sum(Kind::Float).backward();
        let bias = &model.parameters().named()[1].1;
        // Twice, for each of 4 rows.
        assert_close(&bias.grad(), &Tensor::full([3], 8.0, (Kind::Float, Device::Cpu)), 0.0, "added gradient");
        let weight = model.parameters().named()[0].1.numel() as i64;
        assert_close(&model.parameters().flat_gradient().narrow(0, weight, 3), &bias.grad(), 0.0, "its part");

        tch::no_grad(|| {
            let _ = model.parameters().flat_values().narrow(0, weight, 3).g_add_scalar_(1.0);
        });
        assert_close(&run(), &(before + 1.0), 1e-6, "a bias that grew");

        model.parameters().zero_gradient();
        assert_eq!(bias.grad().abs().max().double_value(&[]), 0.0);
        let ones = Tensor::ones([model.parameters().count() as i64], (Kind::Float, device));
        model.parameters().flat_gradient().copy_(&ones);
        assert_eq!(bias.grad().sum(Kind::Float).double_value(&[]), 3.0);
        run().sum(Kind::Float).backward();
        assert_eq!(bias.grad().sum(Kind::Float).double_value(&[]), 15.0);
    }
}

#[test]
fn a_saved_model_is_read_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    for &kind in LayerKind::ALL {
        let path = folder.path().join(format!("{kind}.safetensors"));
        let model = model(kind, 3);
        for (_, buffer) in model.parameters().buffers() {
            let _ = buffer.shallow_clone().fill_(0.25);
        }
        model.save(&path).expect("saved");
        let loaded = Model::load(&path, Device::Cpu).expect("loaded");
        assert_eq!(loaded.options(), model.options());
        assert_eq!(loaded.parameters().flat_values(), model.parameters().flat_values(), "{kind}");
        for ((name, actual), (_, expected)) in loaded.parameters().buffers().iter().zip(model.parameters().buffers()) {
            assert_eq!(actual, expected, "{name}");
        }
    }
}

#[test]
fn a_file_of_another_model_or_damaged_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    let error = Model::load(&path, Device::Cpu).expect_err("there is no file").to_string();
    assert!(error.contains("cannot open") && error.contains("model.safetensors"), "{error}");

    model(LayerKind::Sage, 3).save(&path).expect("saved");
    let refused = |options: ModelOptions, expected: &str| {
        let model = Model::new(options, 1, Device::Cpu).expect("a model");
        let before = model.parameters().flat_values().copy();
        let error = model.load_parameters(&path).expect_err("another model").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(model.parameters().flat_values(), before);
    };
    let sage = || options(LayerKind::Sage);
    let other = "`layers.0.lin_l.weight` is F32 of [8, 5], and the model has F32 of [8, 6]";
    refused(ModelOptions { inputs: 6, ..sage() }, other);
    refused(options(LayerKind::Gcn), "has no tensor `layers.0.bias`");
    let without = ModelOptions { residual: false, ..sage() };
    refused(without, "has a tensor `residuals.0.weight`, and the model has none");

    let bytes = fs::read(&path).expect("the file");
    for length in (0..bytes.len()).step_by(37) {
        fs::write(&path, &bytes[..length]).expect("written");
        assert!(
            matches!(Model::load(&path, Device::Cpu), Err(Error::Run(grappa_run::Error::RunFile { .. }))),
            "{length} bytes"
        );
    }
}

#[test]
fn any_flipped_byte_of_a_saved_model_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    model(LayerKind::Sage, 3).save(&path).expect("saved");
    let mut bytes = fs::read(&path).expect("the file");
    for at in 0..bytes.len() {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        fs::write(&path, &bytes).expect("written");
        let error = Model::load(&path, Device::Cpu).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("model.safetensors")), "byte {at}: {error:?}");
        bytes[at] ^= bit;
    }
    fs::write(&path, &bytes).expect("written");
    Model::load(&path, Device::Cpu).expect("the model is whole again");
}
