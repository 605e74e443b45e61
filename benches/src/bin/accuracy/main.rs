//! Test accuracy of training in isolated partitions, next to training on the whole graph, and the contribution of each method.
//!
//! The bench is a grid of runs of `grappa-train`: datasets x layers x variants x seeds. Finished runs are recorded in a file, one
//! JSON object per line, and are not repeated, so the bench can be stopped at any time and continues when it is run again. The
//! table has all recorded runs. Options with lists select the runs, in all combinations:
//!
//! ```text
//! accuracy --work DIR                                              halo modes x first hops, sweep, without correction
//! accuracy --work DIR --schedule fixed --halo stop,history         adds the contribution of repartitioning
//! accuracy --work DIR --models gat,gin --first-hop auto --halo auto  other models, with the defaults of partitions
//! accuracy --work DIR --halo history --correction batch,node       adds the contribution of loss weights
//! ```

mod grid;
mod state;
mod stores;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Parser;
use grappa_benches::{
    bench::{self, Bench, Files},
    machine, programs,
    record::Record,
    stats::median,
    training,
};
use grappa_console::duration;

use self::{
    grid::{Dataset, GridRun, Lists},
    state::{Ended, State},
    stores::Stores,
};

/// Measure test accuracy with and without partitions
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    files: Files,
    /// The folder with the datasets, a folder each
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"))]
    data: PathBuf,
    /// A folder with stores DATASET.grappa, to use instead of ingesting datasets; first hops are added to them
    #[arg(long, value_name = "DIR")]
    stores: Option<PathBuf>,
    /// Graphs to train on
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Dataset::RECORDED)]
    datasets: Vec<Dataset>,
    #[command(flatten)]
    lists: Lists,
    /// Runs at a time, with one thread each [default: number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run at most this many
    #[arg(long, value_name = "N")]
    runs_max: Option<usize>,
    /// Print the missing runs and the time that they would take; run nothing
    #[arg(long)]
    plan: bool,
}

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Accuracy";
    const QUESTION: &'static str = "Which test accuracy does training in partitions reach that exchange nothing but gradients, next to the same \
        model trained on the whole graph, and what does each part contribute? Models as named (else GraphSAGE-mean), hidden 128, fanouts 15,10(,5)(,5), 1024 \
        seeds a step (64 for each of 16 partitions), Adam 0.003, dropout 0.5, undirected graphs; test accuracy, in %, at the best \
        validation, by exact inference: mean ± standard deviation over seeds (number of seeds), and the difference to unpartitioned \
        training with a sampled first hop.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let mut state = State::open(&self.files.work.join("accuracy.jsonl"))?;
        let wanted = self.lists.runs(&self.datasets);
        let mut missing: Vec<GridRun> = wanted.iter().filter(|run| !state.has(run)).cloned().collect();
        missing.truncate(self.runs_max.unwrap_or(usize::MAX));
        let jobs = match self.jobs {
            Some(jobs) => jobs.max(1),
            None => thread::available_parallelism()?.get(),
        };
        eprintln!(
            "{} runs selected, {} missing, {jobs} at a time{}",
            wanted.len(),
            missing.len(),
            match state.expected_seconds(&missing) {
                Some(seconds) => format!(
                    ", about {} if they take as long as earlier ones",
                    duration(Duration::from_secs_f64(seconds / jobs as f64))
                ),
                None => String::new(),
            }
        );
        if self.plan {
            missing.iter().for_each(|run| println!("{run}"));
            record.discard();
            return Ok(());
        }

        let load_before = machine::load()?;
        if !missing.is_empty() {
            let programs = programs::build(&["grappa-ingest", "grappa-store", "grappa-train"])?;
            let stores = Stores {
                programs: &programs,
                work: &self.files.work,
                ready: self.stores.as_deref(),
                data: &self.data,
            };
            let trainings = trainings(missing, &stores)?;
            run_all(trainings, jobs, &programs, &self.files.work, &mut state)?;
        }

        for &dataset in &self.datasets {
            if state.of(dataset).next().is_some() {
                record.add(format_args!("### {dataset}\n\n{}", table::of(&state, dataset)));
            }
        }
        record.add(format_args!(
            "{} PyG is quoted from measurements on a machine of this kind: one seed, mini-batches of 1024, evaluation with all neighbors. Load \
             {load_before} before and {} after.",
            table::notes(&state),
            machine::load()?
        ));
        Ok(())
    }
}

