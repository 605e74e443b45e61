//! Runs from start to end, on a small block model that a network can learn.

mod refused;
mod typed;
mod typed_embeddings;
mod typed_links;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use grappa_engine::{
    aggregate::Budget,
    derive::features::{AddFeatures, FastRp, FeatureKind, add_features},
};
use grappa_formats::manifest::{FeatureDtype, FeatureSource};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::progress::{Progress, Silent};
use grappa_run::{
    config::{Auto, Correction, FirstHop, HaloMode, TrainConfig},
    folder::RunFolder,
    journal::EpochRecord,
    model::{LayerKind, NormKind},
    summary::Summary,
};
use grappa_storage::Store;
use grappa_synthetic::{BlockModel, Model, Recipe};
use grappa_trainer::{
    runtime::{self, Cuda},
    train::{Watcher, train},
};
use tch::Device;

/// Bits are promised for as many threads; libtorch's products take fewer when others compute in the same process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Watched {
    records: Vec<EpochRecord>,
    warnings: Vec<String>,
}

impl Watcher for Watched {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        self.records.push(record.clone());
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
}

fn store(folder: &Path) -> Arc<Store> {
    let features = FeatureOptions::new(16, FeatureDtype::F32, FeatureSource::Stored);
    store_with(folder, Some(features))
}

fn store_with(folder: &Path, features: Option<FeatureOptions>) -> Arc<Store> {
    let out = folder.join("graph.grappa");
    let model = BlockModel { classes: 4, ..BlockModel::new(3000, 10.0) };
    generate_store(
        &StoreOptions { chunks: Some(8), features, ..StoreOptions::new(Recipe::new(Model::Sbm(model), 5), &out) },
        &Silent,
    )
    .unwrap();
    Arc::new(Store::open(&out).unwrap())
}

fn config() -> TrainConfig {
    TrainConfig {
        hidden: 32,
        epochs: 6,
        lr: 0.01,
        memory: grappa_io::size::ByteSize(256 << 20),
        repartition_every: 2,
        checkpoint_every: 1,
        ..TrainConfig::default()
    }
}

fn run(store: &Arc<Store>, config: &TrainConfig, folder: &RunFolder, resume: bool) -> (Summary, Watched) {
    run_on(Device::Cpu, store, config, folder, resume)
}

/// Trains in a new run at `path`.
fn run_at(store: &Arc<Store>, config: &TrainConfig, path: &Path) -> (Summary, Watched) {
    run(store, config, &RunFolder::create(path, config).unwrap(), false)
}

fn run_on(
    device: Device,
    store: &Arc<Store>,
    config: &TrainConfig,
    folder: &RunFolder,
    resume: bool,
) -> (Summary, Watched) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut watched = Watched::default();
    let summary = train(store.clone(), config.clone(), folder, resume, device, &mut watched).unwrap();
    (summary, watched)
}

/// The parameters of the last checkpoint, to the bit.
fn parameters(folder: &RunFolder) -> Vec<(String, Vec<u8>)> {
    let (_, checkpoint) = folder.checkpoints(3).unwrap().latest().unwrap().found.expect("it was saved");
    let name_and_bytes = |tensor: grappa_run::checkpoint::NamedTensor| (tensor.name, tensor.bytes.to_vec());
    checkpoint.parameters.into_iter().map(name_and_bytes).collect()
}

