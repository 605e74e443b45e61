//! Ids that are not dense against a twin that is: the store of any ids is that of their ranks, and a dictionary beside
//! it, whatever the budget, the number of threads or the place where a run was killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_engine::{
    ingest::{Assign, IngestOptions, SplitFile, ingest, source},
    progress::{Progress, Silent},
};
use grappa_formats::{
    container::{self, FileKind},
    dictionary::{IntegerDictionary, StringDictionary},
    manifest::{EdgeOptions, ExternalIds, Manifest, OrderSpec, SelfLoops},
    order::Feistel,
};
use proptest::prelude::*;

fn options(folder: &Path, ids: ExternalIds) -> IngestOptions {
    IngestOptions {
        edges: vec![folder.join("edges.tsv")],
        out: folder.join("out.grappa"),
        format: source::EdgeFormat::Tsv,
        ids,
        nodes: None,
        edge_options: EdgeOptions {
            undirected: false,
            dedup: false,
            self_loops: SelfLoops::Keep,
        },
        weights: None,
        features: None,
        feature_dtype: None,
        allow_nan: false,
        labels: None,
        splits: Vec::new(),
        chunks: None,
        assign: Assign::Random,
        seed: 7,
        memory: 64 << 20,
        threads: 2,
        on_bad_line: source::OnBadLine::Fail,
        resume: false,
        tmp: None,
        writer: "test 0".into(),
    }
}

/// Every file of a store with its bytes.
fn files_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The files that hold edges, without ids.
fn chunks_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = files_of(folder);
    files.retain(|path, _| path.starts_with("chunk-0") || path.to_str().unwrap().starts_with("chunk-"));
    assert!(!files.is_empty());
    files
}

/// Writes edges as they are, and their ranks into a folder of its own; returns the ids by rank.
fn write_edges<T: Ord + Clone + ToString>(folder: &Path, edges: &[(T, T)], weighted: bool) -> Vec<T> {
    let ids: BTreeSet<T> = edges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let ids: Vec<T> = ids.into_iter().collect();
    let rank = |id: &T| ids.binary_search(id).unwrap().to_string();
    let text = |name: &dyn Fn(&T) -> String| {
        let line = |(k, (a, b)): (usize, &(T, T))| match weighted {
            true => format!("{}\t{}\t{}\n", name(a), name(b), k % 17),
            false => format!("{}\t{}\n", name(a), name(b)),
        };
        edges.iter().enumerate().map(line).collect::<String>()
    };
    fs::write(folder.join("edges.tsv"), text(&|id| id.to_string())).unwrap();
    fs::create_dir_all(folder.join("ranks")).unwrap();
    fs::write(folder.join("ranks/edges.tsv"), text(&rank)).unwrap();
    ids
}

/// Ingests the ranks of the edges that [`write_edges`] wrote.
fn dense_twin(folder: &Path, options: &IngestOptions) -> BTreeMap<PathBuf, Vec<u8>> {
    let twin = IngestOptions {
        edges: vec![folder.join("ranks/edges.tsv")],
        out: folder.join("ranks/out.grappa"),
        ids: ExternalIds::Dense,
        ..options.clone()
    };
    ingest(&twin, &Silent).unwrap();
    chunks_of(&twin.out)
}

fn integers_of(store: &Path) -> Vec<u64> {
    let file = fs::read(store.join("ids/dictionary")).unwrap();
    let (header, payload) = container::decode_file(&file, FileKind::DICTIONARY).unwrap();
    let dictionary = IntegerDictionary::new(&header, payload).unwrap();
    dictionary.check().unwrap();
    dictionary.iter(0..dictionary.len()).collect()
}

fn strings_of(store: &Path) -> Vec<String> {
    let file = fs::read(store.join("ids/dictionary")).unwrap();
    let (header, payload) = container::decode_file(&file, FileKind::DICTIONARY).unwrap();
    let dictionary = StringDictionary::new(&header, payload).unwrap();
    dictionary.check().unwrap();
    let mut keys = dictionary.iter_from(0).unwrap();
    let mut strings = Vec::new();
    while let Some(key) = keys.next_key().unwrap() {
        strings.push(String::from_utf8(key.to_vec()).unwrap());
    }
    strings
}

/// Many edges among `nodes` scattered integers; a few nodes have most of them.
fn scattered(nodes: u64, edges: u64) -> Vec<(u64, u64)> {
    let id = |n: u64| (n % nodes + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % nodes % 40);
    (0..edges)
        .map(|k| (id(k * k % 1_000_003), id(if k % 3 == 0 { k % 7 } else { k })))
        .collect()
}

