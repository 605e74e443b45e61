//! Ingest: its output, budget, disk and options. And the folders in which its tests run.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{assert_same, files_of, memory_folder, names_in},
    graph::Graph,
    kills::tree_of,
    npy::Npy,
    program::{self, Ran, run},
    random::Random,
};
use tempfile::TempDir;

/// A folder for inputs, and one for stores.
pub struct Bench {
    pub folder: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub fn in_folder(folder: TempDir) -> Self {
        fs::create_dir(folder.path().join("stores")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn npy(&self, name: &str, array: &Npy) -> PathBuf {
        self.write(name, array.encode())
    }

    /// `grappa-ingest --edges EDGES --out stores/out.grappa ARGUMENTS`
    pub fn ingest(&self, edges: &Path, arguments: &[&str]) -> Command {
        let mut command = program::ingest(edges, &self.out());
        command.args(arguments);
        command
    }

    pub fn out(&self) -> PathBuf {
        self.path("stores/out.grappa")
    }

    /// Runs it. It must fail with a line that contains `parts`, and leave nothing behind.
    #[track_caller]
    pub fn refused(&self, edges: &Path, arguments: &[&str], parts: &[&str]) -> Ran {
        let ran = run(&mut self.ingest(edges, arguments)).failure(parts);
        assert_eq!(ran.stdout, "", "a failure has no result");
        assert_eq!(names_in(&self.path("stores")), [""; 0], "left behind: {}", ran.stderr);
        ran
    }

    /// The same, for a file of four edges between four nodes, and a second file that an option names.
    #[track_caller]
    pub fn refused_beside_edges(&self, option: &str, file: &Path, more: &[&str], parts: &[&str]) {
        let edges = self.write("good.tsv", "0 1\n1 2\n2 3\n3 0\n");
        let arguments = [&[option, file.to_str().unwrap()], more].concat();
        self.refused(&edges, &arguments, parts);
    }
}

#[test]
fn an_existing_store_is_untouched() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "0 1\n1 2\n");
    run(&mut bench.ingest(&edges, &[])).success();
    let before = files_of(&bench.out());
    let other = bench.write("other.tsv", "0 5\n");
    let bad = bench.write("bad.tsv", "0 x\n");
    for more in [&[][..], &["--resume"]] {
        run(&mut bench.ingest(&other, more)).failure(&["out.grappa", "exists", "--force"]);
    }
    run(&mut bench.ingest(&bad, &[])).failure(&[]);
    assert_same(&bench.out(), &before, "after three refusals");
    assert_eq!(names_in(&bench.path("stores")), ["out.grappa"]);
    // Anything with the name of the output is kept, even if it is not a store.
    fs::remove_dir_all(bench.out()).unwrap();
    fs::write(bench.out(), "a letter").unwrap();
    run(&mut bench.ingest(&edges, &[])).failure(&["out.grappa", "exists"]);
    assert_eq!(fs::read(bench.out()).unwrap(), b"a letter");
}

