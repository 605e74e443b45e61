//! Loading gives the same adjacency lists with any read engine and any order of completions, or an error.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use grappa_formats::edge_rows::ANCHOR_ROWS;
use grappa_io::{
    Error,
    progress::Progress,
    read::{
        self, Options,
        fault::{Faults, Reordered},
    },
    workers::THREADS_MAX,
};

use super::{super::stream::engine_options, *};

const CHOICES: [Choice; 2] = [Choice::Auto, Choice::Pread];

type Opened = Result<Box<dyn ReadEngine>>;

/// A store with chunks of different sizes, one of them empty, in many pieces.
fn store(graph: &Graph, weighted: bool) -> TestStore {
    let nodes = graph.nodes();
    graph.store_with(vec![0, nodes / 6, nodes / 6, nodes / 4, nodes - 100, nodes - 70, nodes], weighted)
}

/// Loads the adjacency lists of owned nodes with the engine that `open` returns.
fn load(
    store: &Store,
    owned: &Owned,
    edge_weights: bool,
    threads: usize,
    open: &(dyn Fn(Arc<[ReadFile]>) -> Opened + Sync),
) -> Result<Vec<ViewList>> {
    let filter = EdgeFilter { store, owned, sources: owned, halo: Halo::Stop, edge_data: edge_data(edge_weights) };
    let mut view = view(store, owned.clone(), Halo::Stop, edge_weights, ViewKind::Mapped)?;
    view.lists = Storage::Memory(Csr::load(&filter, true, threads, open, None, &Silent)?);
    Ok(all_lists(&view))
}

/// The error of loading, with edge weights if the store has them.
fn failure(store: &Store, owned: &Owned, threads: usize, open: &(dyn Fn(Arc<[ReadFile]>) -> Opened + Sync)) -> Error {
    let loaded = load(store, owned, store.manifest().weighted, threads, open);
    loaded.map(|lists| lists.len()).unwrap_err()
}

#[test]
fn any_engine_with_injected_faults_loads_the_same_lists() {
    for graph in [Graph::mixed(3000), Graph::local(6000)] {
        for weighted in [false, true] {
            let store = store(&graph, weighted);
            let owned = owning(&store.store, &[5, 2, 0, 4]);
            let expected = expected_lists(&graph, &owned, Halo::Stop, weighted);
            for seed in 0..3 {
                let faults = Faults { seed, short_one_in: 3, refuse_one_in: 4, ..Faults::default() };
                let order = |engine| -> Opened { Ok(Box::new(Reordered::new(engine, seed))) };
                for choice in CHOICES {
                    let open = |files| read::open(choice, files, faults.meet(engine_options())).and_then(order);
                    let found = load(&store.store, &owned, weighted, 3, &open).unwrap();
                    assert!(found == expected, "{choice:?}, seed {seed}");
                }
                let few = faults.meet(Options { depth: 1 + seed as usize, ..engine_options() });
                let open = |files| read::open(Choice::Pread, files, few.clone()).and_then(order);
                assert!(load(&store.store, &owned, weighted, 1, &open).unwrap() == expected);
            }
        }
    }
}

#[test]
fn a_disk_error_names_file_and_offset_and_ends_all_threads() {
    let store = store(&Graph::mixed(3000), true);
    let owned = owning(&store.store, &[0, 2, 3, 4, 5]);
    let mut folders = BTreeSet::new();
    for fail_from in [0, 1, 2, 5, 20, 60, 200, 500] {
        for (choice, threads) in CHOICES.into_iter().flat_map(|choice| [(choice, 1), (choice, 3)]) {
            let faults = Faults { fail_from: Some(fail_from), ..Faults::default() };
            let open = |files| read::open(choice, files, faults.meet(engine_options()));
            let error = failure(&store.store, &owned, threads, &open);
            let Error::Read { path, offset, source } = &error else { panic!("{error}") };
            assert_eq!(source.raw_os_error(), Some(5), "{error}");
            let length = fs::metadata(path).unwrap().len();
            assert!((128..length).contains(offset), "{error}");
            folders.insert(path.parent().unwrap().to_owned());
        }
    }
    assert!(folders.len() > 1, "some errors come late");
}

