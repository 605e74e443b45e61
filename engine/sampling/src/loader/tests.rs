//! Views that are in memory in turn.

mod types;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use grappa_formats::NodeId;
use grappa_io::{Result, ledger::leased_bytes, progress::Silent};
use grappa_storage::{Store, files};

use super::*;
use crate::{
    feed::{BatchSource, MinibatchOptions, RowOptions},
    partition::{RepartitionOptions, Schedule, Share, assign},
    sample::{Minibatch, Sampler},
    view::{
        Halo, TurnPlace, Turns, ViewKind, ViewSource,
        tests::graph::{Graph, TestStore},
    },
};

const PARTITIONS: u32 = 6;

fn opened(store: &TestStore, options: LoaderOptions) -> Loader {
    let store = Arc::new(Store::open(store.store.path()).unwrap());
    let repartition =
        RepartitionOptions { partitions: PARTITIONS, schedule: Schedule::Shuffle, seed: 5, super_epoch: Some(0) };
    let assignment = assign(store.manifest(), &repartition, 1).unwrap();
    let mut loader = Loader::new(&store, options);
    loader.partition(&assignment, &Seeds::All, &Silent).unwrap();
    loader
}

fn options(view: ViewKind, concurrent: usize, threads: usize) -> LoaderOptions {
    LoaderOptions {
        concurrent: Some(concurrent),
        rows: RowOptions::default(),
        halo: Halo::Stop,
        memory: 256 << 20,
        threads,
        view,
        ..LoaderOptions::new(MinibatchOptions {
            batch: 16,
            ..MinibatchOptions::new(Sampler::uniform("4,3".parse().unwrap(), false))
        })
    }
}

/// The views of a loader that are in memory in turn.
fn turns(loader: &Loader) -> Arc<Turns> {
    match &loader.served().next().unwrap().view {
        ViewSource::InTurn(turns, _) => turns.clone(),
        ViewSource::Open(_) | ViewSource::Graph(_) => panic!("all views are open"),
    }
}

fn sampled(minibatch: &Minibatch) -> (Vec<NodeId>, Vec<Vec<u32>>) {
    let indices = minibatch.blocks.iter().map(|block| block.indices.clone());
    (minibatch.nodes.clone(), indices.collect())
}

#[test]
fn leases_of_a_loader_never_exceed_its_memory() {
    let store = Graph::mixed(1000).store(24);
    for view in [ViewKind::Memory, ViewKind::InTurn, ViewKind::Mapped] {
        for memory in [8 << 20, 64 << 20, 256 << 20] {
            let mut loader = opened(&store, LoaderOptions { memory, ..options(view, 2, 2) });
            loader.batches(0, |batches| batches).unwrap();
            let leases = loader.leases();
            let leased = leased_bytes(&leases);
            assert!(loader.adjacency_bytes() < leased && leased <= memory, "{view}: {leased} of {memory}: {leases:?}");
        }
    }
}

#[test]
fn minibatches_do_not_depend_on_whether_views_are_in_memory_in_turn() {
    let store = Graph::mixed(1000).store(24);
    for (concurrent, threads) in [(1, 1), (1, 4), (2, 3), (4, 2), (5, 8)] {
        let mut all = opened(&store, options(ViewKind::Memory, concurrent, threads));
        let mut in_turn = opened(&store, options(ViewKind::InTurn, concurrent, threads));
        for epoch in 0..4 {
            let epoch_of = |loader: &mut Loader| -> Vec<_> {
                let batches = loader.epoch(epoch).unwrap();
                batches.map(|batch| sampled(batch.unwrap().minibatch())).collect()
            };
            let (expected, found) = (epoch_of(&mut all), epoch_of(&mut in_turn));
            assert!(found == expected, "epoch {epoch}, {concurrent} at a time, {threads} threads");
            assert!(turns(&in_turn).groups_in_memory() <= 1);
        }
    }
}

