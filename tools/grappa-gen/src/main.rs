//! `grappa-gen`: synthetic graphs of any size, straight into a store.

mod args;

use std::{process::ExitCode, time::Instant};

use clap::{CommandFactory, Parser, error::ErrorKind};
use grappa_console::Built;
use grappa_engine::generate::store::generate_store;

use self::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let console = args.console.open();
    let options = match args.options() {
        Ok(options) => options,
        Err(error) => Args::command().error(ErrorKind::ValueValidation, error).exit(),
    };
    grappa_console::run(|| {
        let begin = Instant::now();
        let summary = generate_store(&options, &console.bars())?;
        let mut built = Built::new(options.out.display().to_string(), begin.elapsed(), summary.edges_drawn);
        built.nodes = summary.nodes;
        built.edges = summary.edges;
        built.bytes_on_disk = summary.bytes_on_disk;
        built.chunks = u64::from(summary.chunks);
        console.finish(&built)
    })
}
