//! Ranks that a launcher started: with it they end, and with it they are continued.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::program::process_of_rank;
use rustix::process::{Pid, Signal, kill_process};

use crate::workers::{end, folder, port, rank, train, wait_for_epochs};

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

/// A run of three workers that does not end by itself.
fn endless(folder: &Path, more: &[&str]) -> Child {
    let options = [
        "--workers",
        "3",
        "--partitions",
        "3",
        "--epochs",
        "100000",
        "--timeout",
        "5",
    ];
    let mut launcher = train(folder, &[&options[..], &["--out", "run"], more].concat());
    launcher.stderr(Stdio::piped()).spawn().unwrap()
}

/// It would keep its launcher waiting for ever.
#[test]
fn a_worker_that_is_stopped_is_killed_after_the_others_have_ended() {
    let folder = folder();
    let at = fs::canonicalize(folder.path()).unwrap();
    let launcher = endless(folder.path(), &[]);
    wait_for_epochs(&folder.path().join("run"), 1);
    kill_process(process_of_rank(1, &at).unwrap(), Signal::STOP).unwrap();
    let begin = Instant::now();
    let ran = end(launcher);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("worker 1 did not end with the others, and was killed"),
        "{}",
        ran.stderr
    );
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    assert_eq!(process_of_rank(1, &at), None);
}

#[test]
fn workers_that_are_stopped_end_when_their_launcher_is_asked_to() {
    let folder = folder();
    let at = fs::canonicalize(folder.path()).unwrap();
    let launcher = endless(folder.path(), &[]);
    wait_for_epochs(&folder.path().join("run"), 1);
    for rank in 0..3 {
        kill_process(process_of_rank(rank, &at).unwrap(), Signal::STOP).unwrap();
    }
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    assert!(ran.stderr.contains("a checkpoint has its state"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("interrupted: the workers have ended"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_launcher_says_which_worker_was_asked_to_stop() {
    let folder = folder();
    let at = fs::canonicalize(folder.path()).unwrap();
    let launcher = endless(folder.path(), &[]);
    wait_for_epochs(&folder.path().join("run"), 1);
    kill_process(process_of_rank(2, &at).unwrap(), Signal::TERM).unwrap();
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("interrupted: worker 2 was asked to stop"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_second_signal_to_a_launcher_ends_the_workers_at_once() {
    let folder = folder();
    let at = fs::canonicalize(folder.path()).unwrap();
    // Steps take many seconds.
    let slow = ["--hidden", "2048", "--layers", "3", "--batch", "1000"];
    let launcher = endless(folder.path(), &slow);
    let log = folder.path().join("run/rank-0.log");
    let begin = Instant::now();
    while !fs::read_to_string(&log).is_ok_and(|log| log.contains("training in")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the workers never met");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_secs(2));
    for _ in 0..2 {
        kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    let begin = Instant::now();
    while (0..3).any(|rank| process_of_rank(rank, &at).is_some()) {
        assert!(begin.elapsed() < Duration::from_secs(2), "the workers go on");
        thread::sleep(Duration::from_millis(10));
    }
}
