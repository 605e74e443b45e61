//! Ranks that a launcher started: with it they end, and with it they are continued.

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use grappa_tests::program::process_of_rank;
use rustix::process::{Pid, Signal, kill_process};

use crate::workers::{end, folder, port, rank, train};

/// Without it, they would look for the launcher's store until `--timeout`.
#[test]
fn ranks_end_with_a_launcher_that_is_killed_while_they_join() {
    let folder = folder();
    let at = fs::canonicalize(folder.path()).unwrap();
    let ranks = || [0, 1].map(|rank| process_of_rank(rank, &at));
    let mut launcher = train(
        folder.path(),
        &["--workers", "2", "--timeout", "600", "--epochs", "1000"],
    )
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let begin = Instant::now();
    while ranks().contains(&None) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the ranks never started");
        thread::sleep(Duration::from_millis(1));
    }
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let begin = Instant::now();
    while ranks() != [None, None] {
        assert!(begin.elapsed() < Duration::from_secs(60), "the ranks are left behind");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A rank that another launcher started says how to start the job again, also if it was given the number of workers.
#[test]
fn only_ranks_of_our_launcher_are_continued_with_workers() {
    let folder = folder();
    let port = port();
    let options = ["--workers", "2", "--epochs", "1000", "--out", "run"];
    let ranks = [0, 1].map(|number| rank(folder.path(), [number, 2, port], &options));
    let begin = Instant::now();
    while !folder.path().join("run/metrics.jsonl").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no epoch");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&ranks[0]), Signal::TERM).unwrap();
    let [first, _] = ranks.map(end);
    assert!(first.stderr.contains("start the same job again"), "{}", first.stderr);
    assert!(!first.stderr.contains("--workers 2 --resume"), "{}", first.stderr);
}
