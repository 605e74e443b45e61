//! A run that is killed with SIGKILL at any moment leaves no store or the whole store. `--resume` then makes the same
//! store, byte for byte.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{assert_same, files_of, memory_folder, names_in},
    graph::{Graph, GraphFiles},
    held::Held,
    kills,
    program::{self, CommandWords, Ran, run},
    random::Random,
};

/// Number of moments at which a run is killed.
const KILLS: u64 = 20;

/// A command that makes a store in `folder`.
struct Job<'a> {
    folder: &'a Path,
    command: &'a dyn Fn(&Path) -> Command,
    expected: BTreeMap<PathBuf, Vec<u8>>,
    duration: Duration,
}

impl<'a> Job<'a> {
    /// Runs the command to its end, to get the expected store and the time.
    fn new(folder: &'a Path, command: &'a dyn Fn(&Path) -> Command) -> Self {
        let store = folder.join("whole.grappa");
        let mut whole = command(&store);
        let begin = Instant::now();
        run(&mut whole).success();
        Self { folder, command, expected: files_of(&store), duration: begin.elapsed() }
    }

    /// Starts the command and kills it when `moment` returns. Returns whether that was before its end.
    fn kill(&self, command: &mut Command, moment: impl FnOnce()) -> bool {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        moment();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() || status.code().is_none(), "it failed by itself: {status}");
        !status.success()
    }

    fn kill_after(&self, command: &mut Command, delay: Duration) -> bool {
        self.kill(command, || thread::sleep(delay))
    }

    /// Resumes the run if `store` does not exist, and compares.
    fn complete(&self, store: &Path, more: &[&str], context: &str) {
        let partial = partial(store);
        // The name appears when the store is complete.
        if store.exists() {
            assert!(!partial.exists(), "{context}");
        } else {
            if partial.exists() {
                run((self.command)(store).args(more)).failure(&["--resume"]);
            }
            run((self.command)(store).args(more).arg("--resume")).success();
        }
        assert_same(store, &self.expected, context);
        assert!(!partial.exists(), "{context}");
        fs::remove_dir_all(store).unwrap();
    }
}

fn partial(store: &Path) -> PathBuf {
    store.with_extension("grappa.partial")
}

/// Kills a job at random moments, every third time twice. Half of the runs have the arguments `more`.
fn kill_at_random(job: &Job, seed: u64, more: &[&str]) {
    let mut random = Random::new(seed);
    let mut duration = job.duration;
    for k in 0..KILLS {
        let store = job.folder.join(format!("{k}.grappa"));
        let more = if k % 2 == 0 { &[] } else { more };
        loop {
            // Moments are spread evenly over the run, and differ between runs of this test.
            let part = (k as f64 + random.unit()) / KILLS as f64;
            let mut context = format!("killed after {part:.3} of a run");
            let delay = duration.mul_f64(part);
            let is_killed = job.kill_after((job.command)(&store).args(more), delay);
            if is_killed && k % 3 == 0 && !store.exists() {
                let part = random.unit();
                context += &format!(", resumed, and killed after {part:.3} of a run");
                job.kill_after((job.command)(&store).args(more).arg("--resume"), duration.mul_f64(part));
            }
            job.complete(&store, more, &context);
            if is_killed {
                break;
            }
            // The machine was busier during the timed run than now.
            duration = delay.mul_f64(0.9);
        }
    }
}

/// Kills a job when a file appears.
fn kill_when(job: &Job, appears: &str, watched: &Path, store: &Path) {
    job.kill(&mut (job.command)(store), || {
        let begin = Instant::now();
        while !watched.exists() && !store.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{appears} does not appear");
            thread::yield_now();
        }
    });
    job.complete(store, &[], &format!("killed when {appears} appeared"));
}

/// All features of ingest: columns of all kinds, both directions, merged edges.
fn ingest_everything(files: &GraphFiles) -> impl Fn(&Path) -> Command {
    move |store| {
        let mut command = program::ingest(&files.edges, store);
        files.node_arguments(&mut command);
        // This memory is too small for the records, so they are spilled.
        command.words("--undirected --dedup --chunks 24 --memory 24MiB");
        command
    }
}

fn graph() -> Graph {
    Graph::random(1, 20_000, 400_000, 32)
}

#[test]
fn an_ingest_killed_at_random_moments_resumes_to_the_same_store() {
    let folder = memory_folder();
    let files = graph().write(folder.path());
    let command = ingest_everything(&files);
    let job = Job::new(folder.path(), &command);
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    kill_at_random(&job, 2, &["--tmp", scratch.to_str().unwrap()]);
    assert_eq!(names_in(&scratch), [""; 0], "scratch files stay");
}

#[test]
fn a_generator_killed_at_random_moments_resumes_to_the_same_store() {
    let folder = memory_folder();
    let command = |store: &Path| {
        let mut command = program::command("grappa-gen");
        command.words("sbm --nodes 30000 --feature-dim 32 --chunks 24 --threads 2");
        command.arg("--out").arg(store);
        command
    };
    let job = Job::new(folder.path(), &command);
    kill_at_random(&job, 3, &["--memory", "512MiB"]);
}

