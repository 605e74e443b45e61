//! The same graph in every accepted format gives the same store, byte for byte.

use std::{
    collections::BTreeMap,
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_storage::Store;
use grappa_tests::{
    archive::{gzip, write_npz},
    files::assert_same,
    folder::ProgramFolder,
    graph::{Graph, GraphFiles, SPLITS},
    npy::Npy,
    parquet::{Column, write_parquet, write_table},
    program::{self, CommandWords, run},
};

/// A graph, its files, and its store.
struct Fixture {
    folder: ProgramFolder,
    graph: Graph,
    files: GraphFiles,
    store: BTreeMap<PathBuf, Vec<u8>>,
}

impl Deref for Fixture {
    type Target = ProgramFolder;

    fn deref(&self) -> &ProgramFolder {
        &self.folder
    }
}

impl Fixture {
    fn new() -> Self {
        let folder = ProgramFolder::new();
        let graph = Graph::random(3, 500, 4000, 9);
        let files = graph.write(folder.root());
        let mut fixture = Self { folder, graph, files, store: BTreeMap::new() };
        run(&mut fixture.ingest(&fixture.files, "")).success();
        fixture.store = fixture.folder.files("same.grappa");
        fixture.remove("same.grappa");
        fixture
    }

    /// Ingests files of the graph, with the options that the store depends on.
    fn ingest(&self, files: &GraphFiles, more: &str) -> Command {
        let mut command = program::ingest(&files.edges, &self.path("same.grappa"));
        command.words("--chunks 5 --seed 11 --nodes 500").words(more);
        files.node_arguments(&mut command);
        command
    }

    /// Runs a command that must make the same store.
    #[track_caller]
    fn same(&self, command: &mut Command) {
        run(command).success();
        let out = self.path("same.grappa");
        let mut expected = self.store.clone();
        // A table has names of columns, and an array has none: the store of a table has a schema, which its manifest
        // lists.
        if out.join("schema").exists() {
            for name in ["schema", "manifest"] {
                fs::remove_file(out.join(name)).unwrap();
                expected.remove(Path::new(name));
            }
        }
        assert_same(&out, &expected, &format!("{command:?}"));
        fs::remove_dir_all(out).unwrap();
    }

    /// Checks that another file of edges gives the same store.
    #[track_caller]
    fn same_edges(&self, edges: &Path, more: &str) {
        let files = GraphFiles { edges: edges.to_owned(), ..self.files.clone() };
        self.same(&mut self.ingest(&files, more));
    }

    /// Checks that other files of features, labels or splits give the same store.
    #[track_caller]
    fn same_nodes(&self, change: impl FnOnce(&mut GraphFiles)) {
        let mut files = self.files.clone();
        change(&mut files);
        self.same(&mut self.ingest(&files, ""));
    }

    /// Writes an array. Returns its path.
    fn npy(&self, name: &str, array: &Npy) -> PathBuf {
        self.write(name, array.encode())
    }

    /// Writes a table in Parquet. Returns its path.
    fn table(&self, name: &str, columns: &[(&str, Column<'_>)], group_rows: usize) -> PathBuf {
        let path = self.path(name);
        write_table(&path, columns, group_rows);
        path
    }
}

/// A line for each value.
fn lines<T: ToString>(values: &[T]) -> String {
    values.iter().map(|value| value.to_string() + "\n").collect()
}

/// A line for each feature row.
fn feature_lines(graph: &Graph) -> String {
    let line = |row: &[f32]| row.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
    lines(&graph.features.chunks(graph.dim).map(line).collect::<Vec<_>>())
}

/// Labels as floats, with NaN for none.
fn float_labels(graph: &Graph) -> impl Iterator<Item = f32> {
    graph.labels.iter().map(|&label| if label < 0 { f32::NAN } else { label as f32 })
}

#[test]
fn edges_in_any_text_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let tsv = graph.text('\t');
    let headed = format!("source,target\n{}", graph.text(','));
    let (first, second) = tsv.split_at(tsv.len() / 2);
    let members = [gzip(first), gzip(second)].concat();
    let frames = [first, second].map(|part| zstd::encode_all(part.as_bytes(), 1).unwrap());
    for (name, bytes, more) in grappa_skip::cases![
        "spaces.txt", graph.text(' ').into_bytes(), "";
        "comment.tsv", format!("# source target\n% more\n\n{tsv}").into_bytes(), "";
        "dos.tsv", tsv.replace('\n', "\r\n").into_bytes(), "";
        "unended.tsv", tsv.trim_end().into(), "";
        "plain.csv", graph.text(',').into_bytes(), "";
        "headed.csv", headed.clone().into_bytes(), "";
        "headed", headed.into_bytes(), "--format csv";
        "edges.tsv.gz", gzip(&tsv), "";
        "members.tsv.gz", members, "";
        "edges.tsv.zst", frames.concat(), "";
    ] {
        fixture.same_edges(&fixture.write(name, bytes), more);
    }
}

#[test]
fn edges_in_several_files_give_the_same_store() {
    let fixture = Fixture::new();
    let text = fixture.graph.text('\t');
    let half = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let first = fixture.write("first.tsv", &text[..half]);
    let second = fixture.write("second.tsv.gz", gzip(&text[half..]));
    fixture.same_edges(&first, &format!("--edges {}", second.display()));
}

#[test]
fn edges_in_binary_files_give_the_same_store() {
    let fixture = Fixture::new();
    let edges = &fixture.graph.edges;
    let count = edges.len();
    let rows: Vec<u64> = edges.iter().flat_map(|&(source, target)| [source, target]).collect();
    let columns: Vec<u64> = edges.iter().map(|edge| edge.0).chain(edges.iter().map(|edge| edge.1)).collect();
    let signed = |ids: &[u64]| ids.iter().map(|&id| id as i64).collect::<Vec<_>>();
    for array in [
        Npy::new(&[count, 2], signed(&rows)),
        Npy::new(&[count, 2], rows.iter().copied()),
        Npy::new(&[count, 2], rows.iter().map(|&id| id as i32)),
        Npy::new(&[2, count], signed(&columns)),
        Npy::new(&[2, count], columns.iter().map(|&id| id as u32)),
    ] {
        fixture.same_edges(&fixture.npy("edges.npy", &array), "");
        fixture.same_edges(&fixture.npy("edges.bin", &array), "--format npy");
    }
    let narrow: Vec<u8> = rows.iter().flat_map(|&id| (id as u32).to_le_bytes()).collect();
    let wide: Vec<u8> = rows.iter().flat_map(|id| id.to_le_bytes()).collect();
    fixture.same_edges(&fixture.write("edges.u32", &narrow), "");
    fixture.same_edges(&fixture.write("narrow.bin", &narrow), "--format u32");
    fixture.same_edges(&fixture.write("wide.bin", &wide), "--format u64");
    let parquet = fixture.path("edges.parquet");
    write_parquet(&parquet, edges, None);
    fixture.same_edges(&parquet, "");
}

#[test]
fn features_labels_and_splits_in_any_format_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    let shape = [graph.nodes, graph.dim];
    let wide = Npy::new(&shape, graph.features.iter().map(|&x| f64::from(x)));
    let sparse = fixture.path("sparse.npz");
    write_npz(&sparse, &sparse_rows(graph));
    for features in [fixture.write("features.csv", feature_lines(graph)), fixture.npy("wide.npy", &wide), sparse] {
        fixture.same_nodes(|files| files.features = features);
    }
    for labels in [
        fixture.npy("labels-f32.npy", &Npy::new(&[graph.nodes], float_labels(graph))),
        fixture.write("labels.csv", lines(&graph.labels)),
    ] {
        fixture.same_nodes(|files| files.labels = labels);
    }
    // Lines, narrow integers, and a mask of the nodes, as in PyTorch Geometric.
    let [train, val, test] = &graph.splits;
    let is_in_test = |node: usize| u8::from(test.contains(&(node as i64)));
    let mask: Vec<u8> = (0..graph.nodes).map(is_in_test).collect();
    let splits = [
        fixture.write("train.txt", lines(train)),
        fixture.npy("narrow.npy", &Npy::new(&[val.len()], val.iter().map(|&id| id as i32))),
        fixture.npy("mask.npy", &Npy::raw("|b1", &[graph.nodes], mask)),
    ];
    fixture.same_nodes(|files| files.splits = splits);
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
    let columns = [("x", Column::Lists(dim, &lists)), ("id", Column::Integers(&ids))];
    let table = fixture.table("lists.parquet", &columns, 150);
    fixture.same_nodes(|files| files.features = table);

    // A table with everything, for both options.
    let of_column = |column: usize| rows.iter().map(|&node| row(node)[column]).collect::<Vec<f32>>();
    let values: Vec<Vec<f32>> = (0..dim).map(of_column).collect();
    let names: Vec<String> = (0..dim).map(|column| format!("f{column}")).collect();
    let mut columns = vec![("id", Column::Integers(&ids)), ("label", Column::Integers(&classes))];
    for (name, values) in names.iter().zip(&values) {
        columns.push((name, Column::Floats(values)));
    }
    let wide = fixture.table("wide.parquet", &columns, 150);
    let mut text = format!("id,label,{}\n", names.join(","));
    for &node in &rows {
        let values: String = row(node).iter().map(|value| format!(",{value}")).collect();
        text += &format!("{node},{}{values}\n", graph.labels[node]);
    }
    let text = fixture.write("wide.csv.gz", gzip(text));
    for table in [wide, text] {
        fixture.same_nodes(|files| (files.features, files.labels) = (table.clone(), table));
    }

    // Labels of the nodes that have one.
    let labelled: Vec<i64> = ids.iter().copied().filter(|&id| graph.labels[id as usize] >= 0).collect();
    assert!(labelled.len() < graph.nodes);
    let classes: Vec<i64> = labelled.iter().map(|&id| graph.labels[id as usize]).collect();
    let columns = [("node_id", Column::Integers(&labelled)), ("y", Column::Integers(&classes))];
    let labels = fixture.table("labels.parquet", &columns, 60);
    fixture.same_nodes(|files| files.labels = labels.clone());

    // They are not one row per node: neither the number of nodes, nor the number of ids of other rows.
    fixture.success("ingest --edges edges.tsv --labels labels.parquet --chunks 5 --seed 11 --out labelled");
    let store = Store::open(&fixture.path("labelled")).unwrap();
    assert_eq!(store.manifest().nodes, graph.nodes as u64);
    let in_order = fixture.npy("in-order.npy", &Npy::new(&[graph.nodes], 0..graph.nodes as i64));
    let files = GraphFiles { labels, ..fixture.files.clone() };
    fixture.same(fixture.ingest(&files, "").arg("--node-ids").arg(in_order));

    let train = fixture.table("train.parquet", &[("node", Column::Integers(&graph.splits[0]))], 7);
    fixture.same_nodes(|files| files.splits[0] = train);
}

#[test]
fn folders_of_parquet_files_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    for folder in ["edges", "nodes", "labels", "train"] {
        fixture.write(&format!("{folder}/_SUCCESS"), "");
    }
    for (number, edges) in graph.edges.chunks(1500).enumerate() {
        write_parquet(&fixture.path(&format!("edges/part.{number}.parquet")), edges, None);
    }
    let rows: Vec<i64> = (0..graph.nodes as i64).rev().collect();
    for (number, ids) in rows.chunks(47).enumerate() {
        let row = |&id: &i64| &graph.features[id as usize * graph.dim..][..graph.dim];
        let features: Vec<f32> = ids.iter().flat_map(row).copied().collect();
        let classes: Vec<i64> = ids.iter().map(|&id| graph.labels[id as usize]).collect();
        let id = ("id", Column::Integers(ids));
        let features = [("x", Column::Lists(graph.dim, &features)), id];
        fixture.table(&format!("nodes/part.{number}.parquet"), &features, 20);
        let labels = [id, ("y", Column::Integers(&classes))];
        fixture.table(&format!("labels/part.{number}.parquet"), &labels, 20);
    }
    for (number, ids) in graph.splits[0].chunks(5).enumerate() {
        fixture.table(&format!("train/part.{number}.parquet"), &[("id", Column::Integers(ids))], 3);
    }
    let [edges, features, labels, train] = ["edges", "nodes", "labels", "train"].map(|name| fixture.path(name));
    let files = GraphFiles {
        edges,
        features,
        labels,
        splits: [train, fixture.files.splits[1].clone(), fixture.files.splits[2].clone()],
    };
    fixture.same(&mut fixture.ingest(&files, ""));

    fixture.write("nodes/part.99.parquet", fixture.bytes("nodes/part.0.parquet"));
    let refused = run(&mut fixture.ingest(&files, ""));
    refused.failure(&["part.99.parquet at row 0", "is in this folder twice"]);
    fs::remove_file(fixture.path("nodes/part.99.parquet")).unwrap();
    fixture.write("train/part.99.parquet", fixture.bytes("train/part.1.parquet"));
    let there = "is there already, at row 0 of";
    let refused = run(&mut fixture.ingest(&files, ""));
    refused.failure(&["part.99.parquet at row 0", there, "part.1.parquet"]);
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
    let text = |separator: char| -> String {
        let line = |(&(source, target), weight)| format!("{source}{separator}{target}{separator}{weight}\n");
        edges.iter().zip(&weights).map(line).collect()
    };
    fixture.write("weights.tsv", text('\t'));
    fixture.write("weights.csv", format!("src,dst,weight\n{}", text(',')));
    write_parquet(&fixture.path("weights.parquet"), edges, Some(&weights));
    fixture.npy("pairs.npy", &Npy::new(&[edges.len(), 2], edges.iter().flat_map(|&(s, t)| [s, t])));
    fixture.npy("weights.npy", &Npy::new(&[edges.len()], weights.iter().copied()));
    let make = |files: &str| {
        let options = "--chunks 5 --seed 11 --nodes 500 --out weighted --force";
        fixture.success(&format!("ingest --edges {files} {options}"));
        fixture.folder.files("weighted")
    };
    let expected = make("weights.tsv");
    assert!(expected.contains_key(Path::new("chunk-0/weights")));
    for files in ["weights.csv", "weights.parquet", "pairs.npy --weights weights.npy"] {
        make(files);
        assert_same(&fixture.path("weighted"), &expected, files);
    }
}

