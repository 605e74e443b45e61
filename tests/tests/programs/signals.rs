//! SIGINT and SIGTERM end every program with their exit code. They leave files that a resumed run completes, or
//! nothing.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

use grappa_tests::{
    files::{assert_same, names_in},
    folder::ProgramFolder,
    graph::{Graph, NODE_FILES},
    held::{Held, wait_until},
    program::{interruptible, started_by},
};
use rustix::process::{Pid, Signal, kill_process};

const GENERATE: &str = "gen sbm --nodes 30000 --feature-dim 32 --chunks 48";

#[test]
fn an_interrupted_store_is_completed_by_resume() {
    need_faults!();
    let folder = ProgramFolder::new();
    Graph::random(1, 20_000, 200_000, 16).write(folder.root());
    let ingest = format!("ingest --edges edges.tsv {NODE_FILES} --undirected --dedup --chunks 24 --memory 24MiB");
    for (line, signal, code) in [(&*ingest, Signal::INT, 130), (GENERATE, Signal::TERM, 143)] {
        folder.success(&format!("{line} --out whole.grappa"));
        let line = format!("{line} --out graph.grappa");
        // Other chunks are made meanwhile, but this one cannot be: its thread never continues.
        let held = Held::before("create chunk-9/edges", &mut interruptible(&folder.command(&line)));
        held.signal(signal);
        let ran = held.wait();
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        for part in ["interrupted: what is finished is kept in ", "graph.grappa.partial", "--resume"] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }
        folder.success(&format!("{line} --resume"));
        assert_same(&folder.path("graph.grappa"), &folder.files("whole.grappa"), &line);
        folder.remove("graph.grappa");
        folder.remove("whole.grappa");
    }
}

#[test]
fn a_program_that_has_nothing_to_lose_ends_at_once() {
    let folder = ProgramFolder::new();
    folder.success(&format!("{GENERATE} --out graph.grappa"));
    // It makes no change at which it can be held. But one batch per node takes much longer than a signal.
    let sample = "store sample graph.grappa --seeds all --fanouts 10,10 --batch 1 --batches 100000";
    let mut command = folder.command(sample);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a handler of SIGTERM", || catches(child.id(), Signal::TERM));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(143), "interrupted\n"));
}

/// Whether a process has a handler for a signal.
fn catches(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn files_that_are_not_finished_are_removed() {
    need_faults!();
    let folder = ProgramFolder::new();
    folder.success(&format!("{GENERATE} --out graph.grappa"));
    for (name, line) in [
        ("edges.tsv", "store export graph.grappa --threads 1 --edges out/edges.tsv"),
        ("features.npy", "store export graph.grappa --threads 1 --features out/features.npy"),
        ("edges.tsv", "gen rmat --scale 22 --as tsv --threads 1 --out out/edges.tsv"),
    ] {
        fs::create_dir(folder.path("out")).unwrap();
        let mut held = Held::before(&format!("create {name}.tmp"), &mut interruptible(&folder.command(line)));
        held.signal(Signal::INT);
        let line = held.line();
        assert!(line.starts_with("interrupted: removing"), "{name}: {line}");
        // Only now, when it knows of the signal, it makes the file.
        held.release();
        wait_until("its end", || held.has_ended());
        let changes = held.changes();
        let made = |action| {
            changes.iter().any(|change| change.starts_with(action) && change.ends_with(&format!("out/{name}.tmp")))
        };
        assert!(made("create") && made("remove"), "{name}: {changes:?}");
        assert!(!made("sync"), "{name} is complete: {changes:?}");
        assert_eq!(held.wait().code, Some(130), "{name}");
        assert_eq!(names_in(&folder.path("out")), [""; 0], "{name}");
        folder.remove("out");
    }
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    need_faults!();
    let folder = ProgramFolder::new();
    // As `nohup` and shells do for background processes.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT; exec \"$@\"", "sh"]);
    let generate = folder.command(&format!("{GENERATE} --out graph.grappa"));
    let held = Held::before("create chunk-9/edges", &mut started_by(shell, &generate));
    held.signal(Signal::INT);
    held.release();
    let ran = held.wait();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(folder.path("graph.grappa").exists());
}