#[test]
fn a_budget_that_is_too_small_names_one_that_would_do() {
    let bench = Bench::in_folder(memory_folder());
    let lines: String = (0..100_000).map(|k| format!("{} 5\n", k % 1000)).collect();
    let edges = bench.write("hub.tsv", lines);
    for more in [&["--chunks", "2"][..], &["--chunks", "900"]] {
        let ran = bench.refused(&edges, &[more, &["--memory", "1MiB"]].concat(), &["raise --memory"]);
        let wanted = ran.stderr.split("at least ").nth(1).unwrap();
        let wanted = wanted.split(" is needed").next().unwrap();
        run(&mut bench.ingest(&edges, &[more, &["--memory", wanted]].concat())).success();
        fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn the_list_of_a_hub_fits_the_budget_that_the_refusal_names() {
    let bench = Bench::in_folder(memory_folder());
    let edges = bench.path("parallel.u32");
    fs::write(
        &edges,
        [0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat().repeat(4_000_000),
    )
    .unwrap();
    let ran = bench.refused(
        &edges,
        &["--memory", "8MiB"],
        &["adjacency list of node 1", "raise --memory"],
    );
    let wanted = ran.stderr.split("at least ").nth(1).unwrap();
    let wanted = wanted.split(" MiB is needed").next().unwrap();
    let budget = format!("{wanted}MiB");
    let json = run(&mut bench.ingest(&edges, &["--memory", &budget, "--json"]))
        .success()
        .json();
    // The program and its libraries take some MiB.
    let most = (wanted.parse::<u64>().unwrap() + 24) << 20;
    assert!(json["peak_rss_bytes"].as_u64().unwrap() < most, "{json}");
}

/// The first chunk takes most of the memory to sort, and its buffers are kept. The second one exceeds the memory and is divided.
#[test]
fn a_large_chunk_after_one_that_just_fits_is_sorted_like_with_more_memory() {
    let bench = Bench::in_folder(memory_folder());
    let mut random = Random::new(3);
    let mut edge = |targets: Range<u64>| {
        let target = targets.start + random.below(targets.end - targets.start);
        [random.below(8000) as u32, target as u32]
            .map(u32::to_le_bytes)
            .concat()
    };
    let first = (0..300_000).flat_map(|_| edge(0..1000)).collect::<Vec<_>>();
    let second = (0..1_000_000).flat_map(|_| edge(1000..2000)).collect::<Vec<_>>();
    let edges = bench.write("skewed.u32", [first, second].concat());
    let [least, less, more] = ["8MiB", "12MiB", "1GiB"].map(|memory| {
        let options = [
            "--nodes",
            "8000",
            "--assign",
            "range",
            "--chunks",
            "8",
            "--threads",
            "1",
        ];
        run(&mut bench.ingest(&edges, &[&options[..], &["--memory", memory]].concat())).success();
        let store = tree_of(&bench.out());
        fs::remove_dir_all(bench.out()).unwrap();
        store
    });
    assert!(least == more, "8 MiB");
    assert!(less == more, "12 MiB");
}

#[test]
fn sparse_ids_need_neither_all_of_a_large_budget_nor_many_files_with_a_small_one() {
    let bench = Bench::in_folder(memory_folder());
    let lines: String = (0..20_000).map(|k| format!("{k} {}\n", k + 1)).collect();
    let edges = bench.write("path.tsv", lines);
    let arguments = ["--ids", "sparse", "--threads", "2", "--memory"];
    let ran = bench.refused(&edges, &[&arguments[..], &["1KiB"]].concat(), &["raise --memory"]);
    let wanted = ran.stderr.split("at least ").nth(1).unwrap();
    let wanted = wanted.split(" is needed").next().unwrap();
    for budget in [wanted, "1TiB"] {
        run(&mut bench.ingest(&edges, &[&arguments[..], &[budget]].concat())).success();
        fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn skipped_lines_take_no_memory_however_many_there_are() {
    let bench = Bench::in_folder(memory_folder());
    let lines = 1_000_000;
    let edges = bench.write("bad.tsv", format!("1 2\n{}", "x\n".repeat(lines)));
    let budget = ["--memory", "16MiB", "--threads", "1"];
    let ran = run(&mut bench.ingest(&edges, &[&["--on-bad-line", "skip", "--json"][..], &budget].concat())).success();
    let json = ran.json();
    assert_eq!(json["rejected"], lines);
    // The program and its libraries take some MiB.
    assert!(json["peak_rss_bytes"].as_u64().unwrap() < 40 << 20, "{json}");
    let rejects = fs::read_to_string(bench.path("stores/out.grappa.rejects")).unwrap();
    assert_eq!(rejects.lines().count(), 1 + lines);
    let last = format!("bad.tsv\t:{}\t", lines + 1);
    assert!(rejects.lines().last().unwrap().contains(&last), "{rejects:.200}");
}

#[test]
fn names_of_columns_that_are_read_as_an_edge_or_a_header_are_a_warning() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "u\tv\nv\tw\n");
    for (arguments, edges_read, warned) in [(&[][..], 1, true), (&["--header", "no"], 2, false)] {
        let arguments = [&["--ids", "string", "--json"][..], arguments].concat();
        let ran = run(&mut bench.ingest(&edges, &arguments)).success();
        assert_eq!(ran.json()["edges_read"], edges_read);
        assert_eq!(ran.stderr.contains("edges.tsv:1: "), warned, "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("give --header no"), warned, "{}", ran.stderr);
        fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn rows_belong_to_the_ids_of_a_file_or_a_warning_says_which_order_they_need() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "n2\tn10\nn10\tn1\n");
    let features = bench.npy("features.npy", &Npy::new(&[4, 1], [2.0_f32, 10.0, 1.0, 7.0]));
    let labels = bench.npy("labels.npy", &Npy::new(&[4], [2_i64, 0, 1, 0]));
    let ids = bench.write("ids.txt", "n2\nn10\nn1\nn7\n");
    let [features, labels, ids] = [&features, &labels, &ids].map(|path| path.to_str().unwrap());
    let rows = ["--ids", "string", "--features", features, "--labels", labels];
    let ran = run(&mut bench.ingest(&edges, &[&rows[..], &["--node-ids", ids, "--json"]].concat())).success();
    assert_eq!((ran.json()["nodes"].as_u64(), ran.stderr.as_str()), (Some(4), ""));
    let (exported, classes) = (bench.path("exported.npy"), bench.path("classes.npy"));
    let mut export = program::command("grappa-store");
    export.arg("export").arg(bench.out()).arg("--features").arg(&exported);
    run(export.arg("--labels").arg(&classes)).success();
    // In ascending order of the ids: n1, n10, n2, n7.
    let sorted = [1.0_f32, 10.0, 2.0, 7.0].map(f32::to_le_bytes).concat();
    assert!(fs::read(exported).unwrap().ends_with(&sorted));
    let sorted = [1_i64, 0, 2, 0].map(i64::to_le_bytes).concat();
    assert!(fs::read(classes).unwrap().ends_with(&sorted));
    fs::remove_dir_all(bench.out()).unwrap();

    bench.write("ids.txt", "n2\nn10\nn3\nn7\n");
    let more = [&rows[..], &["--node-ids", ids]].concat();
    bench.refused(
        &edges,
        &more,
        &["ids.txt", "features.npy and", "labels.npy", "for example n1;"],
    );

    // Without the ids, rows are in the order of the bytes of the ids in the edges.
    bench.npy("features.npy", &Npy::new(&[3, 1], [1.0_f32, 10.0, 2.0]));
    bench.npy("labels.npy", &Npy::new(&[3], [1_i64, 0, 2]));
    let ran = run(&mut bench.ingest(&edges, &rows)).success();
    for part in ["features.npy and", "labels.npy", "n10 comes before n2", "--node-ids"] {
        assert!(ran.stderr.contains(part), "expected {part:?} in: {}", ran.stderr);
    }
}

#[test]
fn chunks_that_cannot_be_made_are_refused() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "0 1\n1 2\n");
    bench.refused(&edges, &["--chunks", "4"], &["--chunks 3"]);
}

/// A file system of a few MiB, if this machine permits mounting one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// The error is the reason.
    fn mount(folder: PathBuf, mebibytes: u32) -> Result<Self, String> {
        fs::create_dir(&folder).unwrap();
        let options = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&folder)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(format!(
                "cannot mount a tmpfs: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Err(format!("cannot run mount: {error}")),
        }
    }

    fn grow(&self, mebibytes: u32) {
        let options = format!("remount,size={mebibytes}m");
        let output = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "{} stays mounted",
            self.0.display()
        );
    }
}

