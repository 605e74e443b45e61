//! Stores with sparse and string ids, compared with stores of the same graph with dense ids: apart from the dictionary, the
//! files are equal, for any memory budget, any number of threads and any place where a run was killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use grappa_engine::verify::verify;
use grappa_formats::{
    ChunkId, DenseId, NodeId,
    container::{self, FileKind},
    dictionary::{IntegerDictionary, StringDictionary},
    manifest::{ChunkEntry, ExternalIds, Manifest, PermutationSpec},
    permutation::Feistel,
    random::GOLDEN,
};
use grappa_ingestion::ingest::{
    Assign, EdgeIngest, IngestOptions, NodeIngest, Partitioner, SplitFile, StoreLayout, ingest,
};
use grappa_input::{EdgeFormat, OnBadLine};
use grappa_io::progress::Silent;
use grappa_storage::{ExternalId, Store};
use proptest::prelude::*;

use crate::common::{self, files_of, resumes_to_the_same_store};

fn options(folder: &Path, ids: ExternalIds) -> IngestOptions {
    let mut options = common::options(folder, &folder.join("edges.tsv"));
    options.nodes.ids = ids;
    options.edges.form.format = EdgeFormat::Tsv;
    options
}

/// The files of chunks, which have no external ids.
fn chunks_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files_of(folder);
    files.retain(|name, _| name.starts_with("chunk-"));
    assert!(!files.is_empty());
    files
}

/// Writes edges as they are, and their dense ids into another folder. Returns the external ids by dense id.
fn write_edges<T: Ord + Clone + ToString>(folder: &Path, edges: &[(T, T)], weighted: bool) -> Vec<T> {
    let ids: BTreeSet<T> = edges.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let ids: Vec<T> = ids.into_iter().collect();
    let dense = |id: &T| ids.binary_search(id).unwrap().to_string();
    let text = |name: &dyn Fn(&T) -> String| {
        let line = |(k, (a, b)): (usize, &(T, T))| match weighted {
            // Integers could be ids, as in triples.
            true => format!("{}\t{}\t{}.5\n", name(a), name(b), k % 17),
            false => format!("{}\t{}\n", name(a), name(b)),
        };
        edges.iter().enumerate().map(line).collect::<String>()
    };
    fs::write(folder.join("edges.tsv"), text(&|id| id.to_string())).unwrap();
    fs::create_dir_all(folder.join("dense")).unwrap();
    fs::write(folder.join("dense/edges.tsv"), text(&dense)).unwrap();
    ids
}

/// Ingests the dense ids of the edges that [`write_edges`] wrote.
fn dense_twin(folder: &Path, options: &IngestOptions) -> BTreeMap<String, Vec<u8>> {
    let twin = IngestOptions {
        out: folder.join("dense/out.grappa"),
        nodes: NodeIngest { ids: ExternalIds::Dense, ..options.nodes.clone() },
        edges: EdgeIngest { files: vec![folder.join("dense/edges.tsv").into()], ..options.edges.clone() },
        ..options.clone()
    };
    ingest(&twin, &Silent).unwrap();
    chunks_of(&twin.out)
}

fn integers_of(store: &Path) -> Vec<u64> {
    let file = fs::read(store.join("ids/dictionary")).unwrap();
    let (header, payload) = container::decode_file(&file, FileKind::DICTIONARY).unwrap();
    let dictionary = IntegerDictionary::new(&header, payload).unwrap();
    dictionary.check(0..dictionary.keys()).unwrap();
    dictionary.iter(0..dictionary.keys()).collect()
}

fn strings_of(store: &Path) -> Vec<String> {
    let file = fs::read(store.join("ids/dictionary")).unwrap();
    let (header, payload) = container::decode_file(&file, FileKind::DICTIONARY).unwrap();
    let dictionary = StringDictionary::new(&header, payload).unwrap();
    dictionary.check(0..dictionary.blocks()).unwrap();
    let string = |id| {
        let mut key = Vec::new();
        dictionary.get(DenseId(id), &mut key, |_| Ok(())).unwrap();
        String::from_utf8(key).unwrap()
    };
    (0..dictionary.keys).map(string).collect()
}

