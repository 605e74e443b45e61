//! Ranks, as threads of one process: each opens its own partitions and scores its own nodes, and together they have what one has.

use std::{
    thread,
    time::{Duration, Instant},
};

use grappa_run::{checkpoint::RunState, config::LrSchedule};
use grappa_sampling::NodeSet;

use super::{
    super::{
        evaluate::evaluations::Evaluation,
        session::agreement::{agree_on_options, score_of_first},
        step::full_graph::TrainSetup,
    },
    *,
};
use crate::{
    Error, Resource,
    distributed::{Hello, Place, ProcessGroup, StoreServer, Waits, join},
};

/// Calls `work` as each of `ranks` ranks that train together.
pub(super) fn as_ranks<T: Send>(ranks: u32, work: impl Fn(Arc<ProcessGroup>) -> T + Sync) -> Vec<T> {
    let server = StoreServer::start().unwrap();
    let of_rank = |rank| {
        let group = Arc::new(joined(server.place(rank, ranks), || false));
        let done = work(group.clone());
        group.finish().unwrap();
        done
    };
    thread::scope(|scope| {
        let of_rank = &of_rank;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || of_rank(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Joins the other ranks.
fn joined(place: Place, is_stopped: fn() -> bool) -> ProcessGroup {
    let same = Vec::new();
    join(place, Hello { same }, Waits::for_timeout(Duration::from_secs(60)), is_stopped).unwrap()
}

/// The trainer of a rank, or of a single process, ready for its first epoch.
pub(super) fn prepared(
    store: &Arc<Store>,
    config: &TrainConfig,
    folder: &Path,
    group: Option<Arc<ProcessGroup>>,
) -> Trainer {
    let aggregates =
        first_hop::choose(&Graph::from(store.clone()), config, &Silent, &mut |problem| panic!("{problem}")).unwrap();
    let folder = folder.join("run");
    std::fs::create_dir_all(&folder).unwrap();
    let mut trainer =
        Trainer::new(store.clone(), TrainSetup { group, ..config.clone().into() }, aggregates, Device::Cpu, folder)
            .unwrap();
    trainer.prepare(0, None, &Silent).unwrap();
    trainer.refresh_when_due(0, &Silent).unwrap();
    trainer
}

/// The exact scores of a rank, or of a single process.
pub(super) fn exactly(trainer: &mut Trainer) -> Result<Option<Evaluation>, Error> {
    let (mut on, history, evaluations) = trainer.on_graph(&Silent);
    let scored = evaluations.scored_exactly(&on, history);
    evaluate_exactly(&mut on, scored)
}

#[test]
fn what_ranks_sum_unite_and_gather_is_that_of_all() {
    for ranks in [1, 2, 3] {
        let of_each = as_ranks(ranks, |group| {
            let rank = u64::from(group.place().rank);
            let mut counts = [rank, 1 << 40, 5];
            group.sum(&mut counts, &Silent).unwrap();
            let mut words = vec![1 << (63 - rank), 1 << 7, rank];
            group.unite(&mut words, &Silent).unwrap();
            // Of different lengths, one of them none, and longer than a piece.
            let own = vec![u32::MAX - rank as u32; rank as usize * 700_000];
            let gathered = group.gather_words(&own, &Silent).unwrap();
            (counts, words, gathered, group.gather_all("rank", rank).unwrap())
        });
        let all: Vec<u64> = (0..ranks.into()).collect();
        for (rank, (counts, words, gathered, each)) in of_each.into_iter().enumerate() {
            assert_eq!(counts, [all.iter().sum(), u64::from(ranks) << 40, 5 * u64::from(ranks)]);
            let firsts = all.iter().fold(0, |bits, rank| bits | 1 << (63 - rank));
            assert_eq!(words, [firsts, 1 << 7, all.iter().fold(0, |bits, rank| bits | rank)]);
            assert_eq!(each, all);
            let expected = |&rank: &u64| vec![u32::MAX - rank as u32; rank as usize * 700_000];
            let expected: Vec<Vec<u32>> = all.iter().map(expected).collect();
            assert!(gathered == (rank == 0).then_some(expected), "{ranks} ranks");
        }
    }
}

#[test]
fn a_rank_that_is_asked_to_stop_while_it_waits_for_a_value_leaves_and_stops_the_others() {
    let server = StoreServer::start().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let group = joined(server.place(0, 2), || false);
            let computed = group.share("value", || {
                // As in a search for the nodes of an evaluation, which asks whether it should stop.
                let begin = Instant::now();
                while !group.is_broken() {
                    assert!(begin.elapsed() < Duration::from_secs(30), "rank 0 never heard of the stop");
                    thread::sleep(Duration::from_millis(5));
                }
                Err::<u64, Error>(grappa_io::Error::Stopped.into())
            });
            assert!(computed.unwrap_err().is_stopped());
            let stopped_by = group.stopped_by();
            group.leave();
            stopped_by
        });
        let group = joined(server.place(1, 2), || true);
        let error = group.share::<u64>("value", || unreachable!("rank 0 has the value")).unwrap_err();
        assert!(error.is_stopped(), "{error}");
        group.announce(true, "was asked to stop");
        group.leave();
        assert_eq!(first.join().unwrap(), Some(1));
    });
}

