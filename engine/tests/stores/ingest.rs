//! Ingest, compared with a simple implementation in memory: for any memory budget, any number of threads and any place where
//! a run was killed, the store has the edges of the input, and is the same byte for byte.

use std::{collections::BTreeMap, fs, path::Path};

use grappa_formats::{
    container::{self, FileKind, Header},
    edge_rows::EdgeRows,
    features::FeaturesMeta,
    labels::Labels,
    manifest::{EdgeOptions, FeatureDtype, Manifest, PermutationSpec, SelfLoops},
    permutation::Feistel,
    random::GOLDEN,
    rows::{RowSizes, Rows, RowsMeta},
};
use grappa_ingestion::ingest::{Assign, IngestOptions, SplitFile, ingest};
use grappa_input::{HeaderLine, OnBadLine};
use grappa_io::{Error, npy, progress::Silent};
use proptest::prelude::*;

use crate::common::{files_of, interrupted, options, resumes_to_the_same_store};

/// Source, destination, weight.
type Edge = (u64, u64, f32);

/// All edges of a store, in external ids, sorted. Also checks the counts in the manifest.
fn edges_of(store: &Path) -> Vec<Edge> {
    let read = |name: &str| fs::read(store.join(name)).unwrap();
    let manifest = Manifest::decode(&read("manifest")).unwrap();
    let permutation = match manifest.ids.permutation {
        PermutationSpec::Feistel(seed) => Some(Feistel::new(manifest.nodes, seed)),
        _ => None,
    };
    let external = |node: u64| permutation.as_ref().map_or(node, |permutation| permutation.inverse(node));
    let map = manifest.chunk_map();
    let mut edges = Vec::new();
    for (chunk, entry) in manifest.chunks.iter().enumerate() {
        let file = |name: &str| read(&format!("chunk-{chunk}/{name}"));
        let (rows_file, degrees_file) = (file("edges"), file("degrees"));
        let (header, payload) = container::decode_file(&rows_file, FileKind::ROWS).unwrap();
        let (_, directory) = container::decode_file(&degrees_file, FileKind::DEGREES).unwrap();
        let meta = RowsMeta::decode(&header.meta).unwrap();
        let sizes = RowSizes::from_meta(&meta);
        let rows = Rows::new(&meta, &sizes, payload, directory).unwrap();
        let weights_file = manifest.weighted.then(|| file("weights"));
        let weights = weights_file.as_ref().map(|file| {
            let (header, payload) = container::decode_file(file, FileKind::WEIGHTS).unwrap();
            (header, payload)
        });
        let weights = weights.as_ref().map(|(header, payload)| EdgeRows::new(header, payload).unwrap());
        let mut buckets = vec![0; manifest.chunks.len()];
        for row in 0..rows.meta.rows {
            let node = manifest.chunk_starts[chunk] + row;
            let mut sources = Vec::new();
            rows.row(row).decode_into(&mut sources);
            let range = weights.map(|weights| weights.range(row, |row| rows.degree(row)).unwrap());
            for (k, &source) in sources.iter().enumerate() {
                let weight = match (&range, weights) {
                    (Some(range), Some(weights)) => {
                        let edge = range.start + k as u64;
                        let mut weight = [0.0];
                        weights.copy(edge..edge + 1, &mut weight);
                        weight[0]
                    }
                    _ => 1.0,
                };
                edges.push((external(source), external(node), weight));
                buckets[map.chunk_of(grappa_formats::NodeId(source)).0 as usize] += 1;
            }
        }
        assert_eq!(buckets, entry.bucket_edges, "buckets of chunk {chunk}");
    }
    assert_eq!(edges.len() as u64, manifest.edges);
    edges.sort_by(compare);
    edges
}

fn compare(a: &Edge, b: &Edge) -> std::cmp::Ordering {
    (a.1, a.0).cmp(&(b.1, b.0)).then(a.2.total_cmp(&b.2))
}

