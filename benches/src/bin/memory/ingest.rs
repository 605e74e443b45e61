//! Peak memory of grappa-ingest relative to its budget, at several scales, with features. Then the store is verified.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use grappa_benches::{
    bench::{Bench, Budget, Files, MEMORY_SLACK_BYTES},
    cache,
    child::{self, Measured},
    disk::Disk,
    folder,
    inputs::{self, Input},
    programs,
    record::{Record, Table, mebibytes},
    stores::Ingest,
};
use grappa_console::ByteSize;

/// Measure the peak memory of grappa-ingest relative to its budget
#[derive(Debug, Parser)]
pub struct Args {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    budget: Budget,
    /// The graphs have 2^SCALE nodes; scale 26 needs 30 GB of disk at a time
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 26])]
    scales: Vec<u32>,
    /// Values of a feature row; 0: no features
    #[arg(long, default_value_t = 16)]
    dim: usize,
    /// Remove the inputs of a scale when it is done
    #[arg(long)]
    remove_inputs: bool,
}

impl Bench for Args {
    const TITLE: &'static str = "The memory of ingest";
    const QUESTION: &'static str = "By how much does the peak memory of ingest exceed its budget, at scales whose edges and features are \
        many times larger? R-MAT, edge factor 16, from `.npy` that is not cached, with features of f32. One run each.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-ingest", "grappa-store"])?;
        let mut table = Table::new(&[
            "scale",
            "edges",
            "input, MiB",
            "store, MiB",
            "s",
            "M edges/s",
            "floor, s",
            "cpu s",
            "peak RSS, MiB",
            "minus budget, MiB",
            "verify, s",
            "verify RSS, MiB",
        ]);
        let mut worst = i64::MIN;
        for &scale in &self.scales {
            let result = self.measure_scale(&programs, scale)?;
            worst = worst.max(result.beyond_budget(self));
            table.row(result.cells(self, scale));
        }
        record.add(table);
        record.add(format_args!(
            "Budget {}; allowed are {} beyond it: {}. The memory of the verification includes the pages of the store that it maps. Floor: \
             reading the inputs and writing the store at the sequential rate of the disk, measured before each scale.",
            self.budget.memory,
            ByteSize(MEMORY_SLACK_BYTES),
            if worst <= MEMORY_SLACK_BYTES as i64 { "kept" } else { "NOT KEPT" },
        ));
        Ok(())
    }
}

impl Args {
    fn measure_scale(&self, programs: &Path, scale: u32) -> Result<AtScale> {
        let edges = Input::Npy.in_folder(&self.files.work, scale, 0)?;
        let features = match self.dim {
            0 => None,
            dim => Some(Input::Features.in_folder(&self.files.work, scale, dim)?),
        };
        let disk = Disk::measure(&edges.path)?;
        let job = Ingest {
            programs,
            budget: &self.budget,
            nodes: Some(1 << scale),
            edges: &edges,
            features: features.as_ref(),
            store: self.files.work.join("memory.grappa"),
        };
        eprintln!("scale {scale}: ingesting");
        let ingest = job.run()?;

        eprintln!("scale {scale}: verifying");
        cache::forget(&cache::files_below(&job.store)?)?;
        let verify = child::run(
            Command::new(programs.join("grappa-store"))
                .arg("verify")
                .arg(&job.store)
                .args(["--json", "--quiet"]),
        )?;
        ensure!(verify.json()?["ok"] == true, "the store is damaged: {}", verify.stdout);

        let store_bytes = ingest.count("bytes_on_disk")?;
        let result = AtScale {
            edges: inputs::edges_in_npy(&edges.path)?,
            input_bytes: job.input_bytes(),
            store_bytes,
            floor_seconds: disk.seconds(job.input_bytes(), store_bytes),
            ingest,
            verify,
        };
        folder::remove(&job.store)?;
        if self.remove_inputs {
            for path in job.inputs() {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(result)
    }
}

/// The figures of one scale.
struct AtScale {
    edges: u64,
    input_bytes: u64,
    store_bytes: u64,
    floor_seconds: f64,
    ingest: Measured,
    verify: Measured,
}

impl AtScale {
    /// Bytes.
    fn beyond_budget(&self, args: &Args) -> i64 {
        self.ingest.peak_rss_bytes as i64 - args.budget.memory.0 as i64
    }

    fn cells(&self, args: &Args, scale: u32) -> [String; 12] {
        let seconds = self.ingest.wall.as_secs_f64();
        [
            scale.to_string(),
            self.edges.to_string(),
            mebibytes(self.input_bytes as f64),
            mebibytes(self.store_bytes as f64),
            format!("{seconds:.1}"),
            format!("{:.1}", self.edges as f64 / seconds / 1e6),
            format!("{:.1}", self.floor_seconds),
            format!("{:.1}", self.ingest.cpu.as_secs_f64()),
            mebibytes(self.ingest.peak_rss_bytes as f64),
            format!("{:+.1}", self.beyond_budget(args) as f64 / f64::from(1 << 20)),
            format!("{:.1}", self.verify.wall.as_secs_f64()),
            mebibytes(self.verify.peak_rss_bytes as f64),
        ]
    }
}
