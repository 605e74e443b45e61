//! How well `grappa-store plan` foretells what an ingest takes, and the rates by which it would foretell it best here.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    cache,
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{self, Input, InputFile},
    programs,
    record::{Record, Table},
    stats::median,
};
use grappa_console::ByteSize;
use serde_json::{Value, json};

const QUESTION: &str = "Does `grappa-store plan` foretell bytes and time of an ingest within 25 %? R-MAT, edge factor 16, from `.npy` that is \
    not cached. Median of the runs.";

/// Measure ingest next to its plan
#[derive(Debug, Parser)]
struct Args {
    /// The graphs have 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24])]
    scales: Vec<u32>,
    /// Feature values a node, in the runs that have features
    #[arg(long, default_value_t = 64)]
    dim: usize,
    /// A folder for inputs (kept, and used again) and outputs (removed)
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Runs of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// grappa-ingest's budget
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Threads of both
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| measure(&args))
}

fn measure(args: &Args) -> Result<()> {
    let programs = programs::build(&["grappa-ingest", "grappa-store"])?;
    let command = programs::command_line("plan");
    let mut record = Record::new("Plans and what came of them", QUESTION, &command, &args.work)?;
    let mut table = Table::new(&[
        "scale",
        "features",
        "MiB planned",
        "made",
        "ratio",
        "s planned",
        "measured",
        "ratio",
        "cpu s planned",
        "measured",
        "ratio",
    ]);
    let mut rates = Value::Null;
    for &scale in &args.scales {
        let edges = Input::Npy.in_folder(&args.work, scale, 0)?;
        let features = Input::Features.in_folder(&args.work, scale, args.dim)?;
        let [without, with] = [None, Some(&features)].map(|features| {
            let case = Case {
                args,
                programs: &programs,
                scale,
                edges: &edges,
                features,
            };
            case.measure()
        });
        let (without, with) = (without?, with?);
        table.row(without.cells(scale, "none"));
        table.row(with.cells(scale, &args.dim.to_string()));
        rates = recalibrated(&without, &with);
    }
    record.add(table);
    record.add(format_args!(
        "Rates that would have foretold the processor time of the largest scale, for `grappa-store plan --rates FILE`: `{rates}`"
    ));
    record.finish(args.record.as_deref())
}

/// A graph, with or without features.
struct Case<'a> {
    args: &'a Args,
    programs: &'a Path,
    scale: u32,
    edges: &'a InputFile,
    features: Option<&'a InputFile>,
}

/// What was foretold, and what came of it.
struct Outcome {
    plan: Value,
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Case<'_> {
    fn measure(&self) -> Result<Outcome> {
        let (mut runs, mut disks) = (Vec::new(), Vec::new());
        for turn in 1..=self.args.runs {
            // Shared disks are not the same from one minute to the next.
            disks.push(Disk::measure(&self.edges.path)?);
            let run = self.ingest()?;
            eprintln!("scale {}, run {turn}: {:.2} s", self.scale, run.wall.as_secs_f64());
            runs.push(run);
        }
        let disk = Disk {
            read: median(disks.iter().map(|disk| disk.read)),
            write: median(disks.iter().map(|disk| disk.write)),
        };
        eprintln!(
            "disk: {:.2} GB/s read, {:.2} written",
            disk.read / 1e9,
            disk.write / 1e9
        );
        let bytes = runs[0].count("bytes_on_disk")?;
        Ok(Outcome {
            plan: self.plan(&disk, bytes)?,
            bytes,
            seconds: median(runs.iter().map(|run| run.wall.as_secs_f64())),
            cpu_seconds: median(runs.iter().map(|run| run.cpu.as_secs_f64())),
        })
    }

    fn ingest(&self) -> Result<Measured> {
        let store = self.args.work.join("plan.grappa");
        folder::remove(&store)?;
        let mut inputs = vec![self.edges.path.clone()];
        let mut command = Command::new(self.programs.join("grappa-ingest"));
        command.arg("--edges").arg(&self.edges.path).arg("--out").arg(&store);
        command.args(["--nodes", &(1_u64 << self.scale).to_string(), "--json", "--quiet"]);
        command.args(self.budget());
        if let Some(features) = self.features {
            command.arg("--features").arg(&features.path);
            inputs.push(features.path.clone());
        }
        cache::forget(&inputs)?;
        let run = child::run(&mut command)?;
        folder::remove(&store)?;
        Ok(run)
    }

    fn plan(&self, disk: &Disk, written: u64) -> Result<Value> {
        let edges = inputs::edges_in_npy(&self.edges.path)?;
        let read = self.edges.bytes + self.features.map_or(0, |features| features.bytes);
        // One number for both directions: that of this ingest, scratch files aside.
        let bandwidth = (read + written) as f64 / disk.seconds(read, written);
        let mut command = Command::new(self.programs.join("grappa-store"));
        command.args(["plan", "--json", "--nodes", &(1_u64 << self.scale).to_string()]);
        command.args([
            "--edges",
            &edges.to_string(),
            "--disk-bandwidth",
            &(bandwidth as u64).to_string(),
        ]);
        command.args(self.budget());
        if self.features.is_some() {
            command.args(["--dim", &self.args.dim.to_string(), "--dtype", "f32"]);
        }
        child::run(&mut command)?.json()
    }

    fn budget(&self) -> [String; 4] {
        let (threads, memory) = (self.args.threads.to_string(), self.args.memory.0.to_string());
        ["--threads".into(), threads, "--memory".into(), memory]
    }
}

impl Outcome {
    fn planned(&self, pointer: &str) -> f64 {
        self.plan.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// Processor time over all threads.
    fn planned_cpu(&self) -> f64 {
        self.planned("/ingest/processor_seconds") * self.planned("/threads")
    }

    fn cells(&self, scale: u32, features: &str) -> [String; 11] {
        let mebibytes = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        let bytes = self.planned("/bytes/total");
        let seconds = self.planned("/ingest/seconds");
        let ratio = |planned: f64, measured: f64| format!("{:.2}", planned / measured);
        [
            scale.to_string(),
            features.to_owned(),
            mebibytes(bytes),
            mebibytes(self.bytes as f64),
            ratio(bytes, self.bytes as f64),
            format!("{seconds:.2}"),
            format!("{:.2}", self.seconds),
            ratio(seconds, self.seconds),
            format!("{:.2}", self.planned_cpu()),
            format!("{:.2}", self.cpu_seconds),
            ratio(self.planned_cpu(), self.cpu_seconds),
        ]
    }
}

/// The rates of the plans, those of each kind of work scaled alike so that its processor time is what was measured.
fn recalibrated(without: &Outcome, with: &Outcome) -> Value {
    let edges = without.cpu_seconds / without.planned_cpu();
    let features = (with.cpu_seconds - without.cpu_seconds) / (with.planned_cpu() - without.planned_cpu());
    let rate = |name: &str, factor: f64| (without.planned(&format!("/rates/{name}")) * factor * 100.0).round() / 100.0;
    json!({
        "edge_read_ns": rate("edge_read_ns", edges),
        "edge_sort_ns": rate("edge_sort_ns", edges),
        "feature_read_ns": rate("feature_read_ns", features),
        "feature_write_ns": rate("feature_write_ns", features),
    })
}
