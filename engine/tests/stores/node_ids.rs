//! Rows of features and labels in an order that a file of ids gives: the store is the store of sorted rows.

use std::{collections::BTreeSet, fs, path::Path};

use grappa_formats::{NodeId, manifest::ExternalIds, random::GOLDEN};
use grappa_ingestion::ingest::{Assign, IngestOptions, NodeData, NodeIngest, StoreLayout, ingest};
use grappa_io::{Error, npy, progress::Silent};
use grappa_storage::Store;

use crate::common::{self, files_of, interrupted, resumes_to_the_same_store, store_of};

pub(crate) const KINDS: [ExternalIds; 3] = [ExternalIds::Dense, ExternalIds::Sparse, ExternalIds::String];
pub(crate) const DIM: u64 = 3;

/// The external id of node `k` of the user's table. `n10` comes before `n2`, and sparse ids are scattered.
pub(crate) fn name(ids: ExternalIds, k: u64) -> String {
    match ids {
        ExternalIds::Dense => k.to_string(),
        ExternalIds::Sparse => (k.wrapping_mul(GOLDEN) >> 1).to_string(),
        ExternalIds::String => format!("n{k}"),
    }
}

/// The numbers below `nodes` in ascending order of their ids.
pub(crate) fn sorted(ids: ExternalIds, nodes: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..nodes).collect();
    match ids {
        ExternalIds::String => order.sort_by_key(|&k| name(ids, k)),
        _ => order.sort_by_key(|&k| name(ids, k).parse::<u64>().unwrap()),
    }
    order
}

/// The same numbers in the order of a user's table.
pub(crate) fn shuffled(nodes: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..nodes).collect();
    order.sort_by_key(|k| (k + 1).wrapping_mul(GOLDEN));
    order
}

/// Edges between the first `nodes` nodes. Each of them has one.
pub(crate) fn write_edges(folder: &Path, ids: ExternalIds, nodes: u64) {
    let line = |k: u64| format!("{}\t{}\n", name(ids, k), name(ids, k * k % nodes));
    fs::write(folder.join("edges.tsv"), (0..nodes).map(line).collect::<String>()).unwrap();
}

/// Writes features and labels of the nodes in the order `rows`, and the ids in this order.
pub(crate) fn write_rows(folder: &Path, ids: ExternalIds, rows: &[u64]) {
    let features = rows.iter().flat_map(|&k| (0..DIM).map(move |d| (k * DIM + d) as f32));
    let features: Vec<u8> = features.flat_map(f32::to_le_bytes).collect();
    let labels: Vec<u8> = rows.iter().flat_map(|&k| ((k % 5) as i64 - 1).to_le_bytes()).collect();
    let write = |name: &str, header: Vec<u8>, data: Vec<u8>| {
        fs::write(folder.join(name), [header, data].concat()).unwrap();
    };
    let count = rows.len() as u64;
    write("features.npy", npy::header("<f4", &[count, DIM]).to_vec(), features);
    write("labels.npy", npy::header("<i8", &[count]).to_vec(), labels);
    let lines: String = rows.iter().map(|&k| name(ids, k) + "\n").collect();
    fs::write(folder.join("ids.txt"), lines).unwrap();
    if ids != ExternalIds::String {
        let numbers = rows.iter().map(|&k| name(ids, k).parse::<u64>().unwrap());
        let data = numbers.flat_map(u64::to_le_bytes).collect();
        write("ids.npy", npy::header("<u8", &[count]).to_vec(), data);
    }
}

pub(crate) fn options(folder: &Path, ids: ExternalIds) -> IngestOptions {
    IngestOptions {
        nodes: NodeIngest {
            ids,
            data: NodeData {
                features: Some(folder.join("features.npy").into()),
                labels: Some(folder.join("labels.npy").into()),
                ..NodeData::default()
            },
            layout: StoreLayout { chunks: Some(4), seed: 7, ..StoreLayout::default() },
            ..common::options(folder, &folder.join("edges.tsv")).nodes
        },
        ..common::options(folder, &folder.join("edges.tsv"))
    }
}

