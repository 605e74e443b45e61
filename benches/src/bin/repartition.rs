//! Time to repartition a store of 10^9 edges, next to one of a hundredth of its size, and next to syncing two small files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    child,
    inputs::{EDGE_FACTOR, SEED},
    programs,
    record::{Record, Table},
    stats::{median, range},
    stores,
};
use grappa_formats::manifest::Manifest;
use grappa_io::durable;
use grappa_sampling::partition::{RepartitionOptions, Schedule, assignment, chunk_sizes, repartition};
use grappa_storage::read_manifest;

const CHUNKS: u32 = 64;

/// Measure repartitioning
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// Repartition an R-MAT store of 2^SCALE nodes, and one of a hundredth of its edges
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Number of partitions
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// Runs of each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

/// A store, and the seconds that each repartitioning took.
struct Contender {
    path: PathBuf,
    manifest: Manifest,
    library: Vec<f64>,
    program: Vec<f64>,
}

impl Bench for Args {
    const TITLE: &'static str = "Repartitioning";
    const QUESTION: &'static str = "How long does it take to repartition a store, and does that depend on its size? Stores of 64 chunks, the \
        second of a hundredth of the edges; `repartition` in one process with the manifest at hand, as in training, \
        and the program from start to end; next to the same two files written and synced by a program that does \
        nothing else. All take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-store"])?;
        // A 64th of the nodes, and 64 hundredths of the edges of each: a hundredth.
        let sizes = [(self.scale, EDGE_FACTOR), (self.scale - 6, EDGE_FACTOR * 0.64)];
        let mut contenders = Vec::new();
        for (scale, edge_factor) in sizes {
            let path = generated(self, &programs, scale, edge_factor)?;
            contenders.push(Contender {
                manifest: read_manifest(&path)?,
                path,
                library: Vec::new(),
                program: Vec::new(),
            });
        }

        let options = RepartitionOptions {
            partitions: self.partitions,
            schedule: Schedule::Sweep,
            seed: SEED,
            super_epoch: None,
        };
        let scratch = self.files.work.join("two-files");
        fs::create_dir_all(&scratch)?;
        let (mut files, mut sync, mut table) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..self.runs {
            for contender in &mut contenders {
                let seconds = seconds_of(|| Ok(repartition(&contender.path, &contender.manifest, &options)?))?;
                contender.library.push(seconds);
                let mut program = Command::new(programs.join("grappa-store"));
                program.arg("repartition").arg(&contender.path);
                program.args(["--quiet", "--partitions", &self.partitions.to_string()]);
                contender.program.push(seconds_of(|| child::run(&mut program))?);
            }
            // The computation alone, then the file operations alone.
            let chunk_sizes = chunk_sizes(&contenders[0].manifest);
            let generation = u64::from(run);
            let mut bytes = Vec::new();
            table.push(seconds_of(|| {
                let made = assignment(
                    Schedule::Sweep,
                    &chunk_sizes,
                    self.partitions,
                    SEED,
                    generation,
                    generation,
                )?;
                bytes = made.encode().0;
                Ok(())
            })?);
            files.push(seconds_of(|| {
                durable::write_file(&scratch.join(format!("{run}")), &bytes)?;
                Ok(durable::write_file(&scratch.join("CURRENT"), b"generation")?)
            })?);
            let file = fs::File::create(scratch.join("one"))?;
            std::io::Write::write_all(&mut &file, &bytes)?;
            sync.push(seconds_of(|| Ok(file.sync_all()?))?);
            fs::remove_file(scratch.join("one"))?;
        }
        fs::remove_dir_all(&scratch)?;

        let mut rows = Table::new(&["what", "edges", "ms", "range"]);
        let mut row = |what: &str, edges: Option<u64>, seconds: &[f64]| {
            let milliseconds = || seconds.iter().map(|seconds| seconds * 1e3);
            let edges = edges.map_or("".to_owned(), |edges| edges.to_string());
            rows.row([
                what.to_owned(),
                edges,
                format!("{:.2}", median(milliseconds())),
                range(milliseconds()),
            ]);
        };
        for contender in &contenders {
            row("repartition", Some(contender.manifest.edges), &contender.library);
        }
        for contender in &contenders {
            row(
                "grappa-store repartition",
                Some(contender.manifest.edges),
                &contender.program,
            );
        }
        row("floor: the same two files, written, synced and renamed", None, &files);
        row("one new file, synced", None, &sync);
        row("computing and encoding the table", None, &table);
        record.add(rows);
        record.add(format_args!(
        "{CHUNKS} chunks, {} partitions, {} runs. Two files take four syncs: each file, and the folder after each rename. They are \
         most of the cost; the rest is the table and the removal of an old generation.",
        self.partitions, self.runs
    ));
        Ok(())
    }
}

fn seconds_of<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begin = Instant::now();
    let result = work()?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(result);
    Ok(seconds)
}

/// The store; made first if it does not exist.
fn generated(args: &Args, programs: &Path, scale: u32, edge_factor: f64) -> Result<PathBuf> {
    let path = args.files.work.join(format!("repartition-{scale}.grappa"));
    let mut command = stores::rmat(programs, scale, edge_factor);
    command.args(["--chunks", &CHUNKS.to_string()]);
    stores::make_once(&path, command)?;
    Ok(path)
}
