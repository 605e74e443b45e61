//! Decoders against their formulas.

use grappa_run::model::{Decoder, LayerKind, ModelOptions};
use tch::{Device, Kind, Tensor};

use super::{assert_close, parameters::options, random};
use crate::nn::{LinkDecoder, Model};

const WIDTH: i64 = 6;

fn new_model(decoder: Decoder) -> Model {
    let options = ModelOptions { outputs: WIDTH as usize, decoder: Some(decoder), ..options(LayerKind::Sage) };
    Model::new(options, 1, Device::Cpu).expect("a model")
}

/// The same, with random parameters.
fn model(decoder: Decoder) -> Model {
    let model = new_model(decoder);
    let values = model.parameters().flat_values();
    values.shallow_clone().copy_(&random(3, &values.size()));
    model
}

fn parameter(model: &Model, name: &str) -> Vec<f32> {
    let (_, tensor) = model.parameters().named().iter().find(|(found, _)| found == name).expect(name);
    values(tensor)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.detach().view([-1])).expect("f32")
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The score of a pair, value by value.
fn naive(model: &Model, decoder: Decoder, source: &[f32], destination: &[f32]) -> f32 {
    let products: Vec<f32> = source.iter().zip(destination).map(|(s, d)| s * d).collect();
    let width = WIDTH as usize;
    match decoder {
        Decoder::Dot => products.iter().sum(),
        Decoder::Cosine => {
            dot(source, destination) / (dot(source, source).sqrt() * dot(destination, destination).sqrt()).max(1e-8)
        }
        Decoder::DistMult => dot(&products, &parameter(model, "decoder.weight")),
        Decoder::Mlp => {
            let [weight, bias] = ["weight", "bias"].map(|name| parameter(model, &format!("decoder.hidden.{name}")));
            let hidden: Vec<f32> = (0..width)
                .map(|unit| (dot(&products, &weight[unit * width..][..width]) + bias[unit]).max(0.0))
                .collect();
            dot(&hidden, &parameter(model, "decoder.out.weight")) + parameter(model, "decoder.out.bias")[0]
        }
        Decoder::ComplEx | Decoder::RotatE | Decoder::TransE => panic!("{decoder} scores triples"),
    }
}

fn decoder(model: &Model) -> &LinkDecoder {
    model.decoder().expect("the model has a decoder")
}

#[test]
fn scores_of_pairs_equal_the_formula() {
    for kind in Decoder::of_embeddings() {
        let model = model(kind);
        let [sources, destinations] = [5, 6].map(|seed| random(seed, &[7, WIDTH]));
        // An embedding of zeros has no direction.
        let _ = sources.get(3).fill_(0.0);
        let scores = decoder(&model).score(&sources, &destinations);
        let [sources, destinations] = [&sources, &destinations].map(values);
        let pairs = sources.chunks(WIDTH as usize).zip(destinations.chunks(WIDTH as usize));
        let expected: Vec<f32> = pairs.map(|(s, d)| naive(&model, kind, s, d)).collect();
        assert_close(&scores, &Tensor::from_slice(&expected), 1e-5, kind.name());
    }
}

#[test]
fn scores_of_shared_candidates_equal_the_scores_of_pairs() {
    for kind in Decoder::of_embeddings() {
        let model = model(kind);
        let (sources, candidates) = (random(7, &[5, WIDTH]), random(8, &[9, WIDTH]));
        let scores = decoder(&model).score_all(&sources, &candidates);
        let each = decoder(&model).score(&sources.repeat_interleave_self_int(9, 0, None), &candidates.repeat([5, 1]));
        assert_close(&scores, &each.view([5, 9]), 1e-5, kind.name());
    }
}

#[test]
fn gradients_reach_embeddings_and_parameters() {
    for kind in Decoder::of_embeddings() {
        let model = model(kind);
        let [sources, candidates] = [5, 6].map(|seed| random(seed, &[4, WIDTH]).set_requires_grad(true));
        let scores = decoder(&model);
        (scores.score(&sources, &candidates) + scores.score_all(&sources, &candidates).sum(Kind::Float))
            .sum(Kind::Float)
            .backward();
        for tensor in [&sources, &candidates] {
            assert!(tensor.grad().abs().sum(Kind::Float).double_value(&[]) > 0.0, "{kind}");
        }
        let of_decoder = model.parameters().named().iter().filter(|(name, _)| name.starts_with("decoder."));
        for (name, tensor) in of_decoder {
            assert!(tensor.grad().abs().sum(Kind::Float).double_value(&[]) > 0.0, "{kind}: {name}");
        }
    }
}

#[test]
fn distmult_begins_as_the_dot_product() {
    let [dot, distmult] = [Decoder::Dot, Decoder::DistMult].map(new_model);
    let [sources, destinations] = [5, 6].map(|seed| random(seed, &[7, WIDTH]));
    assert_close(
        &decoder(&distmult).score(&sources, &destinations),
        &decoder(&dot).score(&sources, &destinations),
        1e-6,
        "the scores",
    );
}
