//! Programs that are killed and restarted: their expected results, and their outcomes.
//!
//! A [`Job`] is a command with its inputs. It is killed before its Nth change of the file system (fault
//! injection with `GRAPPA_KILL_AT`, in debug builds only). Then it is restarted as a user would restart it, and the result
//! is compared, byte for byte, with that of an undisturbed run.

mod damage;
mod training;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use self::{
    damage::{Damage, DamageOutcome},
    training::{training_jobs, training_jobs_out_of_core},
};

use crate::{
    files::{copy_folder, files_of},
    graph::{Graph, GraphFiles},
    program::{self, command, run},
    random::Random,
};

/// All files and folders in a folder.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// SIGKILL.
const KILL: i32 = 9;

/// A command that works in a folder, and how a user restarts it.
pub struct Job {
    /// Its name in reports.
    pub name: String,
    /// Initial contents of the folder.
    pub before: Option<PathBuf>,
    /// The command for a folder.
    pub command: Box<dyn Fn(&Path) -> Command + Send + Sync>,
    /// Options to add when it is restarted in the folder.
    pub again: fn(&Path) -> &'static [&'static str],
    /// Errors of the second run that mean that the first one had finished.
    pub finished: &'static [&'static str],
    /// Maps a file, with its path relative to the folder, to its part of the result.
    pub counts: fn(&Path, Vec<u8>) -> Option<Vec<u8>>,
    /// The allowed results.
    pub expected: Vec<Files>,
}

/// The outcome of a job that was killed and restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The expected bytes, and nothing else.
    Same,
    /// The expected bytes, but the job ended before it was killed.
    NotKilled,
    /// The restarted job fails.
    Stuck(String),
    /// The result differs.
    Different(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("the same bytes"),
            Self::NotKilled => f.write_str("ended before it was killed"),
            Self::Stuck(why) => write!(f, "stuck: {why}"),
            Self::Different(what) => write!(f, "different: {what}"),
        }
    }
}

impl Job {
    /// A job that starts in an empty folder, and whose result is everything in the folder.
    pub fn new(name: &str, command: impl Fn(&Path) -> Command + Send + Sync + 'static) -> Self {
        Self {
            name: name.to_owned(),
            before: None,
            command: Box::new(command),
            again: |_| &[],
            finished: &["exists"],
            counts: |_, bytes| Some(bytes),
            expected: Vec::new(),
        }
    }

