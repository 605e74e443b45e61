//! Seconds from the start of the program to a validation accuracy, and seconds per epoch with its evaluation, next to DGL and PyG.
//!
//! All contenders train the same model with the same fanouts, batches and learning rate, and evaluate after each epoch, each in its
//! usual way: Grappa with `--evaluate auto`, peers by sampled neighbors as in DGL's examples. On Cora, steps and evaluations are
//! passes over the whole graph. Preparation does not count: stores are ingested and pre-aggregated, and peers load the arrays of a
//! compressed adjacency matrix.

mod contender;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    dataset::{Dataset, Graphs, Task},
    limit::MemoryLimit,
    machine,
    peers::{self, Peer},
    programs,
    record::{Record, Table},
    stats::{median, range},
    training,
    turns::in_turns,
};
use grappa_console::ByteSize;

use self::contender::{AccuracySetup, BATCH, Contender, TimedRun, listed};

/// Measure the time to an accuracy
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The folder with the datasets, a folder each
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"))]
    data: PathBuf,
    /// Graphs to train on
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Dataset::Cora, Dataset::DebianBookworm,
        Dataset::Wordnet, Dataset::AmazonComputers, Dataset::Rmat, Dataset::Sbm])]
    datasets: Vec<Dataset>,
    /// Generated graphs have 2^SCALE nodes and take 16 GB of disk each at scale 22, with the arrays for peers
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u32).range(12..))]
    scale: u32,
    /// Numbers of partitions that Grappa trains in
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64), default_values_t = [1, 16])]
    partitions: Vec<u32>,
    /// The validation accuracy to reach, from 0 to 1, instead of the dataset's
    #[arg(long, value_name = "ACCURACY")]
    target: Option<f64>,
    /// Epochs of a run, instead of the dataset's
    #[arg(long)]
    epochs: Option<u32>,
    /// Runs of each contender; each has another seed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Threads of each contender
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Grappa's memory budget
    #[arg(long, default_value = "14GiB")]
    memory: ByteSize,
    /// The memory limit of the run out of core, page cache included, on generated graphs
    #[arg(long, value_name = "SIZE", default_value = "1430MiB")]
    limit: ByteSize,
    /// Grappa's memory budget under this limit
    #[arg(long, value_name = "SIZE", default_value = "1000MiB")]
    limited_memory: ByteSize,
    /// A Python with DGL; without it DGL is left out
    #[arg(long, value_name = "PYTHON")]
    dgl_python: Option<PathBuf>,
    /// A Python with PyG, and for minibatches with pyg-lib or torch-sparse; without it PyG is left out
    #[arg(long, value_name = "PYTHON")]
    pyg_python: Option<PathBuf>,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Time to accuracy";
    const QUESTION: &'static str = "How long does it take from the start of the program to a trained model? Seconds to the first epoch whose \
        validation accuracy reaches a target, and seconds per epoch with its evaluation. Adam, dropout 0.5; medians; contenders take turns.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-ingest", "grappa-store", "grappa-train"])?;
        let graphs = Graphs { programs: &programs, work: &self.files.work, data: &self.data, scale: self.scale };
        let limit = match MemoryLimit::new(self.limit.0) {
            Ok(limit) => Some(limit),
            Err(why) => {
                record.add(format_args!("Left out: Grappa out of core ({why:#})."));
                None
            }
        };
        for &dataset in &self.datasets {
            let Some(store) = graphs.store(dataset)? else {
                let folder = self.data.join(dataset.name());
                record.add(format_args!("Left out: {dataset}: there is no {} (--data).", folder.display()));
                continue;
            };
            self.measure_on(dataset, store, &graphs, limit.as_ref(), record)?;
        }
        record.add(
            "\"Over\" is the ratio to the fastest peer's seconds to the target. Times start with the process, so peers' include \
             imports; the next column leaves these out. Peers score by sampled neighbors, except on Cora. Grappa's test accuracy is \
             of the best model, by exact inference; peers' is of the last model.",
        );
        Ok(())
    }
}

