//! Train graph neural networks on Grappa stores.

#![forbid(unsafe_code)]

mod env;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    grappa_console::run(|| {
        let cli = Cli::parse();
        let console = cli.console.open();
        match cli.command {
            Command::Env => console.answer(&env::Environment::probe()),
        }
    })
}
