//! Inputs that could be read as something else: each gives the graph that its author means, or an error with the
//! options, or the command, that say it. Then the input is read with these options.
//!
//! The cases are in tables, in `misread/`. Ingest runs in this process, because a program for each would take most of
//! the time.

mod columns;
mod edges;
mod formats;
mod nodes;
mod odd;
mod tables;
mod whole;

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_engine::{
    EdgePart, IngestOptions, Silent, SplitFile, Store,
    export::{
        Budget,
        columns::{export_features, export_labels},
        edges::{EdgeColumns, export_edges},
    },
    ingest,
};
use grappa_formats::{manifest::ExternalIds, schema::CategoryForm};
use grappa_input::{Comments, EdgeFormat as InputFormat, HeaderLine, MissingOptions, OnBadLine, Separator};
use grappa_tests::folder::ProgramFolder;

/// A graph that is read from an input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpectedGraph {
    /// Edges as `a>b`, or `a>b:weight`, with `&` between them.
    pub(crate) edges: &'static str,
    /// The features of all nodes in the order of their ids: numbers separated by commas, rows by blanks. Empty: not
    /// compared.
    pub(crate) features: &'static str,
    /// The label of each node. Empty: not compared.
    pub(crate) labels: &'static str,
}

impl ExpectedGraph {
    pub(crate) const fn new(edges: &'static str, features: &'static str, labels: &'static str) -> Self {
        Self { edges, features, labels }
    }
}

