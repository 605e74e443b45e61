//! By how much the gradient that isolated partitions come to is off, on average over repartitionings.
//!
//! At fixed parameters, the exact gradient of the mean loss of the seeds, over all neighbours, is compared with what K partitions make of
//! it: each computes the gradients of its seeds from what it sees, again over all neighbours, so that nothing is left to chance but
//! the partitions. With G the exact gradient, and G_1 ... G_S those of S independent repartitionings, of mean M:
//!
//! ```text
//! relative variance    V = 1/(S-1) sum_s |G_s - M|^2 / |G|^2         of one repartitioning
//! relative bias        B = sqrt(max(0, |M - G|^2 / |G|^2 - V / S))   of the expectation: what the mean is off by chance is taken away
//! cosine               M.G / (|M| |G|)
//! ```
//!
//! Forms of weighting a seed by its coverage c are compared on the same passes. Those of the trainer are `none`, `batch` and `node`, with
//! shrinkage; others are candidates that it does not have: `1/c`, which counts more what sees less; and `strata`, which is `node` within each
//! range of degrees, so that nodes of few neighbours don't vanish.

mod experiment;
mod forms;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    machine, programs,
    record::{Record, Table},
};
use grappa_sampling::{partition::Schedule, view::Halo};
use grappa_trainer::train::history::Keep;

use self::{
    experiment::{Experiment, Mode, Seen, Setup},
    forms::Form,
};

const QUESTION: &str = "By how much is the expected gradient of isolated partitions off, what does each way of weighting seeds change, and what \
    does knowing more of halo nodes? Relative bias of the mean over repartitionings, its cosine with the exact gradient, and the relative \
    variance of one repartitioning; all neighbours, so that only the partitions are left to chance.";

/// Measure the bias of isolated gradients
#[derive(Debug, Parser)]
struct Args {
    /// A store with features, labels and seeds
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Numbers of layers
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3], value_parser = clap::value_parser!(u32).range(1..=4))]
    layers: Vec<u32>,
    /// Values of a node between layers
    #[arg(long, value_name = "N", default_value_t = 32)]
    hidden: usize,
    /// Partitions, all of which make a step
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..))]
    partitions: u32,
    /// How partitions are made
    #[arg(long, default_value = "sweep")]
    schedule: Schedule,
    /// Repartitionings
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
    repartitions: u64,
    /// Seeds: the first so many of the nodes to train on, in the random order of the store
    #[arg(long, value_name = "N", default_value_t = 1024)]
    seeds: usize,
    /// Epochs of training, unpartitioned, before the parameters that are looked at
    #[arg(long, value_name = "EPOCHS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Threads [default: as many as processors]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    grappa_console::run(|| measure(&Args::parse()))
}

fn measure(args: &Args) -> Result<()> {
    let work = std::env::temp_dir();
    let command = programs::command_line("bias").replace("-p grappa-benches", "-p grappa-trainer-benches");
    let mut record = Record::new("The bias of isolated gradients", QUESTION, &command, &work)?;
    let load = machine::load()?;
    let begin = Instant::now();
    for &layers in &args.layers {
        let setup = Setup {
            layers: layers as usize,
            hidden: args.hidden,
            partitions: args.partitions,
            schedule: args.schedule,
            seeds: args.seeds,
            epochs: args.epochs,
            repartitions: args.repartitions,
            threads: match args.threads {
                Some(threads) => threads,
                None => std::thread::available_parallelism()?.get(),
            },
        };
        let experiment = Experiment::new(&args.store, setup)?;
        record.add(format_args!(
            "{layers} layers, hidden {}, {} of {} nodes to train on, after {} epochs of training on the whole graph; {} partitions ({}), {} \
             repartitionings. History is of the epoch before.",
            args.hidden,
            experiment.seeds(),
            experiment.train_nodes(),
            args.epochs,
            args.partitions,
            args.schedule.name(),
            args.repartitions
        ));
        record.add(table(&experiment, layers)?);
    }
    record.add(format_args!(
        "\"To none\" is the bias over that of the row `none` with the same halo and first hop; \"to isolation\" over that of halo `stop` with \
         a sampled first hop and no weights. A bias of 0 beside a variance that is none: what the mean is off by, chance explains. Took {:.0} s; load {load} before and {} after.",
        begin.elapsed().as_secs_f64(),
        machine::load()?
    ));
    record.finish(args.record.as_deref())
}

/// The ways in which a partition may see its halo.
fn modes(layers: u32) -> Vec<Mode> {
    let mut modes = Vec::new();
    for preaggregated in [false, true] {
        for (halo, history, name) in [
            (Halo::None, Keep::Nothing, "none"),
            (Halo::Features, Keep::Nothing, "features"),
            (Halo::Stop, Keep::Nothing, "stop"),
            (Halo::Stop, Keep::Aggregates, "aggregates"),
            (Halo::Stop, Keep::Neighbours { seed: 0 }, "history"),
        ] {
            // A single layer whose aggregates are known has nothing left to see; what halo nodes remember are aggregates of
            // layers between the first and the last; and neighbours come with those of the first.
            let has_neighbours = matches!(history, Keep::Neighbours { .. });
            if (layers == 1 && preaggregated)
                || (layers < 3 && history != Keep::Nothing)
                || (has_neighbours && !preaggregated)
            {
                continue;
            }
            modes.push(Mode {
                halo,
                history,
                preaggregated,
                name,
            });
        }
    }
    modes
}

/// A ratio, unless it is to what is nothing but rounding.
fn ratio(value: f64, to: f64) -> String {
    if to < ROUNDING {
        "-".to_owned()
    } else {
        format!("{:.2}", value / to)
    }
}

/// Relative errors of gradients in f32 that are equal.
const ROUNDING: f64 = 1e-4;

fn table(experiment: &Experiment, layers: u32) -> Result<Table> {
    let mut table = Table::new(&[
        "halo, first hop, weights",
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
        row.expect("all modes are there, with and without weights").2.bias
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
