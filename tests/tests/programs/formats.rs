//! The same graph in every accepted format gives the same store, byte for byte.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_storage::Store;
use grappa_tests::{
    archive::{gzip, write_npz},
    files::{assert_same, files_of},
    graph::{Graph, GraphFiles, SPLITS},
    npy::Npy,
    parquet::{Column, write_parquet, write_table},
    program::{self, CommandWords, command, run},
};
use tempfile::TempDir;

/// A graph, its files, and its store.
struct Fixture {
    folder: TempDir,
    graph: Graph,
    files: GraphFiles,
    store: BTreeMap<PathBuf, Vec<u8>>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let graph = Graph::random(3, 500, 4000, 9);
        let files = graph.write(folder.path());
        let out = folder.path().join("expected.grappa");
        let mut command = program::ingest(&files.edges, &out);
        run(files.node_arguments(options(&mut command))).success();
        let store = files_of(&out);
        Self {
            folder,
            graph,
            files,
            store,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs a command that must make the same store.
    #[track_caller]
    fn same(&self, command: &mut Command, out: &Path) {
        run(command).success();
        let mut expected = self.store.clone();
        // A table has names of columns, and an array has none: the store of a table has a schema, which its manifest lists.
        if out.join("schema").exists() {
            for name in ["schema", "manifest"] {
                fs::remove_file(out.join(name)).unwrap();
                expected.remove(Path::new(name));
            }
        }
        assert_same(out, &expected, &format!("{command:?}"));
        fs::remove_dir_all(out).unwrap();
    }

    /// Checks that another file of edges gives the same store.
    #[track_caller]
    fn same_edges(&self, edges: &Path, more: &[&str]) {
        let out = self.path("same.grappa");
        let mut command = program::ingest(edges, &out);
        self.files.node_arguments(options(&mut command));
        self.same(command.args(more), &out);
    }

    /// Checks that another file of features, labels or splits gives the same store.
    #[track_caller]
    fn same_nodes(&self, change: impl FnOnce(&mut GraphFiles)) {
        let out = self.path("same.grappa");
        let mut files = self.files.clone();
        change(&mut files);
        let mut command = program::ingest(&files.edges, &out);
        self.same(files.node_arguments(options(&mut command)), &out);
    }
}

/// Options that the store depends on.
fn options(command: &mut Command) -> &mut Command {
    command.words("--chunks 5 --seed 11 --nodes 500")
}

#[test]
fn edges_in_any_text_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let tsv = graph.text('\t');
    fixture.same_edges(&fixture.write("spaces.txt", graph.text(' ')), &[]);
    fixture.same_edges(
        &fixture.write("comment.tsv", format!("# source target\n% more\n\n{tsv}")),
        &[],
    );
    fixture.same_edges(&fixture.write("dos.tsv", tsv.replace('\n', "\r\n")), &[]);
    fixture.same_edges(&fixture.write("unended.tsv", tsv.trim_end()), &[]);
    fixture.same_edges(&fixture.write("plain.csv", graph.text(',')), &[]);
    let headed = format!("source,target\n{}", graph.text(','));
    fixture.same_edges(&fixture.write("headed.csv", &headed), &[]);
    fixture.same_edges(&fixture.write("headed", &headed), &["--format", "csv"]);
    fixture.same_edges(&fixture.write("edges.tsv.gz", gzip(tsv.as_bytes())), &[]);
    let (first, second) = tsv.split_at(tsv.len() / 2);
    let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    fixture.same_edges(&fixture.write("members.tsv.gz", members), &[]);
    let frames = [first, second].map(|part| zstd::encode_all(part.as_bytes(), 1).unwrap());
    fixture.same_edges(&fixture.write("edges.tsv.zst", frames.concat()), &[]);
}

#[test]
fn edges_in_several_files_give_the_same_store() {
    let fixture = Fixture::new();
    let lines = fixture.graph.text('\t');
    let half = lines[..lines.len() / 2].rfind('\n').unwrap() + 1;
    let first = fixture.write("first.tsv", &lines[..half]);
    let second = fixture.write("second.tsv.gz", gzip(&lines.as_bytes()[half..]));
    let out = fixture.path("same.grappa");
    let mut command = program::ingest(&first, &out);
    command.arg("--edges").arg(&second);
    fixture.files.node_arguments(options(&mut command));
    fixture.same(&mut command, &out);
}