/// The edges that the store must have, by the definition of the options.
fn twin(edges: &[Edge], nodes: u64, options: EdgeOptions, weighted: bool) -> Vec<Edge> {
    let mut out: Vec<Edge> = edges.to_vec();
    if options.undirected {
        out.extend(edges.iter().filter(|e| e.0 != e.1).map(|&(source, target, weight)| (target, source, weight)));
    }
    if options.self_loops != SelfLoops::Keep {
        out.retain(|e| e.0 != e.1);
    }
    out.sort_by(compare);
    if options.dedup {
        let mut merged: BTreeMap<(u64, u64), f32> = BTreeMap::new();
        for (source, target, weight) in out {
            merged.entry((target, source)).and_modify(|sum| *sum += weight).or_insert(weight);
        }
        let weight_of = |weight| if weighted { weight } else { 1.0 };
        out = merged.into_iter().map(|((target, source), weight)| (source, target, weight_of(weight))).collect();
    }
    if options.self_loops == SelfLoops::Add {
        out.extend((0..nodes).map(|node| (node, node, 1.0)));
    }
    out.sort_by(compare);
    out
}

fn write_text(path: &Path, edges: &[Edge], weighted: bool) {
    let line = |&(source, target, weight): &Edge| match weighted {
        true => format!("{source}\t{target}\t{weight}\n"),
        false => format!("{source} {target}\n"),
    };
    fs::write(path, edges.iter().map(line).collect::<String>()).unwrap();
}

fn write_npy(path: &Path, descr: &str, shape: &[usize], data: &[u8]) {
    let mut file = npy::header(descr, &shape.iter().map(|&n| n as u64).collect::<Vec<_>>()).to_vec();
    file.extend_from_slice(data);
    fs::write(path, file).unwrap();
}

/// The payload of a chunk's file, with its header.
fn payload_of(store: &Path, chunk: usize, name: &str, kind: FileKind) -> (Header, Vec<u8>) {
    let file = fs::read(store.join(format!("chunk-{chunk}/{name}"))).unwrap();
    let (header, payload) = container::decode_file(&file, kind).unwrap();
    (header, payload.to_vec())
}

/// A small graph with features, labels and splits, and the options to ingest it.
fn with_node_files(folder: &Path, nodes: u64, dim: usize) -> (IngestOptions, Vec<f32>, Vec<i64>) {
    let input = folder.join("edges.tsv");
    write_text(&input, &crowded(nodes, 20_000), false);
    let features: Vec<f32> = (0..nodes as usize * dim).map(|i| (i as f32).sin() * 8.0).collect();
    let labels: Vec<i64> = (0..nodes as i64).map(|i| i * i % 13 - 1).collect();
    let bytes = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let floats: Vec<u8> = features.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_npy(&folder.join("features.npy"), "<f4", &[nodes as usize, dim], &floats);
    write_npy(&folder.join("labels.npy"), "<i8", &[nodes as usize], &bytes(&labels));
    let mut options = options(folder, &input);
    options.nodes.data.features = Some(folder.join("features.npy").into());
    options.nodes.data.labels = Some(folder.join("labels.npy").into());
    for (name, rest) in [("train", 0), ("val", 1), ("test", 2)] {
        let path = folder.join(format!("{name}.npy"));
        let ids: Vec<i64> = (0..nodes as i64).filter(|id| id % 5 == rest).collect();
        write_npy(&path, "<i8", &[ids.len()], &bytes(&ids));
        options.nodes.splits.files.push(SplitFile { name, ids: path.into() });
    }
    (options, features, labels)
}

