//! Two processes on one output: one of them makes it, and the other leaves it alone and says so.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{memory_folder, names_in},
    graph::Graph,
    kills::tree_of,
    pairs,
    program::{self, Ran, command, run},
};

/// Starts pairs of a command with these delays between the two, with and without --resume.
fn race(command: &dyn Fn(&Path) -> Command) {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    let begin = Instant::now();
    run(&mut command(&store)).success();
    let took = begin.elapsed();
    let expected = tree_of(folder.path());
    pairs::clear(folder.path());
    for part in [0.0, 0.02, 0.1, 0.3, 0.6, 0.9, 1.0] {
        for resume in [[false, false], [false, true], [true, true]] {
            let commands = resume.map(|resume| {
                let mut command = command(&store);
                command.args(resume.then_some("--resume"));
                command
            });
            let pair = pairs::race(folder.path(), commands, took.mul_f64(part), &expected);
            let wrong = pair.wrong.unwrap_or_default();
            assert_eq!(wrong, "", "started {part} of a run apart, with --resume: {resume:?}");
            pairs::clear(folder.path());
        }
    }
}

#[test]
fn one_of_two_ingests_makes_the_store() {
    let inputs = memory_folder();
    let files = Graph::random(1, 20_000, 200_000, 16).write(inputs.path());
    race(&|store| {
        let mut command = program::ingest(&files.edges, store);
        files.node_arguments(&mut command);
        command.args(["--chunks", "8", "--memory", "24MiB", "--quiet"]);
        command
    });
}

#[test]
fn one_of_two_generators_makes_the_store() {
    race(&|store| {
        let mut command = command("grappa-gen");
        command.args([
            "sbm",
            "--nodes",
            "20000",
            "--feature-dim",
            "16",
            "--chunks",
            "8",
            "--quiet",
            "--out",
        ]);
        command.arg(store);
        command
    });
}

/// A generator that takes long enough to look at what others do meanwhile.
fn slow(out: &Path) -> Command {
    generator("20", out)
}

/// A generator that takes so long that it must be killed.
fn slower(out: &Path) -> Command {
    generator("23", out)
}

fn generator(scale: &str, out: &Path) -> Command {
    let mut command = command("grappa-gen");
    command
        .args(["rmat", "--scale", scale, "--threads", "1", "--quiet", "--out"])
        .arg(out);
    command
}

fn spawn_until(command: &mut Command, appears: &Path) -> Child {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !appears.exists() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{} does not appear",
            appears.display()
        );
        thread::sleep(Duration::from_millis(1));
    }
    child
}

fn killed(mut child: Child) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it ended before it was killed");
}

#[test]
fn whoever_is_late_hears_who_makes_the_store_and_of_resume_only_when_nobody_does() {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    let child = spawn_until(&mut slower(&store), &folder.path().join("graph.grappa.partial/journal"));
    let pid = format!("pid {}", child.id());
    for more in [None, Some("--resume")] {
        let late: Ran = run(slower(&store).args(more)).failure(&["graph.grappa.partial", "another process", &pid]);
        assert!(!late.stderr.contains("--resume"), "{}", late.stderr);
    }
    killed(child);
    run(&mut slower(&store)).failure(&["graph.grappa.partial", "--resume"]);
    assert_eq!(names_in(folder.path()), ["graph.grappa.partial"]);
}

#[test]
fn two_processes_do_not_write_one_file() {
    let folder = memory_folder();
    let edges = folder.path().join("edges.tsv");
    let list = || {
        let mut command = slow(&edges);
        command.args(["--as", "tsv"]);
        command
    };
    let mut child = spawn_until(&mut list(), &folder.path().join("edges.tsv.tmp"));
    run(&mut list()).failure(&["edges.tsv.tmp", "another process"]);
    assert!(child.wait().unwrap().success(), "the first one is not disturbed");
    let bytes = fs::metadata(&edges).unwrap().len();
    assert!(bytes > 0);
    run(&mut list()).failure(&["exists"]);
    assert_eq!(names_in(folder.path()), ["edges.tsv"]);
}

#[test]
fn a_file_that_a_killed_process_left_is_replaced() {
    let folder = memory_folder();
    let edges = folder.path().join("edges.tsv");
    let mut list = slow(&edges);
    list.args(["--as", "tsv"]);
    killed(spawn_until(&mut list, &folder.path().join("edges.tsv.tmp")));
    assert_eq!(names_in(folder.path()), ["edges.tsv.tmp"]);
    run(list.stdout(Stdio::piped()).stderr(Stdio::piped())).success();
    assert_eq!(names_in(folder.path()), ["edges.tsv"]);
}
