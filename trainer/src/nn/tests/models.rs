//! Models on blocks equal PyTorch Geometric's on whole graphs, values and gradients.

use std::slice;

use grappa_engine::aggregate::{ListSize, Reduce};
use grappa_run::model::{EdgeInput, LayerKind, ModelOptions, NormKind};
use tch::{Device, Kind, Tensor};

use super::{
    assert_close, devices,
    fixture::{Fixture, rows},
};
use crate::nn::{Aggregate, Input, Model, Pass, Scaling, aggregate, gcn_factors};

const TOLERANCE: f64 = 1e-5;
/// The gradient of a bias before a batch norm is zero: a sum of many gradients, each rounded.
const GRADIENT_TOLERANCE: f64 = 2e-5;

/// The model whose arrays the file `name` has: its name says what it is.
fn model(name: &str, fixture: &Fixture, device: Device) -> Model {
    let (layer, rest) = ["sage-max", "sage", "gcn", "gine", "gin", "gatv2", "gat", "transformer", "pinsage"]
        .into_iter()
        .find_map(|layer| Some((layer, name.strip_prefix(layer)?)))
        .expect("a kind of layer");
    let options = ModelOptions {
        layer: layer.parse().expect("a kind of layer"),
        layers: if rest.contains('3') { 3 } else { 1 },
        inputs: 5,
        hidden: 6,
        outputs: 3,
        heads: 2,
        dropout: 0.0,
        norm: match rest {
            rest if rest.contains("batch") => NormKind::Batch,
            rest if rest.contains("layer") => NormKind::Layer,
            _ => NormKind::None,
        },
        residual: rest.contains("residual"),
        edges: match rest {
            rest if rest.contains("weighted") => EdgeInput::Weights,
            rest if rest.contains("edges") => EdgeInput::Features(4),
            _ => EdgeInput::Nothing,
        },
        ..ModelOptions::default()
    };
    let model = Model::new(options, 1, device).expect("a model");
    fixture.load(&model);
    model
}

fn equals_pytorch_geometric(name: &str) {
    let fixture = Fixture::read(name);
    for device in devices() {
        let model = model(name, &fixture, device);
        let seeds = fixture.seeds();
        let minibatch = fixture.graph.full(&seeds, model.options().layers);
        let blocks = fixture.graph.blocks(&minibatch, device);
        let x = fixture.array("x").detach().to_device(device).set_requires_grad(true);
        let input = x.index_select(0, &rows(&minibatch, device));
        let pass = Pass { training: Some(1), ..Pass::default() };
        let out = model.forward(&blocks, Input::features(&input), &[], pass);
        assert_close(&out, fixture.array("out"), TOLERANCE, &format!("{name} on {device:?}"));
        let loss = (out * fixture.array("factor").to_device(device)).sum(Kind::Float);
        loss.backward();
        assert_close(&x.grad(), fixture.array("gradient:x"), TOLERANCE, "gradient of the input");
        for (name, parameter) in model.parameters().named() {
            let expected = fixture.array(&format!("gradient:{name}"));
            let case = format!("gradient of {name} on {device:?}");
            assert_close(&parameter.grad(), expected, GRADIENT_TOLERANCE, &case);
        }
        for (name, buffer) in model.parameters().buffers() {
            assert_close(buffer, fixture.array(&format!("buffer:{name}")), TOLERANCE, name);
        }
        let out = model.forward(&blocks, Input::features(&input), &[], Pass::default());
        assert_close(&out, fixture.array("out_eval"), TOLERANCE, &format!("{name} without training"));
    }
}

macro_rules! equals_pytorch_geometric {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            equals_pytorch_geometric($name);
        })*
    };
}