/// Many edges between `nodes` scattered integers. A few nodes have most of them.
fn scattered(nodes: u64, edges: u64) -> Vec<(u64, u64)> {
    let id = |n: u64| (n % nodes + 1).wrapping_mul(GOLDEN) >> (n % nodes % 40);
    (0..edges).map(|k| (id(k * k % 1_000_003), id(if k % 3 == 0 { k % 7 } else { k }))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn integers_are_mapped_to_their_dense_ids(
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
        options.edges.options.undirected = undirected;
        if range {
            options.nodes.layout.assign = Assign::Range;
        }
        let summary = ingest(&options, &Silent).unwrap();
        prop_assert_eq!(summary.nodes, ids.len() as u64);
        prop_assert_eq!(integers_of(&options.out), ids);
        prop_assert!(chunks_of(&options.out) == dense_twin(folder.path(), &options));
    }

    #[test]
    fn strings_are_mapped_to_their_dense_ids(
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
    let strings: Vec<_> = integers.iter().map(|(a, b)| (format!("node {a}"), format!("node {b}"))).collect();
    for weighted in [false, true] {
        let ids = write_edges(folder.path(), &integers, weighted);
        let mut options = options(folder.path(), ExternalIds::Sparse);
        let expected = dense_twin(folder.path(), &options);
        fs::remove_dir_all(folder.path().join("dense/out.grappa")).unwrap();
        let mut stores = Vec::new();
        // In 1 MiB there is room for 29,000 ids, and for 32,000 while they are collected.
        for (memory, threads) in [(1 << 20, 1), (2 << 20, 2), (64 << 20, 3)] {
            options.out = folder.path().join(format!("{weighted}-{memory}-{threads}.grappa"));
            (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) =
                (memory, threads, Some(8));
            ingest(&options, &Silent).unwrap();
            stores.push(files_of(&options.out));
        }
        assert!(stores[0] == stores[1] && stores[0] == stores[2], "the budget shows");
        assert_eq!(integers_of(&options.out), ids);
        let twin = IngestOptions {
            nodes: NodeIngest {
                layout: StoreLayout { chunks: Some(8), ..options.nodes.layout.clone() },
                ..options.nodes.clone()
            },
            ..options.clone()
        };
        assert!(chunks_of(&options.out) == dense_twin(folder.path(), &twin));
        fs::remove_dir_all(folder.path().join("dense/out.grappa")).unwrap();
        assert!(!expected.is_empty());

        let tabs: Vec<_> = strings.iter().map(|(a, b)| (a.replace(' ', "_"), b.replace(' ', "_"))).collect();
        let ids = write_edges(folder.path(), &tabs, weighted);
        let mut stores = Vec::new();
        for (memory, threads) in [(1 << 20, 1), (64 << 20, 2)] {
            options.nodes.ids = ExternalIds::String;
            options.out = folder.path().join(format!("s-{weighted}-{memory}-{threads}.grappa"));
            (options.resources.memory, options.resources.threads) = (memory, threads);
            ingest(&options, &Silent).unwrap();
            stores.push(files_of(&options.out));
        }
        assert!(stores[0] == stores[1], "the budget shows");
        assert_eq!(strings_of(&options.out), ids);
        let twin = IngestOptions {
            nodes: NodeIngest {
                layout: StoreLayout { chunks: Some(8), ..options.nodes.layout.clone() },
                ..options.nodes.clone()
            },
            ..options.clone()
        };
        assert!(chunks_of(&options.out) == dense_twin(folder.path(), &twin));
        fs::remove_dir_all(folder.path().join("dense/out.grappa")).unwrap();
    }
}

#[test]
fn a_run_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let edges = scattered(90_000, 130_000);
    write_edges(folder.path(), &edges, true);
    for ids in [ExternalIds::Sparse, ExternalIds::String] {
        let mut options = options(folder.path(), ids);
        (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (2 << 20, 2, Some(4));
        resumes_to_the_same_store(&options, (1..60).step_by(4));
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
        // As text, so that the dense ids of integers and strings differ.
        let edges = scattered(90_000, 100_000);
        let names: Vec<String> = match ids {
            ExternalIds::String => {
                let edges: Vec<_> = edges.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
                write_edges(folder.path(), &edges, false)
            }
            _ => write_edges(folder.path(), &edges, false).iter().map(u64::to_string).collect(),
        };
        let mut options = options(folder.path(), ids);
        (options.resources.memory, options.nodes.layout.chunks) = (memory, Some(4));
        options.out = folder.path().join(format!("{ids:?}-{memory}.grappa"));
        let train: BTreeSet<u64> = (0..names.len() as u64).step_by(7).collect();
        let path = folder.path().join("train.txt");
        let text: String = train.iter().map(|&id| format!("{}\n", names[id as usize])).collect();
        fs::write(&path, &text).unwrap();
        // A list as long as this is joined with the ids if they exceed the memory. Those of a short one are searched.
        let (few, short) = ([1, 50_000, 3], folder.path().join("val.txt"));
        fs::write(&short, few.map(|id| names[id].clone()).join("\n")).unwrap();
        let split = |name, path: &Path| SplitFile::new(name, path.to_owned());
        options.nodes.splits.files = vec![split("train", &path), split("val", &short)];
        ingest(&options, &Silent).unwrap();
        let manifest = Manifest::decode(&fs::read(options.out.join("manifest")).unwrap()).unwrap();
        assert_eq!(manifest.ids.permutation, PermutationSpec::Feistel(7));
        let permutation = Feistel::new(manifest.nodes, 7);
        let ids_of = |split: &str| -> BTreeSet<u64> {
            let file = fs::read(options.out.join(format!("splits/{split}.roaring"))).unwrap();
            let set = grappa_formats::splits::decode(&file, split, manifest.nodes).unwrap();
            set.iter().map(|node| permutation.inverse(node)).collect()
        };
        assert_eq!(ids_of("train"), train);
        assert_eq!(ids_of("val"), few.map(|id| id as u64).into());

        fs::write(&path, text + "999999999999\n").unwrap();
        options.out = folder.path().join("unknown.grappa");
        let error = ingest(&options, &Silent).unwrap_err().to_string();
        assert!(error.contains("train.txt") && error.contains("999999999999"), "{error}");
    }
}

/// The edges of a store, in external ids.
fn edges_of(store: &Store) -> Vec<(String, String)> {
    let mut edges = Vec::new();
    for chunk in store.present_chunks() {
        let range = store.chunks().range(chunk);
        let chunk = store.chunk(chunk).unwrap();
        for (row, node) in range.enumerate() {
            let target = store.external_id(NodeId(node)).unwrap().to_string();
            let mut sources = Vec::new();
            chunk.rows().row(row as u64).unwrap().decode_into(&mut sources);
            for source in sources {
                edges.push((store.external_id(NodeId(source)).unwrap().to_string(), target.clone()));
            }
        }
    }
    edges.sort();
    edges
}

fn parts_file(folder: &Path, parts: &[u64], npy: bool) -> PathBuf {
    if npy {
        let path = folder.join("parts.npy");
        let mut file = grappa_io::npy::header("<i4", &[parts.len() as u64]).to_vec();
        file.extend(parts.iter().flat_map(|&part| (part as i32).to_le_bytes()));
        fs::write(&path, file).unwrap();
        return path;
    }
    let path = folder.join("parts.txt");
    fs::write(&path, parts.iter().map(|part| format!("{part}\n")).collect::<String>()).unwrap();
    path
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nodes_lie_in_the_order_of_their_parts(
        edges in prop::collection::vec((0..80u64, 0..80u64), 1..300),
        seed in any::<u64>(),
        parts in 1..9u64,
        chunks in 1..30u32,
        kind in 0..3u8,
        npy: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let ids = [ExternalIds::Dense, ExternalIds::Sparse, ExternalIds::String][usize::from(kind)];
        // External ids that are dense must all be there.
        let edges: Vec<_> = edges.into_iter().chain((0..80).map(|id| (id, id))).collect();
        let name = |id: u64| if ids == ExternalIds::String { format!("v{id}") } else { id.to_string() };
        let mut named: Vec<_> = edges.iter().map(|&(a, b)| (name(a), name(b))).collect();
        write_edges(folder.path(), &named, false);
        // Parts 3 and 4 are empty.
        let part_of = |id: u64| match (id ^ seed).wrapping_mul(GOLDEN) % parts {
            part if part > 2 => part + 2,
            part => part,
        };
        let part_of: Vec<u64> = (0..80).map(part_of).collect();
        let filled = part_of.iter().collect::<BTreeSet<_>>().len() as u64;
        let mut options = options(folder.path(), ids);
        options.nodes.layout.assign = Assign::File(parts_file(folder.path(), &part_of, npy));
        options.nodes.layout.chunks = (u64::from(chunks) >= filled).then_some(chunks);
        ingest(&options, &Silent).unwrap();

        let report = verify(&options.out, 1, &Silent).unwrap();
        prop_assert!(report.is_ok(), "{report:?}");
        let store = Store::open(&options.out).unwrap();
        prop_assert_eq!(store.manifest().ids.permutation, PermutationSpec::Table);
        let nodes = (0..80).map(|node| {
            let id = store.ids().dense_id(NodeId(node)).unwrap().0;
            (part_of[id as usize], id)
        });
        let nodes: Vec<_> = nodes.collect();
        prop_assert!(nodes.is_sorted(), "{nodes:?}");
        for chunk in 0..store.chunks().chunks() {
            let range = store.chunks().range(ChunkId(chunk));
            let parts: BTreeSet<_> = range.map(|node| nodes[node as usize].0).collect();
            prop_assert_eq!(parts.len(), 1, "chunk {}", chunk);
        }
        prop_assert!(u64::from(store.chunks().chunks()) >= options.nodes.layout.chunks.map_or(filled, |c| u64::from(c).min(filled)));
        named.sort();
        prop_assert_eq!(edges_of(&store), named);
        let id = match ids {
            ExternalIds::String => ExternalId::String(b"v17".to_vec()),
            _ => ExternalId::Integer(17),
        };
        let node = store.node(&id).unwrap().unwrap();
        prop_assert_eq!(store.external_id(node).unwrap(), id);
    }
}

#[test]
fn a_run_with_parts_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let edges = scattered(20_000, 100_000);
    let ids = write_edges(folder.path(), &edges, false);
    let parts: Vec<u64> = (0..ids.len() as u64).map(|id| id * id % 7).collect();
    let mut options = options(folder.path(), ExternalIds::Sparse);
    options.nodes.layout.assign = Assign::File(parts_file(folder.path(), &parts, false));
    (options.resources.memory, options.nodes.layout.chunks) = (4 << 20, Some(7));
    resumes_to_the_same_store(&options, 1..40);
    options.nodes.layout.assign = streamed(Partitioner::Ldg, 7);
    resumes_to_the_same_store(&options, (1..200).step_by(5));
}

fn streamed(partitioner: Partitioner, parts: u32) -> Assign {
    Assign::Streamed { partitioner, parts }
}

/// The share of the edges of a store whose ends are in different chunks.
fn cut_of(store: &Store) -> f64 {
    let buckets = |chunk: &ChunkEntry| chunk.bucket_edges.clone();
    let buckets: Vec<_> = store.manifest().chunks.iter().map(buckets).collect();
    let inside: u64 = (0..buckets.len()).map(|chunk| buckets[chunk][chunk]).sum();
    1.0 - inside as f64 / store.manifest().edges as f64
}

#[test]
fn streamed_parts_keep_communities_together_whatever_the_ids_and_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    // 8 communities of 400 nodes, with 10 edges of a node inside and one anywhere. Communities are no ranges of ids.
    let mut random = (0..).map(|k: u64| k.wrapping_mul(GOLDEN) >> 20);
    let mut next = |below: u64| random.next().unwrap() % below;
    let mut edges = Vec::new();
    for node in 0..3200_u64 {
        edges.extend((0..10).map(|_| (node, next(400) * 8 + node % 8)));
        edges.push((node, next(3200)));
    }
    for partitioner in Partitioner::ALL {
        let mut chunks = None;
        for (ids, memory, threads) in
            [(ExternalIds::Dense, 64 << 20, 2), (ExternalIds::Sparse, 64 << 20, 1), (ExternalIds::String, 4 << 20, 2)]
        {
            // Strings of equal length have the order of the integers, so dense ids are the same.
            let named: Vec<_> = edges.iter().map(|(a, b)| (format!("{a:04}"), format!("{b:04}"))).collect();
            write_edges(folder.path(), &named, false);
            let mut options = options(folder.path(), ids);
            options.nodes.layout.assign = streamed(partitioner, 8);
            (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) =
                (memory, threads, Some(8));
            ingest(&options, &Silent).unwrap();
            let report = verify(&options.out, 1, &Silent).unwrap();
            assert!(report.is_ok(), "{report:?}");
            let store = Store::open(&options.out).unwrap();
            let cut = cut_of(&store);
            assert!(cut < 0.2, "{partitioner:?} cuts {cut}");
            let largest = (0..8).map(|chunk| store.chunks().len(ChunkId(chunk))).max().unwrap();
            assert!(largest <= 420, "{partitioner:?}: a part has {largest} of 3200 nodes");
            let files = chunks_of(&options.out);
            assert!(chunks.get_or_insert_with(|| files.clone()) == &files, "{ids:?}");
            fs::remove_dir_all(&options.out).unwrap();
        }
    }
}