#[test]
fn a_full_disk_is_named_and_the_run_goes_on_once_there_is_room() {
    let bench = Bench::new();
    let graph = Graph::random(5, 20_000, 300_000, 24);
    let files = graph.write(bench.folder.path());
    let expected = bench.path("expected.grappa");
    let command = |out: &Path| {
        let mut command = program::ingest(&files.edges, out);
        files.node_arguments(&mut command);
        command.args(["--chunks", "8"]);
        command
    };
    run(&mut command(&expected)).success();
    let expected = files_of(&expected);
    // The disk is full while features are spilled, while they are written, and while edges are spilled.
    for (k, mebibytes) in [1, 3, 4].into_iter().enumerate() {
        let disk = match SmallDisk::mount(bench.path(&format!("disk-{k}")), mebibytes) {
            Ok(disk) => disk,
            Err(why) => grappa_skip::skip!("{why}"),
        };
        let out = disk.0.join("out.grappa");
        let ran = run(&mut command(&out)).failure(&["out.grappa.partial", "No space left on device", "--resume"]);
        assert!(!out.exists(), "{}", ran.stderr);
        // The disk is still full, so it fails again.
        run(command(&out).arg("--resume")).failure(&["No space left on device", "--resume"]);
        disk.grow(64);
        run(command(&out).arg("--resume")).success();
        assert_same(&out, &expected, &format!("{mebibytes} MiB at first"));
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "0 1\n");
    let out = bench.out();
    let misused = |arguments: &[&str], parts: &[&str]| {
        run(&mut bench.ingest(&edges, arguments)).misuse(parts);
        assert_eq!(names_in(&bench.path("stores")), [""; 0], "{arguments:?}");
    };
    run(&mut program::command("grappa-ingest")).misuse(&["--edges", "--out"]);
    run(program::command("grappa-ingest").arg("--out").arg(&out)).misuse(&["--edges"]);
    run(program::command("grappa-ingest").arg("--edges").arg(&edges)).misuse(&["--out"]);
    misused(&["--edge", "x"], &["--edges"]);
    misused(&["--memory", "lots"], &["lots", "--memory"]);
    misused(&["--memory", "-1"], &["-1"]);
    misused(&["--chunks", "0"], &["--chunks"]);
    misused(&["--threads", "0"], &["--threads"]);
    misused(&["--nodes", "-4"], &["-4"]);
    misused(&["--format", "xml"], &["xml", "parquet"]);
    misused(&["--ids", "names"], &["names", "string"]);
    misused(&["--self-loops", "maybe"], &["maybe", "keep"]);
    misused(&["--assign", "metis"], &["metis", "range"]);
    misused(&["--feature-dtype", "f64"], &["f64", "bf16"]);
    misused(&["--ogb", "folder"], &["--ogb"]);
    let ogb = ["--ogb", "folder", "--node-ids", "ids.txt", "--out", "x.grappa"];
    run(program::command("grappa-ingest").args(ogb)).misuse(&["--ogb", "--node-ids"]);
    run(program::command("grappa-ingest").arg("--help")).success();
    run(program::command("grappa-ingest").arg("--version")).success();
}

