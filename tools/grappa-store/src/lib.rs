//! The program `grappa-store`, as a library: the Python package calls it with its options.

mod add_features;
mod args;
mod export;
mod graph_info;
mod info;
mod members;
mod partitions;
mod place;
mod plan;
mod preaggregate;
mod repartition;
mod sample;
mod table;
mod verify;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use grappa_console::Console;

use self::args::{Command, StoreArgs};

/// The program, with its command line. Returns the exit code.
pub fn main(line: impl IntoIterator<Item = OsString>) -> u8 {
    grappa_console::code_of(|| {
        let args = StoreArgs::parse_from(line);
        run(&args, &args.console.open())
    })
}

/// The options of the program.
pub fn command() -> clap::Command {
    StoreArgs::command()
}

/// The program as a function. `line` is its command line, with a name in front.
///
/// # Errors
/// As the program; `clap::Error` if the options are wrong.
pub fn call(line: impl IntoIterator<Item = OsString>, console: &Console) -> anyhow::Result<()> {
    run(&StoreArgs::try_parse_from(line)?, console)
}

fn run(args: &StoreArgs, console: &Console) -> anyhow::Result<()> {
    match &args.command {
        Command::Info(options) => info::run(options, console),
        Command::Verify(options) => verify::run(options, console),
        Command::Export(options) => export::run(options, console),
        Command::Repartition(options) => repartition::run(options, console),
        Command::Sample(options) => sample::run(options, console),
        Command::Preaggregate(options) => preaggregate::run(options, console),
        Command::AddFeatures(options) => add_features::run(options, console),
        Command::Place(options) => place::run(options, console),
        Command::Plan(options) => plan::run(options, console),
    }
}
