//! `grappa-gen`: synthetic graphs of any size, straight into a store or as edge lists.

mod args;
mod files;

use std::{process::ExitCode, time::Instant};

use grappa_build::generate::store::generate_store;
use grappa_console::{Built, signals};
use grappa_storage::writer::partial_folder;

use self::args::{Args, Output};

fn main() -> ExitCode {
    grappa_console::run(|| {
        let (args, output) = Args::of_process();
        let console = args.console.open();
        let begin = Instant::now();
        let built = match output {
            Output::Store(options) => {
                signals::leaves_folder(partial_folder(&options.out), "rerun with --resume to continue");
                let made = generate_store(&options, &console.bars())?;
                let name = options.out.display().to_string();
                Built {
                    nodes: made.nodes,
                    edges: made.edges,
                    bytes_on_disk: made.bytes_on_disk,
                    chunks: u64::from(made.chunks),
                    ..Built::new(name, begin.elapsed(), made.edges_drawn)
                }
            }
            Output::Files(options) => {
                signals::stops_by_itself("removing the unfinished files");
                let made = files::write(&options, &console.bars())?;
                let name = options.edges.display().to_string();
                Built {
                    nodes: made.nodes,
                    edges: made.edges,
                    bytes_on_disk: made.bytes,
                    ..Built::new(name, begin.elapsed(), made.edges)
                }
            }
        };
        console.finish(&built)
    })
}