#[test]
fn features_labels_and_splits_follow_their_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, dim) = (3001, 37);
    let (mut options, features, labels) = with_node_files(folder.path(), nodes, dim);
    let mut stores = Vec::new();
    // In 1 MiB the 450 KiB of features must be spilled in several shards a chunk.
    for (memory, threads) in [(1 << 20, 1), (64 << 20, 3)] {
        options.out = folder.path().join(format!("{threads}.grappa"));
        (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (memory, threads, Some(4));
        let summary = ingest(&options, &Silent).unwrap();
        assert_eq!(summary.nodes, nodes);
        stores.push(files_of(&options.out));
    }
    assert!(stores[0] == stores[1], "the budget shows");
    let manifest = Manifest::decode(&stores[0]["manifest"]).unwrap();
    let permutation = Feistel::new(nodes, options.nodes.layout.seed);
    for chunk in 0..4 {
        let (header, rows) = payload_of(&options.out, chunk, "features", FileKind::FEATURES);
        let layout = FeaturesMeta::decode(&header).unwrap().layout;
        let (label_header, label_rows) = payload_of(&options.out, chunk, "labels", FileKind::LABELS);
        let stored = Labels::new(&label_header, &label_rows).unwrap();
        let start = manifest.chunk_starts[chunk];
        for (row, bytes) in rows.chunks_exact(layout.stride as usize).enumerate() {
            let id = permutation.inverse(start + row as u64) as usize;
            let mut values = vec![0.0; dim];
            layout.decode_row(bytes, &mut values);
            assert_eq!(values, features[id * dim..][..dim], "features of {id}");
            let label = stored.single(row as u64).unwrap().map_or(-1, i64::from);
            assert_eq!(label, labels[id], "label of {id}");
        }
    }
    assert_eq!(manifest.labels.unwrap().classes, 12);
    for (rest, split) in (0..3).zip(&manifest.splits) {
        let file = &stores[0][&format!("splits/{}.roaring", split.name)];
        let set = grappa_formats::splits::decode(file, &split.name, nodes).unwrap();
        let mut ids: Vec<u64> = set.iter().map(|node| permutation.inverse(node)).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..nodes).filter(|id| id % 5 == rest).collect::<Vec<_>>());
    }
}

#[test]
fn a_run_with_features_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let (mut options, ..) = with_node_files(folder.path(), 2000, 300);
    options.nodes.layout.chunks = Some(6);
    resumes_to_the_same_store(&options, 1..30);
}

#[test]
fn features_are_written_in_ranges_if_a_run_is_resumed_with_less_memory() {
    let folder = tempfile::tempdir().unwrap();
    // A shard of 2.4 MB, which does not fit in the second budget.
    let (mut options, ..) = with_node_files(folder.path(), 2000, 300);
    options.nodes.layout.chunks = Some(1);
    ingest(&options, &Silent).unwrap();
    let expected = files_of(&options.out);
    let mut before_edges = 0;
    for steps in 1..30 {
        options.out = folder.path().join(format!("{steps}.grappa"));
        (options.resources.memory, options.resume) = (64 << 20, false);
        if !interrupted(steps, |progress| ingest(&options, progress)) {
            continue;
        }
        (options.resources.memory, options.resume) = (2 << 20, true);
        match ingest(&options, &Silent) {
            Ok(_) => before_edges += 1,
            // A run that has begun to read edges reads them in blocks of the size that it began with.
            Err(Error::Budget { least, .. }) => {
                assert!((8 << 20..64 << 20).contains(&least), "{least}");
                options.resources.memory = least;
                ingest(&options, &Silent).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        assert!(files_of(&options.out) == expected, "interrupted after {steps} steps");
    }
    assert!(before_edges > 3, "{before_edges}");
}

#[test]
fn features_that_are_not_finite_are_counted_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut options, mut features, _) = with_node_files(folder.path(), 500, 8);
    features[8 * 77 + 3] = f32::NAN;
    features[8 * 400] = f32::INFINITY;
    let bytes: Vec<u8> = features.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_npy(&folder.path().join("features.npy"), "<f4", &[500, 8], &bytes);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("row 77") && error.contains("--allow-nan") && error.contains("1 more"), "{error}");
    options.nodes.data.allow_nan = true;
    ingest(&options, &Silent).unwrap();
    options.out = folder.path().join("int8.grappa");
    options.nodes.data.feature_dtype = Some(FeatureDtype::Int8);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("int8"), "{error}");
    features.iter_mut().filter(|v| !v.is_finite()).for_each(|v| *v = 1e9);
    let bytes: Vec<u8> = features.iter().flat_map(|v| v.to_le_bytes()).collect();
    write_npy(&folder.path().join("features.npy"), "<f4", &[500, 8], &bytes);
    (options.nodes.data.allow_nan, options.nodes.data.feature_dtype) = (false, Some(FeatureDtype::F16));
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    for part in [
        "features.npy at row 77: ",
        "column 3 of node 77 is 1000000000, too large for f16",
        "1 more values",
        "--feature-dtype bf16 or f32",
    ] {
        assert!(error.contains(part), "{part:?} in: {error}");
    }
    // With ids in another order, the row is not the node.
    let ids: String = (0..500).rev().map(|id| format!("{id}\n")).collect();
    options.nodes.data.ids = Some(folder.path().join("ids.txt").into());
    fs::write(folder.path().join("ids.txt"), ids).unwrap();
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("row 77: column 3 of node 422 is"), "{error}");
}

