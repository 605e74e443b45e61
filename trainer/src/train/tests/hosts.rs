//! Ranks that have different slices of a graph.

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, preaggregate},
    place::{PlaceOptions, SliceEdges, place},
};
use grappa_formats::{aggregates::AggregateKind, splits};
use grappa_run::{model::FeatureNorm, scores::ScoreReport};
use grappa_sampling::partition::{Hosts, held_chunks};
use grappa_storage::{Graph, files};

use super::{
    super::{data::splits::Splits, evaluate::evaluations::Evaluation, session::run_facts},
    processes::{as_ranks, exactly, prepared},
    *,
};

/// A graph, and the slices of two hosts. The first one has two ranks: 0 and 2.
struct Slices {
    whole: Arc<Store>,
    slices: [Arc<Store>; 2],
}

const SLICE_OF_RANK: [usize; 3] = [0, 1, 0];
const RANKS: u32 = SLICE_OF_RANK.len() as u32;

impl Slices {
    fn new(folder: &Path) -> Self {
        let generate = |name: &str, chunks| generated(&folder.join(name), FeatureSource::Procedural, chunks);
        Self {
            whole: generate("whole", None),
            slices: [generate("first", Some(0..=4)), generate("second", Some(5..=7))],
        }
    }

    /// Stored features instead of computed ones, and pre-aggregated features.
    fn with_halo_features(folder: &Path) -> Self {
        let whole = generated(&folder.join("stored"), FeatureSource::Stored, None);
        aggregate(&whole, &[AggregateKind::Mean, AggregateKind::Gcn]);
        let slices = [("stored-first", 0..=4), ("stored-second", 5..=7)].map(|(name, chunks)| {
            let options = PlaceOptions {
                chunks: vec![chunks],
                edges: SliceEdges::All,
                halo_features: true,
                out: folder.join(name),
                copy: false,
                threads: 2,
                resume: false,
                replace: false,
            };
            place(&Graph::open(whole.path()).unwrap(), &options, &Silent).unwrap();
            Arc::new(Store::open(&options.out).unwrap())
        });
        Self { whole, slices }
    }

    fn of_rank(&self, rank: u32) -> &Arc<Store> {
        &self.slices[SLICE_OF_RANK[rank as usize]]
    }

    fn hosts(&self) -> Hosts {
        let slice_chunks = |slice: usize| {
            let store = &self.slices[slice];
            held_chunks(store.manifest(), &store.split("train").unwrap().unwrap())
        };
        Hosts::of_workers(&SLICE_OF_RANK.map(slice_chunks)).unwrap()
    }
}

fn aggregate(store: &Store, kinds: &[AggregateKind]) {
    for &kind in kinds {
        let options = AggregateOptions::new(kind, Budget::new(64 << 20, 2));
        preaggregate(store, &options, &Silent).unwrap();
    }
}

fn config_of(model: LayerKind, halo: HaloMode, concurrent: u32) -> TrainConfig {
    TrainConfig {
        halo,
        partitions: Auto::Value(6),
        concurrent: Auto::Value(concurrent),
        first_hop: FirstHop::Sampled,
        ..config(model)
    }
}

#[test]
fn the_features_of_the_halo_nodes_of_a_slice_are_in_memory_like_those_of_its_own_nodes() {
    let folder = tempfile::tempdir().unwrap();
    for slice in Slices::with_halo_features(folder.path()).slices {
        assert!(slice.feature_nodes() > slice.present_nodes());
        let mut loader = Loader::open(&slice).fanouts([3, 3]).batch(7).memory(64 << 20).start().unwrap();
        loader.batches(0, |batches| batches).unwrap();
        let feed = loader.feed().unwrap();
        assert!(feed.is_resident() && feed.pool_rows() == 0);
        assert_eq!(feed.resident_bytes(), loader.feature_bytes());
    }
}