#[test]
fn ranks_take_the_same_decisions_also_after_a_score_that_is_not_finite() {
    let config = TrainConfig {
        lr_schedule: LrSchedule::Plateau,
        lr_patience: 0,
        lr_factor: 0.1,
        early_stopping: 2,
        ..config(LayerKind::Sage)
    };
    let scores = [Some(0.1 + 0.2), None, Some(f64::NAN), Some(f64::NEG_INFINITY)];
    let of_each = as_ranks(2, |group| {
        let mut state = RunState::default();
        for score in scores {
            let told = score_of_first(&group, || score).unwrap();
            assert_eq!(told.map(f64::to_bits), score.map(f64::to_bits));
            if let Some(score) = told {
                state.observe(&config.rate_options(), score, None);
            }
        }
        state
    });
    assert_eq!(of_each[0], of_each[1]);
    assert!(of_each[0].early_stopping.is_over(config.early_stopping));
    let rate = of_each[0].learning_rate.at(&config.rate_options(), 4, 0, 1);
    assert!(rate < 0.02 * config.lr, "{rate}");
}

#[test]
fn ranks_may_differ_in_what_each_has_for_itself_and_in_no_other_option() {
    let agreed = |of_first: TrainConfig| {
        let configs = [TrainConfig::default(), of_first];
        as_ranks(3, |group| {
            let config = &configs[usize::from(group.is_first())];
            agree_on_options(&group, config).map_err(|error| error.to_string())
        })
    };
    let machine = TrainConfig {
        memory: ByteSize(64 << 20),
        threads: "3".parse().unwrap(),
        lookahead: "2".parse().unwrap(),
        read_engine: "pread".parse().unwrap(),
        device: "cpu".parse().unwrap(),
        class_names: Some("classes.txt".into()),
        out: Some("run".into()),
        ..TrainConfig::default()
    };
    assert_eq!(agreed(machine), [const { Ok(()) }; 3]);
    let epochs = TrainConfig { epochs: 60, ..TrainConfig::default() };
    let stopping = TrainConfig { early_stopping: 4, ..TrainConfig::default() };
    for (config, option, value, default) in [(epochs, "epochs", 60, 50), (stopping, "early-stopping", 4, 0)] {
        let error = |rank, value, other, of_other| {
            Err(format!(
                "ranks differ in the option --{option}: rank {rank} has {value}, and rank {other} has {of_other}: give all ranks the same"
            ))
        };
        let expected = [error(0, value, 1, default), error(1, default, 0, value), error(2, default, 0, value)];
        assert_eq!(agreed(config), expected);
    }
}

