//! SIGINT and SIGTERM end every program with the exit code that says so, and leave what a resumed run completes, or nothing.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use grappa_tests::{
    files::{assert_same, files_of, memory_folder, names_in},
    graph::{Graph, GraphFiles},
    program::{self, Ran, run},
};
use rustix::process::{Pid, Signal, kill_process};

/// Starts a command, sends a signal when `is_time`, and returns what the program said and how long it took to end.
fn interrupt(command: &mut Command, signal: Signal, is_time: impl Fn() -> bool) -> (Ran, Duration) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while !is_time() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended early: {}",
            stderr(&mut child)
        );
        assert!(begin.elapsed() < Duration::from_secs(60), "the moment never comes");
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let begin = Instant::now();
    let code = child.wait().unwrap().code();
    let took = begin.elapsed();
    let ran = Ran {
        code,
        stdout: String::new(),
        stderr: stderr(&mut child),
    };
    (ran, took)
}

fn stderr(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

fn graph_files(folder: &Path) -> GraphFiles {
    Graph::random(1, 20_000, 400_000, 32).write(folder)
}

/// An ingest, a store of its own for each name.
fn ingest_of<'a>(files: &'a GraphFiles) -> impl Fn(&Path) -> Command + 'a {
    move |store| {
        let mut command = program::ingest(&files.edges, store);
        files.node_arguments(&mut command);
        command.args(["--undirected", "--dedup", "--chunks", "24", "--memory", "24MiB"]);
        command
    }
}

fn generator(store: &Path) -> Command {
    let mut command = program::command("grappa-gen");
    command.args(["sbm", "--nodes", "100000", "--feature-dim", "64", "--chunks", "48"]);
    command.arg("--out").arg(store);
    command
}

#[test]
fn an_interrupted_store_is_completed_by_resume() {
    let folder = memory_folder();
    let files = graph_files(folder.path());
    let ingest = ingest_of(&files);
    for (name, command, signal, code) in [
        ("ingest", &ingest as &dyn Fn(&Path) -> Command, Signal::INT, 130),
        ("gen", &generator, Signal::TERM, 143),
    ] {
        let whole = folder.path().join(format!("{name}-whole.grappa"));
        run(&mut command(&whole)).success();
        let store = folder.path().join(format!("{name}.grappa"));
        let partial = store.with_extension("grappa.partial");
        let (ran, _) = interrupt(&mut command(&store), signal, || partial.join("chunk-0").exists());
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        let expected = format!("interrupted: what is finished is kept in {}", partial.display());
        assert!(
            ran.stderr.contains(&expected) && ran.stderr.contains("--resume"),
            "{}",
            ran.stderr
        );
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
    let begin = Instant::now();
    // A batch for each node takes long enough.
    command.args([
        "sample",
        "--seeds",
        "all",
        "--fanouts",
        "10,10",
        "--batch",
        "1",
        "--batches",
        "100000",
    ]);
    command.arg(&store);
    let (ran, _) = interrupt(&mut command, Signal::TERM, || {
        begin.elapsed() > Duration::from_millis(500)
    });
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(143), "interrupted\n"));
}

#[test]
fn files_that_are_not_finished_are_removed() {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    run(&mut generator(&store)).success();
    let out = folder.path().join("out");
    let is_begun = || out.exists() && !names_in(&out).is_empty();
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
        command.args(["rmat", "--scale", "22", "--as", "tsv", "--threads", "1", "--out"]);
        command.arg(out.join("edges.tsv"));
        command
    };
    for (name, mut command) in [
        ("edges", export(&["--edges", "edges.tsv"])),
        ("features", export(&["--features", "features.npy"])),
        ("generated", edges()),
    ] {
        fs::create_dir(&out).unwrap();
        let (ran, took) = interrupt(&mut command, Signal::INT, is_begun);
        assert_eq!(ran.code, Some(130), "{name}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("interrupted: removing"),
            "{name}: {}",
            ran.stderr
        );
        assert_eq!(names_in(&out), [""; 0], "{name}");
        assert!(took < Duration::from_secs(2), "{name}: {took:?}");
        fs::remove_dir(&out).unwrap();
    }
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    let partial = store.with_extension("grappa.partial");
    // As `nohup` and shells do for what runs in the background.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]);
    let generator = generator(&store);
    command.arg(generator.get_program()).args(generator.get_args());
    let (ran, _) = interrupt(&mut command, Signal::INT, || partial.join("chunk-0").exists());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(store.exists());
}
