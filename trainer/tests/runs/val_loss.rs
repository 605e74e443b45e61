//! The validation loss: the same as libtorch's, however the model is evaluated, and the choice of the best epoch
//! by it.

use std::{path::Path, sync::Arc};

use grappa_engine::aggregate::Budget;
use grappa_formats::NodeId;
use grappa_io::{map::Access, progress::Silent};
use grappa_run::{
    config::{Auto, Evaluate, FirstHop, HaloMode, Monitor, TrainConfig},
    journal::EpochRecord,
    model::Task,
    summary::Summary,
};
use grappa_sampling::NodeSet;
use grappa_storage::{MappedLabels, Store};
use grappa_trainer::{
    nn::Loss,
    train::trained_model::{InferenceRequest, Output, RequestedNodes, Trained},
};
use tch::{Device, Kind, Tensor};

use crate::stores::{CLASSES, DENSE, Shape, config, store, train_at};

fn run(store: &Arc<Store>, folder: &Path, config: &TrainConfig) -> (Summary, Vec<EpochRecord>) {
    let (summary, seen) = train_at(store, config, folder).unwrap();
    (summary, seen.records)
}

/// The mean of the losses that libtorch computes from the logits of the best model.
fn loss_of_libtorch(store: &Store, run: &Path) -> f64 {
    let trained = Trained::open(run, Device::Cpu).unwrap();
    let nodes: Vec<NodeId> = store.split("val").unwrap().unwrap().iter().map(NodeId).collect();
    let request = InferenceRequest {
        nodes: RequestedNodes::Nodes(NodeSet::from_members(store.manifest().nodes, nodes.iter().copied())),
        output: Output::Logits,
    };
    let budget = Budget::new(64 << 20, 2);
    let mut parts = Vec::new();
    let mut take = |_: std::ops::Range<u64>, logits: &Tensor| {
        parts.push(logits.copy());
        Ok(())
    };
    trained.infer(store.into(), request, budget, run, &Silent, &mut take).unwrap();
    let logits = Tensor::cat(&parts, 0);
    let labels: Vec<MappedLabels> =
        store.present_chunks().map(|chunk| store.labels(chunk, Access::Random).unwrap().unwrap()).collect();
    let place = |node: NodeId| {
        let chunk = store.chunks().chunk_of(node);
        (&labels[chunk.0 as usize], node.0 - store.chunks().range(chunk).start)
    };
    let labels = match trained.task() {
        Task::MultiClass => {
            let class = |node: &NodeId| {
                let (labels, row) = place(*node);
                i64::from(labels.single(row).unwrap().unwrap())
            };
            Tensor::from_slice(&nodes.iter().map(class).collect::<Vec<i64>>())
        }
        Task::MultiLabel => {
            let set = |node: &NodeId| {
                let (labels, row) = place(*node);
                let set = labels.multi(row).unwrap().unwrap();
                (0..CLASSES as u32).map(|class| i64::from(set.contains(class))).collect::<Vec<i64>>()
            };
            Tensor::from_slice(&nodes.iter().flat_map(set).collect::<Vec<i64>>()).view([-1, CLASSES as i64])
        }
        Task::Regression | Task::Links => unreachable!("stores of these tests have classes"),
    };
    Loss::of_classes(trained.task(), 0.0).losses(&logits, &labels).mean(Kind::Double).double_value(&[])
}

#[test]
fn every_evaluation_has_the_loss_of_libtorch() {
    let folder = tempfile::tempdir().unwrap();
    let sets = Shape { sets: true, ..DENSE };
    let base = TrainConfig { epochs: 1, evaluate: Evaluate::Exact, ..config() };
    for (shape, kind) in [(DENSE, "classes"), (sets, "sets")] {
        let at = folder.path().join(kind);
        std::fs::create_dir(&at).unwrap();
        let store = store(&at, shape);
        let ways = [
            ("exactly", base.clone()),
            (
                "with all neighbors sampled",
                TrainConfig {
                    evaluate: Evaluate::Sampled,
                    layers: 2,
                    fanouts: Auto::Value("-1,-1".parse().unwrap()),
                    first_hop: FirstHop::Sampled,
                    halo: HaloMode::Auto,
                    ..base.clone()
                },
            ),
            (
                "with a refresh of the history",
                TrainConfig {
                    layers: 3,
                    fanouts: Auto::Auto,
                    partitions: Auto::Value(3),
                    halo: HaloMode::History,
                    repartition_every: 1,
                    ..base.clone()
                },
            ),
        ];
        for (way, config) in ways {
            let path = at.join(way);
            let (summary, records) = run(&store, &path, &config);
            let expected = loss_of_libtorch(&store, &path);
            let loss = summary.val_loss.expect("there are validation nodes");
            assert!((loss - expected).abs() < 1e-5 * expected, "{kind} {way}: {loss} {expected}");
            assert_eq!(records[0].val_loss, Some(loss));
        }
    }
}

#[test]
fn the_best_epoch_and_the_end_follow_the_loss_if_it_is_monitored() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    // With such a learning rate the loss goes up and down.
    let config = TrainConfig { epochs: 40, lr: 0.3, monitor: Monitor::Loss, early_stopping: 4, ..config() };
    let (summary, records) = run(&store, &folder.path().join("loss.run"), &config);
    let losses: Vec<f64> = records.iter().map(|record| record.val_loss.unwrap()).collect();
    let best = (0..losses.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap();
    assert_eq!((summary.best_epoch, summary.val_loss), (Some(best as u64 + 1), Some(losses[best])));
    let trained = Trained::open(&folder.path().join("loss.run"), Device::Cpu).unwrap();
    assert_eq!(trained.monitor(), Monitor::Loss);
    assert_eq!(trained.state().best.map(|best| -best.val), Some(losses[best]));
    assert_eq!((records.len(), records.len() < 40), (best + 1 + 4, true), "{losses:?}");

    let config = TrainConfig { monitor: Monitor::Score, ..config };
    let (summary, records) = run(&store, &folder.path().join("score.run"), &config);
    let best = summary.best_epoch.unwrap() as usize - 1;
    assert!(records.iter().all(|record| record.val_accuracy <= records[best].val_accuracy));
}
