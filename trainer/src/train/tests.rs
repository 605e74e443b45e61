//! The batch of a step has the gradient, the loss and the counts that its minibatches have one by one.

mod embeddings;
mod hosts;
mod ledger;
mod overlap;
mod processes;

use std::{ops::RangeInclusive, path::Path, sync::Arc};

use grappa_engine::aggregate::NodeRows;
use grappa_formats::manifest::{FeatureDtype, FeatureSource};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{progress::Silent, size::ByteSize};
use grappa_run::{
    config::{Auto, Correction, Evaluate, FirstHop, HaloMode, TrainConfig},
    model::{LayerKind, NormKind},
};
use grappa_sampling::{Loader, LoaderOptions, partition::Share, sample::Join, view::ViewKind};
use grappa_storage::{Graph, Store};
use grappa_synthetic::{BlockModel, Model, Recipe};
use tch::{Device, Kind, Tensor, no_grad};

use super::{
    evaluate::{
        evaluations::evaluate_exactly,
        scored_nodes::{Scored, ScoredNodes, inference_time},
    },
    exchange::LossWeights,
    inference::historical::HistoricalRows,
    memory::{Room, repeated_batch_memory},
    options::{first_hop, loader_options::loader_options},
    step::batch_step::BatchSums,
    trainer::Trainer,
};
use crate::{runtime::keep_freed_memory, shim::memory::block_bytes};

fn store(folder: &Path) -> Arc<Store> {
    generated(&folder.join("graph.grappa"), FeatureSource::Stored, None)
}

/// A graph of 8 chunks, or a slice of it.
fn generated(out: &Path, source: FeatureSource, only_chunks: Option<RangeInclusive<u32>>) -> Arc<Store> {
    let model = BlockModel { classes: 4, ..BlockModel::new(600, 8.0) };
    let features = FeatureOptions::new(8, FeatureDtype::F32, source);
    generate_store(
        &StoreOptions {
            chunks: Some(8),
            only_chunks: only_chunks.map(|chunks| vec![chunks]),
            features: Some(features),
            ..StoreOptions::new(Recipe::new(Model::Sbm(model), 5), out)
        },
        &Silent,
    )
    .unwrap();
    Arc::new(Store::open(out).unwrap())
}

/// Three layers, so that a layer between the first and the last may have historical embeddings.
fn config(model: LayerKind) -> TrainConfig {
    TrainConfig {
        model,
        layers: 3,
        hidden: 12,
        heads: 2,
        walks: 5,
        dropout: 0.0,
        norm: Auto::Value(NormKind::None),
        batch: "7".parse().unwrap(),
        partitions: Auto::Value(4),
        memory: ByteSize(256 << 20),
        ..TrainConfig::default()
    }
}

/// Steps that are compared.
const STEPS: usize = 3;

/// Sums over the seeds of a step, and their loss weights.
type Sums = (BatchSums, LossWeights);

/// The gradient and the sums of a step.
struct Step {
    gradient: Tensor,
    sums: Sums,
    /// Passes through the model.
    passes: usize,
}

/// The first steps of an epoch, each computed as a whole or one minibatch after another. The model stays as it is.
fn steps(trainer: &mut Trainer, join_steps: bool) -> Vec<Step> {
    steps_from(trainer, join_steps, ViewKind::Auto)
}

/// A process alone serves all partitions, also those that are divided by hosts.
fn share_of(trainer: &Trainer) -> Share {
    match trainer.processes.group {
        Some(_) => trainer.processes.share(),
        None => Share::ALL,
    }
}

