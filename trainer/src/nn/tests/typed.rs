//! Models of graphs with types equal PyTorch Geometric's, values and gradients.

use std::collections::HashMap;

use grappa_formats::time_axis::TimeUnit;
use grappa_run::model::{LayerKind, ModelGraph, ModelNodeType, ModelOptions, ModelRelation, ModelTarget, TimeEncoding};
use grappa_sampling::sample;
use tch::{Device, Kind, Tensor, no_grad};

use super::{assert_close, devices, fixture::read_arrays};
use crate::nn::{Block, Input, Model, Pass};

const TOLERANCE: f64 = 1e-5;
/// Source and destination of each relation: of types 0, `a`, and 1, `b`.
const RELATIONS: [(usize, &str, usize); 3] = [(0, "r", 0), (0, "s", 1), (1, "t", 0)];

/// The relations with features of edges, in models that take them.
const WITH_FEATURES: [usize; 2] = [0, 2];
const EDGE_FEATURES: usize = 4;

fn graph(takes_features: bool) -> ModelGraph {
    let node_type =
        |name: &str, inputs| ModelNodeType { name: name.into(), inputs, ages: 0, embedding: 0, columns: Vec::new() };
    let relation = |(number, &(source, name, destination)): (usize, &(usize, &str, usize))| ModelRelation {
        source,
        name: name.into(),
        destination,
        ages: if takes_features && WITH_FEATURES.contains(&number) { EDGE_FEATURES } else { 0 },
    };
    ModelGraph {
        node_types: vec![node_type("a", 5), node_type("b", 4)],
        relations: RELATIONS.iter().enumerate().map(relation).collect(),
        target: ModelTarget::Type(0),
    }
}

/// All edges of a relation, to all nodes of its destinations' type, with their features if there are any.
fn block(edges: &Tensor, features: Option<&Tensor>, sources: usize, destinations: usize) -> sample::Block {
    let features: Option<Vec<Vec<f32>>> = features.map(|rows| rows.try_into().unwrap());
    let ends = Vec::<Vec<i64>>::try_from(edges).unwrap();
    let mut block = sample::Block { sources, destinations, offsets: vec![0], ..sample::Block::default() };
    for destination in 0..destinations as i64 {
        for edge in (0..ends[0].len()).filter(|&edge| ends[1][edge] == destination) {
            block.indices.push(ends[0][edge] as u32);
            block.edge_features.extend(features.iter().flat_map(|rows| &rows[edge]));
        }
        block.offsets.push(block.indices.len() as u32);
        let degree = u64::from(block.offsets[block.offsets.len() - 1] - block.offsets[block.offsets.len() - 2]);
        block.visible.push(degree);
        block.global.push(degree);
    }
    block.halo = vec![false; destinations];
    block
}

fn model(arrays: &HashMap<String, Tensor>, layer: LayerKind, bases: Option<usize>, device: Device) -> Model {
    let options = ModelOptions {
        layer,
        layers: 2,
        inputs: 5,
        hidden: 6,
        outputs: 3,
        heads: 2,
        graph: Some(graph(arrays.contains_key("edge_attr:0"))),
        time_encoding: arrays
            .contains_key("edge_attr:0")
            .then(|| TimeEncoding::of_span(EDGE_FEATURES, 1.0, TimeUnit::Seconds)),
        bases,
        ..ModelOptions::default()
    };
    let model = Model::new(options, 1, device).unwrap();
    let named = model.parameters().named();
    let count = arrays.keys().filter(|name| name.starts_with("parameter:")).count();
    assert_eq!(named.len(), count, "parameters: {named:?}");
    no_grad(|| {
        for (name, parameter) in named {
            parameter.shallow_clone().copy_(&arrays[&format!("parameter:{name}")]);
        }
    });
    model
}

#[test]
fn models_of_graphs_with_types_have_the_values_and_gradients_of_pytorch_geometric() {
    let cases = [
        ("rsage-2", LayerKind::Rsage, None),
        ("rgcn-2", LayerKind::Rgcn, None),
        ("rgcn-bases-2", LayerKind::Rgcn, Some(2)),
        ("rgat-2", LayerKind::Rgat, None),
        ("hgt-2", LayerKind::Hgt, None),
        ("rsage-edges-2", LayerKind::Rsage, None),
        ("rgat-edges-2", LayerKind::Rgat, None),
    ];
    for (file, layer, bases) in cases {
        let arrays = read_arrays(file);
        for device in devices() {
            let model = model(&arrays, layer, bases, device);
            let inputs = ["a", "b"].map(|name| arrays[&format!("x:{name}")].to_device(device).set_requires_grad(true));
            let nodes = inputs.each_ref().map(|rows| rows.size()[0] as usize);
            let hop = || {
                let relations = RELATIONS.iter().enumerate().map(|(number, &(source, _, destination))| {
                    let edges = &arrays[&format!("edge_index:{number}")];
                    let features = arrays.get(&format!("edge_attr:{number}"));
                    let block = block(edges, features, nodes[source], nodes[destination]);
                    Block::between_types(&block, nodes[destination], device)
                });
                relations.collect::<Vec<Block>>()
            };
            let pass = Pass { training: Some(1), ..Pass::default() };
            let out = model.forward(&[hop(), hop()], Input::Features(&inputs), &[], pass);
            assert_close(&out, &arrays["out"], TOLERANCE, &format!("{file} on {device:?}"));
            (out * arrays["factor"].to_device(device)).sum(Kind::Float).backward();
            for (name, rows) in ["a", "b"].into_iter().zip(&inputs) {
                let case = format!("{file}: gradient of the input {name} on {device:?}");
                assert_close(&rows.grad(), &arrays[&format!("gradient:x:{name}")], TOLERANCE, &case);
            }
            for (name, parameter) in model.parameters().named() {
                let case = format!("{file}: gradient of {name} on {device:?}");
                // PyTorch Geometric has parameters that no output depends on.
                match arrays.get(&format!("gradient:{name}")) {
                    Some(expected) => assert_close(&parameter.grad(), expected, TOLERANCE, &case),
                    None => assert!(
                        !parameter.grad().defined() || parameter.grad().abs().max().double_value(&[]) == 0.0,
                        "{case}"
                    ),
                }
            }
        }
    }
}