#[test]
fn a_block_model_is_learned_whole_and_in_partitions_with_every_halo_and_correction() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let parted = |halo, correction| TrainConfig { partitions: Auto::Value(4), halo, correction, ..config() };
    let configs = grappa_skip::cases![
        "whole", config();
        "stop, batch", parted(HaloMode::Stop, Correction::Batch);
        "stop, node", parted(HaloMode::Stop, Correction::Node);
        "none", parted(HaloMode::None, Correction::None);
        "neighbors", TrainConfig { model: LayerKind::Gatv2, ..parted(HaloMode::Auto, Correction::None) };
        "history", TrainConfig { layers: 4, ..parted(HaloMode::History, Correction::None) };
        "gcn", TrainConfig { model: LayerKind::Gcn, ..parted(HaloMode::Stop, Correction::None) };
    ];
    for (name, config) in configs {
        let path = folder.path().join(name);
        let (summary, watched) = run_at(&store, &config, &path);
        let accuracy = summary.test_accuracy.expect("there are nodes to test on");
        // A quarter by chance.
        assert!(accuracy > 0.6, "{name}: {accuracy}");
        assert!(watched.warnings.is_empty(), "{name}: {:?}", watched.warnings);
        assert_eq!(watched.records.len(), 6);
        let losses: Vec<f64> = watched.records.iter().map(|record| record.loss).collect();
        assert!(losses[5] < losses[0], "{name}: {losses:?}");
        let coverage = watched.records[5].coverage_mean.unwrap();
        assert!(if config.partitions() == 1 { coverage == 1.0 } else { coverage < 1.0 }, "{name}: {coverage}");
        let takes_halo = matches!(config.halo, HaloMode::Auto | HaloMode::History);
        for record in &watched.records {
            // They change with the partitions, every second epoch; embeddings are also refreshed in between.
            let changed = record.epoch % 2 == 1;
            let is_due = config.partitions() > 1 && takes_halo && (changed || config.halo != HaloMode::Auto);
            assert_eq!(record.halo_bytes > 0, is_due, "{name}, epoch {}: {}", record.epoch, record.halo_bytes);
        }
        for file in ["config.toml", "metrics.jsonl", "summary.json", "report.html"] {
            assert!(path.join(file).exists(), "{name}: {file}");
        }
    }
}

#[test]
fn partitions_with_all_neighbors_of_halo_nodes_learn_what_the_whole_graph_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for model in [LayerKind::Gat, LayerKind::Gatv2, LayerKind::SageMax, LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin]
    {
        let losses = |partitions: u32| {
            let config = TrainConfig {
                model,
                partitions: Auto::Value(partitions),
                first_hop: FirstHop::Sampled,
                halo: HaloMode::Neighbors,
                halo_neighbors: Auto::Value(NonZeroU32::new(1000).unwrap()),
                fanouts: Auto::Value("-1,-1,-1".parse().unwrap()),
                layers: 3,
                batch: Auto::Value(NonZeroUsize::new(3000).unwrap()),
                norm: Auto::Value(NormKind::None),
                dropout: 0.0,
                lr: 0.003,
                ..config()
            };
            let (_, watched) = run_at(&store, &config, &folder.path().join(format!("{model}-{partitions}")));
            watched.records.iter().map(|record| record.loss).collect::<Vec<f64>>()
        };
        let (whole, parts) = (losses(1), losses(4));
        for (whole, part) in whole.iter().zip(&parts) {
            assert!((whole - part).abs() <= 1e-4 * whole.abs(), "{model}: {whole} and {part}");
        }
    }
}

#[test]
fn a_graph_without_features_is_learned_with_those_that_are_computed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_with(folder.path(), None);
    let path = store.path().to_owned();
    for first_hop in [FirstHop::Auto, FirstHop::Sampled, FirstHop::Preaggregated] {
        let config = TrainConfig { first_hop, ..config() };
        let run_folder = RunFolder::create(&folder.path().join(format!("none-{first_hop}")), &config).unwrap();
        let mut watched = Watched::default();
        let refused = train(store.clone(), config, &run_folder, false, Device::Cpu, &mut watched);
        let error = refused.unwrap_err().to_string();
        let command = format!("grappa-store add-features {} --kind fastrp", path.display());
        assert!(error.contains(&command), "{error}");
    }

    let embeddings = FastRp { dim: 32, hop_weights: vec![1.0; 3], seed: 1 };
    let options = AddFeatures {
        kind: FeatureKind::FastRp(embeddings),
        dtype: FeatureDtype::F32,
        budget: Budget::new(64 << 20, 2),
        writer: "test".into(),
    };
    add_features(&store, &options, &Silent).unwrap();
    let store = Arc::new(Store::open(&path).unwrap());
    let config = TrainConfig { partitions: Auto::Value(4), ..config() };
    let (summary, _) = run_at(&store, &config, &folder.path().join("embeddings"));
    let accuracy = summary.test_accuracy.expect("there are nodes to test on");
    // A quarter by chance.
    assert!(accuracy > 0.6, "{accuracy}");
}

