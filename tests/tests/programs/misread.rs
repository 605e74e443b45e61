//! Inputs that could be read as something else: each gives the graph that its author means, or an error with the options, or the
//! command, that say it. Then the input is read with these options.
//!
//! The cases are in tables, in `misread/`. Ingest runs in this process, because a program for each would take most of the time.

mod columns;
mod edges;
mod formats;
mod odd;
mod tables;
mod twice;
mod whole;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_engine::{
    IngestOptions, Silent, SplitFile, Store,
    export::{
        ExportBudget,
        columns::{export_features, export_labels},
        edges::{EdgeFormat, export_edges},
    },
    ingest,
};
use grappa_formats::{manifest::ExternalIds, schema::CategoryForm};
use grappa_input::{Comments, HeaderLine, MissingOptions, OnBadLine, Separator};
use grappa_tests::files::memory_folder;
use tempfile::TempDir;

/// What an input means.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Graph {
    /// Edges as `a>b`, or `a>b:weight`, with `&` between them.
    pub(crate) edges: &'static str,
    /// The features of all nodes in the order of their ids: numbers separated by commas, rows by blanks. Empty: not compared.
    pub(crate) features: &'static str,
    /// The label of each node. Empty: not compared.
    pub(crate) labels: &'static str,
}

/// An input.
struct Case {
    /// Names and contents of files.
    files: &'static [(&'static str, &'static str)],
    /// Options of `grappa-ingest`, with names of files in the folder.
    arguments: &'static str,
    /// A part of the error, and the options or the command in it that say how to read the input. Empty: it is read as it is. The
    /// remedy is applied if the graph has edges.
    refused: &'static str,
    remedy: &'static str,
    /// A part of what the summary says.
    says: &'static str,
    graph: Graph,
}

/// A file that is read, with a part of what is said about it.
const fn read(
    files: &'static [(&'static str, &'static str)],
    arguments: &'static str,
    says: &'static str,
    edges: &'static str,
) -> Case {
    Case {
        files,
        arguments,
        refused: "",
        remedy: "",
        says,
        graph: Graph {
            edges,
            features: "",
            labels: "",
        },
    }
}

/// A file that is refused, and read with the remedy.
const fn refused(
    files: &'static [(&'static str, &'static str)],
    arguments: &'static str,
    refused: &'static str,
    remedy: &'static str,
    edges: &'static str,
) -> Case {
    Case {
        refused,
        remedy,
        ..read(files, arguments, "", edges)
    }
}

impl Case {
    const fn with_features(mut self, features: &'static str) -> Self {
        self.graph.features = features;
        self
    }

    const fn with_labels(mut self, labels: &'static str) -> Self {
        self.graph.labels = labels;
        self
    }

    fn check(&self) {
        let context = format!("{:?} {}", self.files, self.arguments);
        let folder = memory_folder();
        for (name, bytes) in self.files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let run = Run { folder };
        if self.refused.is_empty() {
            run.expect(self.arguments, self.says, self.graph, &context);
            return;
        }
        let error = match run.ingest(self.arguments) {
            Ok(_) => panic!("this must be refused: {context}"),
            Err(error) => error,
        };
        for part in [self.refused, self.remedy] {
            assert!(error.contains(part), "{part:?} is not in: {error}\n{context}");
        }
        if self.graph.edges.is_empty() {
            return;
        }
        if self.remedy.starts_with("--") {
            let arguments = format!("{} {}", self.arguments, self.remedy);
            run.expect(&arguments, self.says, self.graph, &context);
        } else if self.remedy.starts_with("awk") || self.remedy.starts_with("grep") {
            let command = error[error.find(self.remedy).unwrap()..]
                .split(" (or if this is METIS")
                .next()
                .unwrap();
            let ran = Command::new("sh")
                .args(["-c", command])
                .current_dir(run.folder.path())
                .status();
            assert!(ran.unwrap().success(), "{command}");
            let arguments = self.arguments.replacen(self.files[0].0, "NEW", 1);
            run.expect(&arguments, self.says, self.graph, &context);
        }
    }
}

/// A folder in which an input is read.
pub(crate) struct Run {
    pub(crate) folder: TempDir,
}

impl Run {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads the input. Returns what the summary says, or the error.
    pub(crate) fn ingest(&self, arguments: &str) -> Result<String, String> {
        let _ = fs::remove_dir_all(self.path("out.grappa"));
        let options = options(self.folder.path(), arguments);
        let summary = ingest(&options, &Silent).map_err(|error| error.to_string())?;
        Ok(summary.readings.iter().map(|reading| format!("{reading}\n")).collect())
    }

