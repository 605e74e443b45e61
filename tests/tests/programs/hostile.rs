//! Inputs and limits that could make a program wait forever, fill the disk, control the terminal, or abort. Each is an
//! immediate error of one line, and nothing is left behind.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grappa_tests::{
    files::names_in,
    graph::Graph,
    npy::Npy,
    program::{self, CommandWords, Ran, run},
};
use tempfile::TempDir;

/// Time limit of an error, sufficient on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command that must end by itself.
#[track_caller]
fn run_in_time(command: &mut Command) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{command:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn pipe(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

#[test]
fn pipes_and_devices_are_refused_at_once_wherever_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let edges = write(&folder, "edges.tsv", "0 1\n1 2\n");
    let (out, pipe) = (folder.path().join("out.grappa"), pipe(&folder, "pipe"));
    let assign = PathBuf::from(format!("file:{}", pipe.display()));
    for option in ["--weights", "--features", "--labels", "--train", "--val", "--test", "--assign"] {
        let mut command = program::ingest(&edges, &out);
        command.arg(option).arg(if option == "--assign" { &assign } else { &pipe });
        run_in_time(&mut command).failure(&["pipe: this is a pipe", "save it to a file"]);
        assert!(!out.exists(), "{option}");
    }
    run_in_time(&mut program::ingest(&pipe, &out)).failure(&["pipe: this is a pipe", "save it to a file"]);
    run_in_time(&mut program::ingest(Path::new("/dev/zero"), &out)).failure(&["/dev/zero: this is a device"]);
    // A pipe with a writer is refused too.
    let mut command = program::ingest(Path::new("/dev/stdin"), &out);
    run_in_time(command.stdin(Stdio::piped())).failure(&["/dev/stdin: this is a pipe", "save it to a file"]);
    assert_eq!(names_in(folder.path()), ["edges.tsv", "pipe"]);
    // A redirected file is accepted.
    let mut command = program::ingest(Path::new("/dev/stdin"), &out);
    run_in_time(command.stdin(fs::File::open(&edges).unwrap())).success();

    let store = |arguments: &[&str]| {
        let mut command = program::command("grappa-store");
        command.args(arguments);
        run_in_time(&mut command)
    };
    let (out, pipe) = (out.to_str().unwrap(), pipe.to_str().unwrap());
    let sample = ["sample", out, "--fanouts", "2", "--batch", "1", "--batches", "1"];
    store(&[&sample[..], &["--seeds", pipe]].concat()).failure(&["this is a pipe"]);
    store(&["plan", "--nodes", "10", "--edges", "10", "--rates", pipe]).failure(&["this is a pipe"]);
    store(&["plan", "--nodes", "10", "--edges", "10", "--rates", "/dev/zero"]).failure(&["this is a device"]);
    store(&["info", pipe]).failure(&["pipe: this is a file"]);
}

#[test]
fn a_pipe_in_place_of_a_file_of_a_store_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let edges = write(&folder, "edges.tsv", "0 1\n1 2\n");
    let out = folder.path().join("out.grappa");
    run(&mut program::ingest(&edges, &out)).success();
    for name in ["manifest", "assignments/CURRENT", "assignments/0", "chunk-0/edges", "chunk-0/degrees"] {
        let (file, kept) = (out.join(name), folder.path().join("kept"));
        fs::rename(&file, &kept).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        for verb in ["info", "verify"] {
            let mut command = program::command("grappa-store");
            let ran = run_in_time(command.arg(verb).arg(&out));
            assert_eq!(ran.code, Some(1), "{verb} with {name}: {}", ran.stdout);
            assert!((ran.stdout + &ran.stderr).contains("this is a pipe"), "{verb} with {name}");
        }
        fs::remove_file(&file).unwrap();
        fs::rename(&kept, &file).unwrap();
    }
}