/// [`steps`], from views of this kind.
fn steps_from(trainer: &mut Trainer, join_steps: bool, view: ViewKind) -> Vec<Step> {
    let mut options = LoaderOptions {
        view,
        share: share_of(trainer),
        ..loader_options(&trainer.data.graph, &trainer.config, trainer.config.aggregates, trainer.data.edges).unwrap()
    };
    options.minibatches.join_steps = join_steps.then_some(Join::SharedInput);
    trainer.partitions.loader = Loader::new(&trainer.data.store, options);
    trainer.partitions.super_epoch = None;
    trainer.open_partitions(0, &Silent).unwrap();
    trainer.refresh_when_due(0, &Silent).unwrap();
    let batches = trainer.partitions.loader.batches(0, |batches| batches).unwrap();
    let feed = trainer.partitions.loader.feed().unwrap().clone();
    // Batch norms update them, and what follows them at historical embeddings uses them.
    let running: Vec<Tensor> = trainer.model().parameters().buffers().iter().map(|(_, buffer)| buffer.copy()).collect();
    let mut steps: Vec<Step> = Vec::new();
    let rows = trainer.history.rows.clone();
    let loading = trainer.partitions.loading(&trainer.config, &trainer.data, &trainer.learner.model, rows);
    for batch in feed.epoch(&batches) {
        let loaded = loading.load(batch.unwrap(), &batches).unwrap();
        let number = loaded.first().step as usize;
        if number == STEPS {
            break;
        }
        let (data, clock) = (&trainer.data, &mut trainer.clock);
        let begun = trainer.learner.add_gradient(0, loaded, (data, &trainer.partitions.owners), false, clock).unwrap();
        let sums = (begun.results(data).unwrap(), begun.weights);
        let parameters = trainer.learner.model.parameters();
        let gradient = parameters.flat_gradient().copy();
        parameters.zero_gradient();
        match steps.get_mut(number) {
            None => steps.push(Step { gradient, sums, passes: 1 }),
            Some(step) => {
                step.gradient += gradient;
                step.sums = added(step.sums, sums);
                step.passes += 1;
            }
        }
    }
    for ((_, buffer), before) in trainer.learner.model.parameters().buffers().iter().zip(&running) {
        buffer.shallow_clone().copy_(before);
    }
    steps
}

fn added((a, a_weights): Sums, (b, b_weights): Sums) -> Sums {
    let sums = BatchSums { loss: a.loss + b.loss, coverage: a.coverage + b.coverage, right: a.right + b.right };
    let weights =
        LossWeights { factors: a_weights.factors + b_weights.factors, seeds: a_weights.seeds + b_weights.seeds };
    (sums, weights)
}

/// The models that train on a store without edge features.
fn without_edge_features() -> impl Iterator<Item = LayerKind> {
    LayerKind::ALL.iter().copied().filter(|model| *model != LayerKind::Gine)
}

/// A trainer whose historical embeddings are of other parameters than its own.
fn trainer(store: &Arc<Store>, config: &TrainConfig, folder: &Path) -> Trainer {
    let aggregates =
        first_hop::choose(&Graph::from(store.clone()), config, &Silent, &mut |problem| panic!("{problem}")).unwrap();
    let folder = folder.join("run");
    std::fs::create_dir_all(&folder).unwrap();
    let mut trainer = Trainer::new(store.clone(), config.clone(), aggregates, Device::Cpu, folder).unwrap();
    trainer.open_partitions(0, &Silent).unwrap();
    trainer.refresh_when_due(0, &Silent).unwrap();
    no_grad(|| {
        let mut parameters = trainer.learner.model.parameters().flat_values();
        parameters *= 1.1;
    });
    trainer
}

#[track_caller]
fn assert_close(name: &str, quantity: &str, found: f64, expected: f64) {
    let difference = (found - expected).abs();
    assert!(difference <= 1e-5 * expected.abs().max(1.0), "{name}: {quantity} is {found} and not {expected}");
}

fn assert_same_steps(name: &str, together: &[Step], separate: &[Step]) {
    assert_eq!([together.len(), separate.len()], [STEPS; 2], "{name}");
    for (together, separate) in together.iter().zip(separate) {
        assert_eq!(together.passes, 1, "{name}");
        let difference = (&together.gradient - &separate.gradient).abs().max().double_value(&[]);
        let largest = separate.gradient.abs().max().double_value(&[]);
        assert!(largest > 0.0, "{name}: there is a gradient");
        assert!(difference <= 2e-5 * largest, "{name}: gradients up to {largest} differ by {difference}");
        let ((found, found_weights), (expected, expected_weights)) = (together.sums, separate.sums);
        assert_close(name, "loss", found.loss, expected.loss);
        assert_close(name, "coverage", found.coverage, expected.coverage);
        assert_close(name, "weight", found_weights.factors, expected_weights.factors);
        assert_eq!((found.right, found_weights.seeds), (expected.right, expected_weights.seeds), "{name}");
    }
}

