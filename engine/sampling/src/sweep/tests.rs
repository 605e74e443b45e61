//! Swept minibatches against the same ones from memory.

use std::sync::Arc;

use grappa_formats::{EdgePart, chunks::ChunkMap};
use grappa_io::{Error, Result, progress::Silent};
use grappa_storage::Store;

use super::{SweepOptions, SweepSource, Sweeps};
use crate::{
    Loader, LoaderOptions, ScratchOptions, Seeds,
    feed::{MinibatchOptions, RowOptions},
    links::{
        Candidates, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, Negatives, PartEdges, Positives,
        WithoutNegative,
    },
    partition::{Schedule, assignment, chunk_sizes},
    sample::{Minibatch, RandomWalks, Sampler, SeedParts},
    view::{
        OpenView, ViewKind,
        tests::graph::{Graph, TestStore},
    },
};

const NODES: u64 = 1000;

fn weighted_store() -> TestStore {
    Graph::mixed(NODES).store_with(ChunkMap::uniform(NODES, 7).starts().to_vec(), true)
}

fn loader(
    store: &TestStore,
    minibatches: MinibatchOptions,
    view: ViewKind,
    threads: usize,
    memory: u64,
) -> Result<Loader> {
    let resources = (threads, memory);
    loader_with(store, minibatches, |options| {
        options.view = view;
        (options.threads, options.memory) = resources;
    })
}

fn loader_with(
    store: &TestStore,
    minibatches: MinibatchOptions,
    change: impl FnOnce(&mut LoaderOptions),
) -> Result<Loader> {
    let store = Arc::new(Store::open(store.store.path()).unwrap());
    let mut options = LoaderOptions {
        rows: RowOptions::default(),
        view: ViewKind::Sweep,
        threads: 2,
        memory: 256 << 20,
        ..LoaderOptions::new(minibatches)
    };
    change(&mut options);
    let mut loader = Loader::new(&store, options);
    let whole = assignment(Schedule::Fixed, &[chunk_sizes(store.manifest())], 1, 0, 0, 0).unwrap();
    loader.partition(&whole, &Seeds::All, &Silent)?;
    Ok(loader)
}

fn epoch(loader: &mut Loader, epoch: u64) -> Vec<Minibatch> {
    let mut all = Vec::new();
    loader.epoch(epoch).unwrap().for_each(|batch| all.push(batch.unwrap().minibatch().clone()));
    all
}

#[test]
fn swept_minibatches_equal_those_from_memory() {
    let store = weighted_store();
    let fanouts = || "4,3,2".parse().unwrap();
    let samplers = [
        Sampler::uniform(fanouts(), false),
        Sampler::uniform(fanouts(), true).with_edge_ids(),
        Sampler::uniform(fanouts(), false).drawing_once().with_edge_weights(),
        Sampler::uniform("-1,5".parse().unwrap(), false).drawing_once().with_edge_ids(),
        Sampler::by_weight(fanouts(), false).with_edge_weights().with_edge_ids(),
        Sampler::by_weight(fanouts(), true),
    ];
    for sampler in samplers {
        for disjoint in [false, true] {
            let minibatches = || MinibatchOptions { batch: 16, disjoint, ..MinibatchOptions::new(sampler.clone()) };
            let mut in_memory = loader(&store, minibatches(), ViewKind::Memory, 1, 256 << 20).unwrap();
            for (threads, memory) in [(1, 256 << 20), (3, 64 << 20)] {
                let mut swept = loader(&store, minibatches(), ViewKind::Sweep, threads, memory).unwrap();
                for number in 0..2 {
                    let (expected, found) = (epoch(&mut in_memory, number), epoch(&mut swept, number));
                    // More than one sweep: the first one has 16.
                    assert!(expected.len() == 63 && found == expected, "{sampler:?}, {disjoint}, {threads} threads");
                }
                let sweeps = swept.sweeps().unwrap();
                assert!(sweeps.disk_peak() > 10_000, "{}", sweeps.disk_peak());
            }
        }
    }
}

