//! `grappa-store export`: writes a store to files, with the ids of the input.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use grappa_console::{ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::export::{
    ExportBudget, Exported,
    columns::{export_features, export_labels},
    edges::{EdgeFormat, export_edges, print_edges},
    ids::{export_ids, export_split},
};
use grappa_storage::Store;
use serde::Serialize;

use crate::args;

/// Names of files that are neither arrays nor text.
const OTHER_FORMATS: [&str; 8] = ["npz", "parquet", "gz", "zst", "zip", "pt", "json", "feather"];

#[derive(Serialize)]
struct Written {
    files: Vec<File>,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
}

#[derive(Serialize)]
struct File {
    path: String,
    what: String,
    rows: u64,
    bytes: u64,
}

pub fn run(options: &args::Export, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    check_names(options)?;
    signals::stops_by_itself("removing the unfinished file");
    let store = Store::open(&options.store)?;
    check_requests(&store, options)?;
    let bars = console.bars();
    let budget = ExportBudget {
        threads: options.threads.get()?,
        memory: options.memory.0,
    };
    let mut written = Written {
        files: Vec::new(),
        seconds: 0.0,
        peak_rss_bytes: None,
    };
    let mut add = |what: &str, path: &Path, exported: Exported| {
        written.files.push(File {
            path: path.display().to_string(),
            what: what.to_owned(),
            rows: exported.rows,
            bytes: exported.bytes,
        });
    };
    if let Some(path) = &options.edges {
        if path.as_os_str() == "-" {
            return print(&store, options, &budget, console);
        }
        let format = edge_format(path);
        if store.manifest().weighted && format == EdgeFormat::Npy && options.weights.is_none() {
            tracing::warn!(
                "{} will not contain the edge weights; export them with --weights FILE.npy",
                path.display()
            );
        }
        add("edges", path, export_edges(&store, path, format, &budget, &bars)?);
    }
    if let Some(path) = &options.weights {
        let exported = export_edges(&store, path, EdgeFormat::NpyWeights, &budget, &bars)?;
        add("weights", path, exported);
    }
    if let Some(path) = &options.features {
        add("features", path, export_features(&store, path, &budget, &bars)?);
    }
    if let Some(path) = &options.labels {
        add("labels", path, export_labels(&store, path, &budget, &bars)?);
    }
    if let Some(path) = &options.ids {
        add("ids", path, export_ids(&store, path, &bars)?);
    }
    for split in options.split.chunks_exact(2) {
        let (name, path) = (&split[0], Path::new(&split[1]));
        add(name, path, export_split(&store, name, path, &bars)?);
    }
    written.seconds = begin.elapsed().as_secs_f64();
    written.peak_rss_bytes = peak_rss_bytes();
    drop(bars);
    console.finish(&written)
}

/// Prints edges on stdout. Other output there is refused.
fn print(store: &Store, options: &args::Export, budget: &ExportBudget, console: &Console) -> anyhow::Result<()> {
    let others = [&options.weights, &options.features, &options.labels, &options.ids];
    if console.json() || others.iter().any(|other| other.is_some()) || !options.split.is_empty() {
        bail!("--edges - prints edges on stdout, so --json and other exports are not possible; give --edges a file");
    }
    let mut out = grappa_console::stdout();
    print_edges(store, &mut out, budget, &console.bars())?;
    out.flush().context("cannot write to stdout")
}

/// Refuses what cannot be exported before anything is written: a typo should not cost the export of all edges.
fn check_requests(store: &Store, options: &args::Export) -> anyhow::Result<()> {
    let manifest = store.manifest();
    let names: Vec<&str> = manifest.splits.iter().map(|split| split.name.as_str()).collect();
    let splits = options.split.chunks_exact(2);
    if let Some(split) = splits.clone().find(|split| !names.contains(&split[0].as_str())) {
        let has = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        bail!(
            "{}: there is no split {:?}; the store has {has}",
            options.store.display(),
            split[0]
        );
    }
    let columns = [
        (&options.weights, manifest.weighted, "the edges have no weights"),
        (
            &options.features,
            manifest.features.is_some(),
            "the nodes have no features",
        ),
        (&options.labels, manifest.labels.is_some(), "the nodes have no labels"),
    ];
    if let Some((_, _, what)) = columns.iter().find(|(path, is_there, _)| path.is_some() && !is_there) {
        bail!("{}: {what}", options.store.display());
    }
    let files = [
        &options.edges,
        &options.weights,
        &options.features,
        &options.labels,
        &options.ids,
    ];
    let files = files.into_iter().flatten().map(PathBuf::as_path);
    let mut files = files.chain(splits.map(|split| Path::new(&split[1])));
    match files.find(|path| path.exists()) {
        Some(path) => bail!("{} exists; remove it, or give another name", path.display()),
        None => Ok(()),
    }
}

/// Refuses files whose names promise another format than they would get.
fn check_names(options: &args::Export) -> anyhow::Result<()> {
    let arrays = [
        ("--weights", &options.weights),
        ("--features", &options.features),
        ("--labels", &options.labels),
    ];
    for (option, path) in arrays {
        if let Some(path) = path
            && !has_extension(path, &["npy"])
        {
            bail!(
                "{option} writes a NumPy array: give it a name that ends in .npy, not {}",
                path.display()
            );
        }
    }
    let lists = [&options.edges, &options.ids]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path);
    let splits = options.split.chunks_exact(2).map(|split| Path::new(&split[1]));
    for path in lists.chain(splits) {
        if has_extension(path, &OTHER_FORMATS) {
            bail!(
                "{} would be text: give it a name that ends in .npy, .csv, .tsv or .txt",
                path.display()
            );
        }
    }
    Ok(())
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn edge_format(path: &Path) -> EdgeFormat {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => EdgeFormat::Npy,
        Some("csv") => EdgeFormat::Csv,
        _ => EdgeFormat::Tsv,
    }
}

impl Summary for Written {
    fn text(&self) -> String {
        let lines = self.files.iter().map(|file| {
            format!(
                "{}: {} {}, {}",
                printable(&file.path),
                count(file.rows),
                unit(&file.what),
                ByteSize(file.bytes)
            )
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
        "ids" => "nodes' ids".to_owned(),
        "features" | "labels" => format!("nodes' {what}"),
        split => format!("nodes of {split}"),
    }
}