    /// Runs the undisturbed job `runs` times in a row in one folder. The result of each run is an allowed result.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn tried(mut self, scratch: &Path, runs: usize) -> Self {
        let folder = self.prepare(scratch);
        for _ in 0..runs {
            run(&mut (self.command)(&folder)).success();
            let result = self.result(&folder);
            self.expected.push(result);
        }
        fs::remove_dir_all(&folder).unwrap();
        self
    }

    /// The changes of the file system that a run makes. Their number varies a little from run to run, because of threads.
    ///
    /// # Panics
    /// If it fails, or the program is a release build.
    pub fn changes(&self, scratch: &Path) -> Vec<String> {
        let folder = self.prepare(scratch);
        let log = scratch.join("changes");
        run((self.command)(&folder).env("GRAPPA_KILL_LOG", &log)).success();
        let text = fs::read_to_string(&log).expect("programs with debug assertions list their changes");
        fs::remove_file(&log).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Kills a run before its Nth change of the file system, counted from 1. Then lets the job finish.
    fn kill(&self, scratch: &Path, change: u64) -> Outcome {
        let folder = self.prepare(scratch);
        let outcome = match self.kill_once(&mut (self.command)(&folder), change) {
            Ok(killed) => self.finish(&folder, killed),
            Err(why) => return Outcome::Stuck(why),
        };
        // The folder of a failure is kept for inspection.
        if matches!(outcome, Outcome::Same | Outcome::NotKilled) {
            fs::remove_dir_all(&folder).unwrap();
        }
        outcome
    }

    /// Kills the job, which consists of `runs` runs, before its `last` changes and `others` of the earlier ones. Returns the number
    /// of its changes, and how often it was killed.
    ///
    /// # Panics
    /// If a restarted run fails or makes other bytes.
    pub fn kill_before_changes(self, scratch: &Path, runs: usize, last: usize, others: usize) -> (usize, usize) {
        let job = self.tried(scratch, runs);
        let changes = job.changes(scratch);
        let mut killed = 0;
        for number in sample(changes.len(), last, others, 7) {
            let outcome = job.kill(scratch, number);
            let what = changes.get(number as usize - 1).map_or("the end", |change| change);
            assert!(
                matches!(outcome, Outcome::Same | Outcome::NotKilled),
                "{}, killed before {what}: {outcome}",
                job.name
            );
            killed += usize::from(outcome == Outcome::Same);
        }
        (changes.len(), killed)
    }

    fn finish(&self, folder: &Path, killed: bool) -> Outcome {
        if killed {
            let again = run((self.command)(folder).args((self.again)(folder)));
            let had_finished = self.finished.iter().any(|error| again.stderr.contains(error));
            if again.code != Some(0) && !had_finished {
                return Outcome::Stuck(again.stderr);
            }
        }
        self.compare(folder, killed)
    }

    /// Compares the contents of a folder with the allowed results.
    fn compare(&self, folder: &Path, killed: bool) -> Outcome {
        let result = self.result(folder);
        if self.expected.contains(&result) {
            return match killed {
                true => Outcome::Same,
                false => Outcome::NotKilled,
            };
        }
        let expected = &self.expected[0];
        let differs = |path: &&PathBuf| result.get(*path) != expected.get(*path);
        let paths: Vec<_> = result.keys().chain(expected.keys()).filter(differs).collect();
        Outcome::Different(format!("{paths:?}"))
    }

    /// Whether the command was killed. It is an error if it failed by itself.
    fn kill_once(&self, command: &mut Command, change: u64) -> Result<bool, String> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("GRAPPA_KILL_AT", change.to_string());
        let child = command.spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.signal() {
            Some(KILL) => Ok(true),
            _ if output.status.success() || self.finished.iter().any(|error| stderr.contains(error)) => Ok(false),
            _ => Err(format!("it failed by itself: {}: {stderr}", output.status)),
        }
    }

    /// A folder with the initial contents.
    fn prepare(&self, scratch: &Path) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("job-").tempdir_in(scratch).unwrap().keep();
        if let Some(before) = &self.before {
            copy_folder(before, &folder);
        }
        folder
    }

    fn result(&self, folder: &Path) -> Files {
        let counted = |(path, bytes): (PathBuf, Vec<u8>)| {
            let bytes = (self.counts)(&path, bytes)?;
            Some((path, bytes))
        };
        tree_of(folder).into_iter().filter_map(counted).collect()
    }
}

/// All files in a folder, and all folders as empty files.
pub fn tree_of(folder: &Path) -> Files {
    let mut tree = files_of(folder);
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = fs::read_dir(next).unwrap();
        let inner: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        tree.extend(inner.iter().map(|path| (path.strip_prefix(folder).unwrap().to_owned(), Vec::new())));
        folders.extend(inner);
    }
    tree
}

/// Selects changes to kill at: all of the `last` ones, in which results get their names, and `others` of the earlier ones,
/// spread evenly and selected by `seed`.
fn sample(changes: usize, last: usize, others: usize, seed: u64) -> Vec<u64> {
    let before = changes.saturating_sub(last);
    let mut random = Random::new(seed);
    let mut at: Vec<u64> = (0..others.min(before))
        .map(|k| {
            let part = (k as f64 + random.unit()) / others.min(before) as f64;
            1 + (part * before as f64) as u64
        })
        .collect();
    at.dedup();
    // One more, which the run may not reach.
    at.extend(before as u64 + 1..=changes as u64 + 1);
    at
}

/// Ingests of all kinds. Their small input graphs are written to `inputs`. Each job comes with the number of runs whose
/// results are allowed.
pub fn ingest_jobs(inputs: &Path) -> Vec<(Job, usize)> {
    let graph = Graph::random(1, 3000, 30_000, 8);
    let files = graph.write(inputs);
    let jobs = [
        ingest_dense(&files),
        ingest_with_tmp(&files),
        ingest_listed("string", "user-", &graph, inputs),
        ingest_listed("sparse", "7", &graph, inputs),
        ingest_joined(&graph, inputs),
    ];
    jobs.into_iter().map(|job| (job, 1)).collect()
}

