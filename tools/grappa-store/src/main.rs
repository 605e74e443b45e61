//! `grappa-store`: look into a graph store, and repartition it.

mod add_features;
mod args;
mod export;
mod info;
mod partitions;
mod place;
mod plan;
mod preaggregate;
mod repartition;
mod sample;
mod table;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Command, StoreArgs};

fn main() -> ExitCode {
    grappa_console::run(|| {
        let args = StoreArgs::parse();
        let console = args.console.open();
        match &args.command {
            Command::Info(options) => info::run(options, &console),
            Command::Verify(options) => verify::run(options, &console),
            Command::Export(options) => export::run(options, &console),
            Command::Repartition(options) => repartition::run(options, &console),
            Command::Sample(options) => sample::run(options, &console),
            Command::Preaggregate(options) => preaggregate::run(options, &console),
            Command::AddFeatures(options) => add_features::run(options, &console),
            Command::Place(options) => place::run(options, &console),
            Command::Plan(options) => plan::run(options, &console),
        }
    })
}
