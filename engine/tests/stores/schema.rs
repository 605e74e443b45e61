//! Names of features and classes, from the input to the store.

use std::{fs, path::Path};

use grappa_engine::{
    export::{
        Budget,
        columns::{export_features, export_labels},
    },
    verify::verify,
};
use grappa_formats::{
    manifest::ExternalIds,
    schema::{Column, Schema},
};
use grappa_ingestion::ingest::{IngestOptions, NodeData, NodeIngest, StoreLayout, ingest};
use grappa_input::TableOptions;
use grappa_io::progress::Silent;
use grappa_storage::{ExternalId, Store, files};

use crate::{
    common::{self, resumes_to_the_same_store},
    node_ids::{name, refused, shuffled, write_edges},
};

const PLANS: [&str; 4] = ["gold", "free", "", "silver, old"];

/// Writes a table of features, and one of labels in another order.
fn write_tables(folder: &Path, rows: &[u64]) {
    let features = |&k: &u64| format!("{k}.5,{},{}\n", name(ExternalIds::String, k), k % 3);
    let body: String = rows.iter().map(features).collect();
    fs::write(folder.join("users.csv"), format!("age,id,visits\n{body}")).unwrap();
    let label = |&k: &u64| format!("\"{}\",{}\n", PLANS[k as usize % 4], name(ExternalIds::String, k));
    let body: String = rows.iter().rev().map(label).collect();
    fs::write(folder.join("plans.csv"), format!("plan,user\n{body}")).unwrap();
}

fn options(folder: &Path) -> IngestOptions {
    let mut options = IngestOptions {
        nodes: NodeIngest {
            ids: ExternalIds::String,
            data: NodeData {
                features: Some(folder.join("users.csv").into()),
                labels: Some(folder.join("plans.csv").into()),
                ..NodeData::default()
            },
            layout: StoreLayout { chunks: Some(4), seed: 7, ..StoreLayout::default() },
            ..common::options(folder, &folder.join("edges.tsv")).nodes
        },
        ..common::options(folder, &folder.join("edges.tsv"))
    };
    options.nodes.data.tables.columns =
        TableOptions { id: vec!["id".into(), "user".into()], label: vec!["plan".into()], ..TableOptions::default() };
    options
}

fn schema(features: &[&str], classes: &[&str]) -> Schema {
    Schema {
        features: features.iter().copied().map(Column::number).collect(),
        classes: classes.iter().map(|&class| class.to_owned()).collect(),
        ..Schema::default()
    }
}

#[test]
fn names_of_columns_and_classes_are_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::String, 60);
    write_tables(folder.path(), &shuffled(60));
    let options = options(folder.path());
    let expected = schema(&["age", "visits"], &["free", "gold", "silver, old"]);
    let summary = ingest(&options, &Silent).unwrap();
    assert_eq!(summary.schema, expected);
    let store = Store::open(&options.out).unwrap();
    assert_eq!(store.schema().unwrap(), expected);
    assert!(verify(&options.out, 1, &Silent).unwrap().is_ok());
    for k in 0..60 {
        let id = ExternalId::String(name(ExternalIds::String, k).into_bytes());
        let node = store.node(&id).unwrap().unwrap();
        let chunk = store.chunks().chunk_of(node);
        let labels = store.labels(chunk, grappa_io::map::Access::Random).unwrap().unwrap();
        let row = node.0 - store.chunks().range(chunk).start;
        let class = labels.single(row).unwrap();
        let found = class.map_or("", |class| &expected.classes[class as usize]);
        assert_eq!(found, PLANS[k as usize % 4], "node {k}");
    }
}

#[test]
fn a_store_without_names_has_no_schema() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::Dense, 3);
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        fs::write(&path, text).unwrap();
        Some(path)
    };
    for (case, features, labels, expected) in grappa_skip::cases![
        "none", "1,2\n3,4\n5,6\n", "0\n1\n2\n", schema(&[], &[]);
        "features", "f1,f0\n1,2\n3,4\n5,6\n", "0\n1\n2\n", schema(&["f1", "f0"], &[]);
        "sets", "1,2\n3,4\n5,6\n", "b,a\n0,1\n1,1\n0,0\n", schema(&[], &["b", "a"]);
    ] {
        let options = IngestOptions {
            out: folder.path().join(format!("{case}.grappa")),
            nodes: NodeIngest {
                data: NodeData {
                    features: write("features.csv", features).map(Into::into),
                    labels: write("labels.csv", labels).map(Into::into),
                    ..NodeData::default()
                },
                ..common::options(folder.path(), &folder.path().join("edges.tsv")).nodes
            },
            ..common::options(folder.path(), &folder.path().join("edges.tsv"))
        };
        ingest(&options, &Silent).unwrap();
        let store = Store::open(&options.out).unwrap();
        assert_eq!(store.schema().unwrap(), expected, "{case}");
        assert_eq!(options.out.join("schema").exists(), !expected.is_empty(), "{case}");
    }
}

#[test]
fn columns_with_the_same_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::String, 3);
    write_tables(folder.path(), &shuffled(3));
    let options = options(folder.path());
    fs::write(folder.path().join("users.csv"), "age,id,age\n1,n0,2\n").unwrap();
    refused(&options, &["users.csv", "two features have the name \"age\"", "rename"]);
}

#[test]
fn a_run_with_names_interrupted_anywhere_resumes_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::String, 5_000);
    write_tables(folder.path(), &shuffled(5_000));
    resumes_to_the_same_store(&options(folder.path()), 1..20);
}

#[test]
fn exported_tables_bring_the_names_back() {
    let folder = tempfile::tempdir().unwrap();
    write_edges(folder.path(), ExternalIds::String, 60);
    write_tables(folder.path(), &shuffled(60));
    let options = options(folder.path());
    ingest(&options, &Silent).unwrap();
    let store = Store::open(&options.out).unwrap();
    let budget = Budget { memory: 64 << 20, threads: 2 };
    for format in ["csv", "parquet"] {
        let [features, labels] = ["features", "labels"].map(|name| folder.path().join(format!("{name}.{format}")));
        export_features(&store, features.as_path(), &budget, &Silent).unwrap();
        export_labels(&store, labels.as_path(), &budget, &Silent).unwrap();
        let mut again = IngestOptions {
            out: folder.path().join(format!("{format}.grappa")),
            nodes: NodeIngest {
                data: NodeData {
                    features: Some(features.into()),
                    labels: Some(labels.into()),
                    ..options.nodes.data.clone()
                },
                ..options.nodes.clone()
            },
            ..options.clone()
        };
        again.nodes.data.tables.columns = TableOptions::default();
        ingest(&again, &Silent).unwrap();
        let copy = Store::open(&again.out).unwrap();
        assert_eq!(copy.schema().unwrap(), store.schema().unwrap(), "{format}");
        for file in ["features", "labels"] {
            for chunk in 0..store.chunks().chunks() {
                let file = files::of_chunk(grappa_formats::ChunkId(chunk), file);
                let bytes = |store: &Store| fs::read(store.path().join(&file)).unwrap();
                assert_eq!(bytes(&copy), bytes(&store), "{} of {format}", file);
            }
        }
    }
}
