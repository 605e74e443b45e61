//! Kills every program at many moments.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail};
use grappa_benches::{
    programs,
    record::{Record, Table},
};
use grappa_tests::{
    files::memory_folder,
    kills::{Job, Moment, Outcome, generate_jobs, ingest_jobs, store_jobs, training_jobs, training_jobs_out_of_core},
    random::Random,
};

use crate::pool::run_each;

const QUESTION: &str = "Does a program that is killed by SIGKILL write the same bytes when it is restarted (with --resume, if it has that \
                        option)? It is killed before each of its changes of the file system (creation, sync, rename or removal of a \
                        file or folder, append to a journal), and at random moments, every third time twice. `stuck`: the restarted \
                        program fails. `different`: other bytes, or files left over.";

/// Number of kills.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kills of each program at random moments
    #[arg(long, default_value_t = 30)]
    random: u64,
    /// Kill before every Nth change of the file system only
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Only jobs whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Jobs that run at the same time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Selects the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Default)]
struct Counts {
    name: String,
    changes: usize,
    killed: u64,
    not_killed: u64,
    stuck: u64,
    different: u64,
}

impl Counts {
    fn row(&self) -> Vec<String> {
        let numbers = [
            self.changes as u64,
            self.killed,
            self.not_killed,
            self.stuck,
            self.different,
        ];
        let numbers = numbers.map(|number| number.to_string());
        [self.name.clone()].into_iter().chain(numbers).collect()
    }
}

pub fn run(args: &Args, record: Option<&Path>) -> Result<()> {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    let mut jobs = ingest_jobs(inputs.path());
    jobs.extend(generate_jobs());
    jobs.extend(store_jobs(inputs.path()));
    let train = programs::folder()?.join("grappa-train");
    match train.exists() {
        true => {
            let in_memory = training_jobs(&train, inputs.path());
            let out_of_core = training_jobs_out_of_core(&train, inputs.path());
            jobs.extend(in_memory.into_iter().chain(out_of_core).map(|job| (job, 1)));
        }
        false => eprintln!("{} does not exist, so training is left out", train.display()),
    }
    jobs.retain(|(job, _)| job.name.contains(&args.only));
    let done = run_each(jobs, args.at_once, |number, (job, runs)| {
        campaign(args, job, runs, number, folder.path())
    });

    let mut table = Table::new(&["program", "changes", "killed", "ended before", "stuck", "different"]);
    let mut total = Counts {
        name: "all".to_owned(),
        ..Counts::default()
    };
    for counts in &done {
        table.row(counts.row());
        total.changes += counts.changes;
        total.killed += counts.killed;
        total.not_killed += counts.not_killed;
        total.stuck += counts.stuck;
        total.different += counts.different;
    }
    table.row(total.row());
    let mut line = format!(
        "cargo run -p grappa-benches --bin faults -- kills --random {} --every {}",
        args.random, args.every
    );
    if !args.only.is_empty() {
        line += &format!(" --only {}", args.only);
    }
    let mut page = Record::new("Faults", QUESTION, &line, folder.path())?;
    page.add(table);
    page.finish(record)?;
    match total.stuck + total.different {
        0 => Ok(()),
        wrong => bail!("{wrong} of {} went wrong", total.killed),
    }
}

/// The moment after this part of the time that a run takes.
fn moment(took: Duration, part: f64) -> Moment {
    Moment::After(took.mul_f64(part).max(Duration::from_millis(1)))
}

/// Kills a job at all of its moments.
fn campaign(args: &Args, job: Job, runs: usize, number: u64, folder: &Path) -> Counts {
    let scratch = folder.join(number.to_string());
    fs::create_dir(&scratch).expect("a folder in memory");
    let (job, took) = job.tried(&scratch, runs);
    let changes = job.changes(&scratch);
    let mut random = Random::new(args.seed ^ number << 32);
    let mut plans: Vec<Vec<Moment>> = (1..=changes.len() as u64)
        .step_by(args.every as usize)
        .map(|change| vec![Moment::Change(change)])
        .collect();
    for kill in 0..args.random {
        let part = (kill as f64 + random.unit()) / args.random as f64;
        let mut plan = vec![moment(took, part)];
        if kill % 3 == 0 {
            plan.push(match kill % 2 {
                0 => moment(took, random.unit()),
                _ => Moment::Change(1 + random.below(changes.len() as u64)),
            });
        }
        plans.push(plan);
    }
    let mut counts = Counts {
        name: job.name.clone(),
        changes: changes.len(),
        ..Counts::default()
    };
    for plan in plans {
        let outcome = job.kill(&scratch, &plan);
        match outcome {
            Outcome::NotKilled => counts.not_killed += 1,
            _ => counts.killed += 1,
        }
        match outcome {
            Outcome::Stuck(_) => counts.stuck += 1,
            Outcome::Different(_) => counts.different += 1,
            Outcome::Same | Outcome::NotKilled => continue,
        }
        let change = match plan[0] {
            Moment::Change(change) => changes.get(change as usize - 1).map_or("", |change| change),
            Moment::After(_) => "",
        };
        eprintln!("{}, {plan:?} {change}: {outcome}", job.name);
    }
    counts
}