equals_pytorch_geometric! {
    one_sage_layer_equals_pytorch_geometric: "sage-1",
    three_sage_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "sage-3",
    one_sage_max_layer_equals_pytorch_geometric: "sage-max-1",
    three_sage_max_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "sage-max-3",
    one_gcn_layer_equals_pytorch_geometric: "gcn-1",
    three_gcn_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "gcn-3",
    one_gin_layer_equals_pytorch_geometric: "gin-1",
    three_gin_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "gin-3",
    batch_norms_after_gin_layers_equal_pytorch_geometric: "gin-3-batch",
    layer_norms_after_gin_layers_equal_pytorch_geometric: "gin-3-layer",
    one_sage_layer_with_weights_equals_its_definition: "sage-weighted-1",
    three_sage_layers_with_weights_on_blocks_equal_their_definition_on_the_graph: "sage-weighted-3",
    one_gcn_layer_with_weights_equals_pytorch_geometric: "gcn-weighted-1",
    three_gcn_layers_with_weights_on_blocks_equal_pytorch_geometric_on_the_graph: "gcn-weighted-3",
    one_gin_layer_with_weights_equals_its_definition: "gin-weighted-1",
    three_gin_layers_with_weights_on_blocks_equal_their_definition_on_the_graph: "gin-weighted-3",
    one_gat_layer_equals_pytorch_geometric: "gat-1",
    three_gat_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "gat-3",
    one_gatv2_layer_equals_pytorch_geometric: "gatv2-1",
    three_gatv2_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "gatv2-3",
    one_gatv2_layer_with_features_of_edges_equals_pytorch_geometric: "gatv2-edges-1",
    three_gatv2_layers_with_features_of_edges_equal_pytorch_geometric: "gatv2-edges-3",
    one_gine_layer_equals_pytorch_geometric: "gine-edges-1",
    three_gine_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "gine-edges-3",
    one_transformer_layer_equals_pytorch_geometric: "transformer-1",
    three_transformer_layers_on_blocks_equal_pytorch_geometric_on_the_graph: "transformer-3",
    one_transformer_layer_with_features_of_edges_equals_pytorch_geometric: "transformer-edges-1",
    three_transformer_layers_with_features_of_edges_equal_pytorch_geometric: "transformer-edges-3",
    one_pinsage_layer_equals_its_definition: "pinsage-1",
    three_pinsage_layers_on_blocks_equal_their_definition_on_the_graph: "pinsage-3",
    layer_norms_and_residuals_around_attention_equal_pytorch_geometric: "gat-3-layer-residual",
    batch_norms_and_residuals_equal_pytorch_geometric: "sage-3-batch-residual",
    layer_norms_and_residuals_equal_pytorch_geometric: "sage-3-layer-residual",
}

/// Layer by layer over the whole graph, with the engine's reductions, as exact inference does: logits of all nodes, and
/// what each layer aggregated.
pub(super) fn inference(model: &Model, fixture: &Fixture) -> (Tensor, Vec<Tensor>) {
    let graph = &fixture.graph.rows;
    let degrees = Tensor::from_slice(&fixture.graph.all_degrees());
    let mut hidden = fixture.array("x").copy();
    let mut aggregates = Vec::new();
    for layer in 0..model.options().layers {
        let reduction = model.reduction(layer);
        let own = match model.aggregate(layer) {
            Aggregate::Gcn if reduction.own_width() > 0 => Some(gcn_factors(&degrees)),
            _ => model.queries(layer, &hidden),
        };
        let own = own.map(|own| Vec::<Vec<f32>>::try_from(&own).expect("own rows"));
        let messages = Vec::<Vec<f32>>::try_from(&model.messages(layer, &hidden, Some(&degrees))).expect("messages");
        let mut aggregated = Vec::new();
        for (node, row) in graph.iter().enumerate() {
            let mut state = vec![f32::NAN; reduction.state_width()];
            let own = own.as_ref().map_or(&[][..], |own| &own[node]);
            assert_eq!(own.len(), reduction.own_width());
            reduction.begin(own, &mut state);
            for (&(source, weight), features) in row.iter().zip(&fixture.graph.features[node]) {
                assert_eq!(messages[source as usize].len(), reduction.source_width());
                let weight = [weight];
                let values: &[f32] = match model.options().edges {
                    EdgeInput::Nothing => &[],
                    EdgeInput::Weights => &weight[..],
                    EdgeInput::Features(_) => features,
                };
                assert_eq!(values.len(), reduction.edge_width());
                reduction.add_along(&mut state, &messages[source as usize], values);
            }
            reduction.finish(ListSize::whole(row.len() as u64), &mut state);
            aggregated.extend(state);
        }
        let aggregated = Tensor::from_slice(&aggregated).view([graph.len() as i64, -1]);
        hidden = model.update(layer, &hidden, &aggregated, Some(&degrees));
        if layer + 1 < model.options().layers {
            hidden = model.input(layer + 1, &hidden);
        }
        aggregates.push(aggregated.narrow(1, 0, reduction.result_width() as i64));
    }
    (hidden, aggregates)
}

