//! Graphs that exceed the memory, from the start of a program to its summary, cold: time of each stage, disk traffic, peak memory and
//! scratch files, next to the plan of `grappa-store plan` for the same options.
//!
//! Stores take tens of gigabytes, so each is removed before the next one is made.

mod graph;
mod numbers;
mod plan;
mod sample;
mod train;

use std::{
    fmt,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use grappa_benches::{
    bench::{self, Bench, Files},
    cache,
    child::Measured,
    disk::Disk,
    disk_use::{self, DiskUse},
    folder,
    limit::MemoryLimit,
    machine, programs,
    record::Record,
};
use grappa_console::ByteSize;
use grappa_io::machine::free_disk_bytes;

use self::{graph::Graph, numbers::Section};

/// Bytes of the file that the disk's bandwidth is measured with.
const PROBE_BYTES: usize = 1 << 30;
const TRIAL_PROBE_BYTES: usize = 16 << 20;

/// Measure graphs that exceed the memory
#[derive(Debug, Parser)]
pub struct Args {
    #[command(flatten)]
    files: Files,
    /// Rows of the table to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Row::ALL)]
    rows: Vec<Row>,
    /// The R-MAT graph of `default` and `exact` has 2^SCALE nodes
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(12..=34))]
    scale: u32,
    /// The block model of `sample` has 2^S nodes [default: scale + 2]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(12..=36))]
    sbm_scale: Option<u32>,
    /// The R-MAT graph of `procedural` has 2^S nodes [default: scale + 3]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(12..=37))]
    procedural_scale: Option<u32>,
    /// The R-MAT graph of `slice`, of which 2 of 1024 chunks are made, has 2^S nodes [default: scale + 10]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(22..=40))]
    slice_scale: Option<u32>,
    /// Value of --memory for `default` and `exact` [default: 2 GiB at scale 26, in proportion to the nodes; at least 64 MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Memory limit of `default` and `exact`, page cache included [default: 1 GB for the program, and 3 GB at scale 26]
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
    /// Value of --memory for the other rows [default: 6 GiB at the scales that follow from scale 26]
    #[arg(long, value_name = "SIZE")]
    large_memory: Option<ByteSize>,
    /// Memory limit of `procedural` and `slice`, page cache included [default: 8 GiB at the scales that follow from scale 26]
    #[arg(long, value_name = "SIZE")]
    large_limit: Option<ByteSize>,
    /// Steps of `procedural` and `slice`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Minibatches of `sample`
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    batches: u64,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// Three epochs and their evaluations, with defaults except layers and memory
    Default,
    /// An exact evaluation after 4 steps
    Exact,
    /// The same, if the first hop is sampled
    ExactSampledFirstHop,
    /// Minibatches of a block model, in 16 partitions in turn
    Sample,
    /// A graph with computed features: made, verified, repartitioned; steps and a sampled evaluation
    Procedural,
    /// 2 of 1024 chunks of a graph: steps and a sampled evaluation
    Slice,
}

impl Row {
    const ALL: [Self; 6] = [
        Self::Default,
        Self::Exact,
        Self::ExactSampledFirstHop,
        Self::Sample,
        Self::Procedural,
        Self::Slice,
    ];
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("no row is hidden").get_name())
    }
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Billions of edges";
    const QUESTION: &'static str = "How long does each stage take on a graph that exceeds the memory, from the start of the program and with a \
        cold cache, what does it read, write and hold, and what does `grappa-store plan` say for the same options? Cells are measured / planned \
        (planned divided by measured). One run each.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-store", "grappa-train"])?;
        let load = machine::load()?;
        let mut seconds_per_step = None;
        for graph in Graph::ALL {
            let rows: Vec<Row> = self.rows.iter().copied().filter(|&row| graph.has(row)).collect();
            if rows.is_empty() {
                continue;
            }
            let stand = Stand::new(self, graph, &programs)?;
            record.add(stand.described());
            for section in stand.measure(&rows, &mut seconds_per_step)? {
                record.add(section.table(&stand.disk));
                section.notes.iter().for_each(|note| record.add(note));
            }
        }
        record.add(format_args!(
            "Bytes are those that the kernel counts for a program; they are not known for each stage, which `-` stands for. Floors are these bytes \
             at the disk's bandwidth, which was measured before each graph. Load {load} before and {} after.",
            machine::load()?
        ));
        Ok(())
    }
}