#[test]
fn ranks_with_different_memory_decide_by_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let memory = [96 << 20, 64 << 20, 128 << 20];
    let found = as_ranks(3, |group| {
        let config = TrainConfig { memory: ByteSize(memory[group.place().rank as usize]), ..config(LayerKind::Sage) };
        prepared(&store, &config, folder.path(), Some(group)).processes.least_memory
    });
    assert_eq!(found, [64 << 20; 3]);
}

#[test]
fn ranks_report_the_scores_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let mut ways = [false; 3];
    for (model, layers, evaluate, partitions) in [
        (LayerKind::Sage, 3, Evaluate::Exact, 4),
        (LayerKind::Sage, 3, Evaluate::Sampled, 4),
        // The test nodes apart from the validation nodes.
        (LayerKind::Gcn, 1, Evaluate::Exact, 1),
        (LayerKind::Gat, 2, Evaluate::Sampled, 4),
        // By minibatches.
        (LayerKind::PinSage, 2, Evaluate::Sampled, 4),
    ] {
        let config = TrainConfig {
            layers,
            evaluate,
            partitions: Auto::Value(partitions),
            // Evaluations alone, and none that refreshes.
            halo: HaloMode::Stop,
            ..config(model)
        };
        let mut alone = prepared(&store, &config, folder.path(), None);
        let expected = alone.evaluate(0, &|_| true, &Silent).unwrap().unwrap();
        let expected_exactly = exactly(&mut alone).unwrap().unwrap();
        assert!(expected.val.nodes > 50 && expected.test.as_ref().unwrap().nodes > 50);
        for ranks in [2, 4] {
            let context = format!("{model}, {layers} layers, {evaluate}, {ranks} ranks");
            let found = as_ranks(ranks, |group| {
                let mut trainer = prepared(&store, &config, folder.path(), Some(group));
                let methods = (trainer.evaluations.scored.as_ref().unwrap().method(), trainer.partitions.epoch_work);
                // A second time, with the inputs that the first one kept.
                let [first, second] = [(); 2].map(|()| trainer.evaluate(0, &|_| true, &Silent).unwrap());
                let untested = trainer.evaluate(0, &|_| false, &Silent).unwrap();
                let exact = exactly(&mut trainer).unwrap();
                (methods, [first, second, exact], untested)
            });
            let (of_first, others) = found.split_first().unwrap();
            for (methods, evaluations, untested) in others {
                assert_eq!(methods, &of_first.0, "{context}");
                assert!(evaluations.iter().all(Option::is_none) && untested.is_none(), "rank 0 reports");
            }
            let [first, second, exact] = of_first.1.each_ref().map(|evaluation| evaluation.as_ref().unwrap());
            for (found, expected) in [(first, &expected), (second, &expected), (exact, &expected_exactly)] {
                assert_eq!(found.val, expected.val, "{context}");
                assert_eq!(found.test, expected.test, "{context}");
                assert_eq!(found.method, expected.method, "{context}");
            }
            let untested = of_first.2.as_ref().unwrap();
            let way = match alone.evaluations.scored.as_ref().unwrap() {
                ScoredNodes::Together(_) => 0,
                ScoredNodes::Apart(..) => 1,
                ScoredNodes::Minibatches => 2,
            };
            assert_eq!(untested.test.is_none(), way > 0, "{context}");
            ways[way] = true;
        }
    }
    assert_eq!(ways, [true; 3], "together, apart, and by minibatches");
}

/// The sets of nodes that have historical embeddings, and the bytes of the rows.
fn historical_of(trainer: &Trainer) -> Option<(Vec<NodeSet>, u64)> {
    let historical = trainer.history.rows.as_ref()?;
    let sets = historical.layers.iter().map(|layer| NodeSet::clone(&layer[0].nodes));
    Some((sets.collect(), historical.memory()))
}

