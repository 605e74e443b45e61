//! `grappa-store export`: writes a store to files, with the ids of the input.

use std::{
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use grappa_console::{Bars, ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    EdgePart, Graph, Store,
    export::{
        Budget, Exported,
        columns::{export_features, export_labels, export_node_times},
        edges::{EdgeColumns, export_edges},
        ids::export_ids,
        table::{TableFormat, TableOut},
    },
    io::{durable::Destination, ledger::Ledger},
};
use serde::Serialize;

use crate::{args, members};

/// Names of files that would be text, and promise another format.
const OTHER_FORMATS: [&str; 7] = ["npz", "gz", "zst", "zip", "pt", "json", "feather"];

#[derive(Serialize)]
struct WrittenExport {
    files: Vec<ExportedFile>,
    /// Who may take how much of `--memory`, and why: a phase for each kind of file.
    memory: Ledger,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
}

#[derive(Serialize)]
struct ExportedFile {
    path: String,
    #[serde(rename = "what")]
    content: String,
    rows: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportedData<'a> {
    Edges(EdgePart),
    Weights,
    EdgeFeatures,
    Features,
    Labels,
    NodeTimes,
    Ids,
    Split(&'a str),
}

pub fn run(options: &args::ExportArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let requests = requests(options);
    requests.iter().try_for_each(|(data, path)| check_name(*data, path))?;
    signals::stops_by_itself("removing the unfinished file");
    let store = opened(options)?;
    check_requests(&store, &requests)?;
    let budget = Budget { threads: options.threads.get()?, memory: options.memory.0 };
    if let Some((data, _)) = requests.iter().find(|(_, path)| is_stdout(path)) {
        if console.json() || requests.len() > 1 {
            bail!("{} - prints on stdout, so --json and other exports are not possible; give it a file", data.option());
        }
        return print(&store, *data, &budget, console);
    }
    let replaces = options.force;
    requests.iter().try_for_each(|&(_, path)| Destination { path, replaces }.check())?;
    let bars = console.bars();
    let mut files = Vec::new();
    let mut memory = Ledger::new(budget.memory);
    for (data, path) in requests {
        let exported = export(&store, data, Destination { path, replaces }.into(), &budget, &bars)?;
        if data == ExportedData::Edges(EdgePart::Graph) && has_extension(path, &["npy"]) {
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
            if store.is_timed() {
                tracing::warn!(
                    "{} does not contain the times of edges; export the edges to .parquet, .csv or .tsv",
                    path.display()
                );
            }
        }
        memory.enter(data.phase(), exported.leases)?;
        files.push(ExportedFile {
            path: path.display().to_string(),
            content: data.name().to_owned(),
            rows: exported.rows,
            bytes: exported.bytes,
        });
    }
    drop(bars);
    let seconds = begin.elapsed().as_secs_f64();
    console.finish(&WrittenExport { files, memory, seconds, peak_rss_bytes: peak_rss_bytes() })
}

/// The store, or the node type or relation of a graph.
fn opened(options: &args::ExportArgs) -> anyhow::Result<Arc<Store>> {
    let graph = Graph::open(&options.store)?;
    let found = match (&options.node_type, &options.relation) {
        (Some(name), _) => &graph.node_types()[members::node_type(&graph, name)?],
        (None, Some(name)) => &graph.relations()[members::relation(&graph, name)?],
        (None, None) if !graph.has_types() => &graph.node_types()[0],
        (None, None) => bail!(
            "{}: the graph has several node types or relations; name one with --type {} or --relation {}",
            options.store.display(),
            printable(&graph.manifest().node_types[0].name),
            members::relations(&graph).first().map_or("NAME", String::as_str)
        ),
    };
    Ok(found.clone())
}

/// What to export, and the name of its file.
fn requests(options: &args::ExportArgs) -> Vec<(ExportedData<'_>, &Path)> {
    let files = [
        (ExportedData::Edges(EdgePart::Graph), &options.edges),
        (ExportedData::Edges(EdgePart::Val), &options.val_edges),
        (ExportedData::Edges(EdgePart::Test), &options.test_edges),
        (ExportedData::Weights, &options.weights),
        (ExportedData::EdgeFeatures, &options.edge_features),
        (ExportedData::Features, &options.features),
        (ExportedData::Labels, &options.labels),
        (ExportedData::NodeTimes, &options.node_times),
        (ExportedData::Ids, &options.ids),
    ];
    let files = files.into_iter().filter_map(|(data, path)| Some((data, path.as_deref()?)));
    let splits = options.split.chunks_exact(2);
    let splits = splits.map(|split| (ExportedData::Split(&split[0]), Path::new(&split[1])));
    files.chain(splits).collect()
}

fn export(
    store: &Store,
    data: ExportedData<'_>,
    out: TableOut<'_>,
    budget: &Budget,
    bars: &Bars,
) -> grappa_engine::Result<Exported> {
    match data {
        ExportedData::Edges(part) => export_edges(store, part, EdgeColumns::All, out, budget, bars),
        ExportedData::Weights => export_edges(store, EdgePart::Graph, EdgeColumns::Weights, out, budget, bars),
        ExportedData::EdgeFeatures => export_edges(store, EdgePart::Graph, EdgeColumns::Features, out, budget, bars),
        ExportedData::Features => export_features(store, out, budget, bars),
        ExportedData::Labels => export_labels(store, out, budget, bars),
        ExportedData::NodeTimes => export_node_times(store, out, budget, bars),
        ExportedData::Ids => export_ids(store, None, out, bars),
        ExportedData::Split(name) => export_ids(store, Some(name), out, bars),
    }
}

/// Prints text on stdout: edges with tabs, ids one per line, features, labels and times as CSV.
fn print(store: &Store, data: ExportedData<'_>, budget: &Budget, console: &Console) -> anyhow::Result<()> {
    let mut out = grappa_console::stdout();
    let format = match data {
        ExportedData::Edges(_) => TableFormat::Tsv,
        ExportedData::Features | ExportedData::Labels | ExportedData::NodeTimes => TableFormat::Csv,
        ExportedData::Ids | ExportedData::Split(_) => TableFormat::Lines,
        ExportedData::Weights | ExportedData::EdgeFeatures => unreachable!("their names were checked"),
    };
    export(store, data, TableOut::Stream(&mut out, format), budget, &console.bars())?;
    out.flush().context("cannot write to stdout")
}

/// Refuses what cannot be exported before anything is written: a typo should not cost the export of all edges.
fn check_requests(store: &Store, requests: &[(ExportedData<'_>, &Path)]) -> anyhow::Result<()> {
    let manifest = store.manifest();
    let names: Vec<&str> = manifest.splits.iter().map(|split| split.name.as_str()).collect();
    for (data, _) in requests {
        let missing = match data {
            &ExportedData::Edges(part) if part != EdgePart::Graph && !manifest.held_out().contains(&part) => {
                format!("no edges are held out for {part}; ingest with --edge-split")
            }
            ExportedData::Weights if !manifest.weighted => "the edges have no weights".to_owned(),
            ExportedData::EdgeFeatures if store.edge_features().is_none() => "the edges have no features".to_owned(),
            ExportedData::Features if manifest.features.is_none() => "the nodes have no features".to_owned(),
            ExportedData::Labels if manifest.labels.is_none() => "the nodes have no labels".to_owned(),
            ExportedData::NodeTimes if !manifest.has_node_times() => {
                "the nodes have no times; edges have theirs in --edges FILE.parquet, .csv or .tsv".to_owned()
            }
            ExportedData::Split(name) if !names.contains(name) => {
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
fn check_name(data: ExportedData<'_>, path: &Path) -> anyhow::Result<()> {
    match data {
        ExportedData::Weights | ExportedData::EdgeFeatures if !has_extension(path, &["npy"]) => bail!(
            "{} writes a NumPy array: give it a name that ends in .npy, not {}; {} are also columns of --edges FILE.parquet, .csv or .tsv",
            data.option(),
            path.display(),
            unit(data.name())
        ),
        ExportedData::Features | ExportedData::Labels | ExportedData::NodeTimes
            if !is_stdout(path) && !has_extension(path, &["npy", "parquet", "csv"]) =>
        {
            bail!(
                "{} writes a NumPy array or a table: give it a name that ends in .npy, .parquet or .csv, not {}",
                data.option(),
                path.display()
            )
        }
        ExportedData::Edges(_) | ExportedData::Ids | ExportedData::Split(_) if has_extension(path, &OTHER_FORMATS) => {
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

impl ExportedData<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Split(name) => name,
            others => others.phase(),
        }
    }

    /// The phase of the export in the ledger.
    fn phase(&self) -> &'static str {
        match self {
            Self::Edges(EdgePart::Graph) => "edges",
            Self::Edges(EdgePart::Val) => "val-edges",
            Self::Edges(EdgePart::Test) => "test-edges",
            Self::Weights => "weights",
            Self::EdgeFeatures => "edge-features",
            Self::Features => "features",
            Self::Labels => "labels",
            Self::NodeTimes => "node-times",
            Self::Ids => "ids",
            Self::Split(_) => "splits",
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
            format!("{}: {} {}, {}", printable(&file.path), count(file.rows), unit(&file.content), ByteSize(file.bytes))
        });
        let mut lines: Vec<_> = lines.collect();
        lines.push(format!("in {}", duration(Duration::from_secs_f64(self.seconds))));
        lines.join("\n")
    }
}

/// The noun for the rows of a file.
fn unit(name: &str) -> String {
    match name {
        "edges" | "weights" => name.to_owned(),
        "val-edges" | "test-edges" => name.replace('-', " "),
        "edge-features" => "edges' features".to_owned(),
        "ids" => "nodes' ids".to_owned(),
        "features" | "labels" => format!("nodes' {name}"),
        "node-times" => "nodes' times".to_owned(),
        split => format!("nodes of {split}"),
    }
}