#[test]
fn rows_in_any_order_make_the_store_of_sorted_rows() {
    let folder = tempfile::tempdir().unwrap();
    // In 1 MiB there is room for a table of 24,000 ids, so they are looked up in the dictionary.
    let nodes = 25_000;
    for ids in KINDS {
        write_edges(folder.path(), ids, nodes);
        write_rows(folder.path(), ids, &sorted(ids, nodes));
        let mut options = options(folder.path(), ids);
        let expected = store_of(&options);
        write_rows(folder.path(), ids, &shuffled(nodes));
        assert!(store_of(&options) != expected, "{ids:?}: the order of rows matters");
        let files = if ids == ExternalIds::String { &["ids.txt"][..] } else { &["ids.txt", "ids.npy"] };
        for (file, (memory, threads)) in files.iter().zip([(1 << 20, 1), (64 << 20, 2)].into_iter().cycle()) {
            options.nodes.data.ids = Some(folder.path().join(file).into());
            (options.resources.memory, options.resources.threads) = (memory, threads);
            assert!(store_of(&options) == expected, "{ids:?}, {file}, {threads} threads");
        }
        (options.resources.memory, options.resources.threads) = (64 << 20, 2);
        options.nodes.data.ids = Some(folder.path().join("ids.txt").into());
        assert!(store_of(&options) == expected, "{ids:?}, in memory");
    }
}

#[test]
fn listed_ids_without_edges_are_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let (with_edges, nodes) = (500, 620);
    for ids in [ExternalIds::Sparse, ExternalIds::String] {
        // The twin has dense ids: the ranks of the others.
        let order = sorted(ids, nodes);
        let rank = |k: u64| order.iter().position(|&other| other == k).unwrap();
        let dense = folder.path().join("dense");
        fs::create_dir_all(&dense).unwrap();
        let line = |k: u64| format!("{}\t{}\n", rank(k), rank(k * k % with_edges));
        fs::write(dense.join("edges.tsv"), (0..with_edges).map(line).collect::<String>()).unwrap();
        write_rows(&dense, ids, &order);
        let twin = IngestOptions {
            nodes: NodeIngest { number: Some(nodes), ..options(&dense, ExternalIds::Dense).nodes },
            ..options(&dense, ExternalIds::Dense)
        };
        let mut expected = store_of(&twin);
        expected.retain(|name, _| name.starts_with("chunk-"));
        assert!(expected.keys().any(|name| name.ends_with("features")));

        write_edges(folder.path(), ids, with_edges);
        write_rows(folder.path(), ids, &shuffled(nodes));
        let mut options = options(folder.path(), ids);
        options.nodes.data.ids = Some(folder.path().join("ids.txt").into());
        assert_eq!(ingest(&options, &Silent).unwrap().nodes, nodes);
        let mut files = files_of(&options.out);
        files.retain(|name, _| name.starts_with("chunk-"));
        assert!(files == expected, "{ids:?}");
        let store = Store::open(&options.out).unwrap();
        let names: BTreeSet<_> = (0..nodes).map(|node| store.external_id(NodeId(node)).unwrap().to_string()).collect();
        assert_eq!(names, (0..nodes).map(|k| name(ids, k)).collect::<BTreeSet<_>>());
        fs::remove_dir_all(&options.out).unwrap();

        // Without rows, the file only adds nodes: it need not have the ids of the edges.
        (options.nodes.data.features, options.nodes.data.labels) = (None, None);
        let lines = format!("{}\n{}\n", name(ids, 2), name(ids, 999));
        fs::write(folder.path().join("ids.txt"), lines).unwrap();
        assert_eq!(ingest(&options, &Silent).unwrap().nodes, with_edges + 1);
        fs::remove_dir_all(&options.out).unwrap();
    }
}