#[test]
fn parts_that_are_wrong_or_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("edges.tsv"), "0 1\n1 2\n2 0\n").unwrap();
    let mut options = options(folder.path(), ExternalIds::Dense);
    let path = folder.path().join("parts.txt");
    options.nodes.layout.assign = Assign::File(path.clone());
    for (text, told) in grappa_skip::cases![
        "0\n1\n", "parts.txt: expected the part of each of 3 nodes, found 2 parts";
        "0\n1\n0\n1\n", "--nodes";
        "0\n-1\n0\n", "parts.txt:2: ";
        "0\n1\n0.5\n", "parts.txt:3: ";
        "0\n\n1\n", "parts.txt:2: ";
        "0\n1 1\n1\n", "parts.txt:2: ";
        "1048576\n1\n1\n", "parts.txt:1: ";
        "\u{e9}\n1\n1\n", "parts.txt:1: ";
    ] {
        fs::write(&path, text).unwrap();
        let error = ingest(&options, &Silent).unwrap_err().to_string();
        assert!(error.contains(told), "{text:?}: {error}");
        assert!(!folder.path().join("out.grappa.partial").exists());
    }
    fs::write(&path, "0\n5\n2\n").unwrap();
    options.nodes.layout.chunks = Some(2);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("3 parts") && error.contains("--chunks 3"), "{error}");
    options.nodes.layout.chunks = None;
    options.nodes.number = Some(1 << 20);
    options.resources.memory = 8 << 20;
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("at least 10 MiB is needed"), "{error}");
    (options.nodes.number, options.resources.memory) = (None, 64 << 20);
    let array = grappa_io::npy::header("<f4", &[3]).to_vec();
    fs::write(folder.path().join("parts.npy"), [array, vec![0; 12]].concat()).unwrap();
    options.nodes.layout.assign = Assign::File(folder.path().join("parts.npy"));
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("float32"), "{error}");
    options.nodes.layout.assign = Assign::File(path);
    ingest(&options, &Silent).unwrap();
}

