//! Train graph neural networks on Grappa stores.

#![forbid(unsafe_code)]

mod args;
mod env;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    console: grappa_console::Args,
}

#[derive(Subcommand)]
enum Command {
    /// Say which libtorch this program uses, on which devices and with how many threads
    Env,
    /// Print the configuration that training with these options has, as a file for --config
    Config(Box<args::Sources>),
}

fn main() -> ExitCode {
    grappa_console::run(|| {
        let command = Cli::command().mut_subcommand("config", args::with_defaults);
        let cli = Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
        let console = cli.console.open();
        match cli.command {
            Command::Env => console.answer(&env::Environment::probe()),
            Command::Config(sources) => console.answer(&args::Shown(sources.configuration()?)),
        }
    })
}
