//! Runs with learnable embeddings of nodes.

use grappa_io::size::ByteSize;
use grappa_run::{
    config::{NodeEmbeddings, Optimizer},
    summary::Summary,
};
use grappa_storage::Graph;
use grappa_trainer::{
    predict::{Values, predict_file},
    train::trained_model::Trained,
};

use super::{
    typed::{generate, recipe, run_typed, shop, typed},
    *,
};

fn embeddings(text: &str) -> NodeEmbeddings {
    text.parse().unwrap()
}

#[test]
fn types_without_features_learn_embeddings_whole_and_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    // Users have no features.
    let graph = shop(folder.path(), false);
    for model in [LayerKind::Rsage, LayerKind::Hgt] {
        for partitions in [1, 4] {
            let config = TrainConfig {
                partitions: Auto::Value(partitions),
                node_embeddings: embeddings("user=8,item=4"),
                batch: Auto::Value(NonZeroUsize::new(64).unwrap()),
                ..typed(model)
            };
            let name = format!("{model}-{partitions}");
            let (summary, watched, _) = run_typed(&graph, &config, &folder.path().join(&name));
            let accuracy = summary.test_accuracy.expect("there are nodes to test on");
            assert!(accuracy > 0.4, "{name}: {accuracy}");
            assert!(watched.warnings.is_empty(), "{name}: {:?}", watched.warnings);
            // Copies of all embeddings are state that partitions receive.
            let row_bytes: Vec<u64> = watched.records.iter().map(|record| record.row_bytes).collect();
            let expected = if partitions == 1 { 0 } else { 4 * (500 * 8 + 2000 * 4) };
            assert_eq!(row_bytes[0], expected, "{name}: {row_bytes:?}");
            let memory = summary.memory.expect("a ledger");
            let leases = memory.phases.iter().flat_map(|phase| &phase.leases);
            let bytes = leases.filter(|lease| lease.name == "embeddings of nodes").map(|lease| lease.bytes).max();
            // A value, two moments and, with several partitions, a copy; and the updates and the id of a row.
            let values = if partitions == 1 { 3 } else { 4 };
            assert_eq!(bytes, Some(500 * (8 * values + 2) * 4 + 2000 * (4 * values + 2) * 4), "{name}");
        }
    }
}

#[test]
fn runs_with_embeddings_have_the_same_bits_for_any_number_of_threads_and_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    for (optimizer, stop) in [(Optimizer::Adam, 2), (Optimizer::Adam, 3), (Optimizer::Sgd, 1)] {
        let config = TrainConfig {
            partitions: Auto::Value(4),
            epochs: 4,
            batch: Auto::Value(NonZeroUsize::new(256).unwrap()),
            node_embeddings: embeddings("user=8"),
            optimizer,
            ..typed(LayerKind::Rsage)
        };
        let path = |name: &str| folder.path().join(format!("{optimizer}-{stop}-{name}"));
        let all = |run: &Path| {
            let trained = Trained::open(run, Device::Cpu).unwrap();
            let out = run.join("logits.npy");
            let on = trained.nodes_of(&graph).unwrap();
            predict_file(&trained, on, out.as_path(), Values::Logits, Budget::new(64 << 20, 2), &Silent).unwrap();
            std::fs::read(out).unwrap()
        };
        let (_, _, expected) = run_typed(&graph, &config, &path("whole"));
        let logits = all(&path("whole"));
        let one = TrainConfig { threads: Auto::Value(NonZeroUsize::new(1).unwrap()), ..config.clone() };
        assert!(run_typed(&graph, &one, &path("one")).2 == expected, "{optimizer}: with one thread");
        assert!(all(&path("one")) == logits, "{optimizer}: with one thread");
        // Epochs 3 and 4 have the same partitions: after epoch 3, copies are those of the checkpoint.
        run_typed(&graph, &TrainConfig { epochs: stop, ..config.clone() }, &path("stopped"));
        let run_folder = RunFolder::resume(&path("stopped")).unwrap();
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        train(graph.clone(), config.clone(), &run_folder, true, Device::Cpu, &mut Watched::default()).unwrap();
        assert!(parameters(&run_folder) == expected, "{optimizer}: after {stop} epochs");
        assert!(all(&path("stopped")) == logits, "{optimizer}: after {stop} epochs");
    }
}