#[test]
fn a_step_has_the_gradient_and_the_counts_of_its_minibatches() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for model in without_edge_features() {
        for (halo, first_hop, correction) in [
            (HaloMode::Stop, FirstHop::Sampled, Correction::None),
            (HaloMode::Stop, FirstHop::Auto, Correction::Batch),
            (HaloMode::History, FirstHop::Auto, Correction::Node),
            (HaloMode::History, FirstHop::Sampled, Correction::Batch),
        ] {
            if model.is_relational() && halo == HaloMode::History {
                continue;
            }
            let config = TrainConfig { halo, first_hop, correction, ..config(model) };
            let name = format!("{model}, {halo:?}, {first_hop:?}");
            let mut trainer = trainer(&store, &config, folder.path());
            let keeps = halo == HaloMode::History;
            assert_eq!(trainer.history.rows.is_some(), keeps, "{name}");
            let (together, separate) = (steps(&mut trainer, true), steps(&mut trainer, false));
            assert!(separate.iter().all(|step| step.passes == 4), "{name}");
            assert_same_steps(&name, &together, &separate);
        }
    }
}

#[test]
fn a_step_of_one_partition_is_its_minibatch_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for model in without_edge_features() {
        for (partitions, concurrent) in [(1, 1), (4, 1)] {
            let config = TrainConfig {
                partitions: Auto::Value(partitions),
                concurrent: Auto::Value(concurrent),
                dropout: 0.5,
                norm: Auto::Value(NormKind::Batch),
                ..config(model)
            };
            let mut trainer = trainer(&store, &config, folder.path());
            let (together, separate) = (steps(&mut trainer, true), steps(&mut trainer, false));
            assert_eq!([together.len(), separate.len()], [STEPS; 2]);
            for (together, separate) in together.iter().zip(&separate) {
                assert_eq!(together.gradient, separate.gradient, "{model}, {partitions} partitions");
                assert_eq!(together.sums.0.loss, separate.sums.0.loss);
            }
        }
    }
}

#[test]
fn a_batch_that_is_kept_from_epoch_to_epoch_is_the_one_that_would_be_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for model in [LayerKind::Gcn, LayerKind::Sage, LayerKind::Gat] {
        for (partitions, concurrent, is_kept) in [(1, 1, true), (4, 4, true), (4, 2, false)] {
            let config = TrainConfig {
                batch: Auto::Auto,
                full_graph: true,
                partitions: Auto::Value(partitions),
                concurrent: Auto::Value(concurrent),
                repartition_every: 2,
                dropout: 0.5,
                halo: HaloMode::Stop,
                layers: 2,
                ..config(model)
            };
            let [mut keeping, mut sampling] = [(); 2].map(|()| trainer(&store, &config, folder.path()));
            for epoch in 0..5 {
                sampling.partitions.repeated = None;
                let [kept, sampled] = [&mut keeping, &mut sampling].map(|trainer| {
                    let stats = trainer.epoch(epoch, &|_, _| 0.01, &Silent).unwrap();
                    trainer.end_epoch();
                    (
                        stats.loss,
                        stats.seeds,
                        stats.sampled_edges,
                        trainer.learner.model.parameters().flat_values().copy(),
                    )
                });
                assert_eq!(kept, sampled, "{model}, {partitions} partitions, epoch {epoch}");
                assert_eq!(keeping.partitions.repeated.is_some(), is_kept, "{model}, {partitions} partitions");
            }
            // Evaluations leave memory for the batch, and as much in a run that has none because it was resumed.
            sampling.partitions.repeated = None;
            let [kept, without] = [&mut keeping, &mut sampling].map(room);
            assert_eq!(kept.inference, without.inference);
            let batch_memory = config.memory.0 / 8;
            let of_batch = repeated_batch_memory(&keeping.config, keeping.history.is_planned());
            assert_eq!(of_batch, if is_kept { batch_memory } else { 0 });
            assert!(kept.inference + of_batch <= config.memory.0);
        }
    }
}

