//! An epoch of training with less memory than the features need, cold: seconds, and bytes read.
//!
//! R-MAT of scale 22 has 2.15 GB of features. 5 % of the nodes are seeds. There are 16 partitions, and Q of them make a step, with
//! 1024 / Q seeds each. So a step has 1024 seeds for any Q, and an epoch has about 205 steps, a few more if partitions take turns. The
//! first Q partitions make all their steps, then the next Q. A small Q therefore needs little of the graph at a time, and Q = 16 needs
//! all of it. By default halo nodes contribute their features. A control group limits memory, including the page cache.

use std::{fmt, path::Path, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
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
use grappa_formats::aggregates::AggregateKind;

/// Seeds of a step, of all its partitions together.
const SEEDS_PER_STEP: u32 = 1024;

/// Measure training out of core
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The graph has 2^SCALE nodes and takes 8 GB of disk at scale 22
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Runs of each setting
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of partitions
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// Numbers of partitions that make a step of 1024 seeds together
    #[arg(long, value_name = "Q", value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=64))]
    concurrent: Vec<u32>,
    /// Values of grappa-train's `--halo`
    #[arg(long, value_delimiter = ',', default_values = ["stop"])]
    halo: Vec<String>,
    /// Values of grappa-train's `--first-hop`
    #[arg(long, value_delimiter = ',', default_values = ["sampled"])]
    first_hop: Vec<String>,
    /// The memory limit, including the page cache
    #[arg(long, default_value = "1.5GB")]
    limit: ByteSize,
    /// The part of the limit for graph and features. The rest, at most 0.7 GB, is for libtorch, the model, its steps and cached pages
    #[arg(long, default_value = "800MB")]
    memory: ByteSize,
}

/// Settings of an epoch.
struct Contender<'a> {
    concurrent: u32,
    halo: &'a str,
    first_hop: &'a str,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Training out of core";
    const QUESTION: &'static str = "How long does an epoch of training take under a control group's limit that is below the size of the features, page \
        cache included, with nothing cached at the start? Three layers of GraphSAGE-mean, hidden 128, R-MAT of edge factor 16, 128 features of \
        f32, 5 % of the nodes as seeds, fanouts 15,10,5, 16 partitions, of which Q make a step of 1024 seeds. Medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let contenders = Contender::all(self)?;
        let limit = match MemoryLimit::new(self.limit.0) {
            Ok(limit) => limit,
            Err(why) => {
                println!("skipped: {why:#}");
                record.discard();
                return Ok(());
            }
        };
        let programs = programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?;
        let graph = Labelled::in_folder(&self.files.work, self.scale, &programs)?;
        if contenders
            .iter()
            .any(|contender| contender.first_hop == "preaggregated")
        {
            training::preaggregate(&programs, &graph.store, AggregateKind::Mean, true)?;
        }
        let disk = Disk::measure(&graph.features)?;
        let load = machine::load()?;
        let train = |contender: &Contender, _| run(self, &programs, &graph, &limit, contender);
        let runs = in_turns(&contenders, self.runs, train, |ran| format!("{:.2} s", ran.seconds))?;

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
        "MariusGNN, with 16 partitions and a buffer of 2, takes 6.6 s for this epoch on a machine of this kind, and samples only among the \
         resident partitions. With a buffer of 4 it ran out of memory. This is quoted from an earlier measurement."
    ));
        record.add(format_args!(
        "The disk read {} per second sequentially in this run; \"disk\" is the rate of the epoch relative to that. Limit {}, `--memory {}`. \
         This is the first epoch, so it includes opening views and filling the empty pool. It excludes the exact inference after it, which runs \
         under the same limit. Load {load} before and {} after.",
        ByteSize(disk.read as u64),
        self.limit,
        self.memory,
        machine::load()?
    ));
        Ok(())
    }
}

impl<'a> Contender<'a> {
    /// All combinations.
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

/// Trains for an epoch within the limit, with a cold page cache.
fn run(args: &Args, programs: &Path, graph: &Labelled, limit: &MemoryLimit, contender: &Contender) -> Result<Trained> {
    let mut command = training::sage(programs, &graph.store);
    command.args(["--epochs", "1", "--memory", &args.memory.0.to_string()]);
    command.args(["--partitions", &args.partitions.to_string()]);
    command.args(["--concurrent", &contender.concurrent.to_string()]);
    command.args(["--batch", &(SEEDS_PER_STEP / contender.concurrent).to_string()]);
    command.args(["--halo", contender.halo, "--first-hop", contender.first_hop]);
    cache::forget(&cache::files_below(&graph.store)?)?;
    training::train(command, &args.files.work.join("out-of-core-run"), Some(limit))
}
