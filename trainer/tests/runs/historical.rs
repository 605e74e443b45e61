//! History of halo nodes that follows the parameters.

use std::{path::Path, sync::Arc};

use grappa_engine::{
    aggregate::{Budget, NodeRows, StoredRows, store_features},
    derive::preaggregate::{AggregateOptions, preaggregate},
};
use grappa_formats::{NodeId, aggregates::AggregateKind};
use grappa_io::progress::Silent;
use grappa_run::model::{LayerKind, ModelOptions, NormKind};
use grappa_sampling::NodeSet;
use grappa_storage::{MappedChunks, Store, aggregates::Aggregates};
use grappa_trainer::{
    nn::Model,
    train::{
        historical::{HistoricalNodes, HistoricalRows, Keep},
        inference::{Degrees, Inference},
    },
};
use tch::{Device, Kind, Tensor, no_grad};

use crate::stores::{CLASSES, DENSE, NODES, inference, store};

const BUDGET: Budget = Budget::new(64 << 20, 1);
const LAYERS: usize = 5;
/// Of the largest aggregate: what is kept is rounded to bf16, and sums are of differences that may be larger than they.
const ROUNDING: f64 = 0.01;

fn model(layer: LayerKind) -> Model {
    let options = ModelOptions {
        layer,
        layers: LAYERS,
        inputs: DENSE.dim as usize,
        hidden: 8,
        outputs: CLASSES as usize,
        heads: 1,
        dropout: 0.0,
        norm: NormKind::None,
        residual: false,
        ..ModelOptions::default()
    };
    Model::new(options, 3, Device::Cpu).unwrap()
}

fn chunks(store: &Store) -> Arc<MappedChunks> {
    Arc::new(MappedChunks::open(store).unwrap())
}

/// Makes the aggregates that the model's first layer takes.
fn preaggregate_for(model: &Model, store: &Store) {
    let options = AggregateOptions::new(kind(model), BUDGET);
    preaggregate(store, &options, &Silent).unwrap();
}

fn all(store: &Store, keep: Keep) -> HistoricalNodes {
    HistoricalNodes::all(&chunks(store), LAYERS, keep, 1, &Silent).unwrap()
}

/// The historical embeddings of some nodes.
fn kept(store: &Store, scratch: &Path, model: &Model, nodes: &HistoricalNodes, memory: u64) -> HistoricalRows {
    let features = store_features(store).unwrap();
    let known = Aggregates::open(store, kind(model)).unwrap().unwrap();
    let known = StoredRows::of_aggregates(store, known);
    let chunks = chunks(store);
    let inference = Inference {
        kept_memory: memory,
        ..inference(store, &chunks, &*features, Some(&known as &dyn NodeRows), BUDGET, scratch)
    };
    let needed = nodes.needed(&chunks, true, f64::INFINITY, 1, &Silent).unwrap();
    let needed = needed.expect("there is no limit");
    inference.historical(model, nodes, &needed, None, &Silent).unwrap()
}

/// The aggregates of some nodes at a layer, as history tells them.
fn aggregates_of(nodes: &[NodeId], store: &Store, kept: &HistoricalRows, layer: usize, model: &Model) -> Tensor {
    let places: Vec<i64> = (0..nodes.len() as i64).collect();
    let degrees = Degrees::new(chunks(store));
    let historical = kept.embeddings(layer, nodes, &places, &degrees, Device::Cpu).unwrap();
    no_grad(|| match &historical.neighbor {
        Some(neighbor) => historical.rows + model.neighbor_share(layer, neighbor),
        None => historical.rows,
    })
}

fn largest(tensor: &Tensor) -> f64 {
    tensor.abs().max().double_value(&[])
}

fn kind(model: &Model) -> AggregateKind {
    match model.options().layer {
        LayerKind::Gcn => AggregateKind::Gcn,
        LayerKind::Gin => AggregateKind::Sum,
        _ => AggregateKind::Mean,
    }
}

