//! The command line of a fuzzing program.
//!
//! The first process watches. For each target it starts itself as a child that decodes, and restarts it after a crash,
//! until the target's time is over.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::{
    Target,
    campaign::{self, End, Report, inputs_in, save},
    coverage,
    scratch::Scratch,
    watch::{HUNG, Ran, SECONDS_MAX, Watch},
};

/// Fuzz parsers and decoders
#[derive(Debug, Parser)]
pub struct Args {
    /// The target [default: each of them]
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// Run these inputs once each instead of fuzzing
    #[arg(value_name = "FILE", requires = "target")]
    files: Vec<PathBuf>,
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Targets at a time [default: number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Seed of the random numbers [default: the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder for inputs with new outcomes or edges; fuzzing starts with the inputs in it
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Folder for inputs that break a promise, with one folder per target
    #[arg(long, value_name = "DIR", default_value = "found")]
    found: PathBuf,
    /// Fail if this build has no counters of edges, which `cargo xtask fuzz --coverage` builds
    #[arg(long)]
    coverage: bool,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Do not start with found inputs: one of them ended the previous process
    #[arg(long, hide = true)]
    again: bool,
    /// Decode, and write each input and the report into this folder
    #[arg(long, hide = true, value_name = "DIR")]
    decode: Option<PathBuf>,
}

/// Runs the program. Fails if any input broke a promise.
pub fn main(targets: &[Target]) -> ExitCode {
    match run(&Args::parse(), targets) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all promises were kept.
fn run(args: &Args, targets: &[Target]) -> Result<bool> {
    if args.list {
        targets.iter().for_each(|target| println!("{}", target.name));
        return Ok(true);
    }
    let chosen: Vec<&Target> = targets
        .iter()
        .filter(|target| args.target.as_deref().is_none_or(|name| name == target.name))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "no target is called {}; --list lists them",
        args.target.as_deref().unwrap_or("so")
    );
    ensure!(
        !args.coverage || coverage::is_built_in(),
        "this build has no counters of edges; run `cargo xtask fuzz --coverage`"
    );
    if let Some(folder) = &args.decode {
        return decode(args, chosen[0], folder).map(|()| true);
    }
    if !args.files.is_empty() {
        return replay(chosen[0], &args.files);
    }
    look_on_all(args, &chosen)
}

/// Fuzzes targets, several at a time. Returns whether no input broke a promise.
fn look_on_all(args: &Args, targets: &[&Target]) -> Result<bool> {
    let jobs = match args.jobs {
        Some(jobs) => jobs,
        None => thread::available_parallelism().context("cannot tell the number of processors")?,
    };
    let waiting = Mutex::new(targets.iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let look_on_rest = || {
        let mut kept = true;
        while let Some(target) = next() {
            kept &= look_on(args, target)?;
        }
        Ok(kept)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.get().min(targets.len()))
            .map(|_| scope.spawn(look_on_rest))
            .collect();
        threads.into_iter().try_fold(true, |kept, thread| {
            let kept_too: Result<bool> = thread.join().expect("a thread that looks on returns its errors");
            Ok(kept & kept_too?)
        })
    })
}

/// Runs inputs once each.
fn replay(target: &Target, files: &[PathBuf]) -> Result<bool> {
    let watch = Watch::new();
    let mut kept = true;
    for path in files {
        let input = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        match watch.run(target, &input) {
            Ran::Kept(outcome) => println!("{}: {outcome}", path.display()),
            Ran::Broke { place, message } => {
                println!("{}: {place}: {message}", path.display());
                kept = false;
            }
        }
    }
    Ok(kept)
}

/// The decoding process: a campaign under limits.
fn decode(args: &Args, target: &Target, folder: &Path) -> Result<()> {
    let mut more = Vec::new();
    if !args.again {
        more.extend(inputs_in(&args.found.join(target.name))?);
    }
    let corpus = args.corpus.as_ref().map(|corpus| corpus.join(target.name));
    if let Some(corpus) = &corpus {
        more.extend(inputs_in(corpus)?);
    }
    let more = more.into_iter().map(|(_, input)| input).collect();
    let watch = Watch::with_limits(&folder.join("current"))?;
    let keep = |input: &[u8]| match &corpus {
        Some(corpus) => save(corpus, input).map(drop),
        None => Ok(()),
    };
    let seed = args.seed.context("the process that looks on names a seed")?;
    let end = End::Time(Duration::from_secs(args.seconds));
    let report = campaign::fuzz(target, &watch, more, seed, end, keep)?;
    for found in &report.found {
        let name = save(&args.found.join(target.name), &found.input)?;
        println!("{}/{name}: {}: {}", target.name, found.place, found.message);
    }
    let Report {
        runs,
        accepted,
        outcomes,
        edges,
        last_new,
        found,
    } = report;
    let numbers = format!(
        "{runs} {accepted} {outcomes} {} {edges} {}",
        found.len(),
        last_new.as_secs()
    );
    fs::write(folder.join("report"), numbers).context("cannot write the report")
}

/// Starts decoding processes until the target's time is over. Returns whether no input broke a promise.
fn look_on(args: &Args, target: &Target) -> Result<bool> {
    let begin = Instant::now();
    let scratch = Scratch::new();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first_seed = args.seed.unwrap_or(clock.as_nanos() as u64);
    let mut report = [0; 6];
    for start in 0.. {
        let left = Duration::from_secs(args.seconds).saturating_sub(begin.elapsed());
        if start > 0 && left < Duration::from_secs(1) {
            break;
        }
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let mut command = Command::new(program);
        command
            .arg(target.name)
            .args(["--seconds", &left.as_secs_f64().round().to_string()])
            .args(["--seed", &first_seed.wrapping_add(start).to_string()])
            .arg("--found")
            .arg(&args.found)
            .arg("--decode")
            .arg(scratch.path())
            // The input is what matters of a process that runs out of memory.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        if let Some(corpus) = &args.corpus {
            command.arg("--corpus").arg(corpus);
        }
        if start > 0 {
            command.arg("--again");
        }
        let status = command.status().context("cannot start the process that decodes")?;
        if status.success() {
            let text = fs::read_to_string(scratch.path().join("report")).context("the process left no report")?;
            for (sum, number) in report.iter_mut().zip(text.split(' ')) {
                *sum += number.parse::<u64>().context("the report is of numbers")?;
            }
            break;
        }
        // It left the input it was at.
        let input = fs::read(scratch.path().join("current")).context("the process left no input")?;
        let name = save(&args.found.join(target.name), &input)?;
        let what = match status.code() {
            Some(HUNG) => format!("took more than {SECONDS_MAX} s"),
            _ => format!("ended the process ({status})"),
        };
        println!("{}/{name}: {what}", target.name);
        report[3] += 1;
    }
    let [runs, accepted, outcomes, found, edges, last_new] = report;
    println!(
        "{:<20} {:>6.1} min {runs:>11} runs {:>8.0}/s {:>5.1} % accepted {outcomes:>5} outcomes {edges:>6} edges, last new after {:>5.1} min {found:>3} found",
        target.name,
        begin.elapsed().as_secs_f64() / 60.0,
        runs as f64 / begin.elapsed().as_secs_f64(),
        100.0 * accepted as f64 / runs.max(1) as f64,
        last_new as f64 / 60.0,
    );
    Ok(found == 0)
}
