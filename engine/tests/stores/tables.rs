//! Features and labels in text tables whose first column has the ids of the rows: the store is the store of sorted rows.

use std::{collections::BTreeMap, fs, path::Path};

use grappa_formats::manifest::{ExternalIds, LabelKind};
use grappa_ingestion::ingest::{Assign, IngestOptions, NodeData, NodeIngest, StoreLayout, ingest};
use grappa_io::progress::Silent;
use grappa_storage::Store;

use crate::{
    common::{self, resumes_to_the_same_store, store_of},
    node_ids::{DIM, KINDS, name, refused, shuffled, sorted, write_edges, write_rows},
};

/// The name of a node in a field of CSV. Names of strings have what is special in CSV.
fn field(ids: ExternalIds, k: u64) -> String {
    match (ids, k % 3) {
        (ExternalIds::String, 0) => format!("\"{}\"", name(ids, k)),
        _ => name(ids, k),
    }
}

/// Writes a table of features, and one of labels that leaves out half of the nodes without a label.
fn write_tables(folder: &Path, ids: ExternalIds, rows: &[u64]) {
    let features = |&k: &u64| {
        let values: Vec<String> = (0..DIM).map(|d| (k * DIM + d).to_string()).collect();
        format!("{},{}\n", field(ids, k), values.join(","))
    };
    let body: String = rows.iter().map(features).collect();
    fs::write(folder.join("features.csv"), format!("id,0,1,2\n{body}")).unwrap();
    // In another order than the features.
    let label = |&k: &u64| match k % 10 {
        0 => None,
        5 => Some(format!("{}\t\n", name(ids, k))),
        _ => Some(format!("{}\t{}\n", name(ids, k), (k % 5) as i64 - 1)),
    };
    let body: String = rows.iter().rev().filter_map(label).collect();
    fs::write(folder.join("labels.tsv"), format!("Node_ID\tlabel\n{body}")).unwrap();
}

fn options(folder: &Path, ids: ExternalIds) -> IngestOptions {
    IngestOptions {
        nodes: NodeIngest {
            ids,
            data: NodeData {
                features: Some(folder.join("features.csv").into()),
                labels: Some(folder.join("labels.tsv").into()),
                ..NodeData::default()
            },
            layout: StoreLayout { chunks: Some(4), seed: 7, ..StoreLayout::default() },
            ..common::options(folder, &folder.join("edges.tsv")).nodes
        },
        ..common::options(folder, &folder.join("edges.tsv"))
    }
}

/// The same rows in arrays, in ascending order of the ids.
fn with_arrays(options: &IngestOptions, folder: &Path) -> IngestOptions {
    IngestOptions {
        nodes: NodeIngest {
            data: NodeData {
                features: Some(folder.join("features.npy").into()),
                labels: Some(folder.join("labels.npy").into()),
                ..options.nodes.data.clone()
            },
            ..options.nodes.clone()
        },
        ..options.clone()
    }
}

/// The files of the store of `options` that do not depend on names of columns. The store is removed.
fn rows_of(options: &IngestOptions) -> BTreeMap<String, Vec<u8>> {
    let mut files = store_of(options);
    files.retain(|path, _| !["schema", "manifest"].contains(&path.as_str()));
    files
}

#[test]
fn tables_make_the_store_of_sorted_rows() {
    let folder = tempfile::tempdir().unwrap();
    // In 1 MiB there is room for a table of 24,000 ids, so they are looked up in the dictionary.
    let nodes = 25_000;
    for ids in KINDS {
        write_edges(folder.path(), ids, nodes);
        write_rows(folder.path(), ids, &sorted(ids, nodes));
        write_tables(folder.path(), ids, &shuffled(nodes));
        let mut options = options(folder.path(), ids);
        let arrays = with_arrays(&options, folder.path());
        let expected = rows_of(&arrays);
        for (memory, threads) in [(1 << 20, 1), (64 << 20, 2)] {
            (options.resources.memory, options.resources.threads) = (memory, threads);
            assert!(rows_of(&options) == expected, "{ids:?}, {memory} bytes");
        }
        // Each of them beside the other in an array, whose rows have another order.
        write_rows(folder.path(), ids, &shuffled(nodes));
        let list = Some(folder.path().join("ids.txt"));
        let labels_only = IngestOptions {
            nodes: NodeIngest {
                data: NodeData {
                    features: arrays.nodes.data.features.clone(),
                    ids: list.clone().map(Into::into),
                    ..options.nodes.data.clone()
                },
                ..options.nodes.clone()
            },
            ..options.clone()
        };
        assert!(rows_of(&labels_only) == expected, "{ids:?}, a table of labels");
        let features_only = IngestOptions {
            nodes: NodeIngest {
                data: NodeData {
                    labels: arrays.nodes.data.labels.clone(),
                    ids: list.map(Into::into),
                    ..options.nodes.data.clone()
                },
                ..options.nodes.clone()
            },
            ..options.clone()
        };
        assert!(rows_of(&features_only) == expected, "{ids:?}, a table of features");
    }
}