    pub(crate) fn expect(&self, arguments: &str, says: &str, graph: Graph, context: &str) {
        let said = self
            .ingest(arguments)
            .unwrap_or_else(|error| panic!("{error}\n{context}"));
        assert!(said.contains(says), "{says:?} is not in: {said}\n{context}");
        let store = Store::open(&self.path("out.grappa")).unwrap();
        let budget = ExportBudget {
            threads: 1,
            memory: 64 << 20,
        };
        let edges = self.path("exported.tsv");
        let _ = fs::remove_file(&edges);
        export_edges(&store, &edges, EdgeFormat::Tsv, &budget, &Silent).unwrap();
        let text = fs::read_to_string(&edges).unwrap();
        let has_header = store.manifest().ids.external == ExternalIds::String;
        let mut found: Vec<_> = text.lines().skip(usize::from(has_header)).map(edge).collect();
        let mut expected: Vec<_> = graph
            .edges
            .split('&')
            .filter(|edge| !edge.is_empty())
            .map(str::to_owned)
            .collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{context}\n{said}");
        if !graph.features.is_empty() {
            let path = self.path("exported-x.npy");
            let _ = fs::remove_file(&path);
            export_features(&store, &path, &budget, &Silent).unwrap();
            let rows = store.manifest().nodes as usize;
            assert_eq!(
                rows_of(&path, rows, f32::from_le_bytes),
                graph.features,
                "{context}\n{said}"
            );
        }
        if !graph.labels.is_empty() {
            let path = self.path("exported-y.npy");
            let _ = fs::remove_file(&path);
            export_labels(&store, &path, &budget, &Silent).unwrap();
            let rows = store.manifest().nodes as usize;
            assert_eq!(
                rows_of(&path, rows, i64::from_le_bytes),
                graph.labels,
                "{context}\n{said}"
            );
        }
    }
}

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
    let values: Vec<String> = bytes[header..]
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| value(bytes).to_string())
        .collect();
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
    let mut options = IngestOptions {
        edges: Vec::new(),
        memory: 64 << 20,
        threads: 1,
        ..IngestOptions::new(Vec::new(), folder.join("out.grappa"))
    };
    let words = words(arguments);
    let mut at = 0;
    while at < words.len() {
        let (option, value) = (words[at].as_str(), words[at + 1].clone());
        let names = || value.split(',').map(str::to_owned).collect();
        match option {
            "--edges" => {
                while let Some(file) = words.get(at + 1).filter(|word| !word.starts_with("--")) {
                    options.edges.push(folder.join(file));
                    at += 1;
                }
                at += 1;
                continue;
            }
            "--ids" => {
                options.ids = match value.as_str() {
                    "string" => ExternalIds::String,
                    "sparse" => ExternalIds::Sparse,
                    _ => ExternalIds::Dense,
                }
            }
            "--nodes" => options.nodes = Some(value.parse().unwrap()),
            "--features" => options.features = Some(folder.join(&value)),
            "--labels" => options.labels = Some(folder.join(&value)),
            "--node-ids" => options.node_ids = Some(folder.join(&value)),
            "--weights" => options.weights = Some(folder.join(&value)),
            "--train" => options.splits.push(SplitFile {
                name: "train",
                path: folder.join(&value),
            }),
            "--src" => options.edge_columns.source = Some(value),
            "--dst" => options.edge_columns.target = Some(value),
            "--weight" => options.edge_columns.weight = Some(value),
            "--id" => options.tables.columns.id = names(),
            "--label" => options.tables.columns.label = names(),
            "--features-from" => options.tables.columns.features = names(),
            "--missing" => {
                let columns = value.split(',').map(|column| column.parse().unwrap());
                options.encoding.missing = MissingOptions(columns.collect());
            }
            "--categories" => {
                options.encoding.categories = Some(match value.as_str() {
                    "index" => CategoryForm::Index,
                    _ => CategoryForm::OneHot,
                });
            }
            "--categories-max" => options.encoding.categories_max = Some(value.parse().unwrap()),
            "--schema-of" => {
                let store = Store::open(&folder.join(&value)).unwrap();
                options.encoding.schema = Some(store.schema().unwrap());
            }
            "--split-column" => options.tables.columns.split = names(),
            "--separator" => options.separator = Some(value.parse::<Separator>().unwrap()),
            "--table-separator" => options.tables.separator = Some(value.parse::<Separator>().unwrap()),
            "--header" => {
                options.header = if value == "yes" {
                    HeaderLine::Yes
                } else {
                    HeaderLine::No
                }
            }
            "--comments" => options.comments = if value == "yes" { Comments::Yes } else { Comments::No },
            "--on-bad-line" => options.on_bad_line = OnBadLine::Skip,
            _ => panic!("{option} is not an option of these tests"),
        }
        at += 2;
    }
    options
}