#[test]
fn with_memory_for_a_part_of_the_features_the_same_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    // 12 MB of them.
    let features = FeatureOptions::new(1024, FeatureDtype::F32, FeatureSource::Stored);
    let store = store_with(folder.path(), Some(features));
    let runs = [256 << 20, 9 << 20].map(|memory| {
        let config = TrainConfig {
            memory: grappa_io::size::ByteSize(memory),
            batch: Auto::Value(NonZeroUsize::new(8).unwrap()),
            fanouts: Auto::Value("3,3".parse().unwrap()),
            first_hop: FirstHop::Sampled,
            epochs: 3,
            threads: Auto::Value(NonZeroUsize::new(1).unwrap()),
            ..config()
        };
        let run_folder = RunFolder::create(&folder.path().join(memory.to_string()), &config).unwrap();
        let (_, watched) = run(&store, &config, &run_folder, false);
        (parameters(&run_folder), watched.records)
    });
    let [(whole, resident), (part, pooled)] = &runs;
    assert!(whole == part, "parameters differ");
    let losses = |records: &[EpochRecord]| records.iter().map(|record| record.val_loss).collect::<Vec<_>>();
    assert!(resident[0].val_loss.is_some() && losses(resident) == losses(pooled));
    // Inference takes the place of what was read, so each epoch reads.
    assert_eq!(resident[2].bytes_read, 0);
    assert!(pooled.iter().all(|record| record.bytes_read > 0), "{pooled:?}");
}

#[test]
fn on_cuda_the_same_is_learned() {
    if let Cuda::Unusable { reason } = runtime::cuda() {
        grappa_skip::skip!("CUDA: {reason}");
    }
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (name, model, partitions) in [
        ("whole", LayerKind::Sage, 1),
        ("parted", LayerKind::Sage, 4),
        ("gat", LayerKind::Gat, 4),
        ("gcn", LayerKind::Gcn, 4),
    ] {
        let config = TrainConfig { model, partitions: Auto::Value(partitions), layers: 3, dropout: 0.0, ..config() };
        let losses = [Device::Cpu, Device::Cuda(0)].map(|device| {
            let path = folder.path().join(format!("{name}-{device:?}"));
            let run_folder = RunFolder::create(&path, &config).unwrap();
            let (summary, watched) = run_on(device, &store, &config, &run_folder, false);
            assert!(summary.test_accuracy.expect("there are nodes to test on") > 0.6, "{name}");
            let losses: Vec<f64> = watched.records.iter().map(|record| record.loss).collect();
            losses
        });
        // The same minibatches; sums are rounded in another order.
        let [on_cpu, on_cuda] = &losses;
        assert!((on_cpu[0] - on_cuda[0]).abs() < 1e-2 * on_cpu[0], "{name}: {losses:?}");
    }
}