/// Generated stores and files.
pub fn generate_jobs() -> Vec<(Job, usize)> {
    vec![(generate(), 1), (generate_files(), 1)]
}

fn store_of(folder: &Path) -> PathBuf {
    folder.join("graph.grappa")
}

fn ingest(edges: &Path, folder: &Path) -> Command {
    let mut command = program::ingest(edges, &store_of(folder));
    command.args(["--threads", "2", "--quiet"]);
    command
}

fn ingest_dense(files: &GraphFiles) -> Job {
    let files = files.clone();
    let job = Job::new("ingest, dense ids", move |folder| {
        let mut command = ingest(&files.edges, folder);
        files.node_arguments(&mut command);
        command.args(["--undirected", "--dedup", "--chunks", "3", "--memory", "24MiB", "--assign", "ldg:3"]);
        command.args(["--edge-split", "80/10/10"]);
        command
    });
    resumed(job)
}

fn ingest_with_tmp(files: &GraphFiles) -> Job {
    let files = files.clone();
    let job = Job::new("ingest, with --tmp", move |folder| {
        let mut command = ingest(&files.edges, folder);
        files.node_arguments(&mut command);
        command.args(["--chunks", "2", "--tmp"]).arg(folder.join("tmp"));
        command
    });
    resumed(job)
}

/// Ids that need a dictionary, with edge weights and with bad lines.
fn ingest_listed(ids: &'static str, prefix: &str, graph: &Graph, inputs: &Path) -> Job {
    let edges = inputs.join(format!("{ids}.tsv"));
    let mut text: String = (0..)
        .zip(&graph.edges)
        .map(|(k, (source, target))| format!("{prefix}{source}\t{prefix}{target}\t{}\n", k % 8))
        .collect();
    text.push_str("one-column\n");
    fs::write(&edges, text).unwrap();
    let train = inputs.join(format!("{ids}-train.txt"));
    let sources: BTreeSet<_> = graph.edges.iter().take(100).map(|(source, _)| source).collect();
    let lines: String = sources.iter().map(|source| format!("{prefix}{source}\n")).collect();
    fs::write(&train, lines).unwrap();
    let job = Job::new(&format!("ingest, {ids} ids"), move |folder| {
        let mut command = ingest(&edges, folder);
        command.args(["--ids", ids, "--chunks", "2", "--on-bad-line", "skip"]);
        command.arg("--train").arg(&train);
        command
    });
    resumed(job)
}

/// String ids that exceed the memory budget, so edges are joined with them on disk.
fn ingest_joined(graph: &Graph, inputs: &Path) -> Job {
    let edges = inputs.join("joined.tsv");
    let line = |(source, target): &(u64, u64)| format!("a-{source}\tb-{target}\n");
    let more = (0..60_000u64).map(|k| format!("c-{k}\td-{}\n", k + 1));
    fs::write(&edges, graph.edges.iter().map(line).chain(more).collect::<String>()).unwrap();
    let job = Job::new("ingest, string ids joined on disk", move |folder| {
        let mut command = ingest(&edges, folder);
        command.args(["--ids", "string", "--chunks", "2", "--memory", "4MiB", "--edge-split", "90/5/5"]);
        command
    });
    resumed(job)
}

/// `grappa-gen sbm` for a graph of `nodes` nodes.
fn sbm(nodes: u32, options: &[&str], out: &Path) -> Command {
    let mut command = command("grappa-gen");
    command.args(["sbm", "--nodes", &nodes.to_string()]).args(options);
    command.arg("--quiet").arg("--out").arg(out);
    command
}

fn generate() -> Job {
    let job = Job::new("gen, a store", |folder| {
        sbm(3000, &["--feature-dim", "8", "--chunks", "4", "--threads", "2"], &store_of(folder))
    });
    resumed(job)
}

/// Edge lists. Files of a killed run must be removed first: each is complete, but some are missing.
fn generate_files() -> Job {
    Job::new("gen, files", |folder| {
        for name in crate::files::names_in(folder) {
            if !name.ends_with(".tmp") {
                fs::remove_file(folder.join(name)).unwrap();
            }
        }
        sbm(3000, &["--feature-dim", "8", "--threads", "2", "--as", "npy"], &folder.join("edges.npy"))
    })
}

