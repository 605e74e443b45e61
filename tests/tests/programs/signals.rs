//! SIGINT and SIGTERM end every program with their exit code. They leave files that a resumed run completes, or
//! nothing.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

use grappa_tests::{
    files::{assert_same, files_of, memory_folder, names_in},
    graph::{Graph, GraphFiles},
    held::{Held, wait_until},
    program::{self, CommandWords, Ran, run},
};
use rustix::process::{Pid, Signal, kill_process};

/// Starts a command, sends a signal when the command is about to make `change`, and returns the output. The
/// thread that makes the change never continues.
fn interrupt(command: &mut Command, signal: Signal, change: &str) -> Ran {
    let held = Held::before(change, &mut program::interruptible(command));
    held.signal(signal);
    held.wait()
}

fn graph_files(folder: &Path) -> GraphFiles {
    Graph::random(1, 20_000, 400_000, 32).write(folder)
}

/// The command of an ingest, for the path of its store.
fn ingest_of<'a>(files: &'a GraphFiles) -> impl Fn(&Path) -> Command + 'a {
    move |store| {
        let mut command = program::ingest(&files.edges, store);
        files.node_arguments(&mut command);
        command.words("--undirected --dedup --chunks 24 --memory 24MiB");
        command
    }
}

fn generator(store: &Path) -> Command {
    let mut command = program::command("grappa-gen");
    command.words("sbm --nodes 100000 --feature-dim 64 --chunks 48");
    command.arg("--out").arg(store);
    command
}

#[test]
fn an_interrupted_store_is_completed_by_resume() {
    need_faults!();
    let folder = memory_folder();
    let files = graph_files(folder.path());
    let ingest = ingest_of(&files);
    for (name, command, signal, code) in
        [("ingest", &ingest as &dyn Fn(&Path) -> Command, Signal::INT, 130), ("gen", &generator, Signal::TERM, 143)]
    {
        let whole = folder.path().join(format!("{name}-whole.grappa"));
        run(&mut command(&whole)).success();
        let store = folder.path().join(format!("{name}.grappa"));
        let partial = store.with_extension("grappa.partial");
        // Other chunks are made meanwhile, but this one cannot be.
        let ran = interrupt(&mut command(&store), signal, "create chunk-9/edges");
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        let expected = format!("interrupted: what is finished is kept in {}", partial.display());
        assert!(ran.stderr.contains(&expected) && ran.stderr.contains("--resume"), "{}", ran.stderr);
        run(command(&store).arg("--resume")).success();
        assert_same(&store, &files_of(&whole), name);
    }
}

#[test]
fn a_program_that_has_nothing_to_lose_ends_at_once() {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    run(&mut generator(&store)).success();
    let mut command = program::command("grappa-store");
    // It makes no change at which it can be held. But one batch per node takes much longer than a signal.
    command.words("sample --seeds all --fanouts 10,10 --batch 1 --batches 100000");
    command.arg(&store).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
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
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    run(&mut generator(&store)).success();
    let out = folder.path().join("out");
    let export = |arguments: &[&str]| {
        let mut command = program::command("grappa-store");
        command.arg("export").arg(&store).args(["--threads", "1"]);
        for pair in arguments.chunks_exact(2) {
            command.arg(pair[0]).arg(out.join(pair[1]));
        }
        command
    };
    let edges = || {
        let mut command = program::command("grappa-gen");
        command.words("rmat --scale 22 --as tsv --threads 1 --out");
        command.arg(out.join("edges.tsv"));
        command
    };
    for (name, command) in [
        ("edges.tsv", export(&["--edges", "edges.tsv"])),
        ("features.npy", export(&["--features", "features.npy"])),
        ("edges.tsv", edges()),
    ] {
        fs::create_dir(&out).unwrap();
        let mut held = Held::before(&format!("create {name}.tmp"), &mut program::interruptible(&command));
        held.signal(Signal::INT);
        let line = held.line();
        assert!(line.starts_with("interrupted: removing"), "{name}: {line}");
        // Only now, when it knows of the signal, it makes the file.
        held.release();
        wait_until("its end", || held.has_ended());
        let made = |action: &str| {
            let change = format!("{action} {}", out.join(format!("{name}.tmp")).display());
            held.changes().contains(&change)
        };
        assert!(made("create") && made("remove"), "{name}: {:?}", held.changes());
        assert!(!made("sync"), "{name} is complete: {:?}", held.changes());
        assert_eq!(held.wait().code, Some(130), "{name}");
        assert_eq!(names_in(&out), [""; 0], "{name}");
        fs::remove_dir(&out).unwrap();
    }
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    need_faults!();
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    // As `nohup` and shells do for background processes.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]);
    let generator = generator(&store);
    command.arg(generator.get_program()).args(generator.get_args());
    let held = Held::before("create chunk-9/edges", &mut command);
    held.signal(Signal::INT);
    held.release();
    let ran = held.wait();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(store.exists());
}
