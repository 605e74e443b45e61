//! History of halo nodes that follows the parameters.

use std::path::Path;

use grappa_engine::{
    aggregate::{AggregateRows, Budget, NodeRows, StoreFeatures},
    progress::Silent,
    store::{
        Store,
        aggregates::{AggregateOptions, Aggregates, preaggregate},
    },
};
use grappa_formats::{NodeId, aggregates::AggregateKind};
use grappa_trainer::{
    nn::{LayerKind, Model, ModelOptions, NormKind, Precision},
    train::{
        history::{Keep, KeptHistory},
        inference::Inference,
    },
};
use tch::{Device, Kind, Tensor, no_grad};

use crate::stores::{CLASSES, DENSE, NODES, store};

const BUDGET: Budget = Budget {
    memory: 64 << 20,
    threads: 1,
};
const LAYERS: usize = 5;
/// What is kept is rounded to bf16, of two aggregates each.
const ROUNDING: f64 = 1.0 / 128.0;

fn model() -> Model {
    let options = ModelOptions {
        layer: LayerKind::Sage,
        layers: LAYERS,
        inputs: DENSE.dim as usize,
        hidden: 8,
        outputs: CLASSES as usize,
        heads: 1,
        dropout: 0.0,
        norm: NormKind::None,
        residual: false,
        precision: Precision::F32,
    };
    Model::new(options, 3, Device::Cpu).unwrap()
}

fn kept(store: &Store, scratch: &Path, model: &Model, keep: Keep) -> KeptHistory {
    let features = StoreFeatures::open(store).unwrap();
    let means = Aggregates::open(store, AggregateKind::Mean).unwrap().unwrap();
    let means = AggregateRows::new(store, means);
    let inference = Inference {
        store,
        features: &features,
        first_hop: Some(&means as &dyn NodeRows),
        budget: BUDGET,
        scratch,
        device: Device::Cpu,
    };
    let kept = inference.run(model, keep, &Silent, &mut |_, _| Ok(()));
    kept.unwrap().expect("something is kept")
}

/// The aggregates of all nodes at a layer, as history tells them.
fn aggregates(kept: &KeptHistory, layer: usize, model: &Model) -> Tensor {
    let nodes: Vec<NodeId> = (0..NODES).map(NodeId).collect();
    let places: Vec<i64> = (0..NODES as i64).collect();
    let history = kept.of(layer, &nodes, &places, Device::Cpu).unwrap();
    no_grad(|| match &history.neighbour {
        Some(neighbour) => history.rows + model.neighbour_states(layer, neighbour),
        None => history.rows,
    })
}

fn largest(tensor: &Tensor) -> f64 {
    tensor.abs().max().double_value(&[])
}

fn with_means(folder: &Path) -> std::sync::Arc<Store> {
    let store = store(folder, DENSE);
    let options = AggregateOptions {
        kind: AggregateKind::Mean,
        dtype: None,
        budget: BUDGET,
        replace: false,
    };
    preaggregate(&store, &options, &Silent).unwrap();
    store
}

#[test]
fn history_with_neighbours_is_that_without_until_parameters_change_and_follows_them_then() {
    const DRAWS: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let store = with_means(folder.path());
    let model = model();
    let before = kept(&store, folder.path(), &model, Keep::Aggregates);
    let all: Vec<KeptHistory> = (0..DRAWS)
        .map(|seed| kept(&store, folder.path(), &model, Keep::Neighbours { seed }))
        .collect();
    for layer in 1..LAYERS - 1 {
        let expected = aggregates(&before, layer, &model);
        assert!(largest(&expected) > 0.05);
        for kept in &all[..3] {
            let off = largest(&(aggregates(kept, layer, &model) - &expected));
            assert!(off < ROUNDING * largest(&expected), "{off} at layer {layer}");
        }
    }

    no_grad(|| {
        let values = model.parameters().flat_values();
        let change = Tensor::from_slice(&[0.1f32, -0.05, 0.2]).repeat([values.numel() as i64 / 3 + 1]);
        let _ = model
            .parameters()
            .flat_values()
            .g_add_(&change.narrow(0, 0, values.numel() as i64));
    });
    let after = kept(&store, folder.path(), &model, Keep::Aggregates);
    let expected = aggregates(&after, 1, &model);
    let old = aggregates(&before, 1, &model);
    let draws = Tensor::stack(
        &all.iter().map(|kept| aggregates(kept, 1, &model)).collect::<Vec<_>>(),
        0,
    );
    let mean = draws.mean_dim(0, false, Kind::Float);
    let error = draws.std_dim(0, true, false) / (DRAWS as f64).sqrt();
    let rounding = ROUNDING * largest(&expected);
    let off = largest(&((&mean - &expected) / (error + rounding)));
    assert!(off < 6.0, "{off} standard errors");
    let (left, was) = (largest(&(mean - &expected)), largest(&(old - expected)));
    assert!(left < 0.2 * was, "{left} of {was}");
}