#[test]
fn edges_in_binary_files_give_the_same_store() {
    let fixture = Fixture::new();
    let edges = &fixture.graph.edges;
    let count = edges.len();
    let rows = || edges.iter().flat_map(|&(source, target)| [source, target]);
    let columns = || edges.iter().map(|edge| edge.0).chain(edges.iter().map(|edge| edge.1));
    let arrays = [
        ("rows-i64", Npy::new(&[count, 2], rows().map(|id| id as i64))),
        ("rows-u64", Npy::new(&[count, 2], rows())),
        ("rows-i32", Npy::new(&[count, 2], rows().map(|id| id as i32))),
        ("columns-i64", Npy::new(&[2, count], columns().map(|id| id as i64))),
        ("columns-u32", Npy::new(&[2, count], columns().map(|id| id as u32))),
    ];
    for (name, array) in &arrays {
        let path = fixture.path(&format!("{name}.npy"));
        array.write(&path);
        fixture.same_edges(&path, &[]);
        fixture.same_edges(&path, &["--format", "npy"]);
    }
    let narrow: Vec<u8> = rows().flat_map(|id| (id as u32).to_le_bytes()).collect();
    let wide: Vec<u8> = rows().flat_map(u64::to_le_bytes).collect();
    fixture.same_edges(&fixture.write("edges.u32", &narrow), &[]);
    fixture.same_edges(&fixture.write("narrow.bin", &narrow), &["--format", "u32"]);
    fixture.same_edges(&fixture.write("wide.bin", &wide), &["--format", "u64"]);
    let parquet = fixture.path("edges.parquet");
    write_parquet(&parquet, edges, None);
    fixture.same_edges(&parquet, &[]);
}

#[test]
fn features_labels_and_splits_in_any_format_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let text: String = graph
        .features
        .chunks(graph.dim)
        .map(|row| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n")
        .collect();
    let features = fixture.write("features.csv", &text);
    fixture.same_nodes(|files| files.features = features);
    let wide = fixture.path("wide.npy");
    Npy::new(&[graph.nodes, graph.dim], graph.features.iter().map(|&x| f64::from(x))).write(&wide);
    fixture.same_nodes(|files| files.features = wide);
    let sparse = fixture.path("sparse.npz");
    write_npz(&sparse, &sparse_rows(graph));
    fixture.same_nodes(|files| files.features = sparse);

    let labels = fixture.path("labels-f32.npy");
    let value = |&label: &i64| if label < 0 { f32::NAN } else { label as f32 };
    Npy::new(&[graph.nodes], graph.labels.iter().map(value)).write(&labels);
    fixture.same_nodes(|files| files.labels = labels);
    let lines: String = graph.labels.iter().map(|label| format!("{label}\n")).collect();
    let labels = fixture.write("labels.csv", &lines);
    fixture.same_nodes(|files| files.labels = labels);

    let lines: String = graph.splits[0].iter().map(|id| format!("{id}\n")).collect();
    let train = fixture.write("train.txt", &lines);
    fixture.same_nodes(|files| files.splits[0] = train);
    let narrow = fixture.path("narrow.npy");
    Npy::new(&[graph.splits[1].len()], graph.splits[1].iter().map(|&id| id as i32)).write(&narrow);
    fixture.same_nodes(|files| files.splits[1] = narrow);
    // A mask of the nodes, as in PyTorch Geometric.
    let mask = fixture.path("mask.npy");
    let is_in = |node: usize| u8::from(graph.splits[2].contains(&(node as i64)));
    Npy::raw("|b1", &[graph.nodes], (0..graph.nodes).map(is_in).collect::<Vec<_>>()).write(&mask);
    fixture.same_nodes(|files| files.splits[2] = mask);
}

