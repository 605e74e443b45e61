use std::fs;

use grappa_formats::{NodeId, PartitionId};
use grappa_ingestion::ingest::{IngestOptions, ingest};
use grappa_io::progress::Silent;
use grappa_run::config::{Optimizer, TrainConfig};
use grappa_sampling::{feed::BatchPlace, sample::Minibatch};
use grappa_storage::{Graph, Store};
use tch::{Device, Kind, Tensor};

use super::{NodeTables, Owners, TableMemory};

const NODES: u64 = 8;
const VALUES: usize = 3;

fn config() -> TrainConfig {
    TrainConfig { node_embeddings: format!("node={VALUES}").parse().unwrap(), lr: 0.5, ..TrainConfig::default() }
}

/// A store of 8 nodes in 4 chunks.
fn graph(folder: &std::path::Path) -> Graph {
    let edges: String = (0..NODES).map(|node| format!("{node} {}\n", (node + 1) % NODES)).collect();
    fs::write(folder.join("edges.txt"), edges).unwrap();
    let mut options = IngestOptions::new(vec![folder.join("edges.txt")], folder.join("g.grappa"));
    options.nodes.layout.chunks = Some(4);
    ingest(&options, &Silent).unwrap();
    Graph::from(std::sync::Arc::new(Store::open(&folder.join("g.grappa")).unwrap()))
}

/// Embeddings in memory, and on a disk, where few bytes of pages may be mapped.
const MEMORIES: [TableMemory; 2] = [
    TableMemory { table_bytes: 1 << 10, leased_bytes: 1 << 10, are_on_disk: false },
    TableMemory { table_bytes: 1 << 10, leased_bytes: 1, are_on_disk: true },
];

fn new_tables(graph: &Graph, config: &TrainConfig, memory: TableMemory) -> NodeTables {
    NodeTables::new(graph, config, memory, graph.path().parent().unwrap()).unwrap().unwrap()
}

fn place(partition: u32) -> BatchPlace {
    BatchPlace { step: 0, partition: PartitionId(partition), batch: 0, repeats: false }
}

#[test]
fn the_owner_updates_an_embedding_and_others_read_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let graph = graph(folder.path());
    for memory in MEMORIES {
        owners_update_and_others_read_copies(&graph, new_tables(&graph, &config(), memory));
    }
}

fn owners_update_and_others_read_copies(graph: &Graph, mut tables: NodeTables) {
    let before = tables.table(0).unwrap().rows.values().to_vec();
    tables.copy().unwrap();
    // Two parts, of partitions 5 and 2. Nodes 0 to 3 are in chunks of partition 5, the others in those of partition 2.
    let parts = [place(5), place(2)];
    let owners = Owners { of_chunks: &[5, 5, 2, 2], parts: &parts };
    let minibatch =
        Minibatch { nodes: [1, 6, 6, 1, 4].map(NodeId).to_vec(), parts: vec![0, 0, 1, 1, 1], ..Minibatch::default() };
    let minibatches = [minibatch];
    let row = |values: &[f32], node: usize| values[node * VALUES..][..VALUES].to_vec();
    let step = |tables: &mut NodeTables| {
        let gathered = tables.gather(graph, &minibatches, Some(owners), Device::Cpu);
        let mut features = [Tensor::zeros([5, 2], (Kind::Float, Device::Cpu))];
        gathered.append_to(&mut features);
        assert_eq!(features[0].size(), [5, 2 + VALUES as i64]);
        let read = Vec::<f32>::try_from(features[0].narrow(1, 2, VALUES as i64).reshape([-1])).unwrap();
        features[0].sum(Kind::Float).backward();
        tables.update(Some(&gathered), (0.5, 2.0), None).unwrap();
        read
    };
    let first = step(&mut tables);
    for (at, node) in [1, 6, 6, 1, 4].into_iter().enumerate() {
        assert_eq!(row(&first, at), row(&before, node));
    }
    let after = tables.table(0).unwrap().rows.values().to_vec();
    for node in 0..NODES as usize {
        let is_updated = [1, 4, 6].contains(&node);
        assert_eq!(row(&after, node) != row(&before, node), is_updated, "node {node}");
        // The first step of Adam is the rate, whatever the gradient.
        let expected: Vec<f32> =
            row(&before, node).iter().map(|value| value - if is_updated { 0.5 } else { 0.0 }).collect();
        let found = row(&after, node);
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
    }
    // The partition that owns a node reads the new embedding, the other one the copy.
    let second = step(&mut tables);
    for (at, (node, is_own)) in [(1, true), (6, false), (6, true), (1, false), (4, true)].into_iter().enumerate() {
        assert_eq!(row(&second, at), row(if is_own { &after } else { &before }, node), "place {at}");
    }
    tables.copy().unwrap();
    let third = tables.gather(graph, &minibatches, Some(owners), Device::Cpu);
    let mut features = [Tensor::zeros([5, 0], (Kind::Float, Device::Cpu))];
    third.append_to(&mut features);
    let read = Vec::<f32>::try_from(features[0].reshape([-1])).unwrap();
    assert_eq!(row(&read, 1), row(tables.table(0).unwrap().rows.values(), 6));
}

