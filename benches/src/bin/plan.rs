//! The estimate of `grappa-store plan` next to an ingest, and the rates that would estimate best on this machine.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Budget, Files},
    child,
    disk::Disk,
    folder,
    inputs::{self, Input},
    programs,
    record::{Record, Table},
    stats::median,
    stores::Ingest,
};
use serde_json::{Value, json};

/// Measure ingest next to its plan
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    budget: Budget,
    /// The graphs have 2^SCALE nodes
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24])]
    scales: Vec<u32>,
    /// Values of a feature row, in the runs with features
    #[arg(long, default_value_t = 64)]
    dim: usize,
    /// Runs of each scale, with features and without
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Plans and their ingests";
    const QUESTION: &'static str = "Does `grappa-store plan` estimate bytes and time of an ingest within 25 %? R-MAT, edge factor 16, from \
        `.npy` that is not cached. Median of the runs.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-ingest", "grappa-store"])?;
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
        for &scale in &self.scales {
            let edges = Input::Npy.in_folder(&self.files.work, scale, 0)?;
            let features = Input::Features.in_folder(&self.files.work, scale, self.dim)?;
            let [without, with] = [None, Some(&features)].map(|features| {
                let ingest = Ingest {
                    programs: &programs,
                    budget: &self.budget,
                    nodes: Some(1 << scale),
                    edges: &edges,
                    features,
                    store: self.files.work.join("plan.grappa"),
                };
                self.measure_ingest(&ingest, scale)
            });
            let (without, with) = (without?, with?);
            table.row(without.cells(scale, "none"));
            table.row(with.cells(scale, &self.dim.to_string()));
            rates = recalibrated(&without, &with);
        }
        record.add(table);
        record.add(format_args!(
            "Rates that would have estimated the processor time of the largest scale, for `grappa-store plan --rates FILE`: `{rates}`"
        ));
        Ok(())
    }
}

/// The plan of an ingest, and the medians of its runs.
struct Outcome {
    plan: Value,
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Args {
    fn measure_ingest(&self, ingest: &Ingest, scale: u32) -> Result<Outcome> {
        let (mut runs, mut disks) = (Vec::new(), Vec::new());
        for turn in 1..=self.runs {
            // The speed of a shared disk changes from one minute to the next.
            disks.push(Disk::measure(&ingest.edges.path)?);
            let run = ingest.run()?;
            folder::remove(&ingest.store)?;
            eprintln!("scale {scale}, run {turn}: {:.2} s", run.wall.as_secs_f64());
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
            plan: self.plan(ingest, scale, &disk, bytes)?,
            bytes,
            seconds: median(runs.iter().map(|run| run.wall.as_secs_f64())),
            cpu_seconds: median(runs.iter().map(|run| run.cpu.as_secs_f64())),
        })
    }

    /// The estimate for an ingest that wrote `written` bytes.
    fn plan(&self, ingest: &Ingest, scale: u32, disk: &Disk, written: u64) -> Result<Value> {
        let edges = inputs::edges_in_npy(&ingest.edges.path)?;
        let read = ingest.input_bytes();
        // `plan` takes one bandwidth for both directions: that of this ingest without scratch files.
        let bandwidth = (read + written) as f64 / disk.seconds(read, written);
        let mut command = Command::new(ingest.programs.join("grappa-store"));
        command.args(["plan", "--json", "--nodes", &(1_u64 << scale).to_string()]);
        command.args(["--edges", &edges.to_string()]);
        command.args(["--disk-bandwidth", &(bandwidth as u64).to_string()]);
        self.budget.apply(&mut command);
        if ingest.features.is_some() {
            command.args(["--dim", &self.dim.to_string(), "--dtype", "f32"]);
        }
        child::run(&mut command)?.json()
    }
}

impl Outcome {
    /// A number of the plan.
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

/// The rates of the plans, scaled so that each kind of work takes the measured processor time.
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
