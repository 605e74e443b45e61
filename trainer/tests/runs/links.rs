//! Link prediction.

use std::{path::Path, sync::Arc};

use grappa_formats::{EdgePart, NodeId};
use grappa_io::progress::Silent;
use grappa_run::{
    config::{Auto, LossKind, Monitor, NegativeSampling, TaskChoice, TrainConfig},
    folder::RunFolder,
    journal::read_records,
    model::Decoder,
};
use grappa_sampling::links::{KnownEdges, known_edges_of};
use grappa_storage::Store;
use grappa_trainer::train::train;
use tch::Device;

use crate::stores::{DENSE, NODES, Seen, Shape, config, refused_at, store, train_at};

/// Edges are held out, and nodes have no labels.
pub const SPLIT: Shape = Shape { labelled: false, edge_split: true, ..DENSE };

pub fn links() -> TrainConfig {
    TrainConfig { task: TaskChoice::Link, dropout: 0.0, lr: 0.02, batch: "32".parse().unwrap(), ..config() }
}

fn assert_learns(store: &Arc<Store>, config: &TrainConfig, path: &Path) {
    let (summary, seen) = train_at(store, config, path).unwrap();
    let (first, last) = (&seen.records[0], seen.records.last().unwrap());
    assert!(last.loss < first.loss, "{} {}", first.loss, last.loss);
    let scores = summary.links.unwrap();
    assert_eq!(Some(scores.edges), store.part_edges("test".parse().unwrap()).ok());
    assert!(scores.auc.unwrap() > 0.6, "{scores}");
    assert!(summary.val_mrr.is_some() && summary.test_mrr == scores.filtered.mrr);
}

#[test]
fn links_are_learned_on_the_whole_graph_and_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    for undirected in [false, true] {
        let store = store(&folder.path().join(undirected.to_string()), Shape { undirected, ..SPLIT });
        for (partitions, concurrent) in [(1, 1), (3, 3), (4, 2)] {
            let config = TrainConfig {
                partitions: Auto::Value(partitions),
                concurrent: Auto::Value(concurrent),
                // Few edges are held out, so ranks vary from epoch to epoch.
                epochs: 30,
                monitor: Monitor::Auc,
                ..links()
            };
            assert_learns(&store, &config, &folder.path().join(format!("{undirected}-{partitions}")));
        }
    }
}

#[test]
fn known_edges_are_the_edges_of_all_parts() {
    let folder = tempfile::tempdir().unwrap();
    for undirected in [false, true] {
        let store = store(&folder.path().join(undirected.to_string()), Shape { undirected, ..SPLIT });
        let known = KnownEdges::new(&store, &EdgePart::ALL, Vec::new()).unwrap();
        let nodes: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        let edges = known_edges_of(&store, &EdgePart::ALL, &nodes, 1 << 24, &Silent).unwrap();
        assert!(!edges.is_empty());
        for &source in &nodes {
            for &target in &nodes {
                let expected = edges.binary_search(&(source, target)).is_ok();
                let found = known.contains(&store, source, target).unwrap();
                assert_eq!(found, expected, "{source:?} {target:?}, undirected: {undirected}");
            }
        }
    }
}

#[test]
fn every_loss_decoder_and_way_to_draw_negatives_learns() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), SPLIT);
    for (loss, sampling, decoder) in [
        (LossKind::Bpr, NegativeSampling::Degree, Decoder::DistMult),
        (LossKind::Softmax, NegativeSampling::Shared, Decoder::Dot),
        (LossKind::Softmax, NegativeSampling::InBatch, Decoder::Mlp),
        (LossKind::Bce, NegativeSampling::Pairs, Decoder::Mlp),
    ] {
        let config =
            TrainConfig { loss, negative_sampling: sampling, decoder, negatives: "3".parse().unwrap(), ..links() };
        let path = folder.path().join(format!("{loss}-{sampling}"));
        let (_, seen) = train_at(&store, &config, &path).unwrap();
        let losses: Vec<f64> = seen.records.iter().map(|record| record.loss).collect();
        assert!(losses.last() < losses.first(), "{loss} {sampling}: {losses:?}");
    }
}

#[test]
fn a_run_that_is_resumed_ends_like_one_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), SPLIT);
    for edges_per_epoch in [0, 500] {
        let config_for = |epochs| TrainConfig { epochs, edges_per_epoch, decoder: Decoder::DistMult, ..links() };
        let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(format!("{name}-{edges_per_epoch}")));
        train_at(&store, &config_for(5), &whole).unwrap();
        train_at(&store, &config_for(2), &parts).unwrap();
        let run = RunFolder::resume(&parts).unwrap();
        train(store.clone(), config_for(5), &run, true, Device::Cpu, &mut Seen::default()).unwrap();
        let scores = |path: &Path| -> Vec<_> {
            let records = read_records(path).unwrap();
            let scores = records.iter().map(|record| (record.loss, record.val_mrr, record.test_mrr, record.step));
            scores.collect()
        };
        assert_eq!(scores(&parts), scores(&whole));
    }
}

#[test]
fn what_does_not_go_with_links_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let without = store(&folder.path().join("without"), DENSE);
    let error = refused_at(&without, &links(), &folder.path().join("without.run"));
    assert!(error.contains("--edge-split 80/10/10"), "{error}");
    let of_nodes = TrainConfig { loss: LossKind::Bpr, ..config() };
    let error = refused_at(&without, &of_nodes, &folder.path().join("nodes.run"));
    assert!(error.contains("loss bpr is for links") && error.contains("add --task link"), "{error}");
}
