//! Two processes with the same output: one makes it, and the other fails and leaves it alone.

use std::{fs, path::Path, process::Stdio, thread, time::Instant};

use grappa_tests::{
    files::memory_folder,
    folder::ProgramFolder,
    graph::{Graph, NODE_FILES},
    held::Held,
    kills::tree_of,
    program::{Ran, line, run},
};

/// Starts a command twice with each of these delays, with and without --resume: one process makes the store, and the
/// other says why it stops. The command works in `inputs`.
fn race(inputs: &Path, command: &str) {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa").display().to_string();
    let command = |more: &str| line(inputs, &format!("{command} --quiet --out {store} {more}"));
    let clear = || {
        fs::remove_dir_all(folder.path()).unwrap();
        fs::create_dir(folder.path()).unwrap();
    };
    run(&mut command("")).success();
    let expected = tree_of(folder.path());
    clear();
    // The first run may have built the program, so this one is timed.
    let begin = Instant::now();
    run(&mut command("")).success();
    let took = begin.elapsed();
    clear();
    let start = |more| command(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for part in [0.0, 0.05, 0.3, 0.7, 1.0] {
        for resume in [["", ""], ["", "--resume"], ["--resume", "--resume"]] {
            let first = start(resume[0]);
            thread::sleep(took.mul_f64(part));
            let ran = [first, start(resume[1])].map(|child| Ran::from(child.wait_with_output().unwrap()));
            let context = format!("started {part} of a run apart, with {resume:?}: {ran:?}");
            let losers: Vec<_> = ran.iter().filter(|ran| ran.code != Some(0)).collect();
            let [loser] = losers[..] else { panic!("{} of 2 failed, {context}", losers.len()) };
            let reasons = ["another process", "something with this name exists"];
            let is_told = reasons.iter().any(|reason| loser.stderr.contains(reason));
            assert!(loser.code == Some(1) && is_told && !loser.stderr.contains("--resume"), "{context}");
            assert!(tree_of(folder.path()) == expected, "the store differs, {context}");
            clear();
        }
    }
}

#[test]
fn one_of_two_ingests_makes_the_store() {
    let inputs = memory_folder();
    Graph::random(1, 10_000, 100_000, 16).write(inputs.path());
    race(inputs.path(), &format!("ingest --edges edges.tsv {NODE_FILES} --chunks 8 --memory 24MiB"));
}

#[test]
fn one_of_two_generators_makes_the_store() {
    race(Path::new("/"), "gen sbm --nodes 20000 --feature-dim 16 --chunks 8");
}

const STORE: &str = "gen rmat --scale 12 --quiet --out graph.grappa --chunks 4";
const EDGE_LIST: &str = "gen rmat --scale 12 --quiet --out edges.tsv --as tsv";

#[test]
fn the_lock_holder_is_reported_and_resume_suggested_only_without_one() {
    need_faults!();
    let folder = ProgramFolder::new();
    let mut first = Held::before("create chunk-1/edges", &mut folder.command(STORE));
    let pid = format!("pid {}", first.id());
    for more in ["", " --resume"] {
        let parts = ["graph.grappa.partial", "another process", &pid];
        let late = folder.run(&format!("{STORE}{more}")).failure(&parts);
        assert!(!late.stderr.contains("--resume"), "{}", late.stderr);
    }
    assert!(first.kill());
    folder.run(STORE).failure(&["graph.grappa.partial", "--resume"]);
    assert_eq!(folder.names(), ["graph.grappa.partial"]);
}

#[test]
fn two_processes_do_not_write_one_file() {
    need_faults!();
    let folder = ProgramFolder::new();
    let first = Held::before("sync edges.tsv.tmp", &mut folder.command(EDGE_LIST));
    folder.run(EDGE_LIST).failure(&["edges.tsv.tmp", "another process"]);
    first.release();
    first.wait().success();
    assert!(fs::metadata(folder.path("edges.tsv")).unwrap().len() > 0);
    folder.run(EDGE_LIST).failure(&["exists"]);
    assert_eq!(folder.names(), ["edges.tsv"]);
}

#[test]
fn a_file_that_a_killed_process_left_is_replaced() {
    need_faults!();
    let folder = ProgramFolder::new();
    assert!(Held::before("sync edges.tsv.tmp", &mut folder.command(EDGE_LIST)).kill());
    assert_eq!(folder.names(), ["edges.tsv.tmp"]);
    folder.success(EDGE_LIST);
    assert_eq!(folder.names(), ["edges.tsv"]);
}