#[test]
fn workers_hold_the_partitions_that_they_serve_and_deliver_the_minibatches_of_one() {
    let store = Graph::mixed(1000).store(24);
    for halo in [Halo::Stop, Halo::Neighbors] {
        for (view, concurrent, workers) in [
            (ViewKind::Memory, 6, 2),
            (ViewKind::Memory, 6, 4),
            (ViewKind::InTurn, 2, 2),
            (ViewKind::InTurn, 4, 3),
            // Some workers have nothing to do.
            (ViewKind::InTurn, 2, 5),
            (ViewKind::Mapped, 3, 2),
        ] {
            let context = format!("{halo:?}, {view:?}, {concurrent} per step, {workers} workers");
            let of_share = |share| LoaderOptions { share, halo, ..options(view, concurrent, 2) };
            let mut whole = opened(&store, of_share(Share::ALL));
            let delivered = |loader: &mut Loader| -> Vec<_> {
                let batches = loader.batches(1, |batches| batches).unwrap();
                let places: Vec<_> = (0..batches.batches()).map(|index| batches.places(index)[0]).collect();
                let minibatches = loader.deliver(&batches).map(|batch| sampled(batch.unwrap().minibatch()));
                let places = places.into_iter().map(|place| (place.step, place.partition.0));
                places.zip(minibatches).collect()
            };
            let mut found = Vec::new();
            let (mut served, mut bytes) = (0, 0);
            for share in Share::each(workers) {
                let mut loader = opened(&store, of_share(share));
                assert_eq!(loader.all_batches(1).steps(), whole.all_batches(1).steps(), "{context}");
                let own = loader.served().count();
                assert!(own <= (PARTITIONS as usize).div_ceil(concurrent) * concurrent.div_ceil(workers as usize));
                served += own;
                bytes += loader.adjacency_bytes();
                found.extend(delivered(&mut loader));
            }
            assert_eq!(served, PARTITIONS as usize, "{context}");
            if view == ViewKind::Memory && halo == Halo::Stop {
                assert_eq!(bytes, whole.adjacency_bytes(), "{context}");
            }
            found.sort();
            let mut expected = delivered(&mut whole);
            expected.sort();
            assert!(found == expected, "{context}");
        }
    }
}

#[test]
fn training_does_not_use_a_feed_that_evaluations_opened() {
    let store = Graph::mixed(1000).store(24);
    let mut loader = opened(&store, options(ViewKind::Memory, 1, 1));
    let evaluate = |loader: &mut Loader| {
        let (few, sampler) = ([3, 7].into_iter().collect(), loader.options.minibatches.sampler.clone());
        let batches = loader.whole_graph_batches(&few, None, sampler, 1, Share::ALL, &Silent);
        assert_eq!(loader.deliver(&batches.unwrap()).map(Result::unwrap).count(), 2);
    };
    evaluate(&mut loader);
    assert!(loader.evaluation.is_some());
    let batches = loader.batches(0, |batches| batches).unwrap();
    assert!(loader.evaluation.is_none());
    loader.deliver(&batches).for_each(|batch| drop(batch.unwrap()));
    // The feed of training serves evaluations too.
    evaluate(&mut loader);
    assert!(loader.evaluation.is_none());
}

#[test]
fn two_groups_are_in_memory_at_most() {
    let store = Graph::mixed(1000).store(24);
    for threads in [1, 4] {
        let mut loader = opened(&store, options(ViewKind::InTurn, 1, threads));
        let turns = turns(&loader);
        assert!(loader.adjacency_bytes() < opened(&store, options(ViewKind::Memory, 1, 1)).adjacency_bytes() / 2);
        for batch in loader.epoch(0).unwrap() {
            batch.unwrap();
            assert!(turns.groups_in_memory() <= 2);
        }
    }
}

