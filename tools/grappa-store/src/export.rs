//! `grappa-store export`: writes a store to files, with the ids of the input.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use grappa_console::{Bars, ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    EdgePart, Store,
    export::{
        Budget, Exported,
        columns::{export_features, export_labels},
        edges::{EdgeColumns, export_edges},
        ids::export_ids,
        table::{TableFormat, TableOut},
    },
    io::durable::Destination,
};
use serde::Serialize;

use crate::args;

/// Names of files that would be text, and promise another format.
const OTHER_FORMATS: [&str; 7] = ["npz", "gz", "zst", "zip", "pt", "json", "feather"];

#[derive(Serialize)]
struct WrittenExport {
    files: Vec<ExportedFile>,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
}

#[derive(Serialize)]
struct ExportedFile {
    path: String,
    what: String,
    rows: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What<'a> {
    Edges(EdgePart),
    Weights,
    EdgeFeatures,
    Features,
    Labels,
    Ids,
    Split(&'a str),
}

pub fn run(options: &args::ExportArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let requests = requests(options);
    requests.iter().try_for_each(|(what, path)| check_name(*what, path))?;
    signals::stops_by_itself("removing the unfinished file");
    let store = Store::open(&options.store)?;
    check_requests(&store, &requests)?;
    let budget = Budget { threads: options.threads.get()?, memory: options.memory.0 };
    if let Some((what, _)) = requests.iter().find(|(_, path)| is_stdout(path)) {
        if console.json() || requests.len() > 1 {
            bail!("{} - prints on stdout, so --json and other exports are not possible; give it a file", what.option());
        }
        return print(&store, *what, &budget, console);
    }
    let replaces = options.force;
    requests.iter().try_for_each(|&(_, path)| Destination { path, replaces }.check())?;
    let bars = console.bars();
    let mut files = Vec::new();
    for (what, path) in requests {
        let exported = export(&store, what, Destination { path, replaces }.into(), &budget, &bars)?;
        if what == What::Edges(EdgePart::Graph) && has_extension(path, &["npy"]) {
            for (is_missing, values, option) in [
                (store.manifest().weighted && options.weights.is_none(), "weights", "--weights"),
                (store.edge_features().is_some() && options.edge_features.is_none(), "features", "--edge-features"),
            ] {
                if is_missing {
                    tracing::warn!(
                        "{} does not contain the edge {values}; export them with {option} FILE.npy",
                        path.display()
                    );
                }
            }
        }
        files.push(ExportedFile {
            path: path.display().to_string(),
            what: what.name().to_owned(),
            rows: exported.rows,
            bytes: exported.bytes,
        });
    }
    drop(bars);
    console.finish(&WrittenExport { files, seconds: begin.elapsed().as_secs_f64(), peak_rss_bytes: peak_rss_bytes() })
}

/// What to export, and the name of its file.
fn requests(options: &args::ExportArgs) -> Vec<(What<'_>, &Path)> {
    let files = [
        (What::Edges(EdgePart::Graph), &options.edges),
        (What::Edges(EdgePart::Val), &options.val_edges),
        (What::Edges(EdgePart::Test), &options.test_edges),
        (What::Weights, &options.weights),
        (What::EdgeFeatures, &options.edge_features),
        (What::Features, &options.features),
        (What::Labels, &options.labels),
        (What::Ids, &options.ids),
    ];
    let files = files.into_iter().filter_map(|(what, path)| Some((what, path.as_deref()?)));
    let splits = options.split.chunks_exact(2);
    let splits = splits.map(|split| (What::Split(&split[0]), Path::new(&split[1])));
    files.chain(splits).collect()
}

fn export(
    store: &Store,
    what: What<'_>,
    out: TableOut<'_>,
    budget: &Budget,
    bars: &Bars,
) -> grappa_engine::Result<Exported> {
    match what {
        What::Edges(part) => export_edges(store, part, EdgeColumns::All, out, budget, bars),
        What::Weights => export_edges(store, EdgePart::Graph, EdgeColumns::Weights, out, budget, bars),
        What::EdgeFeatures => export_edges(store, EdgePart::Graph, EdgeColumns::Features, out, budget, bars),
        What::Features => export_features(store, out, budget, bars),
        What::Labels => export_labels(store, out, budget, bars),
        What::Ids => export_ids(store, None, out, bars),
        What::Split(name) => export_ids(store, Some(name), out, bars),
    }
}

/// Prints text on stdout: edges with tabs, ids one per line, features and labels as CSV.
fn print(store: &Store, what: What<'_>, budget: &Budget, console: &Console) -> anyhow::Result<()> {
    let mut out = grappa_console::stdout();
    let format = match what {
        What::Edges(_) => TableFormat::Tsv,
        What::Features | What::Labels => TableFormat::Csv,
        What::Ids | What::Split(_) => TableFormat::Lines,
        What::Weights | What::EdgeFeatures => unreachable!("their names were checked"),
    };
    export(store, what, TableOut::Stream(&mut out, format), budget, &console.bars())?;
    out.flush().context("cannot write to stdout")
}

/// Refuses what cannot be exported before anything is written: a typo should not cost the export of all edges.
fn check_requests(store: &Store, requests: &[(What<'_>, &Path)]) -> anyhow::Result<()> {
    let manifest = store.manifest();
    let names: Vec<&str> = manifest.splits.iter().map(|split| split.name.as_str()).collect();
    for (what, _) in requests {
        let missing = match what {
            &What::Edges(part) if part != EdgePart::Graph && !manifest.held_out().contains(&part) => {
                format!("no edges are held out for {part}; ingest with --edge-split")
            }
            What::Weights if !manifest.weighted => "the edges have no weights".to_owned(),
            What::EdgeFeatures if store.edge_features().is_none() => "the edges have no features".to_owned(),
            What::Features if manifest.features.is_none() => "the nodes have no features".to_owned(),
            What::Labels if manifest.labels.is_none() => "the nodes have no labels".to_owned(),
            What::Split(name) if !names.contains(name) => {
                let has = match names[..] {
                    [] => "none".to_owned(),
                    _ => names.join(", "),
                };
                format!("there is no split {name:?}; the store has {has}")
            }
            _ => continue,
        };
        bail!("{}: {missing}", store.path().display());
    }
    Ok(())
}

/// Refuses a file whose name promises another format than it would get.
fn check_name(what: What<'_>, path: &Path) -> anyhow::Result<()> {
    match what {
        What::Weights | What::EdgeFeatures if !has_extension(path, &["npy"]) => bail!(
            "{} writes a NumPy array: give it a name that ends in .npy, not {}; {} are also columns of --edges FILE.parquet, .csv or .tsv",
            what.option(),
            path.display(),
            unit(what.name())
        ),
        What::Features | What::Labels if !is_stdout(path) && !has_extension(path, &["npy", "parquet", "csv"]) => bail!(
            "{} writes a NumPy array or a table: give it a name that ends in .npy, .parquet or .csv, not {}",
            what.option(),
            path.display()
        ),
        What::Edges(_) | What::Ids | What::Split(_) if has_extension(path, &OTHER_FORMATS) => {
            bail!("{} would be text: give it a name that ends in .npy, .parquet, .csv, .tsv or .txt", path.display())
        }
        _ => Ok(()),
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

impl What<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Edges(EdgePart::Graph) => "edges",
            Self::Edges(EdgePart::Val) => "val-edges",
            Self::Edges(EdgePart::Test) => "test-edges",
            Self::Weights => "weights",
            Self::EdgeFeatures => "edge-features",
            Self::Features => "features",
            Self::Labels => "labels",
            Self::Ids => "ids",
            Self::Split(name) => name,
        }
    }

    fn option(&self) -> String {
        match self {
            Self::Split(name) => format!("--split {name}"),
            other => format!("--{}", other.name()),
        }
    }
}

impl Summary for WrittenExport {
    fn text(&self) -> String {
        let lines = self.files.iter().map(|file| {
            format!("{}: {} {}, {}", printable(&file.path), count(file.rows), unit(&file.what), ByteSize(file.bytes))
        });
        let mut lines: Vec<_> = lines.collect();
        lines.push(format!("in {}", duration(Duration::from_secs_f64(self.seconds))));
        lines.join("\n")
    }
}

/// The noun for the rows of a file.
fn unit(what: &str) -> String {
    match what {
        "edges" | "weights" => what.to_owned(),
        "val-edges" | "test-edges" => what.replace('-', " "),
        "edge-features" => "edges' features".to_owned(),
        "ids" => "nodes' ids".to_owned(),
        "features" | "labels" => format!("nodes' {what}"),
        split => format!("nodes of {split}"),
    }
}