#[test]
fn hosts_with_slices_train_as_one_process_with_the_same_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let (computed, stored) = (Slices::new(folder.path()), Slices::with_halo_features(folder.path()));
    for (slices, first_hop, model, halo, concurrent) in [
        (&computed, FirstHop::Sampled, LayerKind::Sage, HaloMode::Stop, 6),
        (&computed, FirstHop::Sampled, LayerKind::Sage, HaloMode::Stop, 3),
        (&computed, FirstHop::Sampled, LayerKind::Gat, HaloMode::Stop, 3),
        (&stored, FirstHop::Preaggregated, LayerKind::Sage, HaloMode::Stop, 6),
        (&stored, FirstHop::Sampled, LayerKind::Gat, HaloMode::Stop, 6),
        (&stored, FirstHop::Preaggregated, LayerKind::Gcn, HaloMode::Stop, 6),
        (&stored, FirstHop::Sampled, LayerKind::Gcn, HaloMode::Stop, 3),
    ] {
        let config = TrainConfig { first_hop, ..config_of(model, halo, concurrent) };
        let mut alone = prepared(&slices.whole, &config, folder.path(), None);
        alone.processes.hosts = slices.hosts();
        let steps_of_epoch = |trainer: &Trainer| {
            let all = trainer.partitions.loader.all_batches(0);
            (all.steps(), all.seeds_of_all())
        };
        let expected = steps_from(&mut alone, true, ViewKind::Memory);
        let expected_steps = steps_of_epoch(&alone);
        let found = as_ranks(RANKS, |group| {
            let store = slices.of_rank(group.place().rank);
            let mut trainer = prepared(store, &config, folder.path(), Some(group.clone()));
            let steps = steps_from(&mut trainer, true, ViewKind::Memory);
            assert_eq!(steps_of_epoch(&trainer), expected_steps);
            assert_eq!(trainer.partitions.loader.served().count(), 2);
            for step in &steps {
                group.all_reduce(&step.gradient).unwrap();
            }
            steps.into_iter().map(|step| (step.gradient, step.sums)).collect::<Vec<_>>()
        });
        let mut of_ranks = found.into_iter();
        let mut sum = of_ranks.next().unwrap();
        for (step, (_, sums)) in of_ranks.flat_map(|of_rank| of_rank.into_iter().enumerate()) {
            sum[step].1 = added(sum[step].1, sums);
        }
        let steps = sum.into_iter().map(|(gradient, sums)| Step { gradient, sums, passes: 1 });
        let name = format!("{model}, {first_hop}, {halo}, {concurrent} per step");
        assert_same_steps(&name, &steps.collect::<Vec<_>>(), &expected);
    }
}

/// Number of nodes by class and prediction.
fn confusion(reports: &[&ScoreReport]) -> Vec<u64> {
    let flat = |report: &&ScoreReport| report.confusion.as_ref().unwrap().concat();
    let add = |sum: Vec<u64>, other: Vec<u64>| sum.iter().zip(other).map(|(sum, other)| sum + other).collect();
    reports.iter().map(flat).reduce(add).unwrap()
}

#[test]
fn hosts_score_their_own_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let slices = Slices::new(folder.path());
    for (model, evaluate) in [
        (LayerKind::Sage, Evaluate::Exact),
        (LayerKind::Sage, Evaluate::Sampled),
        (LayerKind::Sage, Evaluate::Auto),
        // By minibatches, whose draws depend on which of them are in one.
        (LayerKind::PinSage, Evaluate::Sampled),
    ] {
        let config = TrainConfig { evaluate, ..config_of(model, HaloMode::Stop, 3) };
        let scored = |trainer: &mut Trainer| {
            let evaluated = [trainer.evaluate(0, &|_| true, &Silent), exactly(trainer)];
            evaluated.map(Result::unwrap)
        };
        let of_slices = slices.slices.each_ref().map(|slice| {
            let alone = TrainConfig { partitions: Auto::Value(1), concurrent: Auto::Value(1), ..config.clone() };
            scored(&mut prepared(slice, &alone, folder.path(), None)).map(Option::unwrap)
        });
        let found = as_ranks(RANKS, |group| {
            let store = slices.of_rank(group.place().rank);
            let mut trainer = prepared(store, &config, folder.path(), Some(group));
            let methods = (trainer.evaluations.scored.as_ref().unwrap().method(), trainer.partitions.epoch_work);
            (methods, scored(&mut trainer))
        });
        let (of_first, others) = found.split_first().unwrap();
        for (methods, evaluations) in others {
            assert_eq!(methods, &of_first.0, "{model}, {evaluate}");
            assert!(evaluations.iter().all(Option::is_none), "rank 0 reports");
        }
        for (at, found) in of_first.1.iter().enumerate() {
            let found = found.as_ref().unwrap();
            for report in [
                |evaluation: &Evaluation| evaluation.val.clone(),
                |evaluation: &Evaluation| evaluation.test.clone().unwrap(),
            ] {
                let expected = of_slices.each_ref().map(|evaluations| report(&evaluations[at]));
                let context = format!("{model}, {evaluate}, {at}");
                assert!(expected.iter().all(|report| report.nodes > 10), "{context}");
                let found = report(found);
                assert_eq!(found.nodes, expected[0].nodes + expected[1].nodes, "{context}");
                if model == LayerKind::Sage {
                    assert_eq!(confusion(&[&found]), confusion(&expected.each_ref()), "{context}");
                }
            }
        }
    }
}

