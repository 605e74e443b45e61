//! Stores of random graphs: the speed of grappa-gen, and the times to open a store of 10^9 edges and to repartition it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Budget, Files},
    cache,
    child::{self, Measured},
    folder,
    inputs::{EDGE_FACTOR, SEED},
    programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
    stores,
    turns::in_turns,
};
use grappa_io::durable;
use grappa_sampling::partition::{RepartitionOptions, Schedule, repartition};
use grappa_storage::{Store, read_manifest};

/// Nodes of a chunk of a slice: 2^20. A chunk takes seconds, and each adjacency list in it little memory.
const SLICE_CHUNK_SCALE: u32 = 20;

/// The size of an assignment of 64 chunks.
const ASSIGNMENT_BYTES: usize = 512;

/// Measure the generation, opening and repartitioning of stores
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    budget: Budget,
    /// Generate R-MAT graphs of 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 36])]
    scales: Vec<u32>,
    /// The largest scale that is generated as a whole; of larger graphs, 4 chunks of 2^20 nodes are
    #[arg(long, default_value_t = 28)]
    whole_max: u32,
    /// Runs of each scale
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Open and repartition an R-MAT store of 2^SCALE nodes, and one of a 64th of the nodes
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Opens and repartitionings of each store
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    opens: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Stores: generation, opening, repartitioning";
    const QUESTION: &'static str = "How fast does a random model become a store, how long does it take to open and to repartition a store of \
        10^9 edges, and does that depend on its size? R-MAT, edge factor 16. `Store::open` and `repartition` in one process. Medians; \
        scales and stores take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen"])?;
        let runs = in_turns(
            &self.scales,
            self.runs,
            |&scale, _| self.generate(&programs, scale),
            |ran| format!("{:.2} s", ran.wall.as_secs_f64()),
        )?;
        record.add(self.generated(&runs)?);
        record.add(self.times(&programs)?);
        record.add(
            "Cold: folders and inodes are dropped too, if the bench runs as root. Repartitioning writes, syncs and renames two small files, \
             as its floor does.",
        );
        Ok(())
    }
}

impl Args {
    /// Runs grappa-gen. The store is removed.
    fn generate(&self, programs: &Path, scale: u32) -> Result<Measured> {
        let out = self.files.work.join("generated.grappa");
        folder::remove(&out)?;
        rustix::fs::sync();
        let mut command = stores::rmat(programs, scale, EDGE_FACTOR);
        self.budget.apply(&mut command);
        if scale > self.whole_max {
            let chunks = 1_u64 << (scale - SLICE_CHUNK_SCALE);
            command.args(["--chunks", &chunks.to_string(), "--only-chunks", "0-3"]);
        }
        let measured = child::run(command.arg("--out").arg(&out))?;
        folder::remove(&out)?;
        Ok(measured)
    }

    fn generated(&self, runs: &[Vec<Measured>]) -> Result<Table> {
        let columns =
            ["scale", "edges made", "s", "range", "M edges/s", "cpu ns an edge", "peak RSS, MiB", "bytes an edge"];
        let mut table = Table::new(&columns);
        for (&scale, runs) in self.scales.iter().zip(runs) {
            let (edges, bytes) = (runs[0].count("edges")?, runs[0].count("bytes_on_disk")?);
            let wall: Vec<f64> = runs.iter().map(|run| run.wall.as_secs_f64()).collect();
            let seconds = median(wall.iter().copied());
            let cpu = median(runs.iter().map(|run| run.cpu.as_secs_f64()));
            let slice = if scale > self.whole_max { " (4 chunks)" } else { "" };
            table.row([
                format!("{scale}{slice}"),
                edges.to_string(),
                format!("{seconds:.2}"),
                range(wall),
                format!("{:.1}", edges as f64 / seconds / 1e6),
                format!("{:.1}", cpu * 1e9 / edges as f64),
                mebibytes(median(runs.iter().map(|run| run.peak_rss_bytes as f64))),
                format!("{:.2}", bytes as f64 / edges as f64),
            ]);
        }
        Ok(table)
    }

    /// The times to open and to repartition.
    fn times(&self, programs: &Path) -> Result<Table> {
        let mut table = Table::new(&["what", "edges", "ms", "range"]);
        for scale in [self.scale, self.scale - 6] {
            let path = self.files.work.join(format!("rmat-{scale}.grappa"));
            stores::make_once(&path, stores::rmat(programs, scale, EDGE_FACTOR))?;
            let manifest = read_manifest(&path)?;
            let partitions = manifest.chunks.len().min(16) as u32;
            let options = RepartitionOptions { partitions, schedule: Schedule::Sweep, seed: SEED, super_epoch: None };
            let floor = self.files.work.join("two-files");
            fs::create_dir_all(&floor)?;
            let store_files = cache::files_below(&path)?;
            let mut seconds: [Vec<f64>; 4] = Default::default();
            for _ in 0..self.opens {
                cache::forget(&store_files)?;
                cache::drop_all();
                seconds[0].push(seconds_of(|| Ok(Store::open(&path)?))?);
                seconds[1].push(seconds_of(|| Ok(Store::open(&path)?))?);
                seconds[2].push(seconds_of(|| Ok(repartition(&path, &manifest, &options)?))?);
                seconds[3].push(seconds_of(|| write_two(&floor))?);
            }
            fs::remove_dir_all(&floor)?;
            let names = ["open, cold", "open, cached", "repartition", "floor: two files, synced and renamed"];
            for (name, seconds) in names.iter().zip(&seconds) {
                let milliseconds: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e3).collect();
                table.row([
                    (*name).to_owned(),
                    manifest.edges.to_string(),
                    format!("{:.2}", median(milliseconds.iter().copied())),
                    range(milliseconds.iter().copied()),
                ]);
            }
        }
        Ok(table)
    }
}

/// Writes, syncs and renames as many files as a repartitioning, and as large.
fn write_two(folder: &Path) -> Result<()> {
    let paths: [PathBuf; 2] = ["assignment", "CURRENT"].map(|name| folder.join(name));
    for path in &paths {
        durable::write_file(path, &[1; ASSIGNMENT_BYTES])?;
    }
    Ok(())
}

fn seconds_of<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begin = Instant::now();
    let result = work()?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(result);
    Ok(seconds)
}
