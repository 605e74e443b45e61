//! Methods that train the whole graph in partitions.

use grappa_io::progress::Progress;
use grappa_run::checkpoint::RunState;
use grappa_trainer::{
    Result,
    train::{FullGraphInputs, FullGraphMethod, FullGraphStep, FullGraphSums},
};

use super::*;
use crate::{exchange::ExchangeState, graph::PartitionedGraph, owners::Owners};

/// Trains in one process, and returns the metrics of the epochs and the parameters.
fn run(store: &Arc<Store>, config: &TrainConfig, folder: &Path) -> (Vec<EpochStats>, Tensor) {
    trained(&mut prepared(store, config, folder, None).0, config.epochs)
}

#[test]
fn full_exchange_trains_as_one_process_on_the_whole_graph() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let models =
        [LayerKind::Sage, LayerKind::SageMax, LayerKind::Gcn, LayerKind::Gat, LayerKind::Gatv2, LayerKind::Gin];
    for model in models {
        for dropout in [0.0, 0.4] {
            let norm = Auto::Value(NormKind::Layer);
            let config_for = |method| TrainConfig { dropout, residual: true, norm, ..config(method, model, |_| {}) };
            let whole = TrainConfig { full_graph: true, partitions: Auto::Value(1), ..config_for(Method::Grappa) };
            let (of_partitions, found) = run(&store, &config_for(Method::Full), folder.path());
            let (of_whole, expected) = run(&store, &whole, folder.path());
            for (of_partitions, of_whole) in of_partitions.iter().zip(&of_whole) {
                assert_near(&model.to_string(), of_partitions.loss, of_whole.loss);
                assert_eq!(of_partitions.seeds, of_whole.seeds);
            }
            let difference = (found - &expected).abs().max().double_value(&[]);
            assert!(difference < 1e-4, "{model}, dropout {dropout}: parameters differ by {difference}");
        }
    }
}

#[test]
fn bytes_are_those_of_the_formulas() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // 8 features; two layers take 12 states, and there are their gradients.
    let (features, hidden, messages) = (8.0, 12.0, 2.0 * 2.0);
    for (method, features_once, per_feature_row, per_state_row) in [
        (Method::Full, true, 4.0 * features, 4.0 * hidden),
        (Method::PipeGcn, true, 4.0 * features, 4.0 * hidden),
        (Method::Varco, false, features, hidden),
        (Method::Bns, false, 0.25 * 4.0 * features, 0.25 * 4.0 * hidden),
        (Method::AdaQp, true, features / 2.0 + 4.0, hidden / 2.0 + 4.0),
        (Method::CoFree, false, 0.0, 0.0),
        (Method::Isolated, false, 0.0, 0.0),
        // The server needs the features of all nodes.
        (Method::Llcg, true, 0.0, 0.0),
        (Method::Gern, false, 0.0, 0.0),
    ] {
        let config = config(method, LayerKind::Sage, |options| {
            options.rate_schedule = "fixed:4".parse().unwrap();
            options.boundary_share = 0.25;
            options.message_bits = "4".parse().unwrap();
        });
        let (mut trainer, sentence) = prepared(&store, &config, folder.path(), None);
        let (stats, _) = trained(&mut trainer, EPOCHS);
        let sent = sentence.split_once(" partitions send ").map(|(_, sent)| sent.split(' ').next().unwrap());
        let copies: f64 = sent.map_or(0.0, |copies| copies.parse().unwrap());
        for (epoch, stats) in (0..).zip(&stats) {
            let has_features = epoch == 0 || !features_once;
            let of_copies = if has_features { copies * per_feature_row } else { 0.0 };
            let of_server = match method {
                Method::Llcg if epoch == 0 => store.manifest().nodes as f64 * 4.0 * features,
                _ => 0.0,
            };
            let expected = [of_copies + of_server, messages * copies * per_state_row];
            for (found, expected) in [stats.feature_bytes, stats.activation_bytes].into_iter().zip(expected) {
                // Parts of a message are rounded to whole rows or values.
                assert!((found as f64 - expected).abs() <= 0.01 * expected, "{method}: {found} and not {expected}");
            }
        }
    }
}

#[test]
fn every_method_learns_with_fewer_bytes_than_full_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let full = run(&store, &config(Method::Full, LayerKind::Sage, |_| {}), folder.path()).0;
    let bytes = |stats: &[EpochStats]| stats.iter().map(|stats| stats.activation_bytes).sum::<u64>();
    for &method in Method::ALL.iter().filter(|method| **method != Method::Grappa) {
        let config = config(method, LayerKind::Sage, |options| options.boundary_share = 0.4);
        let (stats, _) = run(&store, &TrainConfig { epochs: 30, ..config }, folder.path());
        let [first, last] = [0, 29].map(|epoch| stats[epoch].loss);
        // An epoch of GERN has few of the edges.
        let falls_to = if method == Method::Gern { 0.95 } else { 0.8 };
        assert!(last < falls_to * first, "{method}: from {first} to {last}");
        let [of_method, of_full] = [bytes(&stats[..EPOCHS as usize]), bytes(&full)];
        match method {
            Method::Full | Method::PipeGcn => assert_eq!(of_method, of_full, "{method}"),
            Method::Isolated | Method::CoFree | Method::Llcg | Method::Gern => assert_eq!(of_method, 0, "{method}"),
            _ => assert!(of_method > 0 && of_method < of_full / 2, "{method}: {of_method} of {of_full}"),
        }
    }
}

/// Checks the vertex cut of a run.
struct VertexCut(MethodConfig);

impl FullGraphMethod for VertexCut {
    fn check_processes(&self, _: u32, _: u32) -> Result<()> {
        Ok(())
    }

    fn is_open(&self) -> bool {
        false
    }

