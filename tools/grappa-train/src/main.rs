//! Train graph neural networks on Grappa stores.

#![forbid(unsafe_code)]

mod args;
mod compare;
mod env;
mod export;
mod finished;
mod predict;
mod report;
mod train;
mod workers;

use std::{
    io::{self, Write},
    panic,
};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use grappa_console::{Failure, FailureKind, reports};
use grappa_methods::MethodConfig;
use grappa_trainer::{Error, runtime};

const EXAMPLES: &str = "\
Examples:
  Train GraphSAGE on the whole graph:
    grappa-train web.grappa --epochs 20 --out run

  Train 3 layers in 16 partitions, within 8 GiB for the graph:
    grappa-train web.grappa --layers 3 --partitions 16 --memory 8GiB --out run

  Train 16 partitions with 4 processes on this host:
    grappa-train web.grappa --partitions 16 --workers 4 --out run

  Continue a run that was stopped or killed:
    grappa-train web.grappa --out run --resume

  Predict the classes of all nodes:
    grappa-train predict run web.grappa --out classes.csv";

/// The remedy if libtorch gets no memory for predictions.
const LESS_MEMORY: &str =
    "give a smaller --memory or fewer --threads, or raise the limit (`ulimit -v`, the container's)";

/// Train graph neural networks on a graph store
///
/// The folder of a run contains report.html, summary.json, checkpoints and TensorBoard events.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    train: args::TrainArgs,
    #[command(flatten)]
    console: grappa_console::ConsoleArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Predict the classes of nodes with the model of a run
    ///
    /// Uses all neighbors of each node, whatever the model was trained with.
    #[command(after_long_help = "\
Examples:
  All nodes:  grappa-train predict run web.grappa --out classes.csv
  A split:    grappa-train predict run web.grappa --split test --out test.parquet
  A list:     grappa-train predict run web.grappa --ids ids.txt --out listed.npy
  A few:      grappa-train predict run web.grappa --nodes apt,bash,vim")]
    Predict(Box<args::PredictArgs>),
    /// Export the model of a run to a file for PyTorch Geometric
    #[command(after_long_help = "Example: grappa-train export run --out model.safetensors")]
    Export(args::ExportArgs),
    /// Compare runs on one HTML page: scores, curves by epoch and by time, and the options that differ
    ///
    /// Runs count as of their last checkpoints, and none is changed. The report of a single run is report.html in its folder.
    #[command(after_long_help = "Example: grappa-train report run-a run-b --out compare.html")]
    Report(args::ReportArgs),
    /// Compare methods of training on a store: accuracy, bytes and modelled time
    ///
    /// Trains the methods one after the other, each in partitions of this process, and counts what partitions would send. All other
    /// options of training apply to all methods.
    #[command(after_long_help = "\
Examples:
  Four methods, two numbers of partitions, three seeds:
    grappa-train compare web.grappa --methods grappa,full,varco,isolated --partitions 4,16 --seeds 3 --epochs 100 --out compared

  An option of one method:
    grappa-train compare web.grappa --methods full,varco,varco+rate-schedule=fixed:4 --out compared")]
    Compare(Box<compare::CompareArgs>),
    /// Show the version of libtorch, its devices and the number of threads
    Env,
    /// Print the configuration that training has with these options, as a file for --config
    #[command(after_long_help = "Example: grappa-train config --partitions 16 --layers 3 > run.toml")]
    Config(Box<args::Sources>),
}

fn main() {
    let work = || {
        // A panic that becomes an error is not reported twice.
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !runtime::is_out_of_memory(info.payload()) {
                tell(info);
            }
        }));
        let matches = Cli::command().try_get_matches().unwrap_or_else(|error| answer(&error));
        run(Cli::from_arg_matches(&matches).unwrap_or_else(|error| answer(&error)))?;
        Ok(io::stdout().flush()?)
    };
    runtime::exit(grappa_console::code_with(work, failure))
}

/// The failure of this program. The errors of its libraries name options.
fn failure(error: &anyhow::Error) -> Failure {
    let run = match (error.downcast_ref::<Error>(), error.downcast_ref::<grappa_run::Error>()) {
        (Some(Error::OutOfMemory { .. }), _) => {
            return Failure { kind: FailureKind::Memory, ..Failure::new(error) };
        }
        (Some(Error::Engine(engine)), _) => return Failure::of_engine(engine),
        (Some(Error::Run(run)), _) | (None, Some(run)) => run,
        _ => return Failure::new(error),
    };
    let kind = match run {
        grappa_run::Error::Engine(engine) => return Failure::of_engine(engine),
        grappa_run::Error::OutOfRange { .. } | grappa_run::Error::UnknownName(_) => FailureKind::Value,
        _ => FailureKind::Other,
    };
    Failure { kind, fields: run.fields(), ..Failure::new(error) }
}

/// Prints help, the version, or what is wrong with the command line. As clap's `exit`, without the destructors of libtorch.
fn answer(error: &clap::Error) -> ! {
    let other = second_store(error);
    let error = other.as_ref().unwrap_or(error);
    if error.use_stderr() {
        reports::failure(&Failure::usage(error));
    }
    // Nothing can be done about a stream that is closed.
    let _ = error.print();
    let _ = io::stdout().flush();
    runtime::exit(u8::try_from(error.exit_code()).unwrap_or(1))
}

/// The error about an argument after the store. Clap takes it for a command, though the one before it is a command that does not exist.
fn second_store(error: &clap::Error) -> Option<clap::Error> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)?) {
        (ErrorKind::ArgumentConflict, ContextValue::String(argument)) => {
            let command = Cli::command();
            let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            let message = format!(
                "unexpected argument '{argument}': training takes one store, and the argument before it is none of the commands \
                 {}\n\n  tip: 'predict RUN STORE --split test' tells the accuracy of a run",
                names.join(", ")
            );
            Some(Cli::command().error(ErrorKind::UnknownArgument, message))
        }
        _ => None,
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let console = cli.console.open();
    match cli.command {
        None => match &cli.train.store {
            Some(store) => train::run(store, &cli.train, &console),
            None => unreachable!("without a command, a store is required"),
        },
        Some(Command::Predict(options)) => {
            runtime::catch_out_of_memory(LESS_MEMORY, || predict::run(&options, &console))
        }
        Some(Command::Export(options)) => export::run(&options, &console),
        Some(Command::Report(options)) => report::run(&options, &console),
        Some(Command::Compare(options)) => compare::run(&options, &console),
        Some(Command::Env) => console.answer(&env::Environment::probe()),
        Some(Command::Config(sources)) => {
            let config = MethodConfig::all_in(&sources.configuration()?);
            console.answer(&args::ShownConfig(config))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
