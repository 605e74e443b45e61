use std::sync::Arc;

use grappa_io::progress::Silent;
use grappa_storage::Store;

use super::*;
use crate::{
    ListsPlace, Loader, Remedy, Seeds,
    feed::{MinibatchOptions, RowOptions},
    sample::Sampler,
    view::{
        ViewKind,
        tests::graph::{Graph, TestStore},
    },
};

const CHUNKS: u32 = 24;
/// The largest number that may be chosen for `CHUNKS` chunks.
const MOST: u32 = 16;
const SUPER_EPOCHS: u64 = 20;

fn loader(memory: u64, concurrent: Option<usize>) -> LoaderOptions {
    LoaderOptions {
        concurrent,
        rows: RowOptions::default(),
        halo: Halo::Stop,
        memory,
        threads: 1,
        ..LoaderOptions::new(MinibatchOptions {
            batch: 16,
            ..MinibatchOptions::new(Sampler::uniform("4,3".parse().unwrap(), false))
        })
    }
}

fn options(partitions: Option<u32>, schedule: Schedule) -> NumberOptions {
    NumberOptions { partitions, schedule, super_epochs: SUPER_EPOCHS, expands_halo: false }
}

fn choose(store: &TestStore, memory: u64, given: (Option<u32>, Option<usize>)) -> Result<PartitionNumbers> {
    let store = Arc::new(Store::open(store.store.path()).unwrap());
    PartitionNumbers::choose(&store.into(), &loader(memory, given.1), &options(given.0, Schedule::Shuffle))
}

/// Bytes of the adjacency lists of the whole graph.
fn whole_bytes(store: &TestStore) -> u64 {
    choose(store, 1 << 30, (None, None)).unwrap().whole_bytes
}

/// How a loader holds the lists in each super-epoch.
fn kinds(store: &TestStore, memory: u64, numbers: &PartitionNumbers, schedule: Schedule) -> Vec<ViewKind> {
    let store = Arc::new(Store::open(store.store.path()).unwrap());
    let options = loader(memory, Some(numbers.concurrent as usize));
    let kind = |super_epoch| {
        let repartition = RepartitionOptions {
            partitions: numbers.partitions,
            schedule,
            seed: options.minibatches.seed,
            super_epoch: Some(super_epoch),
        };
        let assignment = assign(store.manifest(), &repartition, 1).unwrap();
        let mut loader = Loader::new(&store, options.clone());
        loader.partition(&assignment, &Seeds::All, &Silent).unwrap();
        loader.served().next().unwrap().view.kind()
    };
    (0..SUPER_EPOCHS.min(SUPER_EPOCHS_MAX)).map(kind).collect()
}

#[test]
fn a_graph_that_fits_has_one_partition_and_all_given_ones_in_a_step() {
    let store = Graph::mixed(20_000).store(CHUNKS);
    let enough = whole_bytes(&store).div_ceil(7) * 8 + 8;
    for (given, expected) in
        [((None, None), (1, 1)), ((Some(6), None), (6, 6)), ((None, Some(3)), (3, 3)), ((Some(6), Some(2)), (6, 2))]
    {
        let chosen = choose(&store, enough, given).unwrap();
        assert_eq!((chosen.partitions, chosen.concurrent), expected, "{given:?}");
        assert_eq!(chosen.lists, ListsPlace::Memory);
    }
}

#[test]
fn a_graph_that_does_not_fit_has_the_smallest_number_that_does() {
    let store = Graph::mixed(20_000).store(CHUNKS);
    let whole = whole_bytes(&store);
    for schedule in Schedule::ALL {
        let mut found = Vec::new();
        for memory in [whole - 1, whole * 4 / 5, whole / 2, whole / 3] {
            let choose = |partitions| {
                let opened = Arc::new(Store::open(store.store.path()).unwrap());
                PartitionNumbers::choose(&opened.clone().into(), &loader(memory, None), &options(partitions, schedule))
            };
            let chosen = choose(None).unwrap();
            let ListsPlace::InTurn(bytes) = chosen.lists else {
                continue;
            };
            assert!(bytes <= chosen.room && chosen.room < chosen.whole_bytes && chosen.concurrent == 1);
            assert!(kinds(&store, memory, &chosen, schedule).iter().all(|&kind| kind == ViewKind::InTurn));
            let fewer = choose(Some(chosen.partitions / 2)).unwrap();
            assert_eq!(fewer.lists, ListsPlace::Mapped(Remedy::Partitions(chosen.partitions)), "{schedule}");
            assert_eq!(fewer.concurrent, fewer.partitions);
            found.push(chosen.partitions);
        }
        assert!(found.is_sorted() && found.first() < found.last(), "{schedule}: {found:?}");
    }
}