#[test]
fn a_run_with_node_ids_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ExternalIds::String;
    write_edges(folder.path(), ids, 25_000);
    write_rows(folder.path(), ids, &shuffled(26_000));
    let mut options = options(folder.path(), ids);
    // The ids are looked up segment by segment.
    (options.resources.memory, options.resources.threads) = (1 << 20, 1);
    options.nodes.data.ids = Some(folder.path().join("ids.txt").into());
    resumes_to_the_same_store(&options, 1..40);

    // The order of the rows is part of the run.
    assert!(interrupted(6, |progress| ingest(&options, progress)));
    (options.resume, options.nodes.data.ids) = (true, None);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("no --node-ids") && error.contains("ids.txt"), "{error}");
}

/// Ingests. It must fail with an error that contains `parts`, and leave no unfinished store.
#[track_caller]
pub(crate) fn refused(options: &IngestOptions, parts: &[&str]) {
    let error = ingest(options, &Silent).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "expected {part:?} in: {error}");
    }
    let partial = grappa_storage::writer::partial_folder(&options.out);
    assert!(!partial.exists(), "{error}");
}

#[test]
fn ids_that_are_not_those_of_the_rows_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = 40;
    for ids in KINDS {
        write_edges(folder.path(), ids, nodes);
        let order = shuffled(nodes);
        write_rows(folder.path(), ids, &order);
        let mut options = options(folder.path(), ids);
        let file = folder.path().join("ids.txt");
        options.nodes.data.ids = Some(file.clone().into());
        let lines: Vec<String> = order.iter().map(|&k| name(ids, k)).collect();
        let write = |lines: &[String]| fs::write(&file, lines.join("\n")).unwrap();

        let mut twice = lines.clone();
        twice[30] = lines[10].clone();
        write(&twice);
        refused(&options, &["ids.txt:31", &lines[10], "twice", "once"]);

        write(&lines[..38]);
        refused(&options, &["ids.txt", "40 ids", "features.npy", "found 38", "each row"]);
        options.nodes.data.features = None;
        refused(&options, &["ids.txt", "40 ids", "labels.npy", "found 38", "each row"]);
        // The number of rows of text is known only when they are read.
        options.nodes.data.labels = Some(folder.path().join("labels.txt").into());
        fs::write(folder.path().join("labels.txt"), "1\n".repeat(38)).unwrap();
        let first = sorted(ids, nodes);
        let missing = first.iter().map(|&k| name(ids, k)).find(|id| lines[38..].contains(id));
        options.nodes.layout.assign = Assign::Range;
        refused(&options, &["ids.txt", "2 of the 40 nodes", &missing.unwrap(), "labels.txt"]);
        write(&lines);
        refused(&options, &["labels.txt", "40", "38"]);
        fs::write(folder.path().join("labels.txt"), "1\n".repeat(41)).unwrap();
        refused(&options, &["labels.txt", "--node-ids", "one row for each id"]);

        options.nodes.layout.assign = Assign::File(folder.path().join("labels.txt"));
        refused(&options, &["--assign file:", "--node-ids", "omit one"]);
        options.nodes.layout.assign = Assign::Random;
        let mask = [npy::header("|b1", &[40]).to_vec(), vec![1; 40]].concat();
        fs::write(folder.path().join("mask.npy"), mask).unwrap();
        options.nodes.data.ids = Some(folder.path().join("mask.npy").into());
        match ids {
            ExternalIds::String => refused(&options, &["mask.npy", "text file"]),
            _ => refused(&options, &["mask.npy", "bool", "integers of shape [N];"]),
        }
    }
}