#[test]
fn a_file_that_changes_while_it_is_loaded_is_an_error() {
    for name in ["chunk-0/edges", "chunk-4/degrees", "chunk-3/weights"] {
        let store = store(&Graph::mixed(3000), true);
        let owned = owning(&store.store, &[0, 2, 3, 4, 5]);
        let path = store.store.path().join(name);
        let open = |files| {
            let engine = read::open(Choice::Pread, files, engine_options());
            // The bytes stay the same, so only the check of the modification time finds the change.
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            engine
        };
        let error = failure(&store.store, &owned, 2, &open).to_string();
        assert!(error.contains(name) && error.contains("written to"), "{error}");
    }
}

#[test]
fn damage_that_decoding_finds_ends_all_threads() {
    // The chunks before and after the damage have many pieces.
    for (file, place) in [("chunk-0/degrees", 10 + 6), ("chunk-3/degrees", 64 * 20 + 10 + 6)] {
        for change in [|_| 0, |degree: u8| degree.wrapping_add(5)] {
            let store = store(&Graph::mixed(3000), false).forged(file, |payload| {
                let degree = &mut payload[place];
                *degree = change(*degree);
            });
            let owned = owning(&store.store, &[0, 2, 3, 4, 5]);
            for threads in [1, 3] {
                let error = failure(&store.store, &owned, threads, &any_engine);
                assert!(error.to_string().contains("/edges"), "{error}");
            }
        }
    }
}

#[test]
fn loading_ends_if_no_decoder_can_be_started() {
    // One piece for each thread, so that the limit of threads is exceeded. The ring is full long before the last piece.
    let threads = THREADS_MAX + 4;
    let nodes = threads as u64 * ANCHOR_ROWS;
    let graph = Graph::new(nodes, |node| (node..node + 4).map(|source| source % nodes).collect());
    let store = graph.store(1);
    let error = failure(&store.store, &Owned::whole(&store.store), threads, &any_engine);
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

#[test]
fn edge_weights_that_contradict_adjacency_lists_are_an_error() {
    let store = store(&Graph::mixed(3000), true);
    let edges = store.store.manifest().chunks[3].edges as usize;
    let store = store.forged("chunk-3/weights", |payload| {
        // The anchor of node 640 of the chunk.
        payload[(4 * edges).next_multiple_of(8) + 80] ^= 1;
    });
    let owned = owning(&store.store, &[0, 2, 3, 4, 5]);
    for threads in [1, 3] {
        let error = failure(&store.store, &owned, threads, &any_engine).to_string();
        assert!(error.contains("chunk-3/weights: "), "{error}");
    }
}

/// Asks to stop after a number of polls. The second field counts the polls.
struct StopsAt(u64, AtomicU64);

impl Progress for StopsAt {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {}

    fn is_stopped(&self) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed) >= self.0
    }
}

#[test]
fn loading_stops_before_any_piece() {
    let graph = Graph::mixed(3000);
    let store = store(&graph, false);
    let owned = || vec![owning(&store.store, &[0, 2]), owning(&store.store, &[4, 5])];
    let open = |stop_at, threads| {
        let options = ViewOptions { threads, ..ViewOptions::default() };
        let progress = StopsAt(stop_at, AtomicU64::new(0));
        let views = PartitionView::open_all(&store.store, owned(), &options, &Arc::default(), None, &progress);
        (views.map(|views| views.len()), progress.1.into_inner())
    };
    let (views, asked) = open(u64::MAX, 2);
    assert_eq!(views.unwrap(), 2);
    assert!(asked >= 4, "{asked}");
    for threads in [1, 3] {
        for stop_at in 0..asked {
            let (views, _) = open(stop_at, threads);
            assert!(matches!(views, Err(Error::Stopped)), "{stop_at} of {asked}: {views:?}");
        }
        assert_eq!(open(asked, threads).0.unwrap(), 2);
    }
}
