//! The bias of the gradient of isolated partitions, on average over repartitionings.
//!
//! Parameters are fixed. The exact gradient of the mean loss of the seeds, over all neighbors, is compared with the gradient of K
//! partitions. Each partition computes the gradients of its seeds from the edges that it sees, also over all neighbors. So the
//! partitions are the only randomness. With G the exact gradient, and G_1 ... G_S those of S independent repartitionings, with mean M:
//!
//! ```text
//! relative variance    V = 1/(S-1) sum_s |G_s - M|^2 / |G|^2         of one repartitioning
//! relative bias        B = sqrt(max(0, |M - G|^2 / |G|^2 - V / S))   of the expectation: the random error of the mean is subtracted
//! cosine               M.G / (|M| |G|)
//! ```
//!
//! Loss weights that depend on the coverage c of a seed are compared on the same passes. The trainer has `none`, `batch` and `node`,
//! with shrinkage. It does not have these candidates: `1/c`, which gives more weight to seeds that see less; and `strata`, which is
//! `node` within each range of degrees, so that nodes with few neighbors keep their weight.

mod experiment;
mod forms;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    machine,
    record::{Record, Table},
};
use grappa_sampling::{partition::Schedule, view::Halo};
use grappa_trainer::train::historical::Keep;

use self::{
    experiment::{Experiment, Mode, Seen, Setup},
    forms::Form,
};

/// Measure the bias of isolated gradients
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// A store with features, labels and seeds
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Numbers of layers
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3], value_parser = clap::value_parser!(u32).range(1..=4))]
    layers: Vec<u32>,
    /// Hidden dimension
    #[arg(long, value_name = "N", default_value_t = 32)]
    hidden: usize,
    /// Number of partitions; all of them make a step
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..))]
    partitions: u32,
    /// Schedule of the partitions
    #[arg(long, default_value = "sweep")]
    schedule: Schedule,
    /// Repartitionings
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
    repartitions: u64,
    /// Number of seeds: the first training nodes in the random order of the store
    #[arg(long, value_name = "N", default_value_t = 1024)]
    seeds: usize,
    /// Epochs of training on the whole graph before the gradients are compared
    #[arg(long, value_name = "EPOCHS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Threads [default: number of processors]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "The bias of isolated gradients";
    const QUESTION: &'static str = "By how much is the expected gradient of isolated partitions off, what does each way of weighting seeds change, and what \
        does knowing more of halo nodes? Relative bias of the mean over repartitionings, its cosine with the exact gradient, and the relative \
        variance of one repartitioning; all neighbors, so that only the partitions are left to chance.";
    const PACKAGE: &'static str = "grappa-trainer-benches";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let load = machine::load()?;
        let begin = Instant::now();
        for &layers in &self.layers {
            let setup = Setup {
                layers: layers as usize,
                hidden: self.hidden,
                partitions: self.partitions,
                schedule: self.schedule,
                seeds: self.seeds,
                epochs: self.epochs,
                repartitions: self.repartitions,
                threads: match self.threads {
                    Some(threads) => threads,
                    None => std::thread::available_parallelism()?.get(),
                },
            };
            let experiment = Experiment::new(&self.store, setup)?;
            record.add(format_args!(
                "{layers} layers, hidden {}, {} of {} nodes to train on, after {} epochs of training on the whole graph; {} partitions ({}), {} \
                 repartitionings. Historical embeddings are of the previous epoch.",
                self.hidden,
                experiment.seeds(),
                experiment.train_nodes(),
                self.epochs,
                self.partitions,
                self.schedule.name(),
                self.repartitions
            ));
            record.add(table(&experiment, layers)?);
        }
        record.add(format_args!(
            "\"To none\" is the ratio to the bias of the row `none` with the same halo mode and first hop; \"to isolation\" is the ratio to halo \
             `stop` with a sampled first hop and no loss weights. A bias of 0 with a nonzero variance means that chance explains the error of the \
             mean. Took {:.0} s; load {load} before and {} after.",
            begin.elapsed().as_secs_f64(),
            machine::load()?
        ));
        Ok(())
    }
}

/// Ways to handle halo nodes.
fn modes(layers: u32) -> Vec<Mode> {
    let mut modes = Vec::new();
    for preaggregated in [false, true] {
        for (halo, historical, name) in [
            (Halo::None, Keep::Nothing, "none"),
            (Halo::Stop, Keep::Nothing, "stop"),
            (Halo::Stop, Keep::Aggregates, "aggregates"),
            (Halo::Stop, Keep::Neighbors { seed: 0 }, "history"),
        ] {
            // A single layer with pre-aggregated features has no halo. Historical embeddings exist for layers between the
            // first and the last. Their neighbors need pre-aggregated features.
            let has_neighbors = matches!(historical, Keep::Neighbors { .. });
            if (layers == 1 && preaggregated)
                || (layers < 3 && historical != Keep::Nothing)
                || (has_neighbors && !preaggregated)
            {
                continue;
            }
            modes.push(Mode {
                halo,
                historical,
                preaggregated,
                name,
            });
        }
    }
    modes
}

/// A ratio, or `-` if the divisor is only rounding error.
fn ratio(value: f64, to: f64) -> String {
    if to < ROUNDING {
        "-".to_owned()
    } else {
        format!("{:.2}", value / to)
    }
}

/// Relative difference of f32 gradients that are equal except for rounding.
const ROUNDING: f64 = 1e-4;

fn table(experiment: &Experiment, layers: u32) -> Result<Table> {
    let mut table = Table::new(&[
        "halo, first hop, loss weights",
        "relative bias",
        "to none",
        "to isolation",
        "cosine",
        "relative variance",
        "mean coverage",
    ]);
    let mut rows: Vec<(Mode, Form, Seen)> = Vec::new();
    for mode in modes(layers) {
        let begin = Instant::now();
        let seen = experiment.run(mode)?;
        eprintln!("{layers} layers, {mode}: {:.1} s", begin.elapsed().as_secs_f64());
        rows.extend(Form::ALL.into_iter().zip(seen).map(|(form, seen)| (mode, form, seen)));
    }
    let bias = |wanted: &dyn Fn(&Mode) -> bool| {
        let row = rows.iter().find(|(mode, form, _)| *form == Form::None && wanted(mode));
        row.expect("each mode has a row without loss weights").2.bias
    };
    let isolation = bias(&|mode| mode.name == "stop" && !mode.preaggregated);
    for (mode, form, seen) in &rows {
        table.row([
            format!("{mode}, {form}"),
            format!("{:.4}", seen.bias),
            ratio(seen.bias, bias(&|other| other == mode)),
            ratio(seen.bias, isolation),
            format!("{:.4}", seen.cosine),
            format!("{:.5}", seen.variance),
            format!("{:.2}", seen.coverage),
        ]);
    }
    Ok(table)
}
