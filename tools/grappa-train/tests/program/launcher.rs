//! Ranks that a launcher started: with it they end, and with it they are continued.

use std::{
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{held::wait_until, program::process_of_rank};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{TrainFolder, assert_failed, end};

/// Without it, they would look for the launcher's store until `--timeout`.
#[test]
fn ranks_end_with_a_launcher_that_is_killed_while_they_join() {
    let folder = TrainFolder::new();
    let mut launcher = folder.train("--workers 2 --timeout 600 --epochs 1000");
    let mut launcher = launcher.stderr(Stdio::null()).spawn().unwrap();
    let started = |rank| process_of_rank(rank, folder.root()).is_some();
    wait_until("both ranks", || started(0) && started(1));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    wait_until("the end of both ranks", || !started(0) && !started(1));
}

/// A rank that another launcher started says how to start the job again, also if it was given the number of workers.
#[test]
fn only_ranks_of_our_launcher_are_continued_with_workers() {
    let folder = TrainFolder::new();
    let ranks = folder.two_ranks("--workers 2 --epochs 1000 --out run");
    folder.wait_for_epochs("run", 1);
    kill_process(Pid::from_child(&ranks[0]), Signal::TERM).unwrap();
    let [first, _] = ranks.map(end);
    assert!(first.stderr.contains("start the same job again"), "{}", first.stderr);
    assert!(!first.stderr.contains("--workers 2 --resume"), "{}", first.stderr);
}

/// A run of three workers that does not end by itself.
fn endless(folder: &TrainFolder, more: &str) -> Child {
    let options = "--workers 3 --partitions 3 --epochs 100000 --timeout 5 --out run";
    let mut launcher = folder.train(&format!("{options} {more}"));
    launcher.stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal to a worker.
fn signal(folder: &TrainFolder, worker: u32, signal: Signal) {
    kill_process(process_of_rank(worker, folder.root()).unwrap(), signal).unwrap();
}

/// It would keep its launcher waiting for ever.
#[test]
fn a_worker_that_is_stopped_is_killed_after_the_others_have_ended() {
    let folder = TrainFolder::new();
    let launcher = endless(&folder, "");
    folder.wait_for_epochs("run", 1);
    signal(&folder, 1, Signal::STOP);
    let begin = Instant::now();
    assert_failed(&end(launcher), &["worker 1 did not end with the others, and was killed"]);
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    assert_eq!(process_of_rank(1, folder.root()), None);
}

#[test]
fn workers_that_are_stopped_end_when_their_launcher_is_asked_to() {
    let folder = TrainFolder::new();
    let launcher = endless(&folder, "");
    folder.wait_for_epochs("run", 1);
    for rank in 0..3 {
        signal(&folder, rank, Signal::STOP);
    }
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    for part in ["a checkpoint has its state", "interrupted: the workers have ended"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn a_launcher_says_which_worker_was_asked_to_stop() {
    let folder = TrainFolder::new();
    let launcher = endless(&folder, "");
    folder.wait_for_epochs("run", 1);
    signal(&folder, 2, Signal::TERM);
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    let expected = "interrupted: worker 2 was asked to stop";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn a_second_signal_to_a_launcher_ends_the_workers_at_once() {
    let folder = TrainFolder::new();
    // Steps take many seconds.
    let launcher = endless(&folder, "--hidden 2048 --layers 3 --batch 1000");
    let log = folder.path("run/rank-0.log");
    wait_until("the workers", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("training in")));
    thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    let ran = end(launcher);
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    let begin = Instant::now();
    while (0..3).any(|rank| process_of_rank(rank, folder.root()).is_some()) {
        assert!(begin.elapsed() < Duration::from_secs(2), "the workers go on");
        thread::sleep(Duration::from_millis(10));
    }
}