#[test]
fn one_stray_dense_id_is_named_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.grappa");
    let text = write(&folder, "edges.tsv", "# two\n0 1\n0\t50000000000\n3 2\n");
    let array = write(&folder, "edges.npy", Npy::new(&[3, 2], [0i64, 1, 50_000_000_000, 2, 1, 0]).encode());
    for (edges, place) in [(&text, "edges.tsv:3: "), (&array, "edges.npy at row 1: ")] {
        run_in_time(program::ingest(edges, &out).args(["--threads", "2"])).failure(&[
            place,
            "50000000001 nodes for 3 edges",
            "--ids sparse",
            "--nodes 50000000001",
        ]);
        assert_eq!(names_in(folder.path()), ["edges.npy", "edges.tsv"]);
    }
    // The proposed option works.
    let ran = run_in_time(program::ingest(&text, &out).words("--ids sparse --json")).success();
    assert_eq!(ran.json()["nodes"], 5);
    fs::remove_dir_all(&out).unwrap();
    // A few million nodes without edges are plausible.
    let sparse = write(&folder, "sparse.tsv", "0 1\n0 1000000\n");
    let ran = run_in_time(program::ingest(&sparse, &out).arg("--json")).success();
    assert_eq!(ran.json()["nodes"], 1_000_001);
}

#[test]
fn many_nodes_without_edges_are_made_if_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.grappa");
    let edges = write(&folder, "edges.tsv", "0 17000000\n");
    run_in_time(&mut program::ingest(&edges, &out)).failure(&["edges.tsv:1: ", "--nodes 17000001"]);
    let ran = run_in_time(program::ingest(&edges, &out).words("--nodes 17000001 --json")).success();
    assert_eq!(ran.json()["nodes"], 17_000_001);
}

#[test]
fn names_and_input_cannot_act_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = "a\x1b]0;owned\x07\nb";
    let shown = "a\\u{1b}]0;owned\\u{7}\\nb";
    let safe = |ran: &Ran| {
        let all = ran.stdout.clone() + &ran.stderr;
        assert!(!all.contains(['\x1b', '\x07']), "{all:?}");
        assert!(all.contains(shown), "{all:?}");
    };
    let out = folder.path().join(format!("{hostile}.grappa"));
    let missing = folder.path().join(hostile);
    safe(&run(&mut program::ingest(&missing, &out)).failure(&["No such file"]));
    let edges = write(&folder, hostile, "0 1\n1 \x1b]0;owned\x07\n");
    safe(&run(&mut program::ingest(&edges, &out)).failure(&[":2: ", "\"1 \\u{1b}]0;owned\\u{7}\""]));
    // In a string id.
    let edges = write(&folder, "edges.tsv", "x \x1b[2J\n\x1b[2J y\n");
    let command = |verb: &str| {
        let mut command = program::command("grappa-store");
        command.arg(verb).arg(&out);
        command
    };
    safe(&run(program::ingest(&edges, &out).args(["--ids", "string"])).success());
    safe(&run(&mut command("info")).success());
    safe(&run(&mut command("verify")).success());
    let ids = write(&folder, "ids.txt", "\x1b[31m\n");
    let mut sample = command("sample");
    sample.words("--fanouts 2 --batch 1 --batches 1 --seeds");
    let ran = run(sample.arg(&ids));
    safe(&ran.failure(&["no node of", "has the id \\u{1b}[31m"]));
    let listed = write(&folder, "train.txt", "\x1b[31m\n");
    let mut ingest = program::ingest(&edges, &folder.path().join("other.grappa"));
    let ran = run(ingest.words("--ids string --train").arg(&listed)).failure(&["\\u{1b}[31m"]);
    assert!(!ran.stderr.contains('\x1b'), "{:?}", ran.stderr);
    // Machine-readable output keeps the bytes.
    let ran = run(command("export").args(["--edges", "-"])).success();
    assert!(ran.stdout.contains("x\t\x1b[2J\n"), "{:?}", ran.stdout);
}

#[test]
fn exported_ids_cannot_act_on_the_terminal_and_keep_their_bytes_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let edges = write(&folder, "edges.tsv", "x\t\x1b[2J\nx\ty\u{9b}m\n");
    let store = folder.path().join("graph.grappa");
    run(program::ingest(&edges, &store).words("--ids string --quiet")).success();
    let mut export = program::command("grappa-store");
    export.arg("export").arg(&store).words("--quiet --edges -");
    let piped = run(&mut export).success().stdout;
    let mut lines: Vec<&str> = piped.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["source\ttarget", "x\t\x1b[2J", "x\ty\u{9b}m"]);

    let mut on_terminal = Command::new("python3");
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    on_terminal.args(["-c", spawn]).arg(export.get_program()).args(export.get_args());
    let shown = match on_terminal.stdin(Stdio::null()).output() {
        Ok(output) => Ran::from(output).success().stdout,
        Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
    };
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    // Terminals turn line ends into CR LF, and may expand tabs.
    let lines: Vec<_> = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines, [["source", "target"], ["x", "\\u{1b}[2J"], ["x", "y\\u{9b}m"]]);
}