#[test]
fn a_rank_has_the_views_and_historical_embeddings_of_its_own_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (halo, layers, concurrent) in [
        (HaloMode::History, 3, 4),
        (HaloMode::History, 4, 2),
        (HaloMode::Auto, 3, 4),
        (HaloMode::Neighbors, 2, 4),
        (HaloMode::Stop, 2, 2),
    ] {
        let config = TrainConfig {
            layers,
            halo,
            concurrent: Auto::Value(concurrent),
            evaluate: Evaluate::Exact,
            ..config(LayerKind::Sage)
        };
        let refreshes = |trainer: &mut Trainer| {
            (0..config.repartition_every).map(|epoch| is_refreshed_with(trainer, epoch)).collect::<Vec<_>>()
        };
        let mut alone = prepared(&store, &config, folder.path(), None);
        let expected = historical_of(&alone);
        for ranks in [2, 4] {
            let context = format!("{halo}, {layers} layers, {concurrent} per step, {ranks} ranks");
            let found = as_ranks(ranks, |group| {
                let mut trainer = prepared(&store, &config, folder.path(), Some(group));
                let before = (trainer.partitions.loader.served().count(), trainer.partitions.loader.adjacency_bytes());
                let same = (
                    refreshes(&mut trainer),
                    trainer.partitions.epoch_work,
                    trainer.partitions.loader.all_batches(0).steps(),
                );
                let (halo_bytes, historical) = (trainer.partitions.halo_bytes, historical_of(&trainer));
                // Scores and historical embeddings from one inference.
                let evaluation = trainer.evaluate(0, &|_| true, &Silent).unwrap();
                (before, same, halo_bytes, historical, evaluation, historical_of(&trainer))
            });
            let same =
                (refreshes(&mut alone), alone.partitions.epoch_work, alone.partitions.loader.all_batches(0).steps());
            assert!(found.iter().all(|of_rank| of_rank.1 == same), "{context}: {same:?}");
            let served: Vec<usize> = found.iter().map(|of_rank| of_rank.0.0).collect();
            assert_eq!(served.iter().sum::<usize>(), 4, "{context}");
            assert!(
                served.iter().all(|&served| served <= 4 / (concurrent.min(ranks) as usize)),
                "{context}: {served:?}"
            );
            let bytes: u64 = found.iter().map(|of_rank| of_rank.2).sum();
            assert_eq!(bytes, alone.partitions.halo_bytes, "{context}");
            if alone.partitions.loader.halo_lists().is_none() {
                let bytes: u64 = found.iter().map(|of_rank| of_rank.0.1).sum();
                assert_eq!(bytes, alone.partitions.loader.adjacency_bytes(), "{context}");
            }
            if let Some((expected, memory)) = &expected {
                for (at, expected) in expected.iter().enumerate() {
                    let sets = found.iter().map(|of_rank| &of_rank.3.as_ref().unwrap().0[at]);
                    let union =
                        sets.clone().fold(NodeSet::from_members(expected.universe(), []), |all, set| all.union(set));
                    assert_eq!(union.to_words(), expected.to_words(), "{context}");
                }
                for of_rank in &found {
                    let (sets, bytes) = of_rank.3.as_ref().unwrap();
                    assert!(bytes <= memory, "{context}");
                    assert_eq!(sets[0].is_empty(), of_rank.0.0 == 0, "{context}");
                    let refreshed: Vec<_> = of_rank.5.as_ref().unwrap().0.iter().map(NodeSet::len).collect();
                    assert_eq!(refreshed, sets.iter().map(NodeSet::len).collect::<Vec<_>>(), "{context}");
                }
            }
        }
    }
}