#[test]
fn every_kind_of_layer_is_trained_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // A quarter by chance; the largest of sampled neighbors is not the largest of all.
    for (model, least) in [
        (LayerKind::SageMax, 0.35),
        (LayerKind::Gin, 0.5),
        (LayerKind::Gat, 0.5),
        (LayerKind::Gatv2, 0.5),
        (LayerKind::PinSage, 0.5),
    ] {
        let config = TrainConfig {
            model,
            partitions: Auto::Value(4),
            // Of the largest of samples two lose enough.
            layers: if model == LayerKind::SageMax { 2 } else { 3 },
            halo: match model {
                LayerKind::Gin => HaloMode::History,
                _ => HaloMode::Auto,
            },
            walks: match model {
                LayerKind::PinSage => 10,
                _ => config().walks,
            },
            lr: 0.02,
            ..config()
        };
        let (summary, watched) = run_at(&store, &config, &folder.path().join(model.to_string()));
        let accuracy = summary.test_accuracy.expect("there are nodes to test on");
        assert!(accuracy > least, "{model}: {accuracy}");
        assert!(watched.warnings.is_empty(), "{model}: {:?}", watched.warnings);
        assert!(watched.records[0].halo_bytes > 0, "{model}");
    }
}

#[test]
fn a_run_that_is_resumed_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // History is of layers between the first and the last.
    for (halo, layers) in [(HaloMode::Stop, 2), (HaloMode::Neighbors, 3), (HaloMode::History, 4)] {
        let whole = TrainConfig { partitions: Auto::Value(4), layers, halo, correction: Correction::Batch, ..config() };
        let name = |part: &str| folder.path().join(format!("{halo}-{part}"));
        let straight = RunFolder::create(&name("straight"), &whole).unwrap();
        run(&store, &whole, &straight, false);

        let half = TrainConfig { epochs: 3, ..whole.clone() };
        let broken = RunFolder::create(&name("broken"), &half).unwrap();
        run(&store, &half, &broken, false);
        assert!(parameters(&straight) != parameters(&broken), "there is more to train");
        let (summary, watched) = run(&store, &whole, &broken, true);
        assert_eq!((summary.epochs, watched.records.len()), (6, 3));
        assert!(parameters(&straight) == parameters(&broken), "{halo}");
    }
}

#[test]
fn what_is_known_of_the_first_layer_is_what_all_neighbors_say() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // All neighbors at every hop: then it makes no difference but for rounding whether the first hop is sampled.
    let whole =
        |model, first_hop| TrainConfig { model, first_hop, full_graph: true, dropout: 0.0, epochs: 3, ..config() };
    for model in [LayerKind::Sage, LayerKind::Gcn, LayerKind::Gin] {
        for layers in [1, 2, 3] {
            let losses = |first_hop: FirstHop| -> Vec<f64> {
                let config = TrainConfig { layers, ..whole(model, first_hop) };
                let path = folder.path().join(format!("{model}-{layers}-{first_hop}"));
                let (_, watched) = run_at(&store, &config, &path);
                assert!(watched.warnings.is_empty(), "{:?}", watched.warnings);
                watched.records.iter().map(|record| record.loss).collect()
            };
            let (sampled, known) = (losses(FirstHop::Sampled), losses(FirstHop::Preaggregated));
            for (sampled, known) in sampled.iter().zip(&known) {
                assert!((sampled - known).abs() < 1e-3 * sampled, "{model}, {layers} layers: {sampled} {known}");
            }
            // `auto` takes what is there.
            assert_eq!(losses(FirstHop::Auto), known);
        }
    }
}

#[test]
fn a_run_goes_on_with_the_first_hop_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let half = TrainConfig { epochs: 3, first_hop: FirstHop::Auto, ..config() };
    let straight = RunFolder::create(&folder.path().join("straight"), &config()).unwrap();
    run(&store, &config(), &straight, false);
    let broken = RunFolder::create(&folder.path().join("broken"), &half).unwrap();
    run(&store, &half, &broken, false);
    // The aggregates that `auto` chose were removed. The resumed run makes them again, although `auto` alone would not.
    std::fs::remove_dir_all(store.path().join("aggregates")).unwrap();
    run(&store, &config(), &broken, true);
    assert!(parameters(&straight) == parameters(&broken));
    assert!(store.path().join("aggregates/mean").exists());
}
