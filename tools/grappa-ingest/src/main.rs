//! `grappa-ingest`: edge lists in, a compressed graph store out, under a memory budget.

mod args;

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use grappa_build::ingest::ingest;
use grappa_console::{Built, signals};
use grappa_storage::writer::{kept_in, partial_folder};

use self::args::Args;

fn main() -> ExitCode {
    grappa_console::run(|| {
        let args = Args::parse();
        let console = args.console.open();
        let begin = Instant::now();
        let options = args.options()?;
        let partial = partial_folder(&options.out);
        signals::ends_at_once(move || {
            let kept = partial.exists().then(|| kept_in(&partial))?;
            Some(format!(
                "what is finished is kept in {kept}: rerun with --resume to continue"
            ))
        });
        let summary = ingest(&options, &console.bars())?;
        let mut built = Built::new(options.out.display().to_string(), begin.elapsed(), summary.edges_read);
        built.nodes = summary.nodes;
        built.edges = summary.edges;
        built.rejected = summary.rejected;
        built.bytes_on_disk = summary.bytes_on_disk;
        built.chunks = u64::from(summary.chunks);
        built.chunks_present = built.chunks;
        console.finish(&built)
    })
}
