//! Training with one and with several processes on one host, one thread each: seeds per second.

use std::{fmt, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    labelled::Labelled,
    machine, programs,
    record::{Record, Table},
    stats::{median, range},
    training::{self, Trained},
    turns::in_turns,
};
use grappa_formats::aggregates::AggregateKind;

/// Measure training with several processes
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The graph has 2^SCALE nodes
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Hidden dimensions of the model: a large one is bound by computing
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [128, 512])]
    hidden: Vec<u32>,
    /// Numbers of processes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,
    /// Steps of the measured epoch
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Runs of each setting
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

struct Contender {
    hidden: u32,
    workers: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Several processes on one host";
    const QUESTION: &'static str = "How many seeds per second do processes train that divide the partitions of a step, next to one process? Each has \
        one thread for computing; its samplers have another one. GraphSAGE-mean of 3 layers, R-MAT of edge factor 16, 128 features of f32 in memory, \
        pre-aggregated first hop, as many partitions as the largest number of processes, 1024 seeds per partition and step. The second \
        epoch, without its evaluation; medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?;
        let graph = Labelled::in_folder(&self.files.work, self.scale, &programs)?;
        training::preaggregate(&programs, &graph.store, AggregateKind::Mean, false)?;
        let of_hidden = |&hidden: &u32| self.workers.iter().map(move |&workers| Contender { hidden, workers });
        let contenders: Vec<Contender> = self.hidden.iter().flat_map(of_hidden).collect();
        let load = machine::load()?;
        let train = |contender: &Contender, _| self.run(&programs, &graph, contender);
        let runs = in_turns(&contenders, self.runs, train, |ran| format!("{:.2} s", ran.seconds))?;

        let rate = |run: &Trained| self.seeds() as f64 / run.seconds;
        let mut table = Table::new(&[
            "",
            "seeds/s",
            "range",
            "times one process",
            "exchange, ms per step",
            "of a step",
        ]);
        let mut one = None;
        for (contender, runs) in contenders.iter().zip(&runs) {
            let seeds = median(runs.iter().map(rate));
            if contender.workers == 1 {
                one = Some(seeds);
            }
            let exchange = |run: &Trained| run.stages()[5] * 1e3 / self.steps as f64;
            let share = |run: &Trained| run.stages()[5] / run.seconds;
            table.row([
                contender.to_string(),
                format!("{seeds:.0}"),
                range(runs.iter().map(rate)),
                one.map_or("-".to_owned(), |one| format!("{:.2}", seeds / one)),
                format!("{:.1}", median(runs.iter().map(exchange))),
                format!("{:.0} %", 100.0 * median(runs.iter().map(share))),
            ]);
        }
        record.add(table);
        record.add(format_args!(
            "The exchange includes waiting for the slower process. Load {load} before and {} after.",
            machine::load()?
        ));
        Ok(())
    }
}

impl Args {
    fn partitions(&self) -> u32 {
        self.workers.iter().copied().max().unwrap_or(1)
    }

    /// Seeds of the measured epoch.
    fn seeds(&self) -> u64 {
        self.steps * u64::from(self.partitions()) * 1024
    }

    fn run(&self, programs: &Path, graph: &Labelled, contender: &Contender) -> Result<Trained> {
        let partitions = self.partitions().to_string();
        let mut command = training::model(programs, &graph.store, "sage", contender.hidden);
        command.args(["--workers", &contender.workers.to_string()]);
        command.args([
            "--partitions",
            &partitions,
            "--concurrent",
            &partitions,
            "--batch",
            "1024",
            "--threads",
            "1",
        ]);
        command.args([
            "--epochs",
            "2",
            "--eval-every",
            "2",
            "--evaluate",
            "sampled",
            "--memory",
            "5GiB",
        ]);
        command.args(["--steps-per-epoch", &self.steps.to_string()]);
        let trained = training::train(command, &self.files.work.join("workers-run"), None)?;
        let steps = trained.epoch["step"].as_u64();
        steps
            .filter(|&steps| steps == 2 * self.steps)
            .context("the graph has too few training nodes for these --steps")?;
        Ok(trained)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.workers == 1 { "" } else { "es" };
        write!(f, "{} process{plural}, hidden {}", self.workers, self.hidden)
    }
}