#[test]
fn tables_with_ids_in_any_order_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let dim = graph.dim;
    let rows: Vec<usize> = (0..graph.nodes).rev().collect();
    let ids: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let row = |node: usize| &graph.features[node * dim..][..dim];
    let classes: Vec<i64> = rows.iter().map(|&node| graph.labels[node]).collect();

    let lists: Vec<f32> = rows.iter().flat_map(|&node| row(node)).copied().collect();
    let list_table = fixture.path("lists.parquet");
    let columns = [("x", Column::Lists(dim, &lists)), ("id", Column::Integers(&ids))];
    write_table(&list_table, &columns, 150);
    fixture.same_nodes(|files| files.features = list_table);

    // A table with everything, for both options.
    let of_column = |column: usize| rows.iter().map(|&node| row(node)[column]).collect::<Vec<f32>>();
    let values: Vec<Vec<f32>> = (0..dim).map(of_column).collect();
    let names: Vec<String> = (0..dim).map(|column| format!("f{column}")).collect();
    let mut columns = vec![("id", Column::Integers(&ids)), ("label", Column::Integers(&classes))];
    columns.extend(
        names
            .iter()
            .zip(&values)
            .map(|(name, values)| (name.as_str(), Column::Floats(values))),
    );
    let wide = fixture.path("wide.parquet");
    write_table(&wide, &columns, 150);
    fixture.same_nodes(|files| (files.features, files.labels) = (wide.clone(), wide));
    let line = |&node: &usize| {
        let values = row(node).iter().map(|value| format!(",{value}")).collect::<String>();
        format!("{node},{}{values}\n", graph.labels[node])
    };
    let text = format!(
        "id,label,{}\n{}",
        names.join(","),
        rows.iter().map(line).collect::<String>()
    );
    let text = fixture.write("wide.csv.gz", gzip(text.as_bytes()));
    fixture.same_nodes(|files| (files.features, files.labels) = (text.clone(), text));

    // Labels of the nodes that have one.
    let labelled: Vec<i64> = ids
        .iter()
        .copied()
        .filter(|&id| graph.labels[id as usize] >= 0)
        .collect();
    assert!(labelled.len() < graph.nodes);
    let classes: Vec<i64> = labelled.iter().map(|&id| graph.labels[id as usize]).collect();
    let labels = fixture.path("labels.parquet");
    let columns = [
        ("node_id", Column::Integers(&labelled)),
        ("y", Column::Integers(&classes)),
    ];
    write_table(&labels, &columns, 60);
    fixture.same_nodes(|files| files.labels = labels.clone());

    // They are not one row per node: neither the number of nodes, nor that of the ids of other rows.
    let out = fixture.path("same.grappa");
    let mut command = program::ingest(&fixture.files.edges, &out);
    command.words("--chunks 5 --seed 11").arg("--labels").arg(&labels);
    run(&mut command).success();
    assert_eq!(Store::open(&out).unwrap().manifest().nodes, graph.nodes as u64);
    fs::remove_dir_all(&out).unwrap();
    let in_order = fixture.path("in-order.npy");
    Npy::new(&[graph.nodes], 0..graph.nodes as i64).write(&in_order);
    let mut files = fixture.files.clone();
    files.labels = labels;
    let mut command = program::ingest(&files.edges, &out);
    files
        .node_arguments(options(&mut command))
        .arg("--node-ids")
        .arg(in_order);
    fixture.same(&mut command, &out);

    let train = fixture.path("train.parquet");
    write_table(&train, &[("node", Column::Integers(&graph.splits[0]))], 7);
    fixture.same_nodes(|files| files.splits[0] = train);
}

#[test]
fn folders_of_parquet_files_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    for folder in ["edges", "nodes", "train"] {
        fs::create_dir(fixture.path(folder)).unwrap();
        fixture.write(&format!("{folder}/_SUCCESS"), "");
    }
    for (number, edges) in graph.edges.chunks(1500).enumerate() {
        write_parquet(&fixture.path(&format!("edges/part.{number}.parquet")), edges, None);
    }
    let rows: Vec<i64> = (0..graph.nodes as i64).rev().collect();
    for (number, ids) in rows.chunks(47).enumerate() {
        let of_ids = ids.iter().map(|&id| id as usize);
        let features: Vec<f32> = of_ids
            .clone()
            .flat_map(|node| &graph.features[node * graph.dim..][..graph.dim])
            .copied()
            .collect();
        let classes: Vec<i64> = of_ids.map(|node| graph.labels[node]).collect();
        let columns = [
            ("x", Column::Lists(graph.dim, &features)),
            ("id", Column::Integers(ids)),
        ];
        write_table(&fixture.path(&format!("nodes/part.{number}.parquet")), &columns, 20);
        let columns = [("id", Column::Integers(ids)), ("y", Column::Integers(&classes))];
        fs::create_dir_all(fixture.path("labels")).unwrap();
        write_table(&fixture.path(&format!("labels/part.{number}.parquet")), &columns, 20);
    }
    for (number, ids) in graph.splits[0].chunks(5).enumerate() {
        let path = fixture.path(&format!("train/part.{number}.parquet"));
        write_table(&path, &[("id", Column::Integers(ids))], 3);
    }
    fixture.same_nodes(|files| {
        files.edges = fixture.path("edges");
        files.features = fixture.path("nodes");
        files.labels = fixture.path("labels");
        files.splits[0] = fixture.path("train");
    });

    let out = fixture.path("twice.grappa");
    let mut files = fixture.files.clone();
    files.features = fixture.path("nodes");
    fs::copy(
        fixture.path("nodes/part.0.parquet"),
        fixture.path("nodes/part.99.parquet"),
    )
    .unwrap();
    let mut command = program::ingest(&files.edges, &out);
    run(files.node_arguments(options(&mut command))).failure(&["part.99.parquet at row 0", "is in this folder twice"]);
    let train = fixture.path("train");
    fs::copy(train.join("part.1.parquet"), train.join("part.99.parquet")).unwrap();
    let mut files = fixture.files.clone();
    files.splits[0] = train;
    let mut command = program::ingest(&files.edges, &out);
    let twice = [
        "part.99.parquet at row 0",
        "is there already, at row 0 of",
        "part.1.parquet",
    ];
    run(files.node_arguments(options(&mut command))).failure(&twice);
}