/// Runs a command with an address space of `kibibytes`, like a shell's `ulimit -v`.
fn limited(kibibytes: u64, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg(kibibytes.to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .env_remove("RUST_BACKTRACE")
        .arg0("sh");
    shell
}

/// Messages of a process that ends because a thread that has begun gets no memory.
const NO_MEMORY_FOR_A_THREAD: [&str; 2] = [
    "Fatal glibc error: failed to register TLS destructor: out of memory",
    "failed to allocate an alternative stack: Cannot allocate memory",
];

/// Runs a command under limits from too small to start to ample. Each run must succeed, or fail with one line.
#[track_caller]
fn under_limits(what: &str, command: impl Fn(&Path) -> Command, folder: &TempDir) {
    let (mut succeeded, mut refused) = (0, 0);
    for mebibytes in [8, 16, 24, 32, 48, 64, 100, 130, 160, 200, 260, 400, 1000, 6000] {
        let out = folder.path().join("limited.grappa");
        let ran = run_in_time(&mut limited(mebibytes << 10, &command(&out)));
        match ran.code {
            Some(0) => succeeded += 1,
            // The loader or the kernel could not load the program.
            Some(127) | Some(126) => {}
            None if ran.stderr.is_empty() && mebibytes <= 16 => {}
            // glibc and Rust's runtime cannot refuse the few bytes that a new thread takes, and say so.
            _ if NO_MEMORY_FOR_A_THREAD.iter().any(|message| ran.stderr.contains(message)) => refused += 1,
            _ => {
                ran.failure(&[]);
                refused += 1;
            }
        }
        for name in ["limited.grappa", "limited.grappa.partial"] {
            let _ = fs::remove_dir_all(folder.path().join(name));
        }
    }
    assert!(succeeded > 0 && refused > 0, "{what}: {succeeded} succeeded, {refused} were refused");
}

#[test]
fn too_little_memory_is_an_error_and_never_an_abort() {
    let folder = tempfile::tempdir().unwrap();
    let graph = Graph::random(3, 20_000, 200_000, 8);
    let files = graph.write(folder.path());
    under_limits(
        "grappa-ingest",
        |out| {
            let mut command = program::ingest(&files.edges, out);
            files.node_arguments(&mut command);
            command.args(["--threads", "4"]);
            command
        },
        &folder,
    );
    under_limits(
        "grappa-ingest --ids string",
        |out| {
            let mut command = program::ingest(&files.edges, out);
            command.words("--ids string --threads 4");
            command
        },
        &folder,
    );
    under_limits(
        "grappa-gen",
        |out| {
            let mut command = program::command("grappa-gen");
            command.words("rmat --scale 14 --feature-dim 8 --threads 4 --out");
            command.arg(out);
            command
        },
        &folder,
    );
    let store = folder.path().join("store.grappa");
    let mut ingest = program::ingest(&files.edges, &store);
    files.node_arguments(&mut ingest);
    run(&mut ingest).success();
    under_limits(
        "grappa-store sample",
        |_| {
            let mut command = program::command("grappa-store");
            command.arg("sample").arg(&store);
            command.words("--seeds all --fanouts 5,5 --batch 512 --batches 20");
            command
        },
        &folder,
    );
}

#[test]
fn numbers_beyond_all_reason_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let edges = write(&folder, "edges.tsv", "0 1\n1 2\n");
    let out = folder.path().join("out.grappa");
    let refused = |arguments: &[&str], parts: &[&str]| {
        run_in_time(program::ingest(&edges, &out).args(arguments)).failure(parts);
        let mut gen_store = program::command("grappa-gen");
        gen_store.words("rmat --scale 10 --out").arg(&out);
        if arguments[0] == "--threads" {
            run_in_time(gen_store.args(arguments)).failure(parts);
        }
        assert_eq!(names_in(folder.path()), ["edges.tsv"]);
    };
    refused(&["--nodes", "18446744073709551615"], &["--nodes", "1099511627776"]);
    refused(&["--memory", "1"], &["--memory", "at least 1 MiB"]);
    refused(&["--threads", "100000"], &["100000 threads", "--threads 4096"]);
}
