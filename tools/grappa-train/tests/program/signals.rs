//! SIGINT, SIGTERM and SIGHUP make training write a checkpoint and exit with 130, 143 and 129.

use std::{
    io,
    process::{Command, Stdio},
};

use grappa_tests::{
    files::names_in,
    program::{CommandWords, Ran, interruptible, run, started_by},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{TrainFolder, end};

/// Training whose store and run have blanks in their names.
fn train(folder: &TrainFolder, options: &str) -> Command {
    let mut command = folder.program("");
    command.args(["my graph.grappa", "--out", "my run", "--threads", "1"]);
    command.words(options);
    command
}

/// More epochs than anyone waits for.
const ENDLESS: &str = "--layers 1 --hidden 4 --epochs 1000000 --checkpoint-every 0";

/// A folder with a store.
fn folder() -> TrainFolder {
    let folder = TrainFolder::empty();
    folder.generate("my graph.grappa", "sbm --nodes 500 --feature-dim 8 --chunks 2");
    folder
}

/// Trains without end, and sends `signal` after two epochs.
fn stopped(folder: &TrainFolder, options: &str, signal: Signal) -> Ran {
    let mut command = interruptible(&train(folder, &format!("{ENDLESS} {options}")));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    folder.wait_for_epochs("my run", 2);
    kill_process(Pid::from_child(&child), signal).unwrap();
    end(child)
}

#[test]
fn training_stopped_by_a_signal_exits_with_its_code_and_is_resumed() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let folder = folder();
        let ran = stopped(&folder, "", signal);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        for part in [
            "interrupted: finishing the step and writing a checkpoint",
            "continue with `grappa-train 'my graph.grappa' --out 'my run' --resume`",
        ] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }
        // Finished epochs are kept: the resumed run has one more epoch to do, and ends by itself.
        let epochs = folder.metrics("my run").len() + 1;
        run(&mut train(&folder, &format!("--resume --epochs {epochs}"))).success();
        assert_eq!(folder.metrics("my run").len(), epochs);
    }
}

/// Runs a program on a terminal, which is closed when the file `metrics` has two lines. The program has the default
/// effect of SIGHUP, or ignores it. Exits with the code of the program.
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
fn on_a_closed_terminal(folder: &TrainFolder, options: &str, effect: &str) -> io::Result<Ran> {
    let mut python = Command::new("python3");
    python.args(["-c", ON_A_TERMINAL]).arg(folder.path("my run/metrics.jsonl")).arg(effect);
    let mut command = started_by(python, &train(folder, options));
    command.env("TERM", "xterm").output().map(Ran::from)
}

#[test]
fn training_whose_terminal_is_closed_writes_a_checkpoint() {
    for workers in ["1", "2"] {
        let folder = folder();
        let options = format!("{ENDLESS} --workers {workers}");
        let ran = match on_a_closed_terminal(&folder, &options, "SIG_DFL") {
            Ok(ran) => ran,
            Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
        };
        assert_eq!(ran.code, Some(129), "{workers} workers: {}", ran.stderr);
        let names = names_in(&folder.path("my run/checkpoints"));
        assert_eq!(names.iter().filter(|name| name.starts_with("step-")).count(), 1);
    }
}

#[test]
fn training_that_ignores_the_signal_goes_on_without_its_terminal() {
    let folder = folder();
    let ran = match on_a_closed_terminal(&folder, "--layers 1 --hidden 4 --epochs 300", "SIG_IGN") {
        Ok(ran) => ran,
        Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
    };
    ran.success();
    assert_eq!(folder.metrics("my run").len(), 300);
}

#[test]
fn stopped_workers_tell_once_how_to_start_as_many_again() {
    let folder = folder();
    let ran = stopped(&folder, "--workers 2", Signal::TERM);
    assert_eq!(ran.stderr.matches("--resume").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("/my run' --workers 2 --resume`"), "{}", ran.stderr);
}