#[test]
fn both_layouts_of_ogb_give_the_same_store() {
    let fixture = Fixture::new();
    let graph = &fixture.graph;
    for folder in ["text", "binary"] {
        for (name, ids) in ["train", "valid", "test"].iter().zip(&graph.splits) {
            fixture.write(&format!("{folder}/split/time/{name}.csv.gz"), gzip(lines(ids)));
        }
    }
    for (name, content) in [
        ("edge", graph.text(',')),
        ("num-node-list", format!("{}\n", graph.nodes)),
        ("num-edge-list", format!("{}\n", graph.edges.len())),
        ("node-feat", feature_lines(graph)),
        ("node-label", lines(&graph.labels)),
    ] {
        fixture.write(&format!("text/raw/{name}.csv.gz"), gzip(content));
    }
    let sources = graph.edges.iter().map(|edge| edge.0 as i64);
    let ends = sources.chain(graph.edges.iter().map(|edge| edge.1 as i64));
    let arrays = [
        ("edge_index", Npy::new(&[2, graph.edges.len()], ends)),
        ("node_feat", graph.features_npy()),
        ("num_nodes_list", Npy::new(&[1], [graph.nodes as i64])),
        ("num_edges_list", Npy::new(&[1], [graph.edges.len() as i64])),
    ];
    fs::create_dir(fixture.path("binary/raw")).unwrap();
    write_npz(&fixture.path("binary/raw/data.npz"), &arrays);
    let labels = Npy::new(&[graph.nodes, 1], float_labels(graph));
    write_npz(&fixture.path("binary/raw/node-label.npz"), &[("node_label", labels)]);
    for folder in ["text", "binary"] {
        let options = "--out same.grappa --chunks 5 --seed 11";
        fixture.same(&mut fixture.command(&format!("ingest --ogb {folder} {options}")));
    }
}

#[test]
fn the_splits_have_their_names() {
    let fixture = Fixture::new();
    for name in SPLITS {
        let path = format!("splits/{name}.roaring");
        assert!(fixture.store.contains_key(Path::new(&path)), "{name}");
    }
}