#[test]
fn the_owner_adds_up_the_gradients_of_all_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let graph = graph(folder.path());
    let config = TrainConfig { optimizer: Optimizer::Sgd, ..config() };
    for memory in MEMORIES {
        let mut tables = new_tables(&graph, &config, memory);
        let before = tables.table(0).unwrap().rows.values().to_vec();
        tables.copy().unwrap();
        let parts = [place(5), place(2)];
        let owners = Owners { of_chunks: &[5, 5, 2, 2], parts: &parts };
        // Both partitions reach node 1, and the one that does not own it reaches node 6.
        let minibatch =
            Minibatch { nodes: [1, 6, 1].map(NodeId).to_vec(), parts: vec![0, 0, 1], ..Minibatch::default() };
        let gathered = tables.gather(&graph, &[minibatch], Some(owners), Device::Cpu);
        let mut features = [Tensor::zeros([3, 0], (Kind::Float, Device::Cpu))];
        gathered.append_to(&mut features);
        features[0].sum(Kind::Float).backward();
        assert_eq!(gathered.sent_gradient_bytes(), 2 * (4 + 4 * VALUES as u64), "of nodes 6 and 1");
        tables.update(Some(&gathered), (0.5, 2.0), None).unwrap();
        let after = tables.table(0).unwrap().rows.values();
        for (place, (after, before)) in after.iter().zip(&before).enumerate() {
            let gradients = match place / VALUES {
                1 => 2.0,
                6 => 1.0,
                _ => 0.0,
            };
            assert!((before - after - 0.25 * gradients).abs() < 1e-6, "value {place}: {before} {after}");
        }
    }
}

#[test]
fn a_whole_checkpoint_restores_embeddings_and_their_optimizer() {
    let folder = tempfile::tempdir().unwrap();
    let graph = graph(folder.path());
    for memory in MEMORIES {
        checkpoints_restore(&graph, memory);
    }
}

fn checkpoints_restore(graph: &Graph, memory: TableMemory) {
    let minibatches = [Minibatch { nodes: [0, 5].map(NodeId).to_vec(), ..Minibatch::default() }];
    let step = |tables: &mut NodeTables| {
        let gathered = tables.gather(graph, &minibatches, None, Device::Cpu);
        let mut features = [Tensor::zeros([2, 0], (Kind::Float, Device::Cpu))];
        gathered.append_to(&mut features);
        (&features[0] * &features[0]).sum(Kind::Float).backward();
        tables.update(Some(&gathered), (0.1, 1.0), None).unwrap();
    };
    let mut tables = new_tables(graph, &config(), memory);
    assert_eq!(tables.table(0).unwrap().rows.is_on_disk(), memory.are_on_disk);
    step(&mut tables);
    tables.copy().unwrap();
    let (whole, model) = (tables.named(true, true).unwrap(), tables.named(false, true).unwrap());
    let at_the_end = tables.named(true, false).unwrap();
    assert_eq!(at_the_end.len() + 1, whole.len(), "copies are of the epoch");
    assert_eq!(model.len(), 1);
    step(&mut tables);
    // A table on a disk continues with the bits of one in memory, and the other way round.
    for other in MEMORIES {
        let mut restored = new_tables(graph, &TrainConfig { seed: 9, ..config() }, other);
        restored.restore(graph.path(), &whole).unwrap();
        assert!(restored.table(0).unwrap().copies.is_some());
        step(&mut restored);
        assert_eq!(restored.table(0).unwrap().rows, tables.table(0).unwrap().rows);
        // The best model has no state of the optimizer.
        assert!(restored.restore(graph.path(), &model).unwrap_err().to_string().contains("another model"));
        restored.load(graph.path(), &model).unwrap();
    }
}