#[test]
fn history_with_neighbors_is_that_without_until_parameters_change_and_follows_them_then() {
    const DRAWS: u64 = 120;
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    for layer in [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin] {
        let model = model(layer);
        preaggregate_for(&model, &store);
        // All of it in files, a part of it in memory, or all of it.
        let memory = |keep| match keep {
            Keep::Neighbors { seed } => seed % 3 * 40_000,
            _ => 0,
        };
        let kept = |keep| kept(&store, folder.path(), &model, &all(&store, keep), memory(keep));
        let nodes: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        let aggregates = |kept: &HistoricalRows, layer| aggregates_of(&nodes, &store, kept, layer, &model);

        let before = kept(Keep::Aggregates);
        let drawn: Vec<HistoricalRows> = (0..DRAWS).map(|seed| kept(Keep::Neighbors { seed })).collect();
        for at in 1..LAYERS - 1 {
            let expected = aggregates(&before, at);
            assert!(largest(&expected) > 0.05, "{layer}");
            for kept in &drawn[..3] {
                let off = largest(&(aggregates(kept, at) - &expected)) / largest(&expected);
                assert!(off < ROUNDING, "{layer}: {off} of layer {at}");
            }
        }

        no_grad(|| {
            let mut values = model.parameters().flat_values();
            let count = values.numel() as i64;
            let change = Tensor::from_slice(&[0.1f32, -0.05, 0.2]).repeat([count / 3 + 1]);
            let _ = values.g_add_(&change.narrow(0, 0, count));
        });
        // States of the first layer are exact, so the mean over all neighbors is what the aggregate has become.
        let (old, expected) = (aggregates(&before, 1), aggregates(&kept(Keep::Aggregates), 1));
        let draws: Vec<Tensor> = drawn.iter().map(|kept| aggregates(kept, 1)).collect();
        let draws = Tensor::stack(&draws, 0);
        let mean = draws.mean_dim(0, false, Kind::Float);
        let error = draws.std_dim(0, true, false) / (DRAWS as f64).sqrt();
        let rounding = ROUNDING * largest(&expected);
        let off = largest(&((&mean - &expected) / (error + rounding)));
        assert!(off < 6.0, "{layer}: {off} standard errors");
        let (left, was) = (largest(&(mean - &expected)), largest(&(old - expected)));
        assert!(left < 0.25 * was, "{layer}: {left} of {was}");
    }
}

#[test]
fn the_history_of_some_nodes_has_the_bits_of_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    for layer in [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin] {
        let model = model(layer);
        preaggregate_for(&model, &store);
        for keep in [Keep::Aggregates, Keep::Neighbors { seed: 7 }] {
            let kept = |nodes: &HistoricalNodes| kept(&store, folder.path(), &model, nodes, 0);
            let whole = kept(&all(&store, keep));
            // Some nodes are reached in a hop, more in two, still more in three.
            let reached: Vec<NodeSet> = [97, 29, 5]
                .map(|every| {
                    NodeSet::from_members(
                        NODES,
                        (0..NODES).filter(|node| node % every == 0 || node % 97 == 0).map(NodeId),
                    )
                })
                .into_iter()
                .scan(NodeSet::from_members(NODES, []), |all, set| {
                    *all = all.union(&set);
                    Some(all.clone())
                })
                .collect();
            let some = HistoricalNodes::new(&chunks(&store), reached.clone(), keep, 1, &Silent).unwrap();
            assert!(some.sets().iter().all(|set| set.len() < NODES / 2), "fewer nodes have rows");
            let part = kept(&some);
            for (layer, set) in (1..LAYERS - 1).zip(reached.iter().rev()) {
                let mut nodes = Vec::new();
                set.nodes_at(0..set.len(), &mut nodes);
                // In any order.
                nodes.reverse();
                let aggregates = |kept: &HistoricalRows| aggregates_of(&nodes, &store, kept, layer, &model);
                assert!(aggregates(&part).equal(&aggregates(&whole)), "{keep:?}, layer {layer}");
            }
        }
    }
}