/// A graph, and how programs are measured on it.
pub struct Stand<'a> {
    args: &'a Args,
    graph: Graph,
    programs: &'a Path,
    disk: Disk,
    limit: Option<MemoryLimit>,
    /// Why there is no limit although there should be one.
    unlimited: Option<String>,
}

impl<'a> Stand<'a> {
    fn new(args: &'a Args, graph: Graph, programs: &'a Path) -> Result<Self> {
        let limit = graph.limit(args).map(MemoryLimit::new).transpose();
        let (limit, unlimited) = match limit {
            Ok(limit) => (limit, None),
            Err(why) => (None, Some(format!("{why:#}"))),
        };
        Ok(Self {
            args,
            graph,
            programs,
            disk: bandwidth(&args.files.work)?,
            limit,
            unlimited,
        })
    }

    /// The graph, its budget and limit, and the disk.
    fn described(&self) -> String {
        let limit = match (&self.unlimited, self.graph.limit(self.args)) {
            (Some(why), _) => format!("no memory limit ({why})"),
            (None, Some(limit)) => format!("a memory limit of {}, page cache included", ByteSize(limit)),
            (None, None) => "no memory limit".to_owned(),
        };
        format!(
            "**{}**: `--memory {}`, {limit}. The disk reads {}/s and writes {}/s.",
            self.name(),
            ByteSize(self.graph.memory(self.args)),
            ByteSize(self.disk.read as u64),
            ByteSize(self.disk.write as u64)
        )
    }

    /// Makes the store, measures the rows, and removes the store.
    fn measure(&self, rows: &[Row], seconds_per_step: &mut Option<f64>) -> Result<Vec<Section>> {
        self.check_space(rows)?;
        folder::remove(&self.store())?;
        let mut sections = vec![self.make()?];
        for &row in rows {
            eprintln!("{row}: {}", self.name());
            let section = match row {
                Row::Sample => self.sample(),
                _ => self.train(row, seconds_per_step),
            };
            sections.push(section.with_context(|| format!("measuring {row}"))?);
        }
        folder::remove(&self.store())?;
        Ok(sections)
    }

    /// Says how much disk the rows need, and fails if that is not free.
    fn check_space(&self, rows: &[Row]) -> Result<()> {
        let needed = ByteSize(self.disk_bytes(rows)? as u64);
        let free = ByteSize(free_disk_bytes(&self.args.files.work).unwrap_or(u64::MAX));
        eprintln!("{}: needs {needed} of disk; {free} are free", self.name());
        ensure!(
            needed.0 <= free.0,
            "{} needs {needed} of disk, and {free} are free in {}: choose a smaller --scale, or other --rows",
            self.name(),
            self.args.files.work.display()
        );
        Ok(())
    }

    /// Runs a program with a cold cache, in the limit if there is one.
    fn run_cold(&self, command: Command) -> Result<(Measured, DiskUse)> {
        let store = self.store();
        if store.exists() {
            cache::forget(&cache::files_below(&store)?)?;
        }
        let mut command = match &self.limit {
            Some(limit) => limit.limited(&command)?,
            None => command,
        };
        disk_use::run(&mut command, &self.args.files.work)
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    fn store(&self) -> PathBuf {
        self.args.files.work.join("large.grappa")
    }

    fn name(&self) -> String {
        self.graph.name(self.args)
    }
}

/// Bandwidth of the disk of `work`.
fn bandwidth(work: &Path) -> Result<Disk> {
    let path = work.join("large.probe");
    let bytes = if programs::is_trial() {
        TRIAL_PROBE_BYTES
    } else {
        PROBE_BYTES
    };
    let block = vec![1; 1 << 20];
    let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    for _ in 0..bytes / block.len() {
        file.write_all(&block)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all()?;
    let disk = Disk::measure(&path);
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    disk
}
