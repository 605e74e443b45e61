//! SIGINT, SIGTERM and SIGHUP make training write a checkpoint and exit with 130, 143 and 129.

use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use grappa_tests::{
    files::memory_folder,
    program::{self, Ran, run},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::workers::{metrics, wait_for_epochs};

fn train(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    command
        .current_dir(folder)
        .args(["my graph.grappa", "--out", "my run", "--threads", "1"]);
    command.args(options).stdin(Stdio::null());
    command
}

/// More epochs than anyone waits for.
const ENDLESS: [&str; 8] = [
    "--layers",
    "1",
    "--hidden",
    "4",
    "--epochs",
    "1000000",
    "--checkpoint-every",
    "0",
];

/// A folder with a store.
fn folder() -> TempDir {
    let folder = memory_folder();
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", "500", "--feature-dim", "8", "--chunks", "2"]);
    generate
        .args(["--quiet", "--out"])
        .arg(folder.path().join("my graph.grappa"));
    run(&mut generate).success();
    folder
}

/// Trains without end, and sends `signal` after two epochs.
fn stopped(folder: &Path, options: &[&str], signal: Signal) -> Ran {
    let mut command = program::interruptible(&train(folder, &[&ENDLESS[..], options].concat()));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_epochs(&folder.join("my run"), 2);
    kill_process(Pid::from_child(&child), signal).unwrap();
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn training_stopped_by_a_signal_exits_with_its_code_and_is_resumed() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let folder = folder();
        let ran = stopped(folder.path(), &[], signal);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        for part in [
            "interrupted: finishing the step and writing a checkpoint",
            "continue with `grappa-train 'my graph.grappa' --out 'my run' --resume`",
        ] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }

        // Finished epochs are kept: the resumed run has one more epoch to do, and ends by itself.
        let run_folder = folder.path().join("my run");
        let finished = metrics(&run_folder).len();
        let epochs = (finished + 1).to_string();
        run(&mut train(folder.path(), &["--resume", "--epochs", &epochs])).success();
        assert_eq!(metrics(&run_folder).len(), finished + 1);
    }
}

/// Runs a program on a terminal, which is closed when the file `metrics` has two lines. The program has the default effect of SIGHUP, or
/// ignores it. Exits with the code of the program.
const ON_A_TERMINAL: &str = "
import os, pty, signal, sys, threading
metrics, effect, *command = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.Handlers[effect])
    os.execvp(command[0], command)
def epochs():
    return open(metrics).read().count('\\n') if os.path.exists(metrics) else 0
while epochs() < 2:
    os.read(terminal, 65536)
os.close(terminal)
_, status = os.waitpid(child, 0)
os._exit(os.waitstatus_to_exitcode(status) % 256)
";

/// Trains on a terminal that is closed after two epochs. Fails if there is no Python.
fn on_a_closed_terminal(folder: &Path, options: &[&str], effect: &str) -> io::Result<Ran> {
    let training = train(folder, options);
    let mut command = Command::new("python3");
    command
        .args(["-c", ON_A_TERMINAL])
        .arg(folder.join("my run/metrics.jsonl"))
        .arg(effect)
        .arg(training.get_program())
        .args(training.get_args());
    command.current_dir(folder).stdin(Stdio::null()).env("TERM", "xterm");
    command.output().map(Ran::from)
}

#[test]
fn training_whose_terminal_is_closed_writes_a_checkpoint() {
    for workers in ["1", "2"] {
        let folder = folder();
        let options = [&ENDLESS[..], &["--workers", workers]].concat();
        let ran = match on_a_closed_terminal(folder.path(), &options, "SIG_DFL") {
            Ok(ran) => ran,
            Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
        };
        assert_eq!(ran.code, Some(129), "{workers} workers: {}", ran.stderr);
        let names = fs::read_dir(folder.path().join("my run/checkpoints")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.starts_with("step-")).count(), 1);
    }
}

#[test]
fn training_that_ignores_the_signal_goes_on_without_its_terminal() {
    let folder = folder();
    let options = ["--layers", "1", "--hidden", "4", "--epochs", "300"];
    let ran = match on_a_closed_terminal(folder.path(), &options, "SIG_IGN") {
        Ok(ran) => ran,
        Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
    };
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(metrics(&folder.path().join("my run")).len(), 300);
}

#[test]
fn stopped_workers_tell_once_how_to_start_as_many_again() {
    let folder = folder();
    let ran = stopped(folder.path(), &["--workers", "2"], Signal::TERM);
    assert_eq!(ran.stderr.matches("--resume").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("/my run' --workers 2 --resume`"), "{}", ran.stderr);
}