#[test]
fn the_gradients_of_ranks_add_up_to_those_of_one_process_from_views_in_memory_in_turn_and_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (model, halo, concurrent) in [
        (LayerKind::Sage, HaloMode::History, 4),
        (LayerKind::Sage, HaloMode::History, 2),
        // Halo nodes with sampled in-neighbors.
        (LayerKind::Gat, HaloMode::Auto, 2),
    ] {
        let config =
            TrainConfig { halo, concurrent: Auto::Value(concurrent), evaluate: Evaluate::Exact, ..config(model) };
        for view in [ViewKind::Memory, ViewKind::InTurn, ViewKind::Mapped] {
            let expected = steps_from(&mut prepared(&store, &config, folder.path(), None), true, view);
            let found = as_ranks(2, |group| {
                let mut trainer = prepared(&store, &config, folder.path(), Some(group.clone()));
                let mut steps = steps_from(&mut trainer, true, view);
                let is_kept = view != ViewKind::InTurn || concurrent < 4;
                assert!(!is_kept || trainer.partitions.loader.served().all(|part| part.view.kind() == view));
                assert_eq!(trainer.partitions.loader.served().count(), 2);
                for step in &mut steps {
                    group.all_reduce(&step.gradient).unwrap();
                }
                steps.into_iter().map(|step| (step.gradient, step.sums)).collect::<Vec<_>>()
            });
            let name = format!("{model}, {halo}, {concurrent} per step, {view}");
            let [first, second] = <[_; 2]>::try_from(found).unwrap();
            let steps = first.into_iter().zip(second).map(|((gradient, first), (_, second))| Step {
                gradient,
                sums: added(first, second),
                passes: 1,
            });
            assert_same_steps(&name, &steps.collect::<Vec<_>>(), &expected);
        }
    }
}

#[test]
fn no_rank_has_historical_embeddings_after_an_evaluation_that_failed_on_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = TrainConfig { halo: HaloMode::History, evaluate: Evaluate::Exact, ..config(LayerKind::Sage) };
    let found = as_ranks(3, |group| {
        let mut trainer = prepared(&store, &config, folder.path(), Some(group.clone()));
        trainer.learner.step = 5;
        assert!(trainer.history.rows.is_some() && is_refreshed_with(&mut trainer, 0));
        let least_memory = trainer.processes.least_memory;
        if group.place().rank == 1 {
            trainer.processes.least_memory = 1;
        }
        let failed = trainer.evaluate(0, &|_| true, &Silent).unwrap_err().is_budget();
        trainer.processes.least_memory = least_memory;
        let has_any = [trainer.history.rows.is_some(), trainer.history.origin.is_some()];
        // If ranks differ, those with embeddings do not take part in the next refresh, and others wait for them.
        assert_eq!(group.gather_all("embeddings", has_any).unwrap(), [[false; 2]; 3]);
        trainer.refresh_when_due(1, &Silent).unwrap();
        (failed, trainer.history.rows.is_some())
    });
    assert_eq!(found, [(true, true); 3]);
}

#[test]
fn what_one_rank_lacks_memory_or_disk_for_fails_on_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = config(LayerKind::Sage);
    let found = as_ranks(3, |group| {
        let rank = group.place().rank;
        let trainer = prepared(&store, &config, folder.path(), Some(group));
        let lack =
            |rank, resource| Err(Error::Lack { rank: None, resource, message: format!("too little for {rank}") });
        let done = [
            Ok(rank),
            if rank == 1 { lack(1, Resource::Disk) } else { Ok(rank) },
            // All get the error of the first one.
            if rank > 0 { lack(rank, if rank == 1 { Resource::Memory } else { Resource::Disk }) } else { Ok(rank) },
            Ok(rank),
        ];
        done.map(|done| trainer.processes.agree(done, &Silent))
    });
    for (rank, [all, disk, several, again]) in (0..).zip(found) {
        assert_eq!([all.unwrap(), again.unwrap()], [rank; 2]);
        let (disk, several) = (disk.unwrap_err(), several.unwrap_err());
        assert!(disk.is_disk_full() && !disk.is_budget());
        assert!(several.is_budget() && !several.is_disk_full());
        for error in [disk, several] {
            let named = if rank == 1 { "" } else { "rank 1: " };
            assert_eq!(error.to_string(), format!("{named}too little for 1"));
        }
    }
}