#[test]
fn hosts_agree_on_numbers_digests_and_moments() {
    let folder = tempfile::tempdir().unwrap();
    let slices = Slices::new(folder.path());
    let config = TrainConfig {
        partitions: Auto::Auto,
        concurrent: Auto::Auto,
        normalize_features: FeatureNorm::Standard,
        ..config_of(LayerKind::Sage, HaloMode::Stop, 3)
    };
    let moments = |trainer: &mut Trainer| {
        trainer.measure(&Silent).unwrap();
        let (mean, deviation) = trainer.learner.model.feature_moments(0).unwrap();
        Vec::<f32>::try_from(Tensor::cat(&[mean, deviation], 0)).unwrap()
    };
    let mut alone = prepared(&slices.whole, &config, folder.path(), None);
    let expected = moments(&mut alone);
    let found = as_ranks(RANKS, |group| {
        let store = slices.of_rank(group.place().rank);
        let mut trainer = prepared(store, &config, folder.path(), Some(group));
        let graph = Graph::from_store(store);
        let splits = Splits::open(&graph, 0, &trainer.processes).unwrap();
        let numbers = [trainer.config.partitions(), trainer.config.concurrent()];
        let found = moments(&mut trainer);
        let are_close = found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-5);
        assert!(are_close && found.len() == expected.len(), "{found:?}, {expected:?}");
        let facts = run_facts::facts(&trainer, "", std::time::SystemTime::now()).dataset;
        (numbers, trainer.processes.digest(&graph).unwrap(), trainer.processes.describe(), splits.of_all(), facts)
    });
    assert!(found.iter().all(|of_rank| of_rank == &found[0]), "{found:?}");
    let (numbers, _, described, of_all, facts) = &found[0];
    assert_eq!(numbers[0], 3, "{numbers:?}");
    assert_eq!(*of_all, alone.data.splits.of_all());
    let described = described.as_ref().unwrap();
    assert!(described.starts_with("2 hosts train 8 chunks with 600 nodes and"), "{described}");
    let of_alone = run_facts::facts(&alone, "", std::time::SystemTime::now()).dataset;
    for fact in of_alone {
        assert!(facts.contains(&fact), "{fact:?}, {facts:?}");
    }
    assert!(facts.contains(&("hosts with different chunks", "2".to_owned())), "{facts:?}");
}

/// Compares the losses of the training nodes in minibatches with all neighbors, and in exact inference.
fn assert_exact(name: &str, store: &Arc<Store>, config: TrainConfig, folder: &Path, tolerance: f64) {
    let config = TrainConfig {
        fanouts: "-1,-1,-1".parse().unwrap(),
        batch: "600".parse().unwrap(),
        evaluate: Evaluate::Exact,
        ..config
    };
    let mut trainer = prepared(store, &config, folder, None);
    let [step] = &steps(&mut trainer, true)[..] else {
        panic!("one step");
    };
    let (sums, weights) = &step.sums;
    let exact = exactly(&mut trainer).unwrap().unwrap().val;
    assert_eq!(exact.nodes as f64, weights.seeds);
    let (found, expected) = (sums.loss / weights.seeds, exact.loss.unwrap());
    assert!((found - expected).abs() < tolerance, "{name}: {found}, exactly {expected}");
}

/// Both know as much of halo nodes on other hosts.
#[test]
fn minibatches_of_a_slice_compute_what_exact_inference_of_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let [slice, _] = Slices::with_halo_features(folder.path()).slices;
    let slice = with_training_nodes_as_validation_nodes(&slice);
    for model in [LayerKind::Gcn, LayerKind::Sage, LayerKind::Gin] {
        let config = TrainConfig { partitions: Auto::Value(1), ..config_of(model, HaloMode::Stop, 1) };
        assert_exact(&model.to_string(), &slice, config, folder.path(), 1e-5);
    }
}

/// Historical embeddings of the same parameters have what the in-neighbors of halo nodes would give.
#[test]
fn minibatches_with_historical_embeddings_compute_what_exact_inference_does() {
    let folder = tempfile::tempdir().unwrap();
    let whole = with_training_nodes_as_validation_nodes(&Slices::with_halo_features(folder.path()).whole);
    aggregate(&whole, &[AggregateKind::Mean, AggregateKind::Gcn, AggregateKind::Sum]);
    for model in [LayerKind::Gcn, LayerKind::Sage, LayerKind::Gin] {
        let config = TrainConfig { first_hop: FirstHop::Preaggregated, ..config_of(model, HaloMode::History, 6) };
        assert_exact(&model.to_string(), &whole, config, folder.path(), 1e-4);
    }
}

fn with_training_nodes_as_validation_nodes(store: &Store) -> Arc<Store> {
    let mut manifest = store.manifest().clone();
    let train = store.split("train").unwrap().unwrap();
    let (bytes, digest) = splits::encode("val", manifest.nodes, &train);
    let path = files::split("val");
    let entry = manifest.files.iter_mut().find(|file| file.path == path).unwrap();
    (entry.bytes, entry.digest) = (bytes.len() as u64, digest);
    let split = manifest.splits.iter_mut().find(|split| split.name == "val").unwrap();
    split.nodes = train.len();
    // Pre-aggregated features belong to a manifest.
    std::fs::remove_dir_all(store.path().join("aggregates")).unwrap();
    std::fs::write(store.path().join(path), bytes).unwrap();
    std::fs::write(store.path().join(files::MANIFEST), manifest.encode()).unwrap();
    Arc::new(Store::open(store.path()).unwrap())
}