#[test]
fn the_result_is_one_json_object_and_progress_is_silent_off_a_terminal() {
    let bench = Bench::new();
    let lines: String = (0..50_000).map(|k| format!("{} {}\n", k % 1000, k % 777)).collect();
    let edges = bench.write("edges.tsv", lines);
    let ran = run(&mut bench.ingest(&edges, &["--json", "--chunks", "3"])).success();
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
    let json = ran.json();
    let mut found: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = [
        "nodes",
        "edges",
        "edges_read",
        "rejected",
        "seconds",
        "edges_per_second",
        "peak_rss_bytes",
        "bytes_on_disk",
        "chunks",
        "chunks_present",
        "inputs",
        "feature_names",
        "class_names",
    ];
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
    let number = |key: &str| json[key].as_u64().unwrap();
    assert_eq!(number("nodes"), 1000);
    assert_eq!(
        (number("edges"), number("edges_read"), number("rejected")),
        (50_000, 50_000, 0)
    );
    assert_eq!((number("chunks"), number("chunks_present")), (3, 3));
    let on_disk: u64 = files_of(&bench.out()).values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(number("bytes_on_disk"), on_disk);
    assert!(json["seconds"].as_f64().unwrap() > 0.0 && number("peak_rss_bytes") > 1 << 20);

    fs::remove_dir_all(bench.out()).unwrap();
    let ran = run(&mut bench.ingest(&edges, &[])).success();
    assert_eq!(
        (ran.stderr.as_str(), ran.stdout.lines().count()),
        ("", 2),
        "{}",
        ran.stdout
    );
    fs::remove_dir_all(bench.out()).unwrap();
    let ran = run(&mut bench.ingest(&edges, &["--quiet"])).success();
    assert_eq!((ran.stderr.as_str(), ran.stdout.as_str()), ("", ""));
    fs::remove_dir_all(bench.out()).unwrap();
    let ran = run(&mut bench.ingest(&edges, &["--quiet", "--json"])).success();
    assert_eq!(ran.json()["nodes"], 1000);
}
