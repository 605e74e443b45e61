//! Damages what killed programs have left, and restarts them.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail};
use grappa_benches::record::{Record, Table};
use grappa_tests::{
    files::memory_folder,
    kills::{Damage, DamageOutcome, Job, Moment, damage_jobs},
    random::Random,
};

use crate::pool::run_each;

const QUESTION: &str = "A program is killed by SIGKILL before one of its changes of the file system. Then one file of its unfinished result \
                        is damaged: a byte is changed, 64 bytes or 4 KiB become zeros, the end is cut off, or the file is removed. \
                        Scratch files, the journal and finished files are damaged alike. Does the restarted program (with --resume, \
                        if it has that option) make the same bytes, or refuse? `refused`: the error names the file, and the command \
                        that it gives leads to the same bytes. Faults: `published` (it made other bytes), `unhelpful` (the error \
                        names no file, or its command does not help), `hung` (it did not end).";

/// Number of mutations.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mutations of all jobs together
    #[arg(long, default_value_t = 500)]
    mutations: u64,
    /// Only jobs whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// The longest time that a restarted program may take, in seconds
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Jobs that run at the same time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Selects the moments and the places
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Default)]
struct Counts {
    name: String,
    same: u64,
    refused: u64,
    published: u64,
    unhelpful: u64,
    hung: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.same += other.same;
        self.refused += other.refused;
        self.published += other.published;
        self.unhelpful += other.unhelpful;
        self.hung += other.hung;
    }

    fn mutations(&self) -> u64 {
        self.same + self.refused + self.faults()
    }

    fn faults(&self) -> u64 {
        self.published + self.unhelpful + self.hung
    }

    fn row(&self) -> Vec<String> {
        let numbers = [
            self.mutations(),
            self.same,
            self.refused,
            self.published,
            self.unhelpful,
            self.hung,
        ];
        let numbers = numbers.map(|number| number.to_string());
        [self.name.clone()].into_iter().chain(numbers).collect()
    }
}

pub fn run(args: &Args, record: Option<&Path>) -> Result<()> {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    let mut jobs = damage_jobs(inputs.path());
    jobs.retain(|job| job.name.contains(&args.only));
    if jobs.is_empty() {
        bail!("no job's name contains {:?}", args.only);
    }
    let each = args.mutations.div_ceil(jobs.len() as u64);
    let done = run_each(jobs, args.at_once, |number, job| {
        campaign(args, job, each, number, folder.path())
    });

    let columns = [
        "program",
        "mutations",
        "same bytes",
        "refused",
        "published",
        "unhelpful",
        "hung",
    ];
    let (mut table, mut total) = (Table::new(&columns), Counts::default());
    total.name = "all".to_owned();
    for counts in &done {
        table.row(counts.row());
        total.add(counts);
    }
    table.row(total.row());
    let mut line = format!(
        "cargo run -p grappa-benches --bin faults -- damage --mutations {} --seed {}",
        args.mutations, args.seed
    );
    if !args.only.is_empty() {
        line += &format!(" --only {}", args.only);
    }
    let mut page = Record::new("Damage in unfinished stores", QUESTION, &line, folder.path())?;
    page.add(table);
    page.finish(record)?;
    match total.faults() {
        0 => Ok(()),
        faults => bail!("{faults} of {} mutations led to a fault", total.mutations()),
    }
}

/// Makes `mutations` of a job, at moments that are spread over its run.
fn campaign(args: &Args, job: Job, mutations: u64, number: u64, folder: &Path) -> Counts {
    let scratch = folder.join(number.to_string());
    fs::create_dir(&scratch).expect("a folder in memory");
    let (job, _) = job.tried(&scratch, 1);
    let changes = job.changes(&scratch);
    let limit = Duration::from_secs(args.limit);
    let mut random = Random::new(args.seed ^ number << 32);
    let mut counts = Counts {
        name: job.name.clone(),
        ..Counts::default()
    };
    // A run that is killed early has nothing to damage yet, so another moment is tried.
    let mut tries = (0..10 * mutations).zip(Damage::ALL.into_iter().cycle());
    while counts.mutations() < mutations
        && let Some((_, damage)) = tries.next()
    {
        let change = 1 + random.below(changes.len() as u64);
        let (outcome, file) = job.damage(&scratch, Moment::Change(change), damage, &mut random, limit);
        match &outcome {
            DamageOutcome::Nothing => {}
            DamageOutcome::Same => counts.same += 1,
            DamageOutcome::Refused => counts.refused += 1,
            DamageOutcome::Published(_) => counts.published += 1,
            DamageOutcome::Unhelpful(_) => counts.unhelpful += 1,
            DamageOutcome::Hung => counts.hung += 1,
        }
        if outcome.is_fault() {
            let before = &changes[change as usize - 1];
            eprintln!(
                "{}, killed before {before}, {damage:?} of {}: {outcome:?}",
                job.name,
                file.display()
            );
        }
    }
    counts
}
