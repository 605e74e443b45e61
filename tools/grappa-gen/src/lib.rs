//! The program `grappa-gen`, as a library: the Python package calls it with its options.

mod args;
mod files;
mod graph;

use std::{ffi::OsString, path::Path, time::Instant};

use anyhow::bail;
use clap::CommandFactory;
use grappa_console::{Built, ByteSize, Console, signals};
use grappa_engine::{
    generate::{generate_store, partial_folder},
    io::machine::free_disk_bytes,
};

use self::args::{GenArgs, Output};

/// The program, with its command line. Returns the exit code.
pub fn main(line: impl IntoIterator<Item = OsString>) -> u8 {
    grappa_console::code_of(|| {
        let (args, output) = GenArgs::read(line).unwrap_or_else(|error| error.exit());
        run(&args, output, &args.console.open())
    })
}

/// The options of the program.
pub fn command() -> clap::Command {
    GenArgs::command()
}

/// The program as a function. `line` is its command line, with a name in front.
///
/// # Errors
/// As the program; `clap::Error` if the options are wrong.
pub fn call(line: impl IntoIterator<Item = OsString>, console: &Console) -> anyhow::Result<()> {
    let (args, output) = GenArgs::read(line)?;
    run(&args, output, console)
}

fn run(args: &GenArgs, output: Output, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let built = match output {
        Output::Store(options) => {
            // A resumed run has written a part already.
            if !options.resume {
                check_space(&options.out, args.least_bytes(), PARTS)?;
            }
            signals::leaves_folder(partial_folder(&options.out), "rerun with --resume to continue");
            let made = generate_store(&options, &console.bars())?;
            let name = options.out.display().to_string();
            Built {
                nodes: made.nodes,
                edges: made.edges,
                bytes_on_disk: made.bytes_on_disk,
                chunks: u64::from(made.chunks),
                chunks_present: u64::from(made.chunks_present),
                ..Built::new(name, begin.elapsed(), made.edges_drawn)
            }
        }
        Output::Graph(options) => {
            if !options.resume {
                check_space(&options.out, options.least_bytes(), "")?;
            }
            return graph::generate(&options, console);
        }
        Output::Files(options) if options.edges.as_os_str() == "-" => {
            if console.json() {
                bail!("--out - prints the edges on stdout, so --json is not possible; give --out a file");
            }
            // On a terminal, a bar would be between the lines.
            return files::print(&options, &console.silenced().bars());
        }
        Output::Files(options) => {
            check_space(&options.edges, args.least_bytes(), PARTS)?;
            signals::stops_by_itself("removing the unfinished files");
            files::write(&options, begin, &console.bars())?
        }
    };
    console.finish(&built)
}

/// Another remedy for a graph that is too large for a disk.
const PARTS: &str = ", or make a part with --only-chunks";

/// Fails if `least` bytes do not fit on the disk of `out`. `remedy` continues a list of remedies.
fn check_space(out: &Path, least: u64, remedy: &str) -> anyhow::Result<()> {
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if let Some(free) = free_disk_bytes(folder)
        && least > free
    {
        bail!(
            "{}: this graph takes at least {} of disk, and {} are free; make a smaller one, or name another disk with --out{remedy}",
            out.display(),
            ByteSize(least),
            ByteSize(free)
        );
    }
    Ok(())
}