#[test]
fn ids_of_a_table_of_features_are_nodes_without_edges() {
    let folder = tempfile::tempdir().unwrap();
    for ids in [ExternalIds::Sparse, ExternalIds::String] {
        write_edges(folder.path(), ids, 500);
        write_rows(folder.path(), ids, &shuffled(620));
        write_tables(folder.path(), ids, &shuffled(620));
        let mut options = options(folder.path(), ids);
        let listed = IngestOptions {
            nodes: NodeIngest {
                data: NodeData {
                    ids: Some(folder.path().join("ids.txt").into()),
                    ..with_arrays(&options, folder.path()).nodes.data.clone()
                },
                ..with_arrays(&options, folder.path()).nodes
            },
            ..with_arrays(&options, folder.path())
        };
        assert!(rows_of(&options) == rows_of(&listed), "{ids:?}");
        options.nodes.number = Some(500);
        refused(&options, &["--nodes 500", "features.csv", "620 different ids"]);
    }
}

#[test]
fn a_run_with_tables_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let ids = ExternalIds::String;
    write_edges(folder.path(), ids, 25_000);
    write_tables(folder.path(), ids, &shuffled(26_000));
    let mut options = options(folder.path(), ids);
    // The ids are looked up segment by segment.
    (options.resources.memory, options.resources.threads) = (1 << 20, 1);
    resumes_to_the_same_store(&options, 1..45);
}

#[test]
fn sets_of_labels_may_be_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::Dense, 6);
    let mut options = options(folder.path(), ExternalIds::Dense);
    options.nodes.data.features = None;
    // Two nodes have no label.
    let table = "node,sports,music,art\n4,1,0,1\n0,0,0,0\n5,,,\n2,0,1,0\n3,1,1,1\n";
    fs::write(folder.path().join("labels.tsv"), table).unwrap();
    options.nodes.layout.assign = Assign::Range;
    ingest(&options, &Silent).unwrap();
    let labels = Store::open(&options.out).unwrap().manifest().labels.unwrap();
    assert_eq!((labels.classes, labels.kind), (3, LabelKind::Multi));
    let tables = rows_of(&IngestOptions { out: folder.path().join("again.grappa"), ..options.clone() });
    let rows = "0,0,0\n,,\n0,1,0\n1,1,1\n1,0,1\n,,\n";
    fs::write(folder.path().join("rows.txt"), rows).unwrap();
    options.nodes.data.labels = Some(folder.path().join("rows.txt").into());
    options.out = folder.path().join("rows.grappa");
    assert!(rows_of(&options) == tables);
}

#[test]
fn ids_of_tables_that_do_not_fit_the_graph_are_refused_at_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = 40;
    for ids in KINDS {
        write_edges(folder.path(), ids, nodes);
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        let mut options = options(folder.path(), ids);

        // A table of labels names nodes only.
        let other = name(ids, 999);
        write("labels.tsv", &format!("id,label\n{},1\n{other},2\n", name(ids, 7)));
        options.nodes.data.features = None;
        let remedy = match ids {
            ExternalIds::Dense => "--nodes",
            _ => "--node-ids",
        };
        refused(&options, &["labels.tsv:3", "1 of 2 ids", &other, "remove", remedy]);
        write("labels.tsv", &format!("id,label\n{0},1\n{0},2\n", name(ids, 7)));
        refused(&options, &["labels.tsv:3", &name(ids, 7), "twice", "once"]);
        write("labels.tsv", "id,label\n,1\n");
        refused(&options, &["labels.tsv:2", "node id", "found none"]);
        write("labels.tsv", &format!("id,label\n{},1\n{},1,2\n", name(ids, 7), name(ids, 8)));
        refused(&options, &["labels.tsv:3", "expected 2 columns", "found 3"]);
        write("labels.tsv", &format!("id,label\n{},\n", name(ids, 7)));
        refused(&options, &["labels.tsv", "no node has a label"]);

        // A table of features has each node.
        options.nodes.data.labels = None;
        options.nodes.data.features = Some(folder.path().join("features.csv").into());
        write_tables(folder.path(), ids, &shuffled(nodes)[..38]);
        refused(&options, &["features.csv", "2 of the 40 nodes", "for example", "add their rows"]);
        write_tables(folder.path(), ids, &[shuffled(nodes), vec![3]].concat());
        refused(&options, &["features.csv:42", &name(ids, 3), "twice"]);
        if ids == ExternalIds::Dense {
            options.nodes.data.ids = Some(folder.path().join("features.csv").into());
            refused(&options, &["--node-ids", "without ids", "omit"]);
        }
    }
}
