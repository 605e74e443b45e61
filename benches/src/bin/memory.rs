//! Whether ingest keeps to its budget at every scale: the peak memory of grappa-ingest with features, and a
//! verification of what it made.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    cache,
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{self, Input},
    programs,
    record::{Record, Table, mebibytes},
};
use grappa_console::ByteSize;

const QUESTION: &str = "How much memory does ingest take beyond its budget, at scales whose edges and features are many times \
    larger? R-MAT, edge factor 16, from `.npy` that is not cached, with features of f32. One run each.";
/// What peak memory may exceed the budget by: the program itself, stacks, and what no budget counts.
const SLACK_BYTES: u64 = 64 << 20;

/// Measure the peak memory of grappa-ingest against its budget
#[derive(Debug, Parser)]
struct Args {
    /// The graphs have 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 26])]
    scales: Vec<u32>,
    /// A folder for inputs and outputs; scale 26 takes 30 GB at a time
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// The budget
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Values in a feature vector; 0 for none
    #[arg(long, default_value_t = 16)]
    dim: usize,
    /// Remove each scale's inputs when it is done
    #[arg(long)]
    remove_inputs: bool,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = programs::build(&["grappa-ingest", "grappa-store"])?;
    let command = programs::command_line("memory");
    let mut record = Record::new("The memory of ingest", QUESTION, &command, &args.work)?;
    let mut table = Table::new(&[
        "scale",
        "edges",
        "input, MiB",
        "store, MiB",
        "s",
        "M edges/s",
        "floor, s",
        "cpu s",
        "peak RSS, MiB",
        "minus budget, MiB",
        "verify, s",
        "verify RSS, MiB",
    ]);
    let mut worst = i64::MIN;
    for &scale in &args.scales {
        let row = measure_scale(args, &programs, scale)?;
        worst = worst.max(row.beyond_budget(args));
        table.row(row.cells(args, scale));
    }
    record.add(table);
    record.add(format_args!(
        "Budget {}; {} beyond it are allowed: {}. The verification's memory includes the pages of the store that it maps. Floor: \
         reading the inputs and writing the store at the disk's sequential rate, measured before each scale.",
        args.memory,
        ByteSize(SLACK_BYTES),
        if worst <= SLACK_BYTES as i64 { "kept" } else { "NOT KEPT" },
    ));
    record.finish(args.record.as_deref())
}

/// What was measured at one scale.
struct Row {
    edges: u64,
    input_bytes: u64,
    store_bytes: u64,
    floor_seconds: f64,
    ingest: Measured,
    verify: Measured,
}

fn measure_scale(args: &Args, programs: &Path, scale: u32) -> Result<Row> {
    let edges = Input::Npy.in_folder(&args.work, scale, 0)?;
    let mut inputs = vec![edges.clone()];
    if args.dim > 0 {
        inputs.push(Input::Features.in_folder(&args.work, scale, args.dim)?);
    }
    let disk = Disk::measure(&edges.path)?;
    let store = args.work.join("memory.grappa");
    folder::remove(&store)?;

    let paths: Vec<_> = inputs.iter().map(|input| input.path.clone()).collect();
    cache::forget(&paths)?;
    let mut command = Command::new(programs.join("grappa-ingest"));
    command.arg("--edges").arg(&edges.path).arg("--out").arg(&store);
    command.args(["--nodes", &(1_u64 << scale).to_string()]);
    command.args([
        "--threads",
        &args.threads.to_string(),
        "--memory",
        &args.memory.0.to_string(),
        "--json",
        "--quiet",
    ]);
    if let Some(features) = inputs.get(1) {
        command.arg("--features").arg(&features.path);
    }
    eprintln!("scale {scale}: ingesting");
    let ingest = child::run(&mut command)?;
    let expected = inputs::edges_in_npy(&edges.path)?;
    ensure!(
        ingest.count("edges")? == expected,
        "the store has not all {expected} edges: {}",
        ingest.stdout
    );

    eprintln!("scale {scale}: verifying");
    cache::forget(&cache::files_below(&store)?)?;
    let verify = child::run(
        Command::new(programs.join("grappa-store"))
            .arg("verify")
            .arg(&store)
            .args(["--json", "--quiet"]),
    )?;
    ensure!(verify.json()?["ok"] == true, "the store is damaged: {}", verify.stdout);

    let row = Row {
        edges: expected,
        input_bytes: inputs.iter().map(|input| input.bytes).sum(),
        store_bytes: ingest.count("bytes_on_disk")?,
        floor_seconds: 0.0,
        ingest,
        verify,
    };
    folder::remove(&store)?;
    if args.remove_inputs {
        for path in paths {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(Row {
        floor_seconds: disk.seconds(row.input_bytes, row.store_bytes),
        ..row
    })
}

impl Row {
    /// Bytes.
    fn beyond_budget(&self, args: &Args) -> i64 {
        self.ingest.peak_rss_bytes as i64 - args.memory.0 as i64
    }

    fn cells(&self, args: &Args, scale: u32) -> [String; 12] {
        let seconds = self.ingest.wall.as_secs_f64();
        [
            scale.to_string(),
            self.edges.to_string(),
            mebibytes(self.input_bytes as f64),
            mebibytes(self.store_bytes as f64),
            format!("{seconds:.1}"),
            format!("{:.1}", self.edges as f64 / seconds / 1e6),
            format!("{:.1}", self.floor_seconds),
            format!("{:.1}", self.ingest.cpu.as_secs_f64()),
            mebibytes(self.ingest.peak_rss_bytes as f64),
            format!("{:+.1}", self.beyond_budget(args) as f64 / f64::from(1 << 20)),
            format!("{:.1}", self.verify.wall.as_secs_f64()),
            mebibytes(self.verify.peak_rss_bytes as f64),
        ]
    }
}
