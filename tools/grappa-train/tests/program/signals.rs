//! SIGINT and SIGTERM make training write a checkpoint and exit with 130 and 143.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::memory_folder,
    program::{self, Ran, run},
};
use rustix::process::{Pid, Signal, kill_process};

fn train(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    command
        .current_dir(folder)
        .args(["graph.grappa", "--out", "run", "--threads", "1"]);
    command.args(options).stdin(Stdio::null());
    command
}

#[test]
fn training_stopped_by_a_signal_exits_with_its_code_and_is_resumed() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = memory_folder();
        let mut generate = program::command("grappa-gen");
        generate.args(["sbm", "--nodes", "500", "--feature-dim", "8", "--quiet", "--out"]);
        run(generate.arg(folder.path().join("graph.grappa"))).success();

        // More epochs than anyone waits for.
        let options = [
            "--layers",
            "1",
            "--hidden",
            "4",
            "--epochs",
            "1000000",
            "--checkpoint-every",
            "0",
        ];
        let mut command = program::interruptible(&train(folder.path(), &options));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        let metrics = folder.path().join("run/metrics.jsonl");
        while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < 2 {
            assert!(begin.elapsed() < Duration::from_secs(120), "no epoch ends");
            thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        for part in [
            "interrupted: finishing the step and writing a checkpoint",
            "continue with `grappa-train graph.grappa --out run --resume`",
        ] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }

        // Finished epochs are kept: the resumed run has one more epoch to do, and ends by itself.
        let finished = fs::read_to_string(&metrics).unwrap().lines().count();
        let epochs = (finished + 1).to_string();
        run(&mut train(folder.path(), &["--resume", "--epochs", &epochs])).success();
        assert_eq!(fs::read_to_string(&metrics).unwrap().lines().count(), finished + 1);
    }
}