    fn open(&mut self, inputs: &FullGraphInputs<'_>, progress: &dyn Progress) -> Result<String> {
        let graph = PartitionedGraph::new(&self.0, inputs, &Owners::new(inputs), progress)?;
        let mut sums = std::collections::BTreeMap::new();
        for (node, factor) in graph.seed_nodes.iter().zip(&graph.factors) {
            *sums.entry(node.0).or_insert(0.0) += f64::from(*factor);
        }
        assert_eq!(sums.len() as u64, inputs.train.len());
        assert!(sums.values().all(|sum| (sum - 1.0).abs() < 1e-6), "{sums:?}");
        assert!(graph.nodes.len() > 600, "nodes have several states");
        assert_eq!(graph.blocks.len(), 3);
        let edges = inputs.store.manifest().edges as f64;
        for block in &graph.blocks {
            let share = block.edges() as f64 / edges;
            assert!((share - 0.5).abs() < 0.05, "{share}");
        }
        Ok("checked".into())
    }

    fn add_gradient(&mut self, _: &FullGraphStep<'_>) -> Result<FullGraphSums> {
        unreachable!("it trains nothing")
    }

    fn observe(&mut self, _: f64) {}

    fn state(&self) -> ExchangeState {
        ExchangeState::new()
    }

    fn restore(&mut self, _: ExchangeState, _: u64) {}
}

#[test]
fn the_states_of_a_node_in_a_vertex_cut_have_loss_weights_that_add_up_to_1() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = config(Method::CoFree, LayerKind::Sage, |options| options.edge_masks = 3);
    let options = MethodConfig::from_train_config(&config).unwrap();
    let setup = TrainSetup { method: Some(Box::new(VertexCut(options))), ..config.into() };
    let mut trainer = Trainer::new(store, setup, None, Device::Cpu, folder.path().to_owned()).unwrap();
    assert!(trainer.prepare(0, None, &Silent).unwrap().starts_with("checked"));
}

#[test]
fn a_resumed_run_continues_with_what_the_exchange_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (method, model) in [
        (Method::Varco, LayerKind::Sage),
        (Method::PipeGcn, LayerKind::Sage),
        (Method::AdaQp, LayerKind::Sage),
        (Method::Full, LayerKind::Sage),
        (Method::Llcg, LayerKind::Sage),
        (Method::Gern, LayerKind::Gcn),
    ] {
        let config = config(method, model, |options| options.rate_schedule = "adaptive:16:1:1".parse().unwrap());
        let new = || prepared(&store, &config, folder.path(), None).0;
        let train = |trainer: &mut Trainer, epoch| {
            let stats = trainer.epoch(epoch, &|_, _| 0.05, &Silent).unwrap();
            let _ = trainer.evaluate(epoch, &|_| true, &Silent).unwrap();
            trainer.end_epoch();
            (stats.loss, stats.feature_bytes, stats.activation_bytes)
        };
        let mut first = new();
        for epoch in 0..3 {
            train(&mut first, epoch);
        }
        let checkpoint = first.checkpoint(&RunState { epoch: 3, step: 3, ..RunState::default() }, true).unwrap();
        let mut resumed = new();
        resumed.restore(Path::new("checkpoint"), &checkpoint, &Silent).unwrap();
        for epoch in 3..5 {
            assert_eq!(train(&mut first, epoch), train(&mut resumed, epoch), "{method}");
        }
    }
}

#[test]
fn methods_that_exchange_gradients_encode_them_and_count_what_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for method in [Method::Full, Method::Isolated, Method::CoFree, Method::Varco] {
        let gradient_bytes = |compress: &str| {
            let compress_to = compress.parse().unwrap();
            let config = TrainConfig { compress: compress_to, ..config(method, LayerKind::Sage, |_| {}) };
            let (mut trainer, _) = prepared(&store, &config, folder.path(), None);
            let (stats, _) = trained(&mut trainer, 20);
            assert!(stats[19].loss < 0.9 * stats[0].loss, "{method}, {compress}: it learns");
            let warnings = trainer.take_warnings();
            assert!(!warnings.iter().any(|warning| warning.contains("--compress")), "{warnings:?}");
            stats[1].gradient_bytes as f64
        };
        let whole = gradient_bytes("none");
        for (compress, share) in [("bf16", 0.5), ("int8", 0.25)] {
            let share_found = gradient_bytes(compress) / whole;
            assert!((share_found - share).abs() < 0.02, "{method}, {compress}: {share_found}");
        }
        assert!(gradient_bytes("lossless") < whole, "{method}");
    }
}

#[test]
fn local_steps_take_the_edges_inside_partitions_and_the_correction_takes_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config_for = |method| config(method, LayerKind::Sage, |options| options.local_steps = 3);
    let [(stats, _), (isolated, _)] =
        [Method::Llcg, Method::Isolated].map(|method| run(&store, &config_for(method), folder.path()));
    for stats in &stats {
        assert_eq!(stats.sampled_edges, 3 * isolated[0].sampled_edges + store.manifest().edges);
        assert_eq!(stats.gradient_bytes, isolated[0].gradient_bytes);
    }
}

#[test]
fn the_graph_of_a_method_must_fit_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = TrainConfig { memory: ByteSize(1 << 20), ..config(Method::Full, LayerKind::Sage, |_| {}) };
    let setup = setup(config).unwrap();
    let mut trainer = Trainer::new(store, setup, None, Device::Cpu, folder.path().to_owned()).unwrap();
    let error = trainer.epoch(0, &|_, _| 0.01, &Silent).unwrap_err().to_string();
    assert!(error.contains("--method full keeps the states of all nodes"), "{error}");
    assert!(error.contains("--memory is 1.0 MiB: raise it"), "{error}");
}
