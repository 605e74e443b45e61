//! Who trains, and what a run comes to.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use grappa_benches::{
    cache,
    child::{self, Measured},
    dataset::Task,
    folder,
    limit::MemoryLimit,
    peers::{self, Peer},
    stats::median,
    watch::{self, TimedLine},
};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Grappa, in this number of partitions.
    Ours { partitions: u32 },
    /// Grappa in one partition, under a memory limit that includes the page cache.
    Limited,
    /// A peer's script.
    Peer(Peer),
}

pub struct TimedRun {
    /// Seconds from the start of the process until the target was reached, if it was.
    pub to_target: Option<f64>,
    /// Seconds until a peer's imports were done.
    pub imports: Option<f64>,
    /// The epoch that reached the target.
    pub epoch: Option<u64>,
    /// Seconds between the ends of two epochs, median.
    pub seconds_per_epoch: f64,
    /// Seconds of the whole process.
    pub seconds: f64,
    /// The largest validation accuracy.
    pub val_best: f64,
    /// The test accuracy that the program reports.
    pub test: f64,
    pub peak_rss_bytes: u64,
}

/// All that a run on one dataset needs.
pub struct AccuracySetup<'a> {
    pub task: Task,
    pub programs: &'a Path,
    pub work: &'a Path,
    pub store: PathBuf,
    /// The arrays, if there are peers.
    pub arrays: Option<PathBuf>,
    pub dgl_python: &'a Option<PathBuf>,
    pub pyg_python: &'a Option<PathBuf>,
    pub threads: usize,
    /// Grappa's budget, and the budget and limit of [`Contender::Limited`].
    pub memory: u64,
    pub limited_memory: u64,
    pub limit: Option<&'a MemoryLimit>,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours { partitions: 1 } => f.write_str("Grappa"),
            Self::Ours { partitions } => write!(f, "Grappa, {partitions} partitions"),
            Self::Limited => f.write_str("Grappa, out of core"),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

impl TimedRun {
    pub fn told(&self) -> String {
        match self.to_target {
            Some(seconds) => format!("{seconds:.2} s, {:.2} s in all", self.seconds),
            None => format!("not reached in {:.2} s, best {:.1} %", self.seconds, 100.0 * self.val_best),
        }
    }
}

impl AccuracySetup<'_> {
    pub fn run(&self, contender: &Contender, seed: u32) -> Result<TimedRun> {
        match contender {
            Contender::Ours { partitions } => self.run_ours(*partitions, self.memory, None, seed),
            Contender::Limited => self.run_ours(1, self.limited_memory, self.limit, seed),
            Contender::Peer(peer) => self.run_peer(*peer, seed),
        }
    }

    fn run_ours(&self, partitions: u32, memory: u64, limit: Option<&MemoryLimit>, seed: u32) -> Result<TimedRun> {
        let out = self.work.join("time-to-accuracy-run");
        folder::remove(&out)?;
        let task = self.task;
        let mut command = Command::new(self.programs.join("grappa-train"));
        command.arg(&self.store).arg("--out").arg(&out);
        command.args(["--model", task.model, "--layers", &task.layers.to_string()]);
        command.args(["--hidden", &task.hidden.to_string(), "--lr", &task.lr.to_string()]);
        command.args(["--epochs", &task.epochs.to_string(), "--seed", &seed.to_string()]);
        command.args(["--partitions", &partitions.to_string()]);
        command.args(["--threads", &self.threads.to_string(), "--memory", &memory.to_string()]);
        command.args(["--evaluate", "auto", "--json", "--quiet"]);
        match task.fanouts {
            [] => command.arg("--full-graph"),
            fanouts => command.args(["--fanouts", &listed(fanouts)]),
        };
        let (measured, lines) = watch::lines_of(&mut command, &out.join("metrics.jsonl"), |command| match limit {
            Some(limit) => {
                cache::forget(&cache::files_below(&self.store)?)?;
                limit.run(command)
            }
            None => child::run(command),
        })?;
        folder::remove(&out)?;
        let test = measured.number("test_accuracy")?;
        Ok(self.ran(&measured, &lines, None, test))
    }

    fn run_peer(&self, peer: Peer, seed: u32) -> Result<TimedRun> {
        let python =
            peer.python(self.dgl_python, self.pyg_python).expect("a peer is a contender only if it has a Python");
        let arrays = self.arrays.as_ref().expect("peers have arrays");
        let task = self.task;
        let settings = json!({
            "model": task.model,
            "layers": task.layers,
            "hidden": task.hidden,
            "fanouts": task.fanouts,
            "full_graph": task.fanouts.is_empty(),
            "batch": BATCH,
            "lr": task.lr,
            "epochs": task.epochs,
            "threads": self.threads,
            "seed": seed,
        });
        let out = self.work.join("time-to-accuracy-peer.jsonl");
        if out.exists() {
            std::fs::remove_file(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        let mut command = peers::script(python, "time_to_accuracy.py", self.threads);
        command.args(["run", peer.name()]).arg(arrays).arg(&out).arg(settings.to_string());
        let (measured, lines) = watch::lines_of(&mut command, &out, child::run)?;
        let imports = line_with(&lines, "ready").map(|(at, _)| at.as_secs_f64());
        let (_, last) = line_with(&lines, "test_accuracy").context("the script printed no test accuracy")?;
        Ok(self.ran(&measured, &lines, imports, number(last, "test_accuracy")))
    }

    fn ran(&self, measured: &Measured, lines: &[TimedLine], imports: Option<f64>, test: f64) -> TimedRun {
        let epochs: Vec<&TimedLine> = lines.iter().filter(|(_, line)| line.get("epoch").is_some()).collect();
        let reached = epochs.iter().find(|(_, line)| number(line, "val_accuracy") >= self.task.target);
        let between = epochs.windows(2).map(|pair| seconds(pair[1].0 - pair[0].0));
        // A single epoch takes as long as the run.
        let between: Vec<f64> = match epochs.len() {
            0 | 1 => vec![seconds(measured.wall)],
            _ => between.collect(),
        };
        TimedRun {
            to_target: reached.map(|(at, _)| seconds(*at)),
            imports,
            epoch: reached.and_then(|(_, line)| line["epoch"].as_u64()),
            seconds_per_epoch: median(between),
            seconds: seconds(measured.wall),
            val_best: epochs.iter().map(|(_, line)| number(line, "val_accuracy")).fold(0.0, f64::max),
            test,
            peak_rss_bytes: measured.peak_rss_bytes,
        }
    }
}

/// Seeds of a step.
pub const BATCH: u32 = 1024;

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or(0.0)
}

pub fn listed(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

/// The first line that has a key.
fn line_with<'a>(lines: &'a [TimedLine], key: &str) -> Option<&'a TimedLine> {
    lines.iter().find(|(_, line)| line.get(key).is_some())
}
