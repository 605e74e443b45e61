//! Two processes with the same output: one makes it, and the other fails and leaves it alone.

use std::{fs, path::Path, process::Command, time::Instant};

use grappa_tests::{
    files::{memory_folder, names_in},
    graph::Graph,
    held::Held,
    kills::tree_of,
    pairs,
    program::{self, CommandWords, Ran, command, run},
};

/// Starts a command twice with each of these delays, with and without --resume.
fn race(command: &dyn Fn(&Path) -> Command) {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    run(&mut command(&store)).success();
    let expected = tree_of(folder.path());
    pairs::clear(folder.path());
    // The first run may have built the program, so this one is timed.
    let begin = Instant::now();
    run(&mut command(&store)).success();
    let took = begin.elapsed();
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
        command.words("--chunks 8 --memory 24MiB --quiet");
        command
    });
}

#[test]
fn one_of_two_generators_makes_the_store() {
    race(&|store| {
        let mut command = command("grappa-gen");
        command.words("sbm --nodes 20000 --feature-dim 16 --chunks 8 --quiet --out");
        command.arg(store);
        command
    });
}

fn generator(out: &Path) -> Command {
    let mut command = command("grappa-gen");
    command.words("rmat --scale 12 --quiet --out").arg(out);
    command
}

/// A generator of a store.
fn chunks(out: &Path) -> Command {
    let mut command = generator(out);
    command.args(["--chunks", "4"]);
    command
}

/// A generator of a file.
fn edge_list(out: &Path) -> Command {
    let mut command = generator(out);
    command.args(["--as", "tsv"]);
    command
}

#[test]
fn the_lock_holder_is_reported_and_resume_suggested_only_without_one() {
    need_faults!();
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    let mut first = Held::before("create chunk-1/edges", &mut chunks(&store));
    let pid = format!("pid {}", first.id());
    for more in [None, Some("--resume")] {
        let late: Ran = run(chunks(&store).args(more)).failure(&["graph.grappa.partial", "another process", &pid]);
        assert!(!late.stderr.contains("--resume"), "{}", late.stderr);
    }
    assert!(first.kill());
    run(&mut chunks(&store)).failure(&["graph.grappa.partial", "--resume"]);
    assert_eq!(names_in(folder.path()), ["graph.grappa.partial"]);
}

#[test]
fn two_processes_do_not_write_one_file() {
    need_faults!();
    let folder = memory_folder();
    let edges = folder.path().join("edges.tsv");
    let first = Held::before("sync edges.tsv.tmp", &mut edge_list(&edges));
    run(&mut edge_list(&edges)).failure(&["edges.tsv.tmp", "another process"]);
    first.release();
    first.wait().success();
    let bytes = fs::metadata(&edges).unwrap().len();
    assert!(bytes > 0);
    run(&mut edge_list(&edges)).failure(&["exists"]);
    assert_eq!(names_in(folder.path()), ["edges.tsv"]);
}

#[test]
fn a_file_that_a_killed_process_left_is_replaced() {
    need_faults!();
    let folder = memory_folder();
    let edges = folder.path().join("edges.tsv");
    assert!(Held::before("sync edges.tsv.tmp", &mut edge_list(&edges)).kill());
    assert_eq!(names_in(folder.path()), ["edges.tsv.tmp"]);
    run(&mut edge_list(&edges)).success();
    assert_eq!(names_in(folder.path()), ["edges.tsv"]);
}