#[test]
fn groups_are_visited_in_another_order_in_each_epoch_unless_nothing_is_shuffled() {
    let store = Graph::mixed(1000).store(24);
    let orders = |shuffle| {
        let mut options = options(ViewKind::InTurn, 1, 1);
        options.minibatches.shuffle = shuffle;
        let loader = opened(&store, options);
        let order = move |epoch| {
            let batches = loader.all_batches(epoch);
            let mut order: Vec<u32> =
                (0..batches.batches()).map(|index| batches.places(index)[0].partition.0).collect();
            order.dedup();
            order
        };
        let mut orders: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for epoch in 0..20 {
            let order = order(epoch);
            assert_eq!(order.len(), PARTITIONS as usize, "each group has one turn");
            *orders.entry(order).or_default() += 1;
        }
        orders.len()
    };
    assert!(orders(true) > 10);
    assert_eq!(orders(false), 1);
}

#[test]
fn an_epoch_that_ends_early_does_not_wait_and_the_next_one_is_complete() {
    let store = Graph::mixed(1000).store(24);
    let mut loader = opened(&store, options(ViewKind::InTurn, 1, 4));
    for taken in 0..30 {
        let mut epoch = loader.epoch(taken as u64).unwrap();
        for _ in 0..taken {
            epoch.next().unwrap().unwrap();
        }
        if taken % 3 == 0 {
            // Workers are ahead by now, and wait for views or for the consumer.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let batches = loader.all_batches(0).batches();
    assert_eq!(loader.epoch(0).unwrap().filter(|batch| batch.is_ok()).count() as u64, batches);
}

#[test]
fn nothing_is_being_loaded_after_an_epoch_has_ended() {
    let store = Graph::mixed(1000).store(24);
    let turns = turns(&opened(&store, options(ViewKind::InTurn, 1, 1)));
    // A thread may be quick, so there are several tries.
    for _ in 0..20 {
        let epoch = turns.begin((0..3).map(|group| (group, 1)).collect());
        turns.view(TurnPlace { group: 0, index: 0 }).unwrap();
        // The third group is begun while the second one is being loaded.
        turns.sampled(0);
        drop(epoch);
        assert_eq!(Arc::strong_count(&turns), 1, "a thread that loads views holds them");
        turns.free();
    }
}

#[test]
fn damage_in_a_later_group_is_an_error_when_its_turn_comes() {
    let store = Graph::mixed(3000).store(12);
    let mut loader = opened(&store, options(ViewKind::InTurn, 1, 2));
    let batches = loader.all_batches(0);
    let last = batches.places(batches.batches() - 1)[0].partition;
    let damaged = loader.served().nth(last.0 as usize).unwrap();
    let chunk = damaged.view.owned().chunks().next().unwrap();
    let path = store.store.path().join(files::of_chunk(chunk, "edges"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let results: Vec<_> =
        loader.epoch(0).unwrap().map(|batch| batch.map(drop).map_err(|error| error.to_string())).collect();
    let error = results.last().unwrap().as_ref().unwrap_err();
    assert!(error.contains(&files::of_chunk(chunk, "edges")), "{error}");
    assert!(results.len() > 1, "the groups before are delivered");
}

#[test]
fn memory_decides_how_views_are_held_if_some_partitions_take_part_in_a_step() {
    let store = Graph::mixed(20_000).store(24);
    let kind = |memory, concurrent| {
        let options = LoaderOptions { memory, ..options(ViewKind::Auto, concurrent, 1) };
        opened(&store, options).served().next().unwrap().view.kind()
    };
    let all = opened(&store, options(ViewKind::Memory, 1, 1)).adjacency_bytes();
    let two = opened(&store, options(ViewKind::InTurn, 1, 1)).adjacency_bytes();
    assert_eq!(kind(all, 1), ViewKind::Memory);
    assert_eq!(kind(all - 1, 1), ViewKind::InTurn);
    assert_eq!(kind(two.div_ceil(7) * 8, 1), ViewKind::InTurn);
    assert_eq!(kind(two / 7 * 8 - 8, 1), ViewKind::Mapped);
    assert_eq!(kind(all - 1, 6), ViewKind::Mapped);
}
