//! Train graph neural networks on Grappa stores.

#![forbid(unsafe_code)]

mod args;
mod env;
mod export;
mod predict;
mod train;

use std::{panic, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use grappa_trainer::runtime;

#[derive(Parser)]
#[command(
    version,
    about,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    train: args::Train,
    #[command(flatten)]
    console: grappa_console::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Predict the classes of nodes with the model of a run
    Predict(args::Predict),
    /// Write the model of a run to a file that PyTorch Geometric can load
    Export(args::Export),
    /// Say which libtorch this program uses, on which devices and with how many threads
    Env,
    /// Print the configuration that training with these options has, as a file for --config
    Config(Box<args::Sources>),
}

fn main() -> ExitCode {
    grappa_console::run(|| {
        // What becomes an error is not told as a panic, too.
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !runtime::is_out_of_memory(info.payload()) {
                tell(info);
            }
        }));
        let command = Cli::command().mut_subcommand("config", args::with_defaults);
        let cli = Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
        let console = cli.console.open();
        match cli.command {
            None => match &cli.train.store {
                Some(store) => train::run(store, &cli.train, &console),
                None => unreachable!("without a command, a store is required"),
            },
            Some(Command::Predict(options)) => predict::run(&options, &console),
            Some(Command::Export(options)) => export::run(&options, &console),
            Some(Command::Env) => console.answer(&env::Environment::probe()),
            Some(Command::Config(sources)) => console.answer(&args::Shown(sources.configuration()?)),
        }
    })
}
