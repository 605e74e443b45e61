//! Kills processes that train together.

use std::{
    fmt, fs,
    path::Path,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_benches::record::{Record, Table};
use grappa_run::checkpoint::{Checkpoint, Checkpoints};
use grappa_tests::{files::memory_folder, program::process_of_rank, random::Random};
use rustix::process::{Signal, kill_process};

use crate::trial::{self, Trial};

const QUESTION: &str = "Does a training of several processes end with the right parameters if one of them is killed by SIGKILL at a random \
                        moment? 2 to 4 ranks, drawn for each start. After a kill, the other ranks must end by themselves. Then the run is \
                        started again with --resume auto, and must end with the parameters of an undisturbed run of one process, up to the \
                        order of sums. `hung`: processes that did not end in time, and were killed. `failed`: the second start ends with an \
                        error. `different`: a parameter differs by more than 1e-3 of the largest one.";

/// Ranks that wait longer than this for each other hang.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time between two looks at processes.
const POLL: Duration = Duration::from_millis(10);
/// The largest difference of two parameters, relative to the largest parameter. Sums of another order differ by less.
const TOLERANCE: f32 = 1e-3;
/// One layer, so that differences of rounding do not grow over hundreds of steps.
const OPTIONS: [&str; 14] = [
    "--partitions",
    "4",
    "--layers",
    "1",
    "--epochs",
    "20",
    "--checkpoint-every",
    "1",
    "--batch",
    "8",
    "--timeout",
    "20",
    "--resume",
    "auto",
];

/// Number of kills.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Runs in which one rank is killed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// Selects ranks and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The end of a run with a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It ended before the kill.
    NotKilled,
    Same,
    Hung,
    Failed,
    Different,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Same, Self::NotKilled, Self::Hung, Self::Failed, Self::Different];

    fn index(self) -> usize {
        let mut all = Self::ALL.into_iter();
        all.position(|outcome| outcome == self).expect("all are there")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotKilled => "ended before",
            Self::Same => "same",
            Self::Hung => "hung",
            Self::Failed => "failed",
            Self::Different => "different",
        })
    }
}

pub fn run(args: &Args, record: Option<&Path>) -> Result<()> {
    let folder = memory_folder();
    let trial = Trial::new(folder.path())?;
    let begin = Instant::now();
    ensure!(trial.ends(1)? == Some(true), "an undisturbed run fails");
    let (took, expected) = (begin.elapsed(), trial.parameters()?);

    let mut random = Random::new(args.seed);
    let mut counts = [0u64; Outcome::ALL.len()];
    while counts.iter().sum::<u64>() - counts[Outcome::NotKilled.index()] < args.kills {
        let ranks = [2, 2].map(|least| least + random.below(3) as u32);
        let moment = took.mul_f64(random.unit());
        let victim = random.below(ranks[0].into()) as u32;
        let outcome = trial.kill(ranks, victim, moment, &expected)?;
        counts[outcome.index()] += 1;
        if !matches!(outcome, Outcome::Same | Outcome::NotKilled) {
            eprintln!(
                "{ranks:?} ranks, rank {victim} after {:.2} s: {outcome}",
                moment.as_secs_f64()
            );
        }
    }

    let line = format!(
        "cargo run -p grappa-benches --bin faults -- workers --kills {} --seed {}",
        args.kills, args.seed
    );
    let mut page = Record::new("Kills of workers", QUESTION, &line, &trial.folder)?;
    let names = Outcome::ALL.map(|outcome| outcome.to_string());
    let mut table = Table::new(&names.each_ref().map(String::as_str));
    table.row(counts.map(|count| count.to_string()));
    page.add(table);
    page.finish(record)?;
    match args.kills - counts[Outcome::Same.index()] {
        0 => Ok(()),
        wrong => bail!("{wrong} of {} went wrong", args.kills),
    }
}

impl Trial {
    fn start(&self, ranks: u32) -> Result<Child> {
        trial::spawn(self.command().args(["--workers", &ranks.to_string()]).args(OPTIONS))
    }

    /// Runs to the end. Whether it succeeds; none if it does not end in time.
    fn ends(&self, ranks: u32) -> Result<Option<bool>> {
        let status = self.wait(self.start(ranks)?)?;
        Ok(status.map(|status| status.success()))
    }

    /// Waits for the launcher, which ends after its ranks. None if it does not end in time; then all are killed.
    fn wait(&self, mut launcher: Child) -> Result<Option<ExitStatus>> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = launcher.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(POLL);
        }
        launcher.kill()?;
        launcher.wait()?;
        (0..4)
            .filter_map(|rank| process_of_rank(rank, &self.folder))
            .for_each(|process| {
                // It may have ended meanwhile.
                let _ = kill_process(process, Signal::KILL);
            });
        Ok(None)
    }

    /// Starts a run, kills a rank after some time, and starts it again with another number of ranks.
    fn kill(&self, [before, after]: [u32; 2], victim: u32, moment: Duration, expected: &Checkpoint) -> Result<Outcome> {
        if self.run_folder().exists() {
            fs::remove_dir_all(self.run_folder())?;
        }
        let mut launcher = self.start(before)?;
        thread::sleep(moment);
        // A rank may not have started yet.
        let killed = loop {
            if launcher.try_wait()?.is_some() {
                return Ok(Outcome::NotKilled);
            }
            if let Some(process) = process_of_rank(victim, &self.folder) {
                break kill_process(process, Signal::KILL).is_ok();
            }
            thread::sleep(POLL);
        };
        let Some(status) = self.wait(launcher)? else {
            return Ok(Outcome::Hung);
        };
        if !killed || status.success() {
            return Ok(Outcome::NotKilled);
        }
        Ok(match self.ends(after)? {
            None => Outcome::Hung,
            Some(false) => Outcome::Failed,
            Some(true) if are_close(&self.parameters()?, expected) => Outcome::Same,
            Some(true) => Outcome::Different,
        })
    }

    /// The last checkpoint.
    fn parameters(&self) -> Result<Checkpoint> {
        let checkpoints = Checkpoints::look(&self.run_folder().join(grappa_run::folder::CHECKPOINTS));
        let (_, checkpoint) = checkpoints.latest()?.found.context("the run has no checkpoint")?;
        Ok(checkpoint)
    }
}

/// The values of all parameters.
fn values_of(checkpoint: &Checkpoint) -> Vec<f32> {
    let bytes = checkpoint
        .parameters
        .iter()
        .flat_map(|tensor| tensor.bytes.chunks_exact(4));
    bytes
        .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")))
        .collect()
}

/// Whether two checkpoints are of the same step, with the same parameters up to the order of sums.
fn are_close(found: &Checkpoint, expected: &Checkpoint) -> bool {
    let (found_values, expected_values) = (values_of(found), values_of(expected));
    let largest = expected_values
        .iter()
        .fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let mut pairs = found_values.iter().zip(&expected_values);
    found.state.step == expected.state.step
        && found_values.len() == expected_values.len()
        && pairs.all(|(found, expected)| (found - expected).abs() <= TOLERANCE * largest)
}