#[test]
fn embeddings_on_a_disk_have_the_bits_of_those_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    // 2000 rows of 1000 values, with two moments and a copy, are 32 MB.
    let config = TrainConfig {
        partitions: Auto::Value(4),
        epochs: 2,
        batch: Auto::Value(NonZeroUsize::new(256).unwrap()),
        node_embeddings: embeddings("item=1000"),
        ..typed(LayerKind::Rsage)
    };
    let bytes = |summary: &Summary| {
        let memory = summary.memory.as_ref().expect("a ledger");
        let leases = memory.phases.iter().flat_map(|phase| &phase.leases);
        leases.filter(|lease| lease.name == "embeddings of nodes").map(|lease| lease.bytes).max().expect("a lease")
    };
    let path = |name: &str| folder.path().join(name);
    let small = TrainConfig { memory: ByteSize(48 << 20), ..config.clone() };
    let (summary, _, expected) = run_typed(&graph, &config, &path("memory"));
    assert!(bytes(&summary) > 32_000_000);
    let (summary, _, found) = run_typed(&graph, &small, &path("disk"));
    assert_eq!(bytes(&summary), 6 << 20, "1/8 of the memory");
    assert!(found == expected);
    run_typed(&graph, &TrainConfig { epochs: 1, ..small.clone() }, &path("stopped"));
    let run_folder = RunFolder::resume(&path("stopped")).unwrap();
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    train(graph.clone(), small, &run_folder, true, Device::Cpu, &mut Watched::default()).unwrap();
    drop(turn);
    assert!(parameters(&run_folder) == expected, "after a stop");
    let [large, small] = [256 << 20, 24 << 20].map(|memory| {
        let trained = Trained::open(&path("disk"), Device::Cpu).unwrap();
        let out = path("logits.npy");
        let on = trained.nodes_of(&graph).unwrap();
        predict_file(&trained, on, out.as_path(), Values::Logits, Budget::new(memory, 2), &Silent).unwrap();
        let bytes = std::fs::read(&out).unwrap();
        std::fs::remove_file(out).unwrap();
        bytes
    });
    assert!(large == small, "predictions with little memory");
}

#[test]
fn embeddings_belong_to_the_nodes_of_their_graph() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path(), true);
    let config = TrainConfig { epochs: 1, node_embeddings: embeddings("user=8"), ..typed(LayerKind::Rsage) };
    let run = folder.path().join("run");
    run_typed(&graph, &config, &run);
    let other_folder = tempfile::tempdir().unwrap();
    // The same types and features, and other edges.
    let other = generate(other_folder.path(), recipe(6), true);
    let error = Trained::open(&run, Device::Cpu).unwrap().nodes_of(&other).unwrap_err().to_string();
    assert!(error.contains("embeddings of the nodes of type user of its own graph"), "{error}");

    let continued = TrainConfig { init_from: Some(run.clone()), ..config.clone() };
    run_typed(&graph, &continued, &folder.path().join("continued"));
    let refused = |graph: &Graph, config: TrainConfig, name: &str| {
        let run_folder = RunFolder::create(&folder.path().join(name), &config).unwrap();
        let trained = train(graph.clone(), config, &run_folder, false, Device::Cpu, &mut Watched::default());
        trained.unwrap_err().to_string()
    };
    let error = refused(&other, continued, "other");
    assert!(error.contains("embeddings of the nodes of another graph"), "{error}");
    for (config, part) in grappa_skip::cases![
        TrainConfig { node_embeddings: embeddings("seller=8"), ..config.clone() }, "no node type seller for --node-embeddings; there are user, item";
        TrainConfig { optimizer: Optimizer::AdamW, ..config.clone() }, "use --optimizer adam";
        TrainConfig { memory: ByteSize(16 << 20), node_embeddings: embeddings("item=1000"), ..config.clone() },
            "their pages need 1/8 of --memory 16.0 MiB, at least 4.0 MiB: use --memory 32.0 MiB or more";
    ] {
        let error = refused(&graph, config, &part.replace([' ', '/'], "-"));
        assert!(error.contains(part), "{error}");
    }
}