#[test]
fn splits_that_overlap_or_name_unknown_nodes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut options, ..) = with_node_files(folder.path(), 500, 2);
    fs::write(folder.path().join("more.txt"), "11\n10\n").unwrap();
    options.nodes.splits.files[2].ids = folder.path().join("more.txt").into();
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("overlap") && error.contains("more.txt"), "{error}");
    fs::write(folder.path().join("more.txt"), "12\n500\n").unwrap();
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("more.txt:2") && error.contains("500"), "{error}");
    assert!(!folder.path().join("out.grappa.partial").exists());
}

fn self_loops() -> impl Strategy<Value = SelfLoops> {
    prop_oneof![Just(SelfLoops::Keep), Just(SelfLoops::Drop), Just(SelfLoops::Add)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_store_holds_the_edges_of_the_input(
        ends in prop::collection::vec((0..60u64, 0..60u64, 0..8u8), 1..400),
        more_nodes in 0..20u64,
        chunks in 1..9u32,
        undirected: bool,
        dedup: bool,
        self_loops in self_loops(),
        weighted: bool,
        range: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let edges: Vec<Edge> =
            ends.iter().map(|&(s, t, w)| (s, t, if weighted { f32::from(w) / 4.0 } else { 1.0 })).collect();
        let input = folder.path().join("edges.tsv");
        write_text(&input, &edges, weighted);
        let nodes = edges.iter().map(|e| e.0.max(e.1) + 1).max().unwrap() + more_nodes;
        let mut options = options(folder.path(), &input);
        options.nodes.number = (more_nodes > 0).then_some(nodes);
        options.nodes.layout.chunks = Some(chunks.min(nodes as u32));
        options.edges.options = EdgeOptions { undirected, dedup, self_loops };
        options.nodes.layout.assign = if range { Assign::Range } else { Assign::Random };
        let summary = ingest(&options, &Silent).unwrap();
        prop_assert_eq!(summary.nodes, nodes);
        prop_assert_eq!(summary.edges_read, edges.len() as u64);
        let expected = twin(&edges, nodes, options.edges.options, weighted);
        prop_assert_eq!(summary.edges, expected.len() as u64);
        prop_assert_eq!(edges_of(&options.out), expected);
        prop_assert!(!folder.path().join("out.grappa.partial").exists());
    }
}

/// A graph that does not fit in a small budget: most edges go to a few nodes of one chunk.
fn crowded(nodes: u64, edges: u64) -> Vec<Edge> {
    let edge = |i: u64| {
        let hash = i.wrapping_mul(GOLDEN) >> 20;
        let target = if i.is_multiple_of(3) { hash % nodes } else { hash % 7 };
        ((hash >> 9) % nodes, target, 1.0)
    };
    (0..edges).map(edge).collect()
}

#[test]
fn the_store_does_not_depend_on_budget_threads_or_scratch_folder() {
    let folder = tempfile::tempdir().unwrap();
    let edges = crowded(5000, 200_000);
    let input = folder.path().join("edges.tsv");
    write_text(&input, &edges, false);
    let mut stores = Vec::new();
    // With 2 MiB a shard of more than some 100,000 edges must be divided; the crowded nodes have 19,000 each.
    for (memory, threads, tmp) in [(256 << 20, 1, None), (2 << 20, 2, Some("tmp")), (2 << 20, 1, None)] {
        let mut options = options(folder.path(), &input);
        options.out = folder.path().join(format!("{memory}-{threads}.grappa"));
        options.nodes.layout.chunks = Some(3);
        options.nodes.layout.assign = Assign::Range;
        (options.resources.memory, options.resources.threads) = (memory, threads);
        options.resources.tmp = tmp.map(|tmp| folder.path().join(tmp));
        ingest(&options, &Silent).unwrap();
        assert_eq!(edges_of(&options.out), twin(&edges, 5000, options.edges.options, false));
        stores.push(files_of(&options.out));
    }
    assert!(stores.windows(2).all(|pair| pair[0] == pair[1]));
    let left: Vec<_> = fs::read_dir(folder.path().join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "scratch files stay: {left:?}");
}

#[test]
fn a_row_too_large_for_the_budget_names_one_that_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let edges: Vec<Edge> = (0..100_000).map(|i| (i % 1000, 5, 1.0)).collect();
    let input = folder.path().join("edges.tsv");
    write_text(&input, &edges, false);
    let mut options = options(folder.path(), &input);
    (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (1 << 20, 1, Some(2));
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    let wanted = error.split("at least ").nth(1).expect(&error).split(" MiB").next().unwrap();
    assert!(!folder.path().join("out.grappa.partial").exists(), "nothing is left of a run that can't succeed");
    options.resources.memory = wanted.parse::<u64>().unwrap() << 20;
    ingest(&options, &Silent).unwrap();
    assert_eq!(edges_of(&options.out).len(), 100_000);
}

#[test]
fn a_run_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let edges = crowded(3000, 150_000);
    let input = folder.path().join("edges.tsv");
    write_text(&input, &edges, false);
    let mut options = options(folder.path(), &input);
    (options.resources.memory, options.nodes.layout.chunks) = (2 << 20, Some(5));
    resumes_to_the_same_store(&options, (1..40).step_by(3));
}

