//! Speed of grappa-gen: R-MAT graphs into a store, whole ones, and slices of graphs that no machine holds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::EDGE_FACTOR,
    programs,
    record::{Record, Table, mebibytes},
    stats::{median, range},
    stores,
    turns::in_turns,
};
use grappa_console::ByteSize;

/// Nodes of a chunk of a slice: 2^20. A chunk takes seconds, and each adjacency list in it little memory.
const SLICE_CHUNK_SCALE: u32 = 20;

/// Measure grappa-gen's R-MAT
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The graphs have 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 36])]
    scales: Vec<u32>,
    /// The largest scale that is generated as a whole
    #[arg(long, default_value_t = 28)]
    whole_max: u32,
    /// The chunks, of 2^20 nodes each, that are generated of larger graphs
    #[arg(long, value_name = "LIST", default_value = "0-3")]
    slice: String,
    /// Runs of each scale
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Memory budget of grappa-gen
    #[arg(long, default_value = "2GiB")]
    memory: ByteSize,
}

/// One run at one scale.
struct Run {
    measured: Measured,
    edges: u64,
    store_bytes: u64,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "The speed of grappa-gen";
    const QUESTION: &'static str = "How fast does a random model become a store, and does the cost of an edge depend on the size of the \
        graph? R-MAT, edge factor 16. Median of the runs; scales take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen"])?;
        let told = |run: &Run| format!("{:.1} M edges/s", run.rate() / 1e6);
        let runs = in_turns(
            &self.scales,
            self.runs,
            |&scale, _| self.generate(&programs, scale),
            told,
        )?;
        for (scale, runs) in self.scales.iter().zip(&runs) {
            let edges = runs[0].edges;
            ensure!(
                runs.iter().all(|run| run.edges == edges),
                "expected {edges} edges in each graph of scale {scale}, found another number"
            );
        }
        record.add(self.table(&runs));

        let write = self.write_rate()?;
        let floors: Vec<String> = self
            .scales
            .iter()
            .zip(&runs)
            .map(|(scale, runs)| format!("{:.2} s at scale {scale}", runs[0].store_bytes as f64 / write))
            .collect();
        record.add(format_args!(
            "Floor: the disk wrote {:.2} GB/s sequentially in this run, so writing the bytes of the stores takes {}. The seconds include \
             all syncs.",
            write / 1e9,
            floors.join(", ")
        ));
        Ok(())
    }
}

impl Args {
    fn generate(&self, programs: &Path, scale: u32) -> Result<Run> {
        let out = self.out();
        folder::remove(&out)?;
        rustix::fs::sync();
        let mut command = stores::rmat(programs, scale, EDGE_FACTOR);
        command.args(["--threads", &self.threads.to_string()]);
        command.args(["--memory", &self.memory.0.to_string()]);
        command.arg("--out").arg(&out);
        if scale > self.whole_max {
            let chunks = 1_u64 << (scale - SLICE_CHUNK_SCALE);
            command.args(["--chunks", &chunks.to_string(), "--only-chunks", &self.slice]);
        }
        let measured = child::run(&mut command)?;
        let run = Run {
            edges: measured.count("edges")?,
            store_bytes: measured.count("bytes_on_disk")?,
            measured,
        };
        folder::remove(&out)?;
        Ok(run)
    }

    fn out(&self) -> PathBuf {
        self.files.work.join("generated.grappa")
    }

    /// Bytes per second that the disk writes.
    fn write_rate(&self) -> Result<f64> {
        let scratch = self.files.work.join("disk");
        fs::write(&scratch, vec![1; 1 << 28]).with_context(|| format!("cannot write {}", scratch.display()))?;
        let disk = Disk::measure(&scratch);
        fs::remove_file(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        Ok(disk?.write)
    }

    fn table(&self, runs: &[Vec<Run>]) -> Table {
        let mut table = Table::new(&[
            "scale",
            "edges made",
            "s",
            "range",
            "M edges/s",
            "cpu ns an edge",
            "cpu of the first scale's",
            "peak RSS, MiB",
            "bytes an edge",
        ]);
        let cpu = |runs: &[Run]| {
            median(
                runs.iter()
                    .map(|run| run.measured.cpu.as_secs_f64() * 1e9 / run.edges as f64),
            )
        };
        for (&scale, of_scale) in self.scales.iter().zip(runs) {
            let edges = of_scale[0].edges;
            let wall = || of_scale.iter().map(|run| run.measured.wall.as_secs_f64());
            let whole = if scale > self.whole_max {
                format!(" (chunks {} of {})", self.slice, 1_u64 << (scale - SLICE_CHUNK_SCALE))
            } else {
                String::new()
            };
            table.row([
                format!("{scale}{whole}"),
                edges.to_string(),
                format!("{:.2}", median(wall())),
                range(wall()),
                format!("{:.1}", edges as f64 / median(wall()) / 1e6),
                format!("{:.1}", cpu(of_scale)),
                format!("{:.2}", cpu(of_scale) / cpu(&runs[0])),
                mebibytes(median(of_scale.iter().map(|run| run.measured.peak_rss_bytes as f64))),
                format!("{:.2}", of_scale[0].store_bytes as f64 / edges as f64),
            ]);
        }
        table
    }
}

impl Run {
    /// Edges per second.
    fn rate(&self) -> f64 {
        self.edges as f64 / self.measured.wall.as_secs_f64()
    }
}