#[test]
fn ids_looked_up_in_segments_are_refused_at_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = 25_000;
    for ids in [ExternalIds::Sparse, ExternalIds::String] {
        write_edges(folder.path(), ids, nodes);
        let order = shuffled(nodes);
        write_rows(folder.path(), ids, &order);
        let mut options = options(folder.path(), ids);
        let file = folder.path().join("ids.txt");
        (options.resources.memory, options.nodes.data.ids) = (1 << 20, Some((&file).into()));
        let mut lines: Vec<String> = order.iter().map(|&k| name(ids, k)).collect();
        for (line, other) in [(20_000, 10), (10, 20_000), (24_999, 0)] {
            let before = std::mem::replace(&mut lines[line], name(ids, order[other]));
            fs::write(&file, lines.join("\n")).unwrap();
            let (id, later) = (name(ids, order[other]), line.max(other) + 1);
            refused(&options, &[&format!("ids.txt:{later}:"), &id, "twice", "once"]);
            lines[line] = before;
        }
        lines.pop();
        fs::write(&file, lines.join("\n")).unwrap();
        refused(&options, &["ids.txt", "25000 ids", "features.npy", "found 24999"]);
    }
}

#[test]
fn sorted_ids_are_kept_if_what_follows_needs_more_memory() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ExternalIds::Sparse;
    write_edges(folder.path(), ids, 500_000);
    let mut options = options(folder.path(), ids);
    (options.nodes.data.features, options.nodes.data.labels, options.nodes.data.ids) = (None, None, None);
    options.nodes.layout.chunks = Some(1);
    ingest(&options, &Silent).unwrap();
    let expected = files_of(&options.out);
    options.out = folder.path().join("little.grappa");
    // One chunk has a directory of 600 KB.
    options.resources.memory = 1 << 20;
    let error = ingest(&options, &Silent).unwrap_err();
    let Error::Interrupted { source, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(**source, Error::Budget { .. }), "{source}");
    assert!(error.to_string().contains("--resume"), "{error}");
    (options.resources.memory, options.resume) = (64 << 20, true);
    ingest(&options, &Silent).unwrap();
    assert!(files_of(&options.out) == expected);
}

#[test]
fn dense_ids_of_rows_are_below_the_number_of_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ExternalIds::Dense;
    write_edges(folder.path(), ids, 40);
    write_rows(folder.path(), ids, &shuffled(50));
    let mut options = options(folder.path(), ids);
    let file = folder.path().join("ids.txt");
    options.nodes.data.ids = Some(file.clone().into());
    // The rows give the number of nodes.
    assert_eq!(ingest(&options, &Silent).unwrap().nodes, 50);
    fs::remove_dir_all(&options.out).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let line = 1 + text.lines().position(|line| line == "49").unwrap();
    fs::write(&file, text.replace("49\n", "50\n")).unwrap();
    let place = format!("ids.txt:{line}");
    refused(&options, &[&place, "50", "number of nodes, 50", "--nodes"]);
    options.nodes.number = Some(50);
    refused(&options, &[&place, "--nodes 50", "raise"]);
    options.nodes.number = None;
    (options.nodes.data.features, options.nodes.data.labels) = (None, None);
    refused(&options, &["--node-ids", "--features", "omit", "--nodes"]);
}

#[test]
fn a_number_of_nodes_counts_the_listed_ids() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ExternalIds::String;
    write_edges(folder.path(), ids, 40);
    write_rows(folder.path(), ids, &shuffled(50));
    let mut options = options(folder.path(), ids);
    options.nodes.data.ids = Some(folder.path().join("ids.txt").into());
    options.nodes.number = Some(40);
    refused(&options, &["--nodes 40", "edges and --node-ids", "50 different ids"]);
    let long = format!("a\n{}\n", "x".repeat(65_536));
    fs::write(folder.path().join("ids.txt"), long).unwrap();
    (options.nodes.number, options.nodes.data.features, options.nodes.data.labels) = (None, None, None);
    refused(&options, &["ids.txt:2", "65535 bytes", "shorten"]);
}