#[test]
fn an_ingest_killed_at_its_turning_points_resumes_to_the_same_store() {
    let folder = memory_folder();
    let files = graph().write(folder.path());
    let command = ingest_everything(&files);
    let job = Job::new(folder.path(), &command);
    let store = folder.path().join("killed.grappa");
    for name in ["", "chunk-0/features", "chunk-0/edges", "chunk-23/degrees", "assignments", "manifest"] {
        kill_when(&job, name, &partial(&store).join(name), &store);
    }
    // At the end: between writing the manifest and the rename.
    kill_when(&job, "the store", &store, &store);
}

#[test]
fn resume_requires_the_same_run() {
    need_faults!();
    let folder = memory_folder();
    let files = graph().write(folder.path());
    let command = ingest_everything(&files);
    let store = folder.path().join("killed.grappa");
    assert!(Held::before("create chunk-1/edges", &mut command(&store)).kill());
    let resume = |change: &[&str]| -> Ran { run(command(&store).arg("--resume").args(change)) };
    resume(&["--seed", "99"]).failure(&["--seed", "99"]);
    let elsewhere = folder.path().join("elsewhere");
    resume(&["--tmp", elsewhere.to_str().unwrap()]).failure(&["had no --tmp, this one has --tmp /"]);
    assert!(!elsewhere.exists());
    resume(&["--nodes", "7000"]).failure(&["this one has --nodes 7000"]);
    let labels = fs::read(&files.labels).unwrap();
    let mut other = labels.clone();
    other.extend([0; 8]);
    fs::write(&files.labels, &other).unwrap();
    resume(&[]).failure(&["labels.npy"]);
    assert!(!store.exists());
}

/// `--resume` with less memory: while nothing depends on it, sparse ids are cut into more segments. Once edges are read
/// in the segments that there are, the run tells how much memory these need.
#[test]
fn a_run_that_continues_with_less_memory_never_exceeds_it() {
    need_faults!();
    let folder = memory_folder();
    let (edges, train) = (folder.path().join("edges.tsv"), folder.path().join("train.txt"));
    let id = |k: u64| k * 1_000_003;
    let lines = |range: Range<u64>, line: &dyn Fn(u64) -> String| range.map(line).collect::<String>();
    let edge = |k| format!("{}\t{}\n", id(k), id((k * 7919) % 200_000));
    fs::write(&edges, lines(0..200_000, &edge)).unwrap();
    fs::write(&train, lines(0..1000, &|k| format!("{}\n", id(k)))).unwrap();
    let with_memory = |store: &Path, memory: &str| {
        let mut command = program::ingest(&edges, store);
        command.args(["--ids", "sparse", "--chunks", "2", "--threads", "1", "--memory", memory]);
        command.arg("--train").arg(&train);
        command
    };
    let whole = folder.path().join("whole.grappa");
    run(&mut with_memory(&whole, "256MiB")).success();
    let expected = files_of(&whole);

    let store = folder.path().join("killed.grappa");
    let segments = || {
        let names = names_in(&partial(&store).join("scratch"));
        names.iter().filter(|name| name.starts_with("keys-")).count()
    };
    let kill_before = |change: &str, command: &mut Command| assert!(Held::before(change, command).kill(), "{change}");
    kill_before("create scratch/keys-0-1", &mut with_memory(&store, "3MiB"));
    // A cut that was not finished may have made more files than the next one makes.
    let orphan = partial(&store).join("scratch/keys-0-99");
    fs::write(&orphan, "").unwrap();
    kill_before("create splits/train.roaring.tmp", with_memory(&store, "6MiB").arg("--resume"));
    assert!(!orphan.exists());
    let before = segments();
    kill_before("remove scratch/by-source-0-0", with_memory(&store, "3MiB").arg("--resume"));
    assert!(before > 1 && segments() > before, "{before}, then {} segments", segments());

    let refused = run(with_memory(&store, "1MiB").arg("--resume"));
    let needs = ["begun to read edges with a larger --memory", "remove the unfinished store"];
    refused.failure(&needs);
    let held = Held::before("create chunk-0/edges", with_memory(&store, "3MiB").arg("--resume"));
    let again = held.changes().into_iter().find(|change| change.contains("splits"));
    assert_eq!(again, None, "splits are looked up once");
    held.release();
    held.wait().success();
    assert_same(&store, &expected, "continued with less memory");
}

/// Kills each job before some of its changes of the file system, including all changes that give the result its name.
#[cfg(debug_assertions)]
fn kill_at_changes(folder: &Path, jobs: Vec<(kills::Job, usize)>) {
    for (job, runs) in jobs {
        let name = job.name.clone();
        let (changes, killed) = job.kill_before_changes(folder, runs, 24, 12);
        assert!(killed >= changes.min(20), "{name}: killed {killed} times");
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
