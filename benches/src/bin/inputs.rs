//! Writes one input file of a bench: `inputs npy|tsv|features SCALE DIM FOLDER`.
//!
//! The measuring programs start it themselves. It is a process of its own so that they stay small.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use grappa_benches::inputs::Input;

/// Write one input file of a bench
#[derive(Debug, Parser)]
struct Args {
    /// Kind of file to write
    #[arg(value_enum)]
    input: Input,
    /// The graph has 2^SCALE nodes
    scale: u32,
    /// Values in a feature vector
    dim: usize,
    /// Where to
    folder: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| args.input.write(&args.folder, args.scale, args.dim))
}