#[test]
fn steps_are_the_same_from_views_in_memory_in_turn_and_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (model, halo) in [
        (LayerKind::Sage, HaloMode::History),
        (LayerKind::Sage, HaloMode::Stop),
        (LayerKind::Gat, HaloMode::Auto),
        (LayerKind::PinSage, HaloMode::Neighbors),
    ] {
        for concurrent in [1, 2] {
            let config = TrainConfig { halo, concurrent: Auto::Value(concurrent), dropout: 0.5, ..config(model) };
            let mut trainer = trainer(&store, &config, folder.path());
            let [memory, in_turn, mapped] = [ViewKind::Memory, ViewKind::InTurn, ViewKind::Mapped].map(|kind| {
                let steps = steps_from(&mut trainer, true, kind);
                assert!(trainer.partitions.loader.served().all(|part| part.view.kind() == kind));
                assert_eq!(steps.len(), STEPS);
                steps
            });
            for ((expected, in_turn), mapped) in memory.iter().zip(&in_turn).zip(&mapped) {
                for found in [in_turn, mapped] {
                    assert_eq!(found.sums.0.loss, expected.sums.0.loss, "{model}, {halo}, {concurrent} at a time");
                    assert_eq!(found.gradient, expected.gradient, "{model}, {halo}, {concurrent} at a time");
                }
            }
        }
    }
}

/// Memory for an inference.
fn room(trainer: &mut Trainer) -> Room {
    let retained = trainer.history.memory() + trainer.evaluations.memory();
    trainer.on_graph(&Silent).0.make_room(retained, false).unwrap()
}

/// Whether the inference after an epoch also refreshes historical embeddings.
fn is_refreshed_with(trainer: &mut Trainer, epoch: u64) -> bool {
    let (on, history, _) = trainer.on_graph(&Silent);
    history.is_refreshed_with(epoch, &on)
}

/// All rows of historical embeddings.
fn rows_of(historical: &HistoricalRows) -> Vec<Vec<f32>> {
    let all = historical.layers.iter().flatten().chain(&historical.inputs);
    all.map(|rows| {
        let mut values = vec![0.0; rows.nodes.len() as usize * rows.rows.width()];
        rows.rows.read(0..rows.nodes.len(), &mut values).unwrap();
        values
    })
    .collect()
}

#[test]
fn an_evaluation_that_refreshes_has_the_bits_of_an_evaluation_and_a_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for layers in [3, 4] {
        let config =
            TrainConfig { layers, halo: HaloMode::History, evaluate: Evaluate::Exact, ..config(LayerKind::Sage) };
        let mut together = trainer(&store, &config, folder.path());
        together.learner.step = 5;
        let mut apart = trainer(&store, &config, folder.path());
        apart.learner.step = 5;
        assert!(is_refreshed_with(&mut together, 0), "{layers} layers");
        // With the rows of the first refresh in place, and once more with what it planned.
        for _ in 0..2 {
            let evaluation = together.evaluate(0, &|_| true, &Silent).unwrap().unwrap();
            // The last epoch of a super-epoch: no refresh follows for these partitions.
            let last = config.repartition_every - 1;
            assert!(!is_refreshed_with(&mut apart, last));
            let expected = apart.evaluate(last, &|_| true, &Silent).unwrap().unwrap();
            apart.refresh(&Silent).unwrap();
            assert_eq!(evaluation.val, expected.val);
            assert_eq!(evaluation.test, expected.test);
            let [found, expected] = [&together, &apart].map(|trainer| rows_of(trainer.history.rows.as_ref().unwrap()));
            assert!(!found.is_empty() && found == expected, "{layers} layers");
            // The next epoch has nothing to refresh.
            let before = together.history.rows.clone().unwrap();
            together.refresh_when_due(1, &Silent).unwrap();
            assert!(Arc::ptr_eq(together.history.rows.as_ref().unwrap(), &before));
            assert!(rows_of(together.history.rows.as_ref().unwrap()) == found);
        }
    }
}