#[test]
fn a_run_may_be_resumed_with_another_budget() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.tsv");
    write_text(&input, &crowded(3000, 150_000), false);
    let mut options = options(folder.path(), &input);
    (options.resources.memory, options.nodes.layout.chunks) = (2 << 20, Some(5));
    // The number of nodes is known, so the first steps are those of pass 1: one worker is interrupted, and the other one
    // finishes and records its blocks.
    options.nodes.number = Some(3000);
    ingest(&options, &Silent).unwrap();
    let expected = files_of(&options.out);
    for steps in [2, 4, 10, 15] {
        options.out = folder.path().join(format!("{steps}.grappa"));
        (options.resources.memory, options.resources.threads, options.resume) = (2 << 20, 2, false);
        assert!(interrupted(steps, |progress| ingest(&options, progress)));
        // With this budget, blocks would be larger.
        (options.resources.memory, options.resources.threads, options.resume) = (64 << 20, 1, true);
        ingest(&options, &Silent).unwrap();
        assert!(files_of(&options.out) == expected, "interrupted after {steps} steps");
    }
}

#[test]
fn resuming_with_other_options_or_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.tsv");
    write_text(&input, &crowded(100, 5000), false);
    let mut options = options(folder.path(), &input);
    assert!(interrupted(3, |progress| ingest(&options, progress)));
    (options.resume, options.nodes.layout.seed) = (true, 8);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("--seed 7") && error.contains('8'), "{error}");
    options.nodes.layout.seed = 7;
    options.edges.form.header = HeaderLine::Yes;
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("had --header auto, this one has --header yes"), "{error}");
    options.edges.form.header = HeaderLine::Auto;
    write_text(&input, &crowded(100, 5001), false);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("edges.tsv"), "{error}");
    write_text(&input, &crowded(100, 5000), false);
}