/// Stops a run after some reports of progress.
struct Interrupt {
    left: AtomicU64,
}

impl Interrupt {
    fn step(&self) {
        // It panics in every thread that comes here afterwards, as all threads of a killed process stop.
        if self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_err()
        {
            std::panic::resume_unwind(Box::new("interrupted"));
        }
    }
}

impl Progress for Interrupt {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {
        self.step();
    }
    fn advance(&self, _bytes: u64, _edges: u64) {
        self.step();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn integers_are_mapped_to_their_ranks(
        edges in prop::collection::vec(
            (prop_oneof![0..40u64, any::<u64>()], prop_oneof![0..40u64, any::<u64>()]), 1..300),
        weighted: bool,
        undirected: bool,
        range: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let edges: Vec<_> = edges.into_iter().map(|(a, b)| (a.min(u64::MAX - 1), b.min(u64::MAX - 1))).collect();
        let ids = write_edges(folder.path(), &edges, weighted);
        let mut options = options(folder.path(), ExternalIds::Sparse);
        options.edge_options.undirected = undirected;
        if range {
            options.assign = Assign::Range;
        }
        let summary = ingest(&options, &Silent).unwrap();
        prop_assert_eq!(summary.nodes, ids.len() as u64);
        prop_assert_eq!(integers_of(&options.out), ids);
        prop_assert!(chunks_of(&options.out) == dense_twin(folder.path(), &options));
    }

    #[test]
    fn strings_are_mapped_to_their_ranks(
        edges in prop::collection::vec(("[a-c\u{e9}\u{1f600}]{1,4}|http://a/[x-z]{1,9}", "\\w{1,12}"), 1..300),
        weighted: bool,
        long: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut edges = edges;
        if long {
            edges.push(("\u{e9}".repeat(32_000), "w".repeat(65_535)));
        }
        let ids = write_edges(folder.path(), &edges, weighted);
        let options = options(folder.path(), ExternalIds::String);
        ingest(&options, &Silent).unwrap();
        prop_assert_eq!(strings_of(&options.out), ids);
        prop_assert!(chunks_of(&options.out) == dense_twin(folder.path(), &options));
    }
}

#[test]
fn ids_that_do_not_fit_the_budget_are_mapped_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let integers = scattered(90_000, 200_000);
    let strings: Vec<_> = integers
        .iter()
        .map(|(a, b)| (format!("node {a}"), format!("node {b}")))
        .collect();
    for weighted in [false, true] {
        let ids = write_edges(folder.path(), &integers, weighted);
        let mut options = options(folder.path(), ExternalIds::Sparse);
        let expected = dense_twin(folder.path(), &options);
        fs::remove_dir_all(folder.path().join("ranks/out.grappa")).unwrap();
        let mut stores = Vec::new();
        // In 1 MiB there is room for 29,000 ids, and for 32,000 while they are collected.
        for (memory, threads) in [(1 << 20, 1), (2 << 20, 2), (64 << 20, 3)] {
            options.out = folder.path().join(format!("{weighted}-{memory}-{threads}.grappa"));
            (options.memory, options.threads, options.chunks) = (memory, threads, Some(8));
            ingest(&options, &Silent).unwrap();
            stores.push(files_of(&options.out));
        }
        assert!(stores[0] == stores[1] && stores[0] == stores[2], "the budget shows");
        assert_eq!(integers_of(&options.out), ids);
        let twin = IngestOptions {
            chunks: Some(8),
            ..options.clone()
        };
        assert!(chunks_of(&options.out) == dense_twin(folder.path(), &twin));
        fs::remove_dir_all(folder.path().join("ranks/out.grappa")).unwrap();
        assert!(!expected.is_empty());

        let tabs: Vec<_> = strings
            .iter()
            .map(|(a, b)| (a.replace(' ', "_"), b.replace(' ', "_")))
            .collect();
        let ids = write_edges(folder.path(), &tabs, weighted);
        let mut stores = Vec::new();
        for (memory, threads) in [(1 << 20, 1), (64 << 20, 2)] {
            options.ids = ExternalIds::String;
            options.out = folder.path().join(format!("s-{weighted}-{memory}-{threads}.grappa"));
            (options.memory, options.threads) = (memory, threads);
            ingest(&options, &Silent).unwrap();
            stores.push(files_of(&options.out));
        }
        assert!(stores[0] == stores[1], "the budget shows");
        assert_eq!(strings_of(&options.out), ids);
        let twin = IngestOptions {
            chunks: Some(8),
            ..options.clone()
        };
        assert!(chunks_of(&options.out) == dense_twin(folder.path(), &twin));
        fs::remove_dir_all(folder.path().join("ranks/out.grappa")).unwrap();
    }
}

