//! How fast grappa-gen makes R-MAT graphs straight into a store: whole ones, and slices of graphs that no machine holds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{EDGE_FACTOR, SEED},
    programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
};
use grappa_console::ByteSize;

const QUESTION: &str = "How fast does a random model become a store, and does the cost of an edge depend on the size of the graph? \
    R-MAT, edge factor 16. Median of the runs; scales take turns.";
/// Nodes of a chunk of a slice, so that a chunk takes seconds and any row in it little memory: 2^20.
const SLICE_CHUNK_SCALE: u32 = 20;

/// Measure grappa-gen's R-MAT
#[derive(Debug, Parser)]
struct Args {
    /// The graphs have 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 36])]
    scales: Vec<u32>,
    /// The largest scale that is made whole
    #[arg(long, default_value_t = 28)]
    whole_max: u32,
    /// The chunks, of 2^20 nodes each, that are made of larger graphs
    #[arg(long, value_name = "LIST", default_value = "0-3")]
    slice: String,
    /// A folder for stores, which are removed
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Runs of each scale
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// grappa-gen's budget
    #[arg(long, default_value = "2GiB")]
    memory: ByteSize,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// One run at one scale.
struct Run {
    measured: Measured,
    edges: u64,
    store_bytes: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = programs::build(&["grappa-gen"])?;
    let command = programs::command_line("generate");
    let mut record = Record::new("The speed of grappa-gen", QUESTION, &command, &args.work)?;
    let mut runs: Vec<Vec<Run>> = args.scales.iter().map(|_| Vec::new()).collect();
    for turn in 1..=args.runs {
        for (&scale, runs) in args.scales.iter().zip(&mut runs) {
            let run = generate(args, &programs, scale)?;
            eprintln!("run {turn}: scale {scale}: {:.1} M edges/s", run.rate() / 1e6);
            if let Some(first) = runs.first() {
                ensure!(
                    first.edges == run.edges,
                    "the same graph has {} edges, then {}",
                    first.edges,
                    run.edges
                );
            }
            runs.push(run);
        }
    }
    record.add(table(args, &runs));

    let scratch = args.work.join("disk");
    fs::write(&scratch, vec![1; 1 << 28]).with_context(|| format!("cannot write {}", scratch.display()))?;
    let disk = Disk::measure(&scratch);
    fs::remove_file(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    let write = disk?.write;
    let floors: Vec<String> = args
        .scales
        .iter()
        .zip(&runs)
        .map(|(scale, runs)| format!("{:.2} s at scale {scale}", runs[0].store_bytes as f64 / write))
        .collect();
    record.add(format_args!(
        "Floor: the disk wrote {:.2} GB/s sequentially in this run: writing the stores' bytes takes {}. Seconds include all that makes a \
         store durable.",
        write / 1e9,
        floors.join(", ")
    ));
    record.finish(args.record.as_deref())
}

fn generate(args: &Args, programs: &Path, scale: u32) -> Result<Run> {
    let out = args.work.join("generated.grappa");
    folder::remove(&out)?;
    rustix::fs::sync();
    let mut command = Command::new(programs.join("grappa-gen"));
    command.args([
        "rmat",
        "--scale",
        &scale.to_string(),
        "--edge-factor",
        &EDGE_FACTOR.to_string(),
    ]);
    command.args(["--seed", &SEED.to_string(), "--threads", &args.threads.to_string()]);
    command.args(["--memory", &args.memory.0.to_string(), "--json", "--quiet"]);
    command.arg("--out").arg(&out);
    if scale > args.whole_max {
        let chunks = 1_u64 << (scale - SLICE_CHUNK_SCALE);
        command.args(["--chunks", &chunks.to_string(), "--only-chunks", &args.slice]);
    }
    let measured = child::run(&mut command)?;
    let run = Run {
        edges: measured.count("edges")?,
        store_bytes: measured.count("bytes_on_disk")?,
        measured,
    };
    folder::remove(&out)?;
    Ok(run)
}

fn table(args: &Args, runs: &[Vec<Run>]) -> Table {
    let mut table = Table::new(&[
        "scale",
        "edges made",
        "s",
        "range",
        "M edges/s",
        "cpu ns an edge",
        "cpu of the first scale's",
        "peak RSS, MiB",
        "bytes an edge",
    ]);
    let cpu = |runs: &[Run]| {
        median(
            runs.iter()
                .map(|run| run.measured.cpu.as_secs_f64() * 1e9 / run.edges as f64),
        )
    };
    for (&scale, of_scale) in args.scales.iter().zip(runs) {
        let edges = of_scale[0].edges;
        let wall = || of_scale.iter().map(|run| run.measured.wall.as_secs_f64());
        let whole = if scale > args.whole_max {
            format!(" (chunks {} of {})", args.slice, 1_u64 << (scale - SLICE_CHUNK_SCALE))
        } else {
            String::new()
        };
        table.row([
            format!("{scale}{whole}"),
            edges.to_string(),
            format!("{:.2}", median(wall())),
            range(wall()),
            format!("{:.1}", edges as f64 / median(wall()) / 1e6),
            format!("{:.1}", cpu(of_scale)),
            format!("{:.2}", cpu(of_scale) / cpu(&runs[0])),
            mebibytes(median(of_scale.iter().map(|run| run.measured.peak_rss_bytes as f64))),
            format!("{:.2}", of_scale[0].store_bytes as f64 / edges as f64),
        ]);
    }
    table
}

impl Run {
    /// Edges per second.
    fn rate(&self) -> f64 {
        self.edges as f64 / self.measured.wall.as_secs_f64()
    }
}