impl Args {
    fn measure_on(
        &self,
        dataset: Dataset,
        store: PathBuf,
        graphs: &Graphs<'_>,
        limit: Option<&MemoryLimit>,
        record: &mut Record,
    ) -> Result<()> {
        let task = Task {
            epochs: self.epochs.unwrap_or(dataset.task().epochs),
            target: self.target.unwrap_or(dataset.task().target),
            ..dataset.task()
        };
        training::preaggregate(graphs.programs, &store, task.aggregates(), limit.is_some())?;
        let mut contenders = self.ours(dataset, limit.is_some());
        let mut notes = Vec::new();
        let mut arrays = None;
        for (peer, python, option) in
            [(Peer::Dgl, &self.dgl_python, "--dgl-python"), (Peer::Pyg, &self.pyg_python, "--pyg-python")]
        {
            match peer_version(peer, python.as_deref(), option, task) {
                Ok((python, version)) => {
                    arrays = Some(graphs.arrays(dataset, &store, python)?);
                    contenders.push(Contender::Peer(peer));
                    notes.push(version);
                }
                Err(why) => notes.push(format!("left out: {peer} ({why})")),
            }
        }
        let load = machine::load()?;
        let setup = AccuracySetup {
            task,
            programs: graphs.programs,
            work: graphs.work,
            store,
            arrays,
            dgl_python: &self.dgl_python,
            pyg_python: &self.pyg_python,
            threads: self.threads,
            memory: self.memory.0,
            limited_memory: self.limited_memory.0,
            limit,
        };
        let runs = in_turns(&contenders, self.turns, |contender, turn| setup.run(contender, turn), TimedRun::told)?;
        record.add(format_args!("### {dataset}\n\n{}\n\n{}", described(task), table(task, &contenders, &runs)));
        record.add(format_args!("Load {load} before and {} after. Peers: {}.", machine::load()?, notes.join("; ")));
        Ok(())
    }

    fn ours(&self, dataset: Dataset, has_limit: bool) -> Vec<Contender> {
        let partitions = match dataset {
            // Its 140 seeds make one step.
            Dataset::Cora => &[1],
            _ => &self.partitions[..],
        };
        let mut ours: Vec<_> = partitions.iter().map(|&partitions| Contender::Ours { partitions }).collect();
        if has_limit && dataset.is_generated() {
            ours.push(Contender::Limited);
        }
        ours
    }
}

/// A peer's Python and versions, or why it cannot run.
fn peer_version<'a>(
    peer: Peer,
    python: Option<&'a Path>,
    option: &str,
    task: Task,
) -> Result<(&'a Path, String), String> {
    let python = python.ok_or_else(|| format!("{option}; benches/README.md says how to install it"))?;
    let mode = if task.fanouts.is_empty() { "full-graph" } else { "minibatches" };
    let said = peers::check(peers::script(python, "time_to_accuracy.py", 1).args(["check", peer.name(), mode]))?;
    let version = serde_json::from_str::<serde_json::Value>(&said)
        .ok()
        .and_then(|line| Some(line["version"].as_str()?.to_owned()));
    Ok((python, version.ok_or("it printed no version")?))
}

fn described(task: Task) -> String {
    let steps = match task.fanouts {
        [] => "the whole graph in each step".to_owned(),
        fanouts => format!("fanouts {}, {BATCH} seeds a step", listed(fanouts)),
    };
    format!(
        "{}, {} layers, hidden {}, {steps}, learning rate {}, {} epochs.",
        task.model, task.layers, task.hidden, task.lr, task.epochs
    )
}

/// The times to the target. None unless all runs reached it.
fn to_target(runs: &[TimedRun]) -> Option<Vec<f64>> {
    runs.iter().map(|run| run.to_target).collect()
}

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn median_of(runs: &[TimedRun], figure: impl Fn(&TimedRun) -> f64) -> f64 {
    median(runs.iter().map(figure))
}

fn table(task: Task, contenders: &[Contender], runs: &[Vec<TimedRun>]) -> Table {
    let fastest = contenders
        .iter()
        .zip(runs)
        .filter(|(contender, _)| matches!(contender, Contender::Peer(_)))
        .filter_map(|(_, runs)| to_target(runs).map(median))
        .min_by(f64::total_cmp);
    let target = format!("s to {:.0} %", 100.0 * task.target);
    let all = format!("s for {} epochs", task.epochs);
    let mut table = Table::new(&[
        "",
        &target,
        "range",
        "over",
        "without imports",
        "epoch",
        "s an epoch",
        &all,
        "best validation, %",
        "test, %",
        "peak RSS, GiB",
    ]);
    for (contender, runs) in contenders.iter().zip(runs) {
        let reached = to_target(runs);
        let seconds = reached.clone().map(median);
        let has_imports = runs.iter().all(|run| run.imports.is_some());
        table.row([
            contender.to_string(),
            seconds.map_or("not reached".to_owned(), |seconds| format!("{seconds:.2}")),
            reached.map_or("-".to_owned(), range),
            cell(seconds.zip(fastest).map(|(seconds, fastest)| seconds / fastest)),
            cell(
                seconds
                    .filter(|_| has_imports)
                    .map(|seconds| seconds - median_of(runs, |run| run.imports.unwrap_or(0.0))),
            ),
            seconds.map_or("-".to_owned(), |_| format!("{:.0}", median_of(runs, |run| run.epoch.unwrap_or(0) as f64))),
            format!("{:.3}", median_of(runs, |run| run.seconds_per_epoch)),
            format!("{:.2}", median_of(runs, |run| run.seconds)),
            format!("{:.1}", 100.0 * median_of(runs, |run| run.val_best)),
            format!("{:.1}", 100.0 * median_of(runs, |run| run.test)),
            format!("{:.1}", median_of(runs, |run| run.peak_rss_bytes as f64) / f64::from(1 << 30)),
        ]);
    }
    table
}
