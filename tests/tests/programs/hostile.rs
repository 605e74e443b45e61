//! Inputs and limits that could make a program wait forever, fill the disk, control the terminal, or abort. Each is an
//! immediate error of one line, and nothing is left behind.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grappa_tests::{
    folder::ProgramFolder,
    graph::{Graph, NODE_FILES},
    npy::Npy,
    program::{self, Ran, run, started_by},
};

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

/// Runs a line that must end by itself.
#[track_caller]
fn try_line(folder: &ProgramFolder, line: &str) -> Ran {
    run_in_time(&mut folder.command(line))
}

/// A folder with the edges of two nodes.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 2\n");
    folder
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn pipes_and_devices_are_refused_at_once_wherever_a_file_is_named() {
    let folder = folder();
    make_pipe(&folder.path("pipe"));
    let ingest = |options: &str| folder.command(&format!("ingest {options} --out out.grappa"));
    for option in
        ["--weights ", "--features ", "--labels ", "--train ", "--val ", "--test ", "--assign file:", "--edges "]
    {
        let edges = if option == "--edges " { "" } else { "--edges edges.tsv" };
        let ran = run_in_time(&mut ingest(&format!("{edges} {option}pipe")));
        ran.failure(&["pipe: this is a pipe", "save it to a file"]);
    }
    run_in_time(&mut ingest("--edges /dev/zero")).failure(&["/dev/zero: this is a device"]);
    // A pipe with a writer is refused too.
    let mut from_stdin = ingest("--edges /dev/stdin");
    let refused = run_in_time(from_stdin.stdin(Stdio::piped()));
    refused.failure(&["/dev/stdin: this is a pipe", "save it to a file"]);
    assert_eq!(folder.names(), ["edges.tsv", "pipe"]);
    // A redirected file is accepted.
    run_in_time(from_stdin.stdin(File::open(folder.path("edges.tsv")).unwrap())).success();

    for (line, part) in [
        ("sample out.grappa --fanouts 2 --batch 1 --batches 1 --seeds pipe", "this is a pipe"),
        ("plan --nodes 10 --edges 10 --rates pipe", "this is a pipe"),
        ("plan --nodes 10 --edges 10 --rates /dev/zero", "this is a device"),
        ("info pipe", "pipe: this is a file"),
    ] {
        try_line(&folder, &format!("store {line}")).failure(&[part]);
    }
}

#[test]
fn a_pipe_in_place_of_a_file_of_a_store_is_refused_at_once() {
    let folder = folder();
    folder.success("ingest --edges edges.tsv --out out.grappa");
    for name in ["manifest", "assignments/CURRENT", "assignments/0", "chunk-0/edges", "chunk-0/degrees"] {
        let (file, kept) = (folder.path("out.grappa").join(name), folder.path("kept"));
        fs::rename(&file, &kept).unwrap();
        make_pipe(&file);
        for verb in ["info", "verify"] {
            let ran = try_line(&folder, &format!("store {verb} out.grappa"));
            assert_eq!(ran.code, Some(1), "{verb} with {name}: {}", ran.stdout);
            assert!((ran.stdout + &ran.stderr).contains("this is a pipe"), "{verb} with {name}");
        }
        fs::remove_file(&file).unwrap();
        fs::rename(&kept, &file).unwrap();
    }
}

#[test]
fn one_stray_dense_id_is_named_before_anything_is_written() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "# two\n0 1\n0\t50000000000\n3 2\n");
    folder.write("edges.npy", Npy::new(&[3, 2], [0i64, 1, 50_000_000_000, 2, 1, 0]).encode());
    for (edges, place) in [("edges.tsv", "edges.tsv:3: "), ("edges.npy", "edges.npy at row 1: ")] {
        let parts = [place, "50000000001 nodes for 3 edges", "--ids sparse", "--nodes 50000000001"];
        try_line(&folder, &format!("ingest --edges {edges} --threads 2 --out out.grappa")).failure(&parts);
        assert_eq!(folder.names(), ["edges.npy", "edges.tsv"]);
    }
    // The proposed option works. A few million nodes without edges are plausible.
    folder.write("sparse.tsv", "0 1\n0 1000000\n");
    for (edges, nodes) in [("edges.tsv --ids sparse", 5), ("sparse.tsv", 1_000_001)] {
        let ran = try_line(&folder, &format!("ingest --edges {edges} --json --out out.grappa --force"));
        assert_eq!(ran.success().json()["nodes"], nodes);
    }
}

#[test]
fn many_nodes_without_edges_are_made_if_they_are_asked_for() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 17000000\n");
    let ingest = "ingest --edges edges.tsv --json --out out.grappa";
    try_line(&folder, ingest).failure(&["edges.tsv:1: ", "--nodes 17000001"]);
    let ran = try_line(&folder, &format!("{ingest} --nodes 17000001")).success();
    assert_eq!(ran.json()["nodes"], 17_000_001);
}