/// A run, and the store it is on.
type Training = (GridRun, PathBuf);

/// The runs whose datasets exist, with their stores, which are made first.
fn trainings(missing: Vec<GridRun>, stores: &Stores) -> Result<Vec<Training>> {
    let mut made = BTreeMap::new();
    for &dataset in missing.iter().map(|run| &run.dataset).collect::<BTreeSet<_>>() {
        let mut runs = missing.iter().filter(|run| run.dataset == dataset);
        let wants_first_hop = runs.any(|run| run.variant.first_hop != "sampled");
        match stores.of(dataset, wants_first_hop)? {
            Some(store) => drop(made.insert(dataset, store)),
            None => eprintln!(
                "skipped: {dataset}: there is no {} (--data), and no store (--stores)",
                stores.data.join(dataset.name()).display()
            ),
        }
    }
    let with_stores = missing
        .into_iter()
        .filter_map(|run| made.get(&run.dataset).map(|store| (run, store.clone())));
    Ok(with_stores.collect())
}

/// Runs them, several at a time, and records each when it has finished.
fn run_all(trainings: Vec<Training>, jobs: usize, programs: &Path, work: &Path, state: &mut State) -> Result<()> {
    let total = trainings.len();
    let begin = Instant::now();
    let queue = Mutex::new(VecDeque::from(trainings));
    let state = Mutex::new((state, Vec::<f64>::new()));
    let job = |number: usize| -> Result<()> {
        loop {
            let Some((run, store)) = queue.lock().expect("no job panics").pop_front() else {
                return Ok(());
            };
            let ended = train(&run, &store, programs, &work.join(format!("run-{number}")))
                .inspect_err(|_| queue.lock().expect("no job panics").clear())
                .with_context(|| format!("running {run}"))?;
            let mut state = state.lock().expect("no job panics");
            let seconds = ended.seconds;
            let accuracy = ended.test_accuracy;
            state.0.add(run.clone(), ended)?;
            state.1.push(seconds);
            let left = total - state.1.len();
            let eta = median(state.1.iter().copied()) * left as f64 / jobs as f64;
            eprintln!(
                "[{}/{total}, {} so far, about {} left] {run}: {:.2} % in {seconds:.0} s",
                state.1.len(),
                duration(begin.elapsed()),
                duration(Duration::from_secs_f64(eta)),
                accuracy * 100.0,
            );
        }
    };
    thread::scope(|scope| {
        let job = &job;
        let jobs: Vec<_> = (0..jobs).map(|number| scope.spawn(move || job(number))).collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("no job panics"))
    })
}

/// Trains one run.
fn train(run: &GridRun, store: &Path, programs: &Path, out: &Path) -> Result<Ended> {
    let mut command = Command::new(programs.join("grappa-train"));
    command.arg(store).args(run.options());
    command.args(["--threads", "1", "--memory", "4GiB", "--json"]);
    command.args(["--checkpoint-every", "0", "--checkpoint-minutes", "0"]);
    let measured = training::train(command, out, None)?.measured;
    let gradient_bytes = measured.number("gradient_bytes_per_step").unwrap_or(0.0);
    Ok(Ended {
        test_accuracy: measured.number("test_accuracy")?,
        val_accuracy: measured.number("val_accuracy")?,
        best_epoch: measured.count("best_epoch")?,
        seconds: measured.wall.as_secs_f64(),
        seconds_per_epoch: measured.number("seconds_per_epoch")?,
        gradient_bytes_per_step: gradient_bytes,
        peak_rss_bytes: measured.peak_rss_bytes,
    })
}