#[test]
fn what_an_evaluation_leaves_to_save_time_is_freed_before_a_feed_opens() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = TrainConfig { halo: HaloMode::Stop, evaluate: Evaluate::Exact, ..config(LayerKind::Sage) };
    keep_freed_memory(u64::MAX);
    let mut trainer = trainer(&store, &config, folder.path());
    trainer.prepare(0, None, &Silent).unwrap();
    for epoch in 0..2 {
        trainer.evaluate(epoch, &|_| true, &Silent).unwrap();
        drop(Tensor::zeros([64 << 20], (Kind::Uint8, Device::Cpu)));
        let left = |trainer: &Trainer| trainer.evaluations.scored.as_ref().unwrap().left_bytes();
        let before = left(&trainer);
        assert!(before > 0);
        trainer.epoch(epoch, &|_, _| 0.01, &Silent).unwrap();
        trainer.end_epoch();
        match epoch {
            // Other tests of this process keep less.
            0 => assert!(left(&trainer) == 0 && block_bytes().spare < 64 << 20, "{}", block_bytes().spare),
            // Features that are all in memory leave the feed open.
            _ => assert_eq!(left(&trainer), before),
        }
    }
}

#[test]
fn by_default_halo_nodes_of_gin_have_sampled_in_neighbors_instead_of_historical_embeddings() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (model, has_historical) in [(LayerKind::Sage, true), (LayerKind::Gin, false)] {
        let trainer = trainer(&store, &config(model), folder.path());
        assert!(trainer.config.aggregates.is_some(), "{model}");
        assert_eq!(trainer.history.rows.is_some(), has_historical, "{model}");
        // What halo nodes got: embeddings or lists.
        assert!(trainer.partitions.halo_bytes > 0, "{model}");
    }
}

#[test]
fn only_halo_nodes_that_steps_can_reach_have_historical_embeddings() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for model in [LayerKind::Sage, LayerKind::PinSage] {
        let config = TrainConfig { layers: 4, halo: HaloMode::History, ..config(model) };
        let trainer = trainer(&store, &config, folder.path());
        let historical = trainer.history.rows.as_ref().unwrap();
        let sets: Vec<_> = historical.layers.iter().map(|layer| layer[0].nodes.len()).collect();
        assert!(sets.iter().all(|&nodes| nodes > 0) && sets.is_sorted_by(|a, b| a >= b), "{sets:?}");
        assert!(*sets.last().unwrap() < store.manifest().nodes, "{sets:?}");
    }
}

fn seconds(trainer: &Trainer, scored: Option<&Scored>) -> Option<f64> {
    trainer.evaluations.seconds_of(scored, LayerKind::Sage)
}

#[test]
fn the_time_of_an_evaluation_follows_from_that_of_the_steps() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let mut trainer = trainer(&store, &config(LayerKind::Sage), folder.path());
    trainer.prepare(0, None, &Silent).unwrap();
    assert_eq!(seconds(&trainer, None), None);
    trainer.epoch(0, &|_, _| 0.01, &Silent).unwrap();
    assert_eq!(seconds(&trainer, None), None, "the epoch has few steps");
    let work = trainer.partitions.epoch_work.unwrap();
    let (on, history, evaluations) = trainer.on_graph(&Silent);
    let scored = evaluations.scored_exactly(&on, history).unwrap();
    trainer.evaluations.took(10.0, Some(work));
    let found = seconds(&trainer, Some(&scored)).unwrap();
    let expected = inference_time(LayerKind::Sage) * scored.needed.work() / work;
    assert!((found / 10.0 - expected).abs() < 1e-9, "{found} {expected}");
    assert!(seconds(&trainer, None).unwrap() > 0.0);
}