#[test]
fn names_and_input_cannot_act_on_the_terminal() {
    let folder = ProgramFolder::new();
    let hostile = "a\x1b]0;owned\x07\nb";
    let shown = "a\\u{1b}]0;owned\\u{7}\\nb";
    let safe = |ran: &Ran| {
        let all = ran.stdout.clone() + &ran.stderr;
        assert!(!all.contains(['\x1b', '\x07']), "{all:?}");
        assert!(all.contains(shown), "{all:?}");
    };
    let out = folder.path(&format!("{hostile}.grappa"));
    let ingest = || program::ingest(&folder.path(hostile), &out);
    safe(&run(&mut ingest()).failure(&["No such file"]));
    folder.write(hostile, "0 1\n1 \x1b]0;owned\x07\n");
    safe(&run(&mut ingest()).failure(&[":2: ", "\"1 \\u{1b}]0;owned\\u{7}\""]));
    // In a string id.
    let edges = folder.write("edges.tsv", "x \x1b[2J\n\x1b[2J y\n");
    safe(&run(program::ingest(&edges, &out).args(["--ids", "string"])).success());
    let store = |verb: &str, options: &str| run(folder.command(&format!("store {verb} {options}")).arg(&out));
    safe(&store("info", "").success());
    safe(&store("verify", "").success());
    folder.write("ids.txt", "\x1b[31m\n");
    let ran = store("sample", "--fanouts 2 --batch 1 --batches 1 --seeds ids.txt");
    safe(&ran.failure(&["no node of", "has the id \\u{1b}[31m"]));
    let listed = folder.run("ingest --edges edges.tsv --ids string --train ids.txt --out other.grappa");
    let ran = listed.failure(&["\\u{1b}[31m"]);
    assert!(!ran.stderr.contains('\x1b'), "{:?}", ran.stderr);
    // Machine-readable output keeps the bytes.
    let ran = store("export", "--edges -").success();
    assert!(ran.stdout.contains("x\t\x1b[2J\n"), "{:?}", ran.stdout);
}

#[test]
fn exported_ids_cannot_act_on_the_terminal_and_keep_their_bytes_in_a_pipe() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "x\t\x1b[2J\nx\ty\u{9b}m\n");
    folder.success("ingest --edges edges.tsv --ids string --quiet --out graph.grappa");
    let mut export = folder.command("store export graph.grappa --quiet --edges -");
    let piped = run(&mut export).success().stdout;
    let mut lines: Vec<&str> = piped.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["source\ttarget", "x\t\x1b[2J", "x\ty\u{9b}m"]);

    let mut python = Command::new("python3");
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    python.args(["-c", spawn]);
    let shown = match started_by(python, &export).output() {
        Ok(output) => Ran::from(output).success().stdout,
        Err(error) => grappa_skip::skip!("cannot run python3: {error}"),
    };
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    // Terminals turn line ends into CR LF, and may expand tabs.
    let lines: Vec<_> = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines, [["source", "target"], ["x", "\\u{1b}[2J"], ["x", "y\\u{9b}m"]]);
}

/// Messages of a process that ends because a thread that has begun gets no memory.
const NO_MEMORY_FOR_A_THREAD: [&str; 2] = [
    "Fatal glibc error: failed to register TLS destructor: out of memory",
    "failed to allocate an alternative stack: Cannot allocate memory",
];

#[test]
fn too_little_memory_is_an_error_and_never_an_abort() {
    let folder = ProgramFolder::new();
    Graph::random(3, 20_000, 200_000, 8).write(folder.root());
    folder.success(&format!("ingest --edges edges.tsv {NODE_FILES} --out store.grappa"));
    for line in [
        &*format!("ingest --edges edges.tsv {NODE_FILES} --threads 4 --out limited.grappa"),
        "ingest --edges edges.tsv --ids string --threads 4 --out limited.grappa",
        "gen rmat --scale 14 --feature-dim 8 --threads 4 --out limited.grappa",
        "store sample store.grappa --seeds all --fanouts 5,5 --batch 512 --batches 20",
    ] {
        // Address spaces from too small to start to ample. Each run must succeed, or fail with one line.
        let (mut succeeded, mut refused) = (0, 0);
        for mebibytes in [8, 16, 24, 32, 48, 64, 100, 130, 160, 200, 260, 400, 1000, 6000] {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -v {} && exec \"$@\"", mebibytes << 10), "sh"]);
            let ran = run_in_time(&mut started_by(shell, &folder.command(line)));
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
                let _ = fs::remove_dir_all(folder.path(name));
            }
        }
        assert!(succeeded > 0 && refused > 0, "{line}: {succeeded} succeeded, {refused} were refused");
    }
}

#[test]
fn numbers_beyond_all_reason_are_refused() {
    let folder = folder();
    for (options, parts) in [
        ("--nodes 18446744073709551615", ["--nodes", "1099511627776"]),
        ("--memory 1", ["--memory", "at least 1 MiB"]),
        ("--threads 100000", ["100000 threads", "--threads 4096"]),
    ] {
        try_line(&folder, &format!("ingest --edges edges.tsv --out out.grappa {options}")).failure(&parts);
        if options.starts_with("--threads") {
            try_line(&folder, &format!("gen rmat --scale 10 --out out.grappa {options}")).failure(&parts);
        }
        assert_eq!(folder.names(), ["edges.tsv"]);
    }
}
