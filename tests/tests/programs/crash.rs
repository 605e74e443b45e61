//! A run that is killed with SIGKILL at any moment leaves no store or the whole store. `--resume` then makes the same
//! store, byte for byte.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{assert_same, memory_folder, names_in},
    folder::ProgramFolder,
    graph::{Graph, NODE_FILES},
    held::{Held, kill},
    kills,
    random::Random,
};

/// Number of moments at which a run is killed.
const KILLS: u64 = 10;

/// A command that makes a store in a folder.
struct Job {
    folder: ProgramFolder,
    /// Without the name of the store.
    line: String,
    expected: BTreeMap<PathBuf, Vec<u8>>,
    duration: Duration,
}

impl Job {
    /// Runs the command to its end, to get the expected store and the time.
    fn new(folder: ProgramFolder, line: String) -> Self {
        let begin = Instant::now();
        folder.success(&format!("{line} --out whole.grappa"));
        let expected = folder.files("whole.grappa");
        Self { folder, line, expected, duration: begin.elapsed() }
    }

    /// Starts the command for the store `killed.grappa` and kills it when `moment` returns. Returns whether that was
    /// before its end.
    fn kill(&self, more: &str, moment: impl FnOnce()) -> bool {
        let mut command = self.folder.command(&format!("{} --out killed.grappa {more}", self.line));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        moment();
        kill(&mut child)
    }

    /// Resumes the run if the store does not exist, and compares.
    fn complete(&self, more: &str, context: &str) {
        let line = format!("{} --out killed.grappa {more}", self.line);
        let [store, partial] = ["killed.grappa", "killed.grappa.partial"].map(|name| self.folder.path(name));
        // The name appears when the store is complete.
        if store.exists() {
            assert!(!partial.exists(), "{context}");
        } else {
            if partial.exists() {
                self.folder.run(&line).failure(&["--resume"]);
            }
            self.folder.success(&format!("{line} --resume"));
        }
        assert_same(&store, &self.expected, context);
        assert!(!partial.exists(), "{context}");
        self.folder.remove("killed.grappa");
    }

    /// Kills the job at random moments, every third time twice. Half of the runs have the options `more`.
    fn kill_at_random(&self, seed: u64, more: &str) {
        let mut random = Random::new(seed);
        let mut duration = self.duration;
        for k in 0..KILLS {
            let more = if k % 2 == 0 { "" } else { more };
            loop {
                // Moments are spread evenly over the run, and differ between runs of this test.
                let part = (k as f64 + random.unit()) / KILLS as f64;
                let mut context = format!("killed after {part:.3} of a run");
                let delay = duration.mul_f64(part);
                let is_killed = self.kill(more, || thread::sleep(delay));
                if is_killed && k % 3 == 0 && !self.folder.path("killed.grappa").exists() {
                    let part = random.unit();
                    context += &format!(", resumed, and killed after {part:.3} of a run");
                    self.kill(&format!("{more} --resume"), || thread::sleep(duration.mul_f64(part)));
                }
                self.complete(more, &context);
                if is_killed {
                    break;
                }
                // The machine was busier during the timed run than now.
                duration = delay.mul_f64(0.9);
            }
        }
    }

    /// Kills the job when a file appears.
    fn kill_when(&self, appears: &str) {
        let [watched, store] = [appears, "killed.grappa"].map(|name| self.folder.path(name));
        self.kill("", || {
            let begin = Instant::now();
            while !watched.exists() && !store.exists() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{appears} does not appear");
                thread::yield_now();
            }
        });
        self.complete("", &format!("killed when {appears} appeared"));
    }
}

/// All features of ingest: columns of all kinds, both directions, merged edges.
fn ingest_everything() -> (ProgramFolder, String) {
    let folder = ProgramFolder::new();
    Graph::random(1, 20_000, 400_000, 32).write(folder.root());
    // This memory is too small for the records, so they are spilled.
    let line = format!("ingest --edges edges.tsv {NODE_FILES} --undirected --dedup --chunks 24 --memory 24MiB");
    (folder, line)
}

#[test]
fn an_ingest_killed_at_random_moments_resumes_to_the_same_store() {
    let (folder, line) = ingest_everything();
    let job = Job::new(folder, line);
    let scratch = job.folder.path("scratch");
    fs::create_dir(&scratch).unwrap();
    job.kill_at_random(2, "--tmp scratch");
    assert_eq!(names_in(&scratch), [""; 0], "scratch files stay");
}

#[test]
fn a_generator_killed_at_random_moments_resumes_to_the_same_store() {
    let line = "gen sbm --nodes 30000 --feature-dim 32 --chunks 24 --threads 2";
    Job::new(ProgramFolder::new(), line.to_owned()).kill_at_random(3, "--memory 512MiB");
}

