//! Development tasks, the same on a laptop and in CI.
//!
//! Each task has a file here. It prints the commands that it runs, so that you can repeat them, and stops at the first
//! failure. Tasks need Cargo, Git, Python and a C++ compiler; some also use apt.

#![forbid(unsafe_code)]

mod benches;
mod ci;
mod command;
mod data;
mod docs;
mod elf;
mod examples;
mod extras;
mod files;
mod fuzz;
mod gpu_bundle;
mod imports;
mod layers;
mod licenses;
mod lint;
mod quickstart;
mod setup;
mod test;
mod tidy;
mod wheel;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

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
    /// Put libtorch, which only the trainer needs, into .libtorch
    Setup {
        /// Include the libraries for training on a GPU (4.6 GB instead of 1.3)
        #[arg(long)]
        cuda: bool,
        /// Also install PyTorch Geometric and Debian's Chromium, which some tests need
        #[arg(long)]
        tests: bool,
    },
    /// Run all tests, including the trainer's (runs `setup` first)
    Test,
    /// Run everything that CI runs: checks, builds, fuzzing, benches, quickstart and tests
    Ci {
        /// Leave out the tests, which `cargo xtask test` runs
        #[arg(long)]
        no_tests: bool,
    },
    /// Run each bench once, at a tiny size, to see that it works
    Benches,
    /// Make a tarball with gpu-check, the CUDA tests and benches, for machines with a GPU and PyTorch, and without Rust
    GpuBundle {
        /// Folder of the tarball [default: target/gpu-bundle]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Also unpack it, and try everything in it that needs no GPU
        #[arg(long)]
        check: bool,
        /// Build in the profile of the tests, as CI does to check it
        #[arg(long)]
        dev: bool,
    },
    /// Run the commands of the README and the other pages, twice, with the programs of a build for tests
    Docs {
        /// Take the programs as they were built before
        #[arg(long)]
        no_build: bool,
    },
    /// Run the examples of the library
    Examples,
    /// Fuzz parsers and decoders with libFuzzer; the first time it compiles for minutes
    Fuzz {
        /// The target [default: each of them]
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
    },
    /// Check format, tidiness, lints and documentation
    Lint,
    /// Check what compilers don't: links, specs, golden files, records, forbidden words
    Tidy,
    /// Make a real graph from the index of Debian's package archive; `data debian --help` lists the options
    #[command(disable_help_flag = true)]
    Data {
        /// Arguments of tools/debian.py: the graph (`debian`, `debian-contents` or `debian-types`), the folder to create, and options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Build the wheel with the Python package and the programs, install it into a fresh environment, and test it there
    Wheel {
        /// Build in the profile of the tests, as CI does to check it
        #[arg(long)]
        dev: bool,
    },
    /// Set up, build, ingest a real graph, train a model and predict
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
        Task::GpuBundle { out, check, dev } => {
            let profile = if dev { Profile::Dev } else { Profile::Release };
            gpu_bundle::gpu_bundle(out.as_deref(), profile, check)
        }
        Task::Docs { no_build: true } => docs::docs("debug"),
        Task::Docs { no_build: false } => docs::build().and_then(|()| docs::docs("debug")),
        Task::Examples => examples::build().and_then(|()| examples::examples()),
        Task::Fuzz { target, seconds } => fuzz::fuzz(target.as_deref(), seconds),
        Task::Lint => lint::lint(),
        Task::Tidy => tidy::tidy(),
        Task::Data { args } => data::data(&args),
        Task::Wheel { dev } => wheel::wheel(if dev { Profile::Dev } else { Profile::Release }).map(drop),
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
