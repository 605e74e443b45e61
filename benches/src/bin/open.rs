//! How long a store of 10^9 edges takes to open: reading the manifest and the header of every file, and no payload.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Parser;
use grappa_benches::{
    cache, child,
    disk::Disk,
    inputs::{EDGE_FACTOR, SEED},
    programs,
    record::{Record, Table},
    stats::{median, range},
};
use grappa_storage::Store;

const QUESTION: &str =
    "How long does it take to open a store of 10^9 edges? `Store::open` in one process. Median of the opens.";

/// Measure the opening of a store
#[derive(Debug, Parser)]
struct Args {
    /// Make an R-MAT store of 2^SCALE nodes, unless it is there already
    #[arg(long, default_value_t = 26)]
    scale: u32,
    /// Open this store instead
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// A folder for the store, which is kept
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Opens with a cold cache, and as many with a warm one
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let command = programs::command_line("open");
    let mut record = Record::new("Opening a store", QUESTION, &command, &args.work)?;
    let path = match &args.store {
        Some(store) => store.clone(),
        None => generated(args)?,
    };

    let files = cache::files_below(&path)?;
    let (mut cold, mut warm, mut dropped) = (Vec::new(), Vec::new(), true);
    for _ in 0..args.runs {
        cache::forget(&files)?;
        dropped &= cache::drop_all();
        cold.push(open(&path)?);
        warm.push(open(&path)?);
    }

    let store = Store::open(&path)?;
    let manifest = store.manifest();
    let edges: u64 = manifest.chunks.iter().map(|chunk| chunk.edges).sum();
    record.add(format_args!(
        "{edges} edges, {} chunks, {} files.",
        manifest.chunks.len(),
        files.len()
    ));
    let mut table = Table::new(&["page cache", "ms", "range"]);
    let cold_name = if dropped {
        "empty, folders and inodes too"
    } else {
        "without the store's files (folders and inodes are cached: dropping them takes root)"
    };
    for (name, seconds) in [(cold_name, &cold), ("warm", &warm)] {
        let milliseconds = || seconds.iter().map(|seconds| seconds * 1e3);
        table.row([
            name.to_owned(),
            format!("{:.2}", median(milliseconds())),
            range(milliseconds()),
        ]);
    }
    record.add(table);

    let largest = files
        .iter()
        .max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()));
    let disk = Disk::measure(largest.context("the store has no files")?)?;
    let bytes = 4096 * files.len() as u64;
    record.add(format_args!(
        "Floor: a page of each file is {bytes} bytes, {:.2} ms at the {:.2} GB/s that the disk read sequentially in this run; what counts \
         is its latency, {} reads of one page.",
        bytes as f64 / disk.read * 1e3,
        disk.read / 1e9,
        files.len()
    ));
    record.finish(args.record.as_deref())
}

/// Seconds.
fn open(path: &Path) -> Result<f64> {
    let begin = Instant::now();
    let store = Store::open(path)?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(store);
    Ok(seconds)
}

/// The store that grappa-gen makes; made first if it is not there.
fn generated(args: &Args) -> Result<PathBuf> {
    let path = args.work.join(format!("rmat-{}.grappa", args.scale));
    if !path.exists() {
        let programs = programs::build(&["grappa-gen"])?;
        eprintln!("making {}", path.display());
        let mut command = Command::new(programs.join("grappa-gen"));
        command.args([
            "rmat",
            "--scale",
            &args.scale.to_string(),
            "--edge-factor",
            &EDGE_FACTOR.to_string(),
        ]);
        command
            .args(["--seed", &SEED.to_string(), "--json", "--quiet"])
            .arg("--out")
            .arg(&path);
        child::run(&mut command)?;
    }
    Ok(path)
}
