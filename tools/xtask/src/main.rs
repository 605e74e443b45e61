//! Development tasks: what a laptop and CI run, in the same way.
//!
//! Each task is a file here, prints the commands it runs so that they can be repeated by hand, and stops at the first
//! that fails. Nothing but Cargo, Git, Python and a C++ compiler is called, and apt where a graph is made of its index.

#![forbid(unsafe_code)]

mod benches;
mod ci;
mod command;
mod data;
mod examples;
mod extras;
mod fuzz;
mod layers;
mod lint;
mod quickstart;
mod rust_version;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::quickstart::{Dataset, Profile};

/// Development tasks
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Put libtorch into .libtorch, which only the trainer needs
    Setup {
        /// With the libraries that training on a GPU needs (4.6 GB instead of 1.3)
        #[arg(long)]
        cuda: bool,
        /// Also install what tests are skipped without: PyTorch Geometric, and Debian's package of Chromium
        #[arg(long)]
        tests: bool,
    },
    /// Run all tests, the trainer's too (does `setup` first)
    Test,
    /// What CI runs: all of this, with the quickstart's programs unoptimised, and a build without libtorch and Python
    Ci {
        /// Leave the tests to `cargo xtask test`
        #[arg(long)]
        no_tests: bool,
    },
    /// Run each bench once, at a tiny size, to see that it works
    Benches,
    /// Run the examples of the library
    Examples,
    /// Fuzz parsers and decoders with mutated files
    Fuzz {
        /// The target; all of them, one after another, if none is named
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
    },
    /// Check format, tidiness, the minimum Rust version, lints and documentation
    Lint,
    /// Check what compilers don't: specs and samples complete, links resolve, nothing left behind
    Tidy,
    /// Make a real graph of the index of Debian's package archive
    Data {
        #[command(subcommand)]
        graph: data::Graph,
    },
    /// From nothing to a model of a real graph: set up, build, make and ingest the graph, train, predict
    Quickstart {
        /// The graph to train on
        #[arg(long, value_enum, default_value_t)]
        dataset: Dataset,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup { cuda, tests } => {
            if tests {
                extras::install();
            }
            setup::setup(cuda).map(|torch| println!("libtorch is in {}", torch.display()))
        }
        Task::Test => test::test(|_| String::new()),
        Task::Ci { no_tests } => ci::ci(!no_tests),
        Task::Benches => benches::benches(),
        Task::Examples => examples::build().and_then(|()| examples::examples()),
        Task::Fuzz { target, seconds } => fuzz::fuzz(target.as_deref(), seconds),
        Task::Lint => lint::lint(),
        Task::Tidy => tidy::tidy(),
        Task::Data { graph } => data::data(&graph),
        Task::Quickstart { dataset } => quickstart::quickstart(dataset, Profile::Release),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