#[test]
fn lines_are_skipped_once_whether_ids_fit_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let edges = scattered(90_000, 100_000);
    write_edges(folder.path(), &edges, false);
    let path = folder.path().join("edges.tsv");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("x\ty\n{text}-1\t2\n")).unwrap();
    for (memory, threads) in [(1 << 20, 1), (64 << 20, 2)] {
        let mut options = options(folder.path(), ExternalIds::Sparse);
        (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (memory, threads, Some(4));
        options.edges.form.on_bad_line = OnBadLine::Skip;
        options.out = folder.path().join(format!("{memory}.grappa"));
        let summary = ingest(&options, &Silent).unwrap();
        assert_eq!((summary.rejected, summary.edges_read, summary.edges), (2, 100_000, 100_000));
        let rejects = fs::read_to_string(summary.rejects.unwrap()).unwrap();
        assert_eq!(rejects.lines().count(), 3, "{rejects}");
        assert!(verify(&options.out, 2, &Silent).unwrap().is_ok());
    }
}

#[test]
fn a_number_of_nodes_must_be_that_of_the_ids() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), &[(5u64, 70), (70, 900)], false);
    let mut options = options(folder.path(), ExternalIds::Sparse);
    options.nodes.number = Some(4);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("--nodes 4") && error.contains("3 different ids"), "{error}");
    options.nodes.number = Some(3);
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
    options.edges.form.on_bad_line = OnBadLine::Skip;
    let summary = ingest(&options, &Silent).unwrap();
    assert_eq!((summary.nodes, summary.edges, summary.rejected), (2, 1, 1));
}