#[test]
fn resuming_with_input_files_in_other_roles_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut options, ..) = with_node_files(folder.path(), 500, 8);
    let more = folder.path().join("more.tsv");
    write_text(&more, &crowded(100, 5000), false);
    options.edges.files.push(more.into());
    let mut expected = options.clone();
    expected.out = folder.path().join("expected.grappa");
    ingest(&expected, &Silent).unwrap();
    assert!(interrupted(3, |progress| ingest(&options, progress)));
    options.resume = true;
    let refused = |change: fn(&mut IngestOptions), role: &str| {
        let mut other = options.clone();
        change(&mut other);
        let error = ingest(&other, &Silent).unwrap_err().to_string();
        assert!(error.contains("cannot resume") && error.contains(role), "{error}");
    };
    refused(|options| options.edges.files.reverse(), "edges[0] ");
    let third = folder.path().join("third.tsv");
    write_text(&third, &crowded(100, 5000), false);
    refused(
        |options| options.edges.files.push(options.edges.files[0].name().with_file_name("third.tsv").into()),
        "no edges[2]",
    );
    refused(|options| options.edges.files.truncate(1), "this one has no edges[1]");
    refused(|options| options.nodes.data.features = None, "no --features");
    refused(|options| options.nodes.splits.files.truncate(2), "no --test");
    let swapped = |options: &mut IngestOptions| {
        let train = options.nodes.splits.files[0].ids.clone();
        options.nodes.splits.files[0].ids = std::mem::replace(&mut options.nodes.splits.files[1].ids, train);
    };
    refused(swapped, "--train ");
    ingest(&options, &Silent).unwrap();
    assert!(files_of(&options.out) == files_of(&expected.out));
}

#[test]
fn a_run_that_lost_its_spill_files_has_to_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.tsv");
    write_text(&input, &crowded(3000, 150_000), false);
    let mut options = options(folder.path(), &input);
    (options.resources.memory, options.nodes.layout.chunks, options.nodes.number) = (2 << 20, Some(5), Some(3000));
    let lose: [fn(&Path); 2] = [
        |path| fs::remove_file(path).unwrap(),
        |path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        },
    ];
    for (name, lose) in ["removed", "cut"].into_iter().zip(lose) {
        options.out = folder.path().join(format!("{name}.grappa"));
        options.resume = false;
        assert!(interrupted(15, |progress| ingest(&options, progress)));
        let scratch = folder.path().join(format!("{name}.grappa.partial/scratch"));
        let files: Vec<_> = fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty());
        files.iter().for_each(|path| lose(path));
        options.resume = true;
        for _ in 0..2 {
            let error = ingest(&options, &Silent).unwrap_err().to_string();
            assert!(
                error.contains("start again: run `rm -r ") && !error.contains("rerun with --resume"),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn an_existing_store_is_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.tsv");
    write_text(&input, &crowded(100, 500), false);
    let options = options(folder.path(), &input);
    ingest(&options, &Silent).unwrap();
    let before = files_of(&options.out);
    let error = ingest(&options, &Silent).unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(files_of(&options.out), before);
}

#[test]
fn a_bad_line_leaves_nothing_behind_or_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.tsv");
    fs::write(&input, "0 1\n1 x\n2 0\n-1 2\n").unwrap();
    let mut options = options(folder.path(), &input);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("edges.tsv:2"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the input is there");
    options.edges.form.on_bad_line = OnBadLine::Skip;
    let summary = ingest(&options, &Silent).unwrap();
    assert_eq!((summary.edges, summary.rejected), (2, 2));
    let rejects = fs::read_to_string(summary.rejects.unwrap()).unwrap();
    let lines: Vec<_> = rejects.lines().skip(1).map(|line| line.split('\t').skip(1).collect::<Vec<_>>()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0][0].ends_with('2') && lines[0][2] == "1 x", "{rejects}");
}