#[test]
fn a_run_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let edges = scattered(90_000, 130_000);
    write_edges(folder.path(), &edges, true);
    for ids in [ExternalIds::Sparse, ExternalIds::String] {
        let mut options = options(folder.path(), ids);
        (options.memory, options.threads, options.chunks) = (2 << 20, 2, Some(4));
        options.out = folder.path().join(format!("{ids:?}.grappa"));
        ingest(&options, &Silent).unwrap();
        let expected = files_of(&options.out);
        for steps in (1..60).step_by(4) {
            options.out = folder.path().join(format!("{ids:?}-{steps}.grappa"));
            options.resume = false;
            let interrupt = Interrupt {
                left: AtomicU64::new(steps),
            };
            let run = std::panic::AssertUnwindSafe(|| ingest(&options, &interrupt));
            if std::panic::catch_unwind(run).is_err() {
                options.resume = true;
                ingest(&options, &Silent).unwrap();
            }
            assert!(files_of(&options.out) == expected, "interrupted after {steps} steps");
            fs::remove_dir_all(&options.out).unwrap();
        }
    }
}

#[test]
fn splits_name_nodes_by_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    for (ids, memory) in [
        (ExternalIds::Sparse, 64 << 20),
        (ExternalIds::Sparse, 2 << 20),
        (ExternalIds::String, 64 << 20),
        (ExternalIds::String, 2 << 20),
    ] {
        // As text, so that the ranks of integers and strings differ.
        let edges = scattered(90_000, 100_000);
        let names: Vec<String> = match ids {
            ExternalIds::String => {
                let edges: Vec<_> = edges.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
                write_edges(folder.path(), &edges, false)
            }
            _ => write_edges(folder.path(), &edges, false)
                .iter()
                .map(u64::to_string)
                .collect(),
        };
        let mut options = options(folder.path(), ids);
        (options.memory, options.chunks) = (memory, Some(4));
        options.out = folder.path().join(format!("{ids:?}-{memory}.grappa"));
        let train: BTreeSet<u64> = (0..names.len() as u64).step_by(7).collect();
        let path = folder.path().join("train.txt");
        let text: String = train
            .iter()
            .map(|&rank| format!("{}\n", names[rank as usize]))
            .collect();
        fs::write(&path, &text).unwrap();
        options.splits = vec![SplitFile {
            name: "train",
            path: path.clone(),
        }];
        ingest(&options, &Silent).unwrap();
        let manifest = Manifest::decode(&fs::read(options.out.join("manifest")).unwrap()).unwrap();
        assert_eq!(manifest.ids.order, OrderSpec::Feistel(7));
        let file = fs::read(options.out.join("splits/train.roaring")).unwrap();
        let set = grappa_formats::splits::decode(&file, "train", manifest.nodes).unwrap();
        let order = Feistel::new(manifest.nodes, 7);
        assert_eq!(
            set.iter().map(|node| order.inverse(node)).collect::<BTreeSet<_>>(),
            train
        );

        fs::write(&path, text + "999999999999\n").unwrap();
        options.out = folder.path().join("unknown.grappa");
        let error = ingest(&options, &Silent).unwrap_err().to_string();
        assert!(error.contains("train.txt") && error.contains("999999999999"), "{error}");
    }
}

#[test]
fn a_number_of_nodes_must_be_that_of_the_ids() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), &[(5u64, 70), (70, 900)], false);
    let mut options = options(folder.path(), ExternalIds::Sparse);
    options.nodes = Some(4);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("--nodes 4") && error.contains("3 different ids"),
        "{error}"
    );
    options.nodes = Some(3);
    assert_eq!(ingest(&options, &Silent).unwrap().nodes, 3);
}

#[test]
fn an_id_longer_than_a_dictionary_takes_is_a_bad_line() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(65_536);
    fs::write(folder.path().join("edges.tsv"), format!("a\tb\n{long}\tb\n")).unwrap();
    let mut options = options(folder.path(), ExternalIds::String);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("edges.tsv:2") && error.contains("65535"), "{error}");
    options.on_bad_line = source::OnBadLine::Skip;
    let summary = ingest(&options, &Silent).unwrap();
    assert_eq!((summary.nodes, summary.edges, summary.rejected), (2, 1, 1));
}