#[test]
fn an_ingest_killed_at_its_turning_points_resumes_to_the_same_store() {
    let (folder, line) = ingest_everything();
    let job = Job::new(folder, line);
    for name in ["", "chunk-0/features", "chunk-0/edges", "chunk-23/degrees", "assignments", "manifest"] {
        job.kill_when(&format!("killed.grappa.partial/{name}"));
    }
    // At the end: between writing the manifest and the rename.
    job.kill_when("killed.grappa");
}

#[test]
fn resume_requires_the_same_run() {
    need_faults!();
    let (folder, line) = ingest_everything();
    let line = format!("{line} --out killed.grappa");
    assert!(Held::before("create chunk-1/edges", &mut folder.command(&line)).kill());
    let resume = |change: &str| folder.run(&format!("{line} --resume {change}"));
    resume("--seed 99").failure(&["--seed", "99"]);
    let elsewhere = folder.path("elsewhere");
    let tmp = format!("--tmp {}", elsewhere.display());
    resume(&tmp).failure(&["had no --tmp, this one has --tmp /"]);
    assert!(!elsewhere.exists());
    resume("--nodes 7000").failure(&["this one has --nodes 7000"]);
    folder.write("labels.npy", [&folder.bytes("labels.npy")[..], &[0; 8]].concat());
    resume("").failure(&["labels.npy"]);
    assert!(!folder.path("killed.grappa").exists());
}

/// `--resume` with less memory: while nothing depends on it, sparse ids are cut into more segments. Once edges are read
/// in the segments that there are, the run tells how much memory these need.
#[test]
fn a_run_that_continues_with_less_memory_never_exceeds_it() {
    need_faults!();
    let folder = ProgramFolder::new();
    let id = |k: u64| k * 1_000_003;
    let lines = |range: Range<u64>, line: &dyn Fn(u64) -> String| range.map(line).collect::<String>();
    folder.write("edges.tsv", lines(0..200_000, &|k| format!("{}\t{}\n", id(k), id((k * 7919) % 200_000))));
    folder.write("train.txt", lines(0..1000, &|k| format!("{}\n", id(k))));
    let ingest = "ingest --edges edges.tsv --ids sparse --chunks 2 --threads 1 --train train.txt --out";
    folder.success(&format!("{ingest} whole.grappa --memory 256MiB"));

    let with_memory = |memory: &str| folder.command(&format!("{ingest} killed.grappa --memory {memory}"));
    let scratch = folder.path("killed.grappa.partial/scratch");
    let segments = || names_in(&scratch).iter().filter(|name| name.starts_with("keys-")).count();
    let kill_before =
        |change: &str, memory: &str| assert!(Held::before(change, &mut with_memory(memory)).kill(), "{change}");
    kill_before("create scratch/keys-0-1", "3MiB");
    // A cut that was not finished may have made more files than the next one makes.
    let orphan = folder.write("killed.grappa.partial/scratch/keys-0-99", "");
    kill_before("create splits/train.roaring.tmp", "6MiB --resume");
    assert!(!orphan.exists());
    let before = segments();
    kill_before("remove scratch/by-source-0-0", "3MiB --resume");
    assert!(before > 1 && segments() > before, "{before}, then {} segments", segments());

    let needs = ["begun to read edges with a larger --memory", "remove the unfinished store"];
    folder.run(&format!("{ingest} killed.grappa --memory 1MiB --resume")).failure(&needs);
    let held = Held::before("create chunk-0/edges", &mut with_memory("3MiB --resume"));
    let again = held.changes().into_iter().find(|change| change.contains("splits"));
    assert_eq!(again, None, "splits are looked up once");
    held.release();
    held.wait().success();
    assert_same(&folder.path("killed.grappa"), &folder.files("whole.grappa"), "continued with less memory");
}

/// Kills each job before some of its changes of the file system, including all changes that give the result its name.
#[cfg(debug_assertions)]
fn kill_at_changes(folder: &Path, jobs: Vec<kills::Job>) {
    for job in jobs {
        let name = job.name.clone();
        let (changes, killed) = job.kill_before_changes(folder, 16, 8);
        assert!(killed >= changes.min(14), "{name}: killed {killed} times");
    }
}

#[test]
#[cfg(debug_assertions)]
fn an_ingest_killed_before_any_change_of_the_file_system_resumes_to_the_same_store() {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    kill_at_changes(folder.path(), kills::ingest_jobs(inputs.path()));
}

#[test]
#[cfg(debug_assertions)]
fn a_generator_killed_before_any_change_of_the_file_system_makes_the_same_files() {
    let folder = memory_folder();
    kill_at_changes(folder.path(), kills::generate_jobs());
}

#[test]
#[cfg(debug_assertions)]
fn store_operations_killed_before_any_change_have_the_same_result() {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    kill_at_changes(folder.path(), kills::store_jobs(inputs.path()));
}