#[test]
fn swept_minibatches_of_links_leave_out_their_targets() {
    let folder = Graph::mixed(NODES).store(5);
    let store = Arc::new(Store::open(folder.store.path()).unwrap());
    for negatives in [Negatives::None, Negatives::Destinations(2), Negatives::Shared(5)] {
        let task = LinkTask {
            store: store.clone(),
            relation: LinkRelation::default(),
            negatives,
            candidates: Candidates::Uniform,
            destinations: None,
            without_negative: WithoutNegative::Marked,
            known: Some(KnownEdges::default()),
            excluded: ExcludedEdges::WithReverses,
            ends: EndTimes::default(),
        };
        let links = Some(Arc::new(task));
        let sampler = Sampler::uniform("5,3".parse().unwrap(), false);
        let batches = |view| {
            let minibatches =
                MinibatchOptions { batch: 400, links: links.clone(), ..MinibatchOptions::new(sampler.clone()) };
            let mut loader = loader(&folder, minibatches, view, 2, 256 << 20).unwrap();
            let all = Positives::of_part(PartEdges::all(&store, EdgePart::Graph), None, 1 << 24, &Silent).unwrap();
            let count = all.len();
            loader.set_positives(vec![Arc::new(all)], &[count]);
            epoch(&mut loader, 1)
        };
        let (expected, found) = (batches(ViewKind::Memory), batches(ViewKind::Sweep));
        assert!(expected.len() > 50 && found == expected, "{negatives:?}");
    }
}

#[test]
fn an_epoch_that_ends_early_leaves_nothing_on_disk_and_the_next_one_is_whole() {
    let store = weighted_store();
    let minibatches =
        || MinibatchOptions { batch: 8, ..MinibatchOptions::new(Sampler::uniform("4,4".parse().unwrap(), false)) };
    let mut swept = loader(&store, minibatches(), ViewKind::Sweep, 2, 256 << 20).unwrap();
    for taken in [0, 1, 40] {
        let batches = swept.batches(0, |batches| batches).unwrap();
        swept.deliver(&batches).take(taken).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(swept.sweeps().unwrap().disk_used(), 0, "after {taken} batches");
    }
    let mut in_memory = loader(&store, minibatches(), ViewKind::Memory, 1, 256 << 20).unwrap();
    assert!(epoch(&mut swept, 1) == epoch(&mut in_memory, 1));
}

#[test]
fn scratch_files_that_exceed_the_disk_space_are_an_error_with_a_remedy() {
    let store = weighted_store();
    let minibatches =
        MinibatchOptions { batch: 8, ..MinibatchOptions::new(Sampler::uniform("4,4".parse().unwrap(), false)) };
    let scratch = ScratchOptions { folder: None, bytes_max: Some(10_000) };
    let mut swept = loader_with(&store, minibatches, |options| options.scratch = scratch).unwrap();
    let error = swept.epoch(0).unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("--tmp"), "{error}");
}

#[test]
fn sweeps_refuse_partitions_and_random_walks() {
    let store = weighted_store();
    let walks = RandomWalks { hops: 2, walks: 3, steps: 2, termination: 0.0, neighbors: 2 };
    let minibatches = MinibatchOptions::new(Sampler::random_walks(walks).unwrap());
    let error = loader(&store, minibatches, ViewKind::Sweep, 1, 256 << 20).err().unwrap();
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
}

/// A source whose seeds cannot be listed.
struct Panicking;

impl SweepSource for Panicking {
    fn minibatches(&self) -> u64 {
        1
    }

    fn sampler(&self) -> &Sampler {
        panic!("no sampler")
    }

    fn view(&self) -> Result<OpenView> {
        panic!("no view")
    }

    fn seeds(&self, _: u64, _: &mut SeedParts) -> Result<()> {
        panic!("no seeds")
    }
}

#[test]
#[should_panic(expected = "the thread that sweeps has panicked")]
fn a_panic_of_the_thread_that_sweeps_reaches_those_who_wait() {
    let options = SweepOptions { folder: std::env::temp_dir(), disk_bytes: 1 << 20, memory_bytes: 1 << 20, threads: 1 };
    let sweeps = Arc::new(Sweeps::new(options));
    let _epoch = sweeps.begin(Arc::new(Panicking));
    let _ = sweeps.wait(0);
}