/// The features as `scipy.sparse.save_npz` writes them.
fn sparse_rows(graph: &Graph) -> [(&'static str, Npy); 4] {
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in graph.features.chunks(graph.dim) {
        for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as i32);
            values.push(value);
        }
        starts.push(values.len() as i64);
    }
    [
        ("indptr", Npy::new(&[starts.len()], starts)),
        ("indices", Npy::new(&[columns.len()], columns)),
        ("data", Npy::new(&[values.len()], values)),
        ("shape", Npy::new(&[2], [graph.nodes as i64, graph.dim as i64])),
    ]
}

#[test]
fn weights_in_any_format_give_the_same_store() {
    let fixture = Fixture::new();
    let edges = &fixture.graph.edges;
    let weights: Vec<f32> = (0..edges.len()).map(|k| (k % 97) as f32 / 8.0).collect();
    let lines = |separator: char| -> String {
        let line = |(&(source, target), weight)| format!("{source}{separator}{target}{separator}{weight}\n");
        edges.iter().zip(&weights).map(line).collect()
    };
    let out = fixture.path("expected-weights.grappa");
    let make = |edges: &Path, out: &Path, more: &[&str]| {
        run(options(&mut program::ingest(edges, out)).args(more)).success();
    };
    make(&fixture.write("weights.tsv", lines('\t')), &out, &[]);
    let expected = files_of(&out);
    assert!(expected.contains_key(Path::new("chunk-0/weights")));
    let parquet = fixture.path("weights.parquet");
    write_parquet(&parquet, edges, Some(&weights));
    let pairs = fixture.path("pairs.npy");
    Npy::new(&[edges.len(), 2], edges.iter().flat_map(|&(s, t)| [s, t])).write(&pairs);
    let column = fixture.path("weights.npy");
    Npy::new(&[edges.len()], weights.iter().copied()).write(&column);
    let csv = fixture.write("weights.csv", format!("src,dst,weight\n{}", lines(',')));
    let named = ["--weights", column.to_str().unwrap()];
    for (edges, more) in [(&csv, &[][..]), (&parquet, &[]), (&pairs, &named)] {
        let out = fixture.path("same.grappa");
        make(edges, &out, more);
        assert_same(&out, &expected, &edges.display().to_string());
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn both_layouts_of_ogb_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let text = fixture.path("ogbn-text");
    let binary = fixture.path("ogbn-binary");
    for folder in [&text, &binary] {
        fs::create_dir_all(folder.join("raw")).unwrap();
        let split = folder.join("split/time");
        fs::create_dir_all(&split).unwrap();
        for (name, ids) in ["train", "valid", "test"].iter().zip(&graph.splits) {
            let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
            fs::write(split.join(format!("{name}.csv.gz")), gzip(lines.as_bytes())).unwrap();
        }
    }
    let raw = |name: &str, content: &str| {
        fs::write(
            text.join("raw").join(format!("{name}.csv.gz")),
            gzip(content.as_bytes()),
        )
        .unwrap();
    };
    raw("edge", &graph.text(','));
    raw("num-node-list", &format!("{}\n", graph.nodes));
    raw("num-edge-list", &format!("{}\n", graph.edges.len()));
    let rows = graph.features.chunks(graph.dim);
    let row = |row: &[f32]| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n";
    raw("node-feat", &rows.map(row).collect::<String>());
    raw(
        "node-label",
        &graph
            .labels
            .iter()
            .map(|label| format!("{label}\n"))
            .collect::<String>(),
    );

    let ends = graph
        .edges
        .iter()
        .map(|edge| edge.0 as i64)
        .chain(graph.edges.iter().map(|edge| edge.1 as i64));
    let arrays = [
        ("edge_index", Npy::new(&[2, graph.edges.len()], ends)),
        ("node_feat", graph.features_npy()),
        ("num_nodes_list", Npy::new(&[1], [graph.nodes as i64])),
        ("num_edges_list", Npy::new(&[1], [graph.edges.len() as i64])),
    ];
    write_npz(&binary.join("raw/data.npz"), &arrays);
    let label = |&label: &i64| if label < 0 { f32::NAN } else { label as f32 };
    let labels = Npy::new(&[graph.nodes, 1], graph.labels.iter().map(label));
    write_npz(&binary.join("raw/node-label.npz"), &[("node_label", labels)]);

    for folder in [&text, &binary] {
        let out = fixture.path("same.grappa");
        let mut command = command("grappa-ingest");
        command.arg("--ogb").arg(folder).arg("--out").arg(&out);
        fixture.same(command.words("--chunks 5 --seed 11"), &out);
    }
}

#[test]
fn the_splits_have_their_names() {
    let fixture = Fixture::new();
    for name in SPLITS {
        assert!(
            fixture.store.contains_key(Path::new(&format!("splits/{name}.roaring"))),
            "{name}"
        );
    }
}
