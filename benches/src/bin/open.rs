//! Time to open a store of 10^9 edges, which reads the manifest and the header of every file but no payload.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    cache,
    disk::Disk,
    inputs::EDGE_FACTOR,
    programs,
    record::{Record, Table},
    stats::{median, range},
    stores,
};
use grappa_storage::Store;

/// Measure the opening of a store
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// Open an R-MAT store of 2^SCALE nodes
    #[arg(long, default_value_t = 26)]
    scale: u32,
    /// Open this store instead
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// Number of opens with a cold cache, and with a warm one
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Opening a store";
    const QUESTION: &'static str =
        "How long does it take to open a store of 10^9 edges? `Store::open` in one process. Median of the opens.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let path = match &self.store {
            Some(store) => store.clone(),
            None => generated(self)?,
        };

        let files = cache::files_below(&path)?;
        let (mut cold, mut warm, mut dropped) = (Vec::new(), Vec::new(), true);
        for _ in 0..self.runs {
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
        "Floor: a page of each file is {bytes} bytes, {:.2} ms at the {:.2} GB/s that the disk read sequentially in this run. Its latency \
         matters more: {} reads of one page.",
        bytes as f64 / disk.read * 1e3,
        disk.read / 1e9,
        files.len()
    ));
        Ok(())
    }
}

/// Seconds.
fn open(path: &Path) -> Result<f64> {
    let begin = Instant::now();
    let store = Store::open(path)?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(store);
    Ok(seconds)
}

/// The R-MAT store; made first if it does not exist.
fn generated(args: &Args) -> Result<PathBuf> {
    let path = args.files.work.join(format!("rmat-{}.grappa", args.scale));
    let programs = programs::build(&["grappa-gen"])?;
    stores::make_once(&path, stores::rmat(&programs, args.scale, EDGE_FACTOR))?;
    Ok(path)
}
