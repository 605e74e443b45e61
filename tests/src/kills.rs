//! Programs that are killed and restarted: their expected results, and their outcomes.
//!
//! A [`Job`] is a command with its inputs. It is killed before its Nth change of the file system (fault
//! injection with `GRAPPA_KILL_AT`, in debug builds only). Then it is restarted as a user would restart it, and the result
//! is compared, byte for byte, with the store of an undisturbed run.

mod damage;
mod training;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use self::{
    damage::Damage,
    training::{training_jobs, training_jobs_in_buckets, training_jobs_out_of_core},
};

use crate::{
    files::{copy_folder, files_of},
    graph::{Graph, NODE_FILES},
    program::{self, run},
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
    /// Number of runs in a row in one folder. The result of each run is an allowed result.
    pub runs: usize,
    /// The allowed results, after [`Job::tried`].
    pub expected: Vec<Files>,
    /// The changes of the file system that a run makes, after [`Job::tried`]. Their number varies a little from run to
    /// run, because of threads.
    pub changes: Vec<String>,
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
            runs: 1,
            expected: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// A job that is a line such as `store info FOLDER/graph.grappa`, in which `FOLDER` is the folder of the job. Other
    /// names are relative to `inputs`.
    fn line(name: &str, inputs: &Path, line: &str) -> Self {
        let (inputs, line) = (inputs.to_owned(), line.to_owned());
        Self::new(name, move |folder| program::line(&inputs, &line.replace("FOLDER", folder.to_str().unwrap())))
    }

    /// Runs the undisturbed job, for its results and its changes.
    ///
    /// # Panics
    /// If it fails, or the program is a release build.
    #[must_use]
    pub fn tried(mut self, scratch: &Path) -> Self {
        let folder = self.prepare(scratch);
        let log = scratch.join("changes");
        for number in 0..self.runs {
            let mut command = (self.command)(&folder);
            if number == 0 {
                command.env("GRAPPA_KILL_LOG", &log);
            }
            run(&mut command).success();
            let result = self.result(&folder);
            self.expected.push(result);
        }
        let text = fs::read_to_string(&log).expect("programs with debug assertions list their changes");
        self.changes = text.lines().map(str::to_owned).collect();
        fs::remove_file(&log).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        self
    }

    /// Kills a run before its Nth change of the file system, counted from 1. Then lets the job finish. Returns whether it
    /// was killed before its end, or what is wrong.
    fn kill(&self, scratch: &Path, change: u64) -> Result<bool, String> {
        // The folder of a failure is kept for inspection.
        let folder = self.prepare(scratch);
        let killed = self.kill_once(&mut (self.command)(&folder), change)?;
        if killed {
            let again = run((self.command)(&folder).args((self.again)(&folder)));
            if again.code != Some(0) && !self.had_finished(&again.stderr) {
                return Err(format!("it is stuck: {}", again.stderr));
            }
        }
        self.compare(&folder)?;
        fs::remove_dir_all(&folder).unwrap();
        Ok(killed)
    }

    /// Kills the job before its `last` changes and `others` of the earlier ones. Returns the number of its changes, and
    /// how often it was killed.
    ///
    /// # Panics
    /// If a restarted run fails or makes other bytes.
    pub fn kill_before_changes(self, scratch: &Path, last: usize, others: usize) -> (usize, usize) {
        let job = self.tried(scratch);
        let mut killed = 0;
        for number in sample(job.changes.len(), last, others, 7) {
            let moment = job.changes.get(number as usize - 1).map_or("the end", |change| change);
            let outcome = job.kill(scratch, number);
            killed +=
                usize::from(outcome.unwrap_or_else(|fault| panic!("{}, killed before {moment}: {fault}", job.name)));
        }
        (job.changes.len(), killed)
    }

    /// Whether a run says that an earlier one had finished.
    fn had_finished(&self, stderr: &str) -> bool {
        self.finished.iter().any(|error| stderr.contains(error))
    }

    /// Compares the contents of a folder with the allowed results.
    fn compare(&self, folder: &Path) -> Result<(), String> {
        let result = self.result(folder);
        if self.expected.contains(&result) {
            return Ok(());
        }
        let expected = &self.expected[0];
        let differs = |path: &&PathBuf| result.get(*path) != expected.get(*path);
        let paths: Vec<_> = result.keys().chain(expected.keys()).filter(differs).collect();
        Err(format!("these files differ: {paths:?}"))
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
            _ if output.status.success() || self.had_finished(&stderr) => Ok(false),
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

/// Ingests of all kinds. Their small input graphs are written to `inputs`.
pub fn ingest_jobs(inputs: &Path) -> Vec<Job> {
    let graph = Graph::random(1, 3000, 30_000, 8);
    graph.write(inputs);
    let write = |name: &str, lines: &mut dyn Iterator<Item = String>| {
        fs::write(inputs.join(name), lines.collect::<String>()).unwrap();
    };
    // Ids that need a dictionary, with edge weights and with a bad line.
    for (ids, prefix) in [("string", "user-"), ("sparse", "7")] {
        let edge =
            |(k, (source, target)): (usize, &(u64, u64))| format!("{prefix}{source}\t{prefix}{target}\t{}\n", k % 8);
        let edges = (0..).zip(&graph.edges).map(edge);
        write(&format!("{ids}.tsv"), &mut edges.chain(["one-column\n".to_owned()]));
        let sources: BTreeSet<_> = graph.edges.iter().take(100).map(|(source, _)| source).collect();
        write(&format!("{ids}.train"), &mut sources.iter().map(|source| format!("{prefix}{source}\n")));
    }
    // String ids that exceed the memory budget, so edges are joined with them on disk.
    let edges = graph.edges.iter().map(|(source, target)| format!("a-{source}\tb-{target}\n"));
    write("joined.tsv", &mut edges.chain((0..60_000).map(|k| format!("c-{k}\td-{}\n", k + 1))));
    let dense = format!("edges.tsv {NODE_FILES} --undirected --dedup --memory 24MiB --assign ldg:3");
    [
        ("dense ids", &*format!("{dense} --chunks 3 --edge-split 80/10/10")),
        ("with --tmp", &format!("edges.tsv {NODE_FILES} --chunks 2 --tmp FOLDER/tmp")),
        ("string ids", "string.tsv --ids string --chunks 2 --on-bad-line skip --train string.train"),
        ("sparse ids", "sparse.tsv --ids sparse --chunks 2 --on-bad-line skip --train sparse.train"),
        ("times", "sparse.tsv --ids sparse --chunks 2 --on-bad-line skip --src 1 --dst 2 --time 3 --time-unit s"),
        ("string ids joined on disk", "joined.tsv --ids string --chunks 2 --memory 4MiB --edge-split 90/5/5"),
    ]
    .map(|(name, edges)| {
        let line = format!("ingest --edges {edges} --threads 2 --quiet --out FOLDER/graph.grappa");
        resumed(Job::line(&format!("ingest, {name}"), inputs, &line))
    })
    .into()
}

/// A generated store and generated files.
pub fn generate_jobs() -> Vec<Job> {
    let sbm = "gen sbm --nodes 3000 --feature-dim 8 --threads 2 --quiet --out";
    let files = Job::new("gen, files", move |folder| {
        // Files of a killed run must be removed first: each is complete, but some are missing.
        for name in crate::files::names_in(folder) {
            if !name.ends_with(".tmp") {
                fs::remove_file(folder.join(name)).unwrap();
            }
        }
        program::line(folder, &format!("{sbm} edges.npy --as npy"))
    });
    vec![resumed(Job::line("gen, a store", Path::new("/"), &format!("{sbm} FOLDER/graph.grappa --chunks 4"))), files]
}

fn store_of(folder: &Path) -> PathBuf {
    folder.join("graph.grappa")
}

/// A job that is restarted with --resume.
fn resumed(job: Job) -> Job {
    Job { again: |_| &["--resume"], finished: &["something with this name exists"], ..job }
}

/// A new folder in `inputs` with a store `graph.grappa` that a line makes.
fn made(inputs: &Path, name: &str, line: &str) -> PathBuf {
    let folder = inputs.join(name);
    fs::create_dir(&folder).unwrap();
    run(&mut program::line(&folder, &format!("{line} --quiet --out graph.grappa"))).success();
    folder
}

/// Operations on stores, which are made in `inputs`.
pub fn store_jobs(inputs: &Path) -> Vec<Job> {
    let plain = made(inputs, "plain", "gen sbm --nodes 3000 --chunks 4");
    let featured = made(inputs, "featured", "gen sbm --nodes 3000 --chunks 4 --feature-dim 8");
    let aggregated = inputs.join("aggregated");
    copy_folder(&featured, &aggregated);
    run(&mut program::line(&aggregated, "store preaggregate graph.grappa --kind mean --dtype f16 --quiet")).success();
    // Edges between near nodes, so that in-degrees are in adjacency lists.
    let near = (0..3000).flat_map(|node| (1..4).map(move |step| format!("{node} {}\n", node + step)));
    fs::write(inputs.join("near.txt"), near.collect::<String>()).unwrap();
    let local = made(inputs, "local", "ingest --edges ../near.txt --assign range --chunks 4");
    run(&mut program::line(&local, "store add-features graph.grappa --kind degrees --quiet")).success();

    let place = |name: &str, from: &Path, options: &str| {
        let line = "store place graph.grappa --chunks 1,3 --threads 2 --quiet --to FOLDER/graph.grappa";
        resumed(Job::line(&format!("place, {name}"), from, &format!("{line} {options}")))
    };
    let job = |before: &Path, line: &str, finished| Job {
        before: Some(before.to_owned()),
        finished,
        ..Job::line(line, inputs, &format!("store --quiet {}", line.replace("STORE", "FOLDER/graph.grappa")))
    };
    let has_features = &["have features already"];
    let has_aggregates = &["these aggregates exist"];
    let is_exported = &["exists; replace it"];
    vec![
        place("links", &featured, ""),
        place("copies", &featured, "--copy"),
        place("edges inside", &aggregated, "--edges inside"),
        place("in-degrees", &local, "--halo-features"),
        job(&plain, "add-features STORE --kind fastrp --dim 4 --hops 2", has_features),
        job(&featured, "preaggregate STORE --kind mean", has_aggregates),
        job(&featured, "preaggregate STORE --kind gcn --with-features", has_aggregates),
        job(&aggregated, "preaggregate STORE --kind mean --replace", &[]),
        // A restarted run makes the next generation if the killed one was complete.
        Job { runs: 3, ..job(&featured, "repartition STORE --partitions 2 --super-epoch 5", &[]) },
        job(&featured, "export STORE --edges FOLDER/edges.tsv", is_exported),
        job(&featured, "export STORE --features FOLDER/features.npy", is_exported),
        job(&featured, "export STORE --labels FOLDER/labels.npy", is_exported),
    ]
}