/// A job that is restarted with --resume.
fn resumed(job: Job) -> Job {
    Job { again: |_| &["--resume"], finished: &["something with this name exists"], ..job }
}

/// Makes a store in `folder` with edges between near nodes, so that its in-degrees are in adjacency lists. Returns the folder.
fn local_store(folder: &Path) -> PathBuf {
    fs::create_dir(folder).unwrap();
    let edges = folder.join("edges.txt");
    let lines = (0..3000).flat_map(|node| (1..4).map(move |step| format!("{node} {}\n", node + step)));
    fs::write(&edges, lines.collect::<String>()).unwrap();
    let mut ingest = command("grappa-ingest");
    ingest.arg("--edges").arg(&edges).arg("--out").arg(store_of(folder));
    ingest.args(["--assign", "range", "--chunks", "4", "--quiet"]);
    run(&mut ingest).success();
    run(of_store(folder, &["add-features"]).args(["--kind", "degrees"])).success();
    folder.to_owned()
}

/// Operations on stores, which are made in `inputs`.
pub fn store_jobs(inputs: &Path) -> Vec<(Job, usize)> {
    let make = |name: &str, options: &[&str]| {
        let before = inputs.join(name);
        fs::create_dir(&before).unwrap();
        let options = [&["--chunks", "4"], options].concat();
        run(&mut sbm(3000, &options, &store_of(&before))).success();
        before
    };
    let plain = make("plain", &[]);
    let featured = make("featured", &["--feature-dim", "8"]);
    let aggregated = inputs.join("aggregated");
    copy_folder(&featured, &aggregated);
    run(of_store(&aggregated, &["preaggregate"]).args(["--kind", "mean", "--dtype", "f16"])).success();
    let local = local_store(&inputs.join("local"));
    let job = |name: &str, before: &Path, arguments: &'static [&'static str], finished| Job {
        before: Some(before.to_owned()),
        finished,
        ..Job::new(name, move |folder| of_store(folder, arguments))
    };
    let export = |what: &'static str, file: &'static str| Job {
        before: Some(featured.clone()),
        finished: &["exists; replace it"],
        ..Job::new(&format!("export {what}"), move |folder| {
            let mut command = of_store(folder, &["export", what]);
            command.arg(folder.join(file));
            command
        })
    };
    let place = |what: &str, before: &Path, options: &'static [&'static str]| {
        let before = before.to_owned();
        let job = Job::new(&format!("place, {what}"), move |folder| {
            let mut command = command("grappa-store");
            command.arg("place").arg(store_of(&before)).args(["--chunks", "1,3", "--threads", "2", "--quiet"]);
            command.args(options).arg("--to").arg(store_of(folder));
            command
        });
        resumed(job)
    };
    vec![
        (place("links", &featured, &[]), 1),
        (place("copies", &featured, &["--copy"]), 1),
        (place("edges inside", &aggregated, &["--edges", "inside"]), 1),
        (place("in-degrees", &local, &["--halo-features"]), 1),
        (
            job(
                "add-features",
                &plain,
                &["add-features", "--kind", "fastrp", "--dim", "4", "--hops", "2"],
                &["have features already"],
            ),
            1,
        ),
        (job("preaggregate", &featured, &["preaggregate", "--kind", "mean"], &["these aggregates exist"]), 1),
        (
            job(
                "preaggregate --with-features",
                &featured,
                &["preaggregate", "--kind", "gcn", "--with-features"],
                &["these aggregates exist"],
            ),
            1,
        ),
        (job("preaggregate --replace", &aggregated, &["preaggregate", "--kind", "mean", "--replace"], &[]), 1),
        // A restarted run makes the next generation if the killed one was complete.
        (job("repartition", &featured, &["repartition", "--partitions", "2", "--super-epoch", "5"], &[]), 3),
        (export("--edges", "edges.tsv"), 1),
        (export("--features", "features.npy"), 1),
        (export("--labels", "labels.npy"), 1),
    ]
}

fn of_store(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command("grappa-store");
    let (verb, options) = arguments.split_first().expect("a verb");
    command.arg("--quiet").arg(verb).arg(store_of(folder)).args(options);
    command
}