/// A file that all inputs of a table have: its name, its text, and the edges that are read from it.
type SharedFile = (&'static str, &'static str, &'static str);

/// Edges of a triangle.
const TRIANGLE: SharedFile = ("e.txt", "0 1\n1 2\n2 0\n", "0>1&1>2&2>0");

/// Checks a table of inputs. A line that begins with `--` has the options of the inputs below it.
///
/// An input that is read is `FILE: TEXT | READING | GRAPH`, with a part of what the summary says. An input that is
/// refused is `FILE: TEXT | !ERROR | REMEDY | GRAPH`, with parts of the error, between ` && ` if there are several. The
/// remedy is options or a command: it is applied if there is a graph. ` + ` separates files. A graph is `EDGES |
/// FEATURES | LABELS`, without the edges if they are in a shared file.
fn check_inputs(shared: Option<SharedFile>, table: &[&'static str]) {
    let mut arguments = "";
    for line in table {
        if line.starts_with("--") {
            arguments = line;
        } else {
            check_input(shared, arguments, line);
        }
    }
}

fn check_input(shared: Option<SharedFile>, arguments: &str, line: &'static str) {
    let mut fields = line.split(" | ");
    let files = fields.next().unwrap().split(" + ").filter_map(|file| file.split_once(": "));
    let shared_text = shared.iter().map(|&(name, text, _)| (name, text));
    let files: Vec<_> = files.chain(shared_text).collect();
    let said = fields.next().unwrap();
    let remedy = said.strip_prefix('!').map(|_| fields.next().unwrap_or_default());
    let is_read = remedy.is_none() || fields.clone().next().is_some();
    let edges = match shared {
        Some((_, _, edges)) => edges,
        None => fields.next().unwrap_or_default(),
    };
    let mut next = || fields.next().unwrap_or_default();
    let graph = ExpectedGraph::new(edges, next(), next());

    let context = format!("{arguments}: {line:?}");
    let folder = IngestFolder::new();
    for (name, text) in &files {
        folder.write(name, text);
    }
    let Some(remedy) = remedy else {
        return folder.expect(arguments, said, graph, &context);
    };
    let error = folder.expect_error(arguments, &[&said[1..], remedy], &context);
    if !is_read {
        return;
    }
    if remedy.starts_with("--") {
        folder.expect(&format!("{arguments} {remedy}"), "", graph, &context);
    } else {
        let command = error[error.find(remedy).unwrap()..].split(" (or if this is METIS").next();
        let ran = Command::new("sh").args(["-c", command.unwrap()]).current_dir(folder.path("")).status();
        assert!(ran.unwrap().success(), "{command:?}");
        folder.expect(&arguments.replacen(files[0].0, "NEW", 1), "", graph, &context);
    }
}

/// A folder in which inputs are read.
pub(crate) struct IngestFolder(ProgramFolder);

impl Deref for IngestFolder {
    type Target = ProgramFolder;

    fn deref(&self) -> &ProgramFolder {
        &self.0
    }
}

impl IngestFolder {
    pub(crate) fn new() -> Self {
        Self(ProgramFolder::new())
    }

    /// Reads the input. Returns what the summary says, or the error.
    pub(crate) fn ingest(&self, arguments: &str) -> Result<String, String> {
        let _ = fs::remove_dir_all(self.path("out.grappa"));
        let options = options(self.root(), arguments);
        let summary = ingest(&options, &Silent).map_err(|error| error.to_string())?;
        Ok(summary.readings.iter().map(|reading| format!("{reading}\n")).collect())
    }

    /// Checks that the input is refused with an error that has these parts, between ` && `, and that no store is left,
    /// not even a part of one. Returns the error.
    #[track_caller]
    pub(crate) fn expect_error(&self, arguments: &str, parts: &[&str], context: &str) -> String {
        let error = self.ingest(arguments).expect_err(context);
        for part in parts.iter().flat_map(|parts| parts.split(" && ")) {
            assert!(error.contains(part), "{part:?} is not in: {error}\n{context}");
        }
        for name in ["out.grappa", "out.grappa.partial"] {
            assert!(!self.path(name).exists(), "{name} is left behind: {context}");
        }
        error
    }

    /// Checks that the input is read as this graph, and that the summary has this part.
    #[track_caller]
    pub(crate) fn expect(&self, arguments: &str, says: &str, graph: ExpectedGraph, context: &str) {
        let said = self.ingest(arguments).unwrap_or_else(|error| panic!("{error}\n{context}"));
        assert!(said.contains(says), "{says:?} is not in: {said}\n{context}");
        let mut found: Vec<_> = self.exported("exported.tsv").lines().map(edge).collect();
        let store = self.store();
        let has_header = store.manifest().ids.external == ExternalIds::String;
        found.drain(..usize::from(has_header));
        let expected = graph.edges.split('&').filter(|edge| !edge.is_empty());
        let mut expected: Vec<_> = expected.map(str::to_owned).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{context}\n{said}");
        let rows = store.manifest().nodes as usize;
        let path = self.path("exported.npy");
        if !graph.features.is_empty() {
            let _ = fs::remove_file(&path);
            export_features(&store, &path, &BUDGET, &Silent).unwrap();
            let found = rows_of(&path, rows, f32::from_le_bytes);
            assert_eq!(found, graph.features, "{context}\n{said}");
        }
        if !graph.labels.is_empty() {
            let _ = fs::remove_file(&path);
            export_labels(&store, &path, &BUDGET, &Silent).unwrap();
            let found = rows_of(&path, rows, i64::from_le_bytes);
            assert_eq!(found, graph.labels, "{context}\n{said}");
        }
    }

    /// The store that was read last.
    fn store(&self) -> Store {
        Store::open(&self.path("out.grappa")).unwrap()
    }

    /// The edges of the store, exported to a file with this name.
    fn exported(&self, name: &str) -> String {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        export_edges(&self.store(), EdgePart::Graph, EdgeColumns::All, &path, &BUDGET, &Silent).unwrap();
        fs::read_to_string(path).unwrap()
    }
}

/// What exports may take.
const BUDGET: Budget = Budget { threads: 1, memory: 64 << 20 };

/// An exported edge as `a>b`, or `a>b:weight`.
fn edge(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields[..] {
        [source, target] => format!("{source}>{target}"),
        [source, target, weight] => format!("{source}>{target}:{weight}"),
        _ => line.to_owned(),
    }
}

/// The rows of an array.
fn rows_of<const BYTES: usize, T: ToString>(path: &Path, rows: usize, value: fn([u8; BYTES]) -> T) -> String {
    let bytes = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values: Vec<String> = bytes[header..].as_chunks().0.iter().map(|&bytes| value(bytes).to_string()).collect();
    let rows: Vec<String> = values.chunks(values.len() / rows).map(|row| row.join(",")).collect();
    rows.join(" ")
}

/// The words of a command line: a word may be in single quotes.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// The options of these arguments, which `grappa-ingest` has under the same names.
fn options(folder: &Path, arguments: &str) -> IngestOptions {
    let mut options = IngestOptions::new(Vec::<PathBuf>::new(), folder.join("out.grappa"));
    (options.resources.memory, options.resources.threads) = (64 << 20, 1);
    let words = words(arguments);
    let mut rest = &words[..];
    while let [option, after @ ..] = rest {
        let value = after.first().map_or("", String::as_str);
        rest = after.get(1..).unwrap_or_default();
        let path = folder.join(value);
        let columns = &mut options.nodes.data.tables.columns;
        match option.as_str() {
            "--edges" => {
                options.edges.files.push(path.into());
                while let [file, after @ ..] = rest
                    && !file.starts_with("--")
                {
                    options.edges.files.push(folder.join(file).into());
                    rest = after;
                }
            }
            "--ids" if value == "string" => options.nodes.ids = ExternalIds::String,
            "--ids" if value == "sparse" => options.nodes.ids = ExternalIds::Sparse,
            "--nodes" => options.nodes.number = Some(value.parse().unwrap()),
            "--features" => options.nodes.data.features = Some(path.into()),
            "--labels" => options.nodes.data.labels = Some(path.into()),
            "--node-ids" => options.nodes.data.ids = Some(path.into()),
            "--weights" => options.edges.form.weights = Some(path.into()),
            "--train" => options.nodes.splits.files.push(SplitFile { name: "train", ids: path.into() }),
            "--val" => options.nodes.splits.files.push(SplitFile { name: "val", ids: path.into() }),
            "--test" => options.nodes.splits.files.push(SplitFile { name: "test", ids: path.into() }),
            "--allow-nan" => {
                options.nodes.data.allow_nan = true;
                rest = after;
            }
            "--format" if value == "u64" => options.edges.form.format = InputFormat::U64,
            "--src" => options.edges.form.columns.source = Some(value.to_owned()),
            "--dst" => options.edges.form.columns.target = Some(value.to_owned()),
            "--weight" => options.edges.form.columns.weight = Some(value.to_owned()),
            "--id" => columns.id = names(value),
            "--label" => columns.label = names(value),
            "--features-from" => columns.features = names(value),
            "--split-column" => columns.split = names(value),
            "--missing" => {
                let columns = value.split(',').map(|column| column.parse().unwrap());
                options.nodes.data.encoding.missing = MissingOptions(columns.collect());
            }
            "--categories" if value == "index" => options.nodes.data.encoding.categories = Some(CategoryForm::Index),
            "--categories" => options.nodes.data.encoding.categories = Some(CategoryForm::OneHot),
            "--categories-max" => options.nodes.data.encoding.categories_max = Some(value.parse().unwrap()),
            "--schema-of" => options.nodes.data.encoding.schema = Some(Store::open(&path).unwrap().schema().unwrap()),
            "--separator" => options.edges.form.separator = Some(value.parse::<Separator>().unwrap()),
            "--table-separator" => options.nodes.data.tables.separator = Some(value.parse::<Separator>().unwrap()),
            "--header" if value == "yes" => options.edges.form.header = HeaderLine::Yes,
            "--header" => options.edges.form.header = HeaderLine::No,
            "--comments" if value == "yes" => options.edges.form.comments = Comments::Yes,
            "--comments" => options.edges.form.comments = Comments::No,
            "--on-bad-line" => options.edges.form.on_bad_line = OnBadLine::Skip,
            _ => panic!("{option} {value} is not an option of these tests"),
        }
    }
    options
}

/// Names that are separated by commas.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}
