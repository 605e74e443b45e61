//! An epoch of training with less memory than the features take, cold: seconds, and what was read.
//!
//! R-MAT of scale 22 whose features take 2.15 GB, 5 % of the nodes as seeds, 16 partitions, of which Q make a step, each with 1024 / Q
//! seeds: a step has 1024 seeds whatever Q is, and an epoch some 205 steps, a few more where partitions take turns. The first Q partitions
//! have all their steps, then the next Q, so a small Q needs little of the graph at a time, and Q = 16 all of it. Halo nodes are there
//! with their features, unless told otherwise. The limit is a control group's, which counts the page cache.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Result, ensure};
use clap::Parser;
use grappa_benches::{
    cache,
    disk::Disk,
    labelled::Labelled,
    limit::MemoryLimit,
    machine, programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
    training::{self, STAGES, Trained},
    turns::in_turns,
};
use grappa_console::ByteSize;

const QUESTION: &str = "How long does an epoch of training take under a control group's limit that is below the size of the features, page \
    cache included, with nothing cached at the start? Three layers of GraphSAGE-mean, hidden 128, R-MAT of edge factor 16, 128 features of \
    f32, 5 % of the nodes as seeds, fanouts 15,10,5, 16 partitions, of which Q make a step of 1024 seeds. Medians; contenders take turns.";
/// Seeds of a step, of all its partitions together.
const SEEDS_PER_STEP: u32 = 1024;

/// Measure training out of core
#[derive(Debug, Parser)]
struct Args {
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// A folder for the graph, which is kept: 8 GB at scale 22
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Runs of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of partitions
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// How many of them make a step of 1024 seeds, each in turn
    #[arg(long, value_name = "Q", value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=64))]
    concurrent: Vec<u32>,
    /// What becomes of halo nodes, each in turn
    #[arg(long, value_delimiter = ',', default_values = ["features"])]
    halo: Vec<String>,
    /// Where the first layer's aggregates come from, each in turn
    #[arg(long, value_delimiter = ',', default_values = ["sampled"])]
    first_hop: Vec<String>,
    /// The limit of memory, page cache included
    #[arg(long, default_value = "1.5GB")]
    limit: ByteSize,
    /// What of it the graph and features get; the rest is for libtorch, the model and its steps, and cached pages: 0.7 GB at most
    #[arg(long, default_value = "800MB")]
    memory: ByteSize,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

/// How an epoch is trained.
struct Contender<'a> {
    concurrent: u32,
    halo: &'a str,
    first_hop: &'a str,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let contenders = Contender::all(args)?;
    let limit = match MemoryLimit::new(args.limit.0) {
        Ok(limit) => limit,
        Err(why) => {
            println!("skipped: {why:#}");
            return Ok(());
        }
    };
    let programs = programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?;
    let command = programs::command_line("out_of_core");
    let mut record = Record::new("Training out of core", QUESTION, &command, &args.work)?;
    let graph = Labelled::in_folder(&args.work, args.scale, &programs)?;
    if contenders
        .iter()
        .any(|contender| contender.first_hop == "preaggregated")
    {
        training::preaggregate(&programs, &graph.store)?;
    }
    let disk = Disk::measure(&graph.features)?;
    let load = machine::load()?;
    let train = |contender: &Contender| run(args, &programs, &graph, &limit, contender);
    let runs = in_turns(&contenders, args.runs, train, |ran| format!("{:.2} s", ran.seconds))?;

    let mut table = Table::new(&[
        "",
        "steps",
        "s an epoch",
        "range",
        "read, GB",
        "disk",
        "peak RSS, MiB",
        STAGES,
        "s in all, with exact inference",
    ]);
    for (contender, runs) in contenders.iter().zip(&runs) {
        let median_of = |value: &dyn Fn(&Trained) -> f64| median(runs.iter().map(value));
        let read = |run: &Trained| run.epoch["bytes_read"].as_f64().unwrap_or(0.0);
        let stages = [0, 1, 2, 3, 4, 5].map(|stage| format!("{:.1}", median_of(&|run| run.stages()[stage])));
        table.row([
            contender.to_string(),
            runs[0].epoch["step"].to_string(),
            format!("{:.2}", median_of(&|run| run.seconds)),
            range(runs.iter().map(|run| run.seconds)),
            format!("{:.2}", median_of(&read) / 1e9),
            format!("{:.0} %", median_of(&|run| read(run) / run.seconds) / disk.read * 100.0),
            mebibytes(median_of(&|run| run.measured.peak_rss_bytes as f64)),
            stages.join(" / "),
            format!("{:.1}", median_of(&|run| run.measured.wall.as_secs_f64())),
        ]);
    }
    record.add(table);
    record.add(format_args!(
        "MariusGNN, 16 partitions and a buffer of 2, takes 6.6 s for such an epoch on such a machine, and samples only among the partitions \
         that are resident; with a buffer of 4 it was killed for memory. That is quoted, not run again."
    ));
    record.add(format_args!(
        "The disk read {} a second front to back in this run; \"disk\" is bytes read a second of the epoch over that. Limit {}, `--memory {}`. \
         The first epoch, so opening views and filling the pool from nothing are part of it; the evaluation after it, by exact inference under \
         the same limit, is not. Load {load} before and {} after.",
        ByteSize(disk.read as u64),
        args.limit,
        args.memory,
        machine::load()?
    ));
    record.finish(args.record.as_deref())
}

impl<'a> Contender<'a> {
    /// Each with each.
    fn all(args: &'a Args) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for &concurrent in &args.concurrent {
            ensure!(
                concurrent <= args.partitions && SEEDS_PER_STEP.is_multiple_of(concurrent),
                "--concurrent {concurrent}: expected a power of two, and no more than the {} partitions of --partitions",
                args.partitions
            );
            for halo in &args.halo {
                all.extend(args.first_hop.iter().map(|first_hop| Self {
                    concurrent,
                    halo,
                    first_hop,
                }));
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Q = {}, halo {}, first hop {}",
            self.concurrent, self.halo, self.first_hop
        )
    }
}

/// Trains for an epoch within the limit, after everything was forgotten.
fn run(args: &Args, programs: &Path, graph: &Labelled, limit: &MemoryLimit, contender: &Contender) -> Result<Trained> {
    let mut command = training::sage(programs, &graph.store);
    command.args(["--epochs", "1", "--memory", &args.memory.0.to_string()]);
    command.args(["--partitions", &args.partitions.to_string()]);
    command.args(["--concurrent", &contender.concurrent.to_string()]);
    command.args(["--batch", &(SEEDS_PER_STEP / contender.concurrent).to_string()]);
    command.args(["--halo", contender.halo, "--first-hop", contender.first_hop]);
    cache::forget(&cache::files_below(&graph.store)?)?;
    training::train(command, &args.work.join("out-of-core-run"), Some(limit))
}