#[test]
fn of_a_given_number_of_partitions_as_many_as_fit_are_in_a_step() {
    let store = Graph::mixed(20_000).store(CHUNKS);
    let whole = whole_bytes(&store);
    let steps: Vec<u32> = [whole - 1, whole / 2, whole / 4]
        .into_iter()
        .map(|memory| {
            let chosen = choose(&store, memory, (Some(16), None)).unwrap();
            assert!(matches!(chosen.lists, ListsPlace::InTurn(bytes) if bytes <= chosen.room));
            let kinds = kinds(&store, memory, &chosen, Schedule::Shuffle);
            assert!(kinds.iter().all(|&kind| kind == ViewKind::InTurn));
            let more = choose(&store, memory, (Some(16), Some(2 * chosen.concurrent as usize))).unwrap();
            assert!(matches!(more.lists, ListsPlace::Mapped(_)), "{more:?}");
            chosen.concurrent
        })
        .collect();
    assert!(steps[0] > steps[1] && steps[1] > steps[2], "{steps:?}");
}

#[test]
fn of_several_workers_each_has_a_partition_in_every_step_and_needs_memory_for_its_own() {
    let store = Graph::mixed(20_000).store(CHUNKS);
    let whole = whole_bytes(&store);
    let opened = Arc::new(Store::open(store.store.path()).unwrap());
    let choose = |memory, workers, given: (Option<u32>, Option<usize>)| {
        let loader = LoaderOptions { share: Share::new(workers - 1, workers), ..loader(memory, given.1) };
        PartitionNumbers::choose(&opened.clone().into(), &loader, &options(given.0, Schedule::Shuffle)).unwrap()
    };
    let numbers = |chosen: PartitionNumbers| (chosen.partitions, chosen.concurrent, chosen.lists);
    for workers in [2, 3, 4] {
        // A graph that fits one worker.
        assert_eq!(numbers(choose(1 << 30, workers, (None, None))), (workers, workers, ListsPlace::Memory));
        assert_eq!(numbers(choose(1 << 30, workers, (Some(16), None))), (16, 16, ListsPlace::Memory));
        assert_eq!(numbers(choose(1 << 30, workers, (None, Some(8)))), (8, 8, ListsPlace::Memory));
    }
    // One that fits two together, and not one alone.
    let most = whole * 4 / 5;
    assert!(matches!(choose(most, 1, (None, None)).lists, ListsPlace::InTurn(_)));
    assert_eq!(numbers(choose(most, 2, (None, None))), (2, 2, ListsPlace::Memory));
    // One that fits three together only in turn: a number of partitions, two of them in memory at a time.
    for workers in [2, 3] {
        let little = whole / 5;
        let chosen = choose(little, workers, (None, None));
        let ListsPlace::InTurn(bytes) = chosen.lists else { panic!("{chosen:?}") };
        assert!(bytes <= chosen.room && chosen.concurrent == workers, "{chosen:?}");
        assert!(chosen.partitions > workers && chosen.partitions.is_multiple_of(workers), "{chosen:?}");
        for share in Share::each(workers) {
            let store = Arc::new(Store::open(store.store.path()).unwrap());
            let options = LoaderOptions { share, ..loader(little, Some(chosen.concurrent as usize)) };
            let repartition = RepartitionOptions {
                partitions: chosen.partitions,
                schedule: Schedule::Shuffle,
                seed: options.minibatches.seed,
                super_epoch: Some(0),
            };
            let mut loader = Loader::new(&store, options);
            let assignment = assign(store.manifest(), &repartition, 1).unwrap();
            loader.partition(&assignment, &Seeds::All, &Silent).unwrap();
            assert!(loader.served().all(|part| part.view.kind() == ViewKind::InTurn));
            assert!(loader.adjacency_bytes() <= bytes);
        }
    }
    // There cannot be more partitions than chunks.
    let chosen = choose(1 << 30, 100, (None, None));
    assert_eq!((chosen.partitions, chosen.concurrent), (CHUNKS, CHUNKS));
}

#[test]
fn lists_that_no_number_fits_are_mapped_and_enough_memory_is_named() {
    let store = Graph::mixed(20_000).store(CHUNKS);
    for (expands_halo, memory) in [(false, 50_000), (true, 50_000), (true, 1)] {
        let choose = |memory| {
            let opened = Arc::new(Store::open(store.store.path()).unwrap());
            let options = NumberOptions { expands_halo, ..options(None, Schedule::Sweep) };
            PartitionNumbers::choose(&opened.clone().into(), &loader(memory, None), &options).unwrap()
        };
        let chosen = choose(memory);
        assert_eq!((chosen.partitions, chosen.concurrent), (1, 1));
        let ListsPlace::Mapped(Remedy::Memory(enough)) = chosen.lists else {
            panic!("{chosen:?}");
        };
        let with_enough = choose(enough);
        assert_eq!(with_enough.partitions, MOST);
        assert!(matches!(with_enough.lists, ListsPlace::InTurn(_)), "{with_enough:?}");
        // It is not much more than needed.
        assert_eq!(choose(enough - enough / 50).lists, chosen.lists);
    }
    let given = choose(&store, 50_000, (None, Some(3))).unwrap();
    assert_eq!((given.partitions, given.concurrent), (3, 3));
    // A store of one chunk has one partition, which needs memory for the whole graph.
    let store = Graph::mixed(2000).store(1);
    let ListsPlace::Mapped(Remedy::Memory(enough)) = choose(&store, 1000, (None, None)).unwrap().lists else {
        panic!("no budget");
    };
    let chosen = choose(&store, enough, (None, None)).unwrap();
    assert_eq!((chosen.partitions, chosen.lists), (1, ListsPlace::Memory));
}