#[test]
fn layer_wise_inference_equals_pytorch_geometric() {
    for name in [
        "sage-3",
        "sage-max-3",
        "gcn-3",
        "gin-3",
        "gin-3-batch",
        "gin-3-layer",
        "sage-weighted-3",
        "gcn-weighted-3",
        "gin-weighted-3",
        "gat-3",
        "gatv2-3",
        "gatv2-edges-3",
        "gine-edges-3",
        "transformer-3",
        "transformer-edges-3",
        "gat-3-layer-residual",
        "sage-3-layer-residual",
        "sage-3-batch-residual",
    ] {
        let fixture = Fixture::read(name);
        let model = model(name, &fixture, Device::Cpu);
        for (name, buffer) in model.parameters().buffers() {
            buffer.shallow_clone().copy_(fixture.array(&format!("buffer:{name}")));
        }
        let logits = inference(&model, &fixture).0.index_select(0, fixture.array("seeds"));
        assert_close(&logits, fixture.array("out_eval"), TOLERANCE, name);
    }
}

#[test]
fn products_of_the_last_layer_are_narrow_and_give_what_states_do() {
    let fixture = Fixture::read("sage-3");
    for (layer, width) in [(LayerKind::Sage, 6), (LayerKind::Gcn, 3)] {
        let options = ModelOptions { layer, layers: 3, inputs: 5, hidden: 16, outputs: 3, ..ModelOptions::default() };
        let model = Model::new(options, 1, Device::Cpu).expect("a model");
        assert_eq!((model.width(1), model.width(2)), (16, width), "{layer}");
        let seeds = fixture.seeds();
        let minibatch = fixture.graph.full(&seeds, 3);
        let blocks = fixture.graph.blocks(&minibatch, Device::Cpu);
        let input = fixture.array("x").index_select(0, &rows(&minibatch, Device::Cpu));
        let expected = model.forward(&blocks, Input::features(&input), &[], Pass::default());
        let logits = inference(&model, &fixture).0.index_select(0, fixture.array("seeds"));
        assert_close(&logits, &expected, TOLERANCE, &layer.to_string());
    }
}

#[test]
fn a_known_first_aggregate_gives_what_its_block_gives() {
    for name in ["sage-3", "sage-max-3", "gcn-3", "gin-3", "gin-3-layer"] {
        let fixture = Fixture::read(name);
        let model = model(name, &fixture, Device::Cpu);
        let minibatch = fixture.graph.full(&fixture.seeds(), 3);
        let blocks = fixture.graph.blocks(&minibatch, Device::Cpu);
        let input = fixture.array("x").index_select(0, &rows(&minibatch, Device::Cpu));
        let expected = model.forward(&blocks, Input::features(&input), &[], Pass::default());

        let first = &blocks[2][0];
        let neighbors = aggregate(first, model.aggregate(0), Scaling::None, &input, None);
        let own = input.narrow(0, 0, first.destinations() as i64);
        let degrees = first.destination_degrees();
        let known = Input::Aggregated {
            own: slice::from_ref(&own),
            neighbors: slice::from_ref(&neighbors),
            degrees: Some(degrees),
        };
        let actual = model.forward(&blocks[..2], known, &[], Pass::default());
        assert_close(&actual, &expected, 0.0, name);

        let combined = model.combined(&own, &neighbors, Some(degrees));
        assert_eq!(combined.is_some(), name == "gcn-3");
        if let Some(combined) = combined {
            let actual = model.forward(&blocks[..2], Input::Combined(&combined), &[], Pass::default());
            assert_close(&actual, &expected, 0.0, name);
            let state = model.update(0, &own, &neighbors, Some(degrees));
            assert_close(&model.update_combined(&combined), &state, 0.0, name);
        }
    }
}
