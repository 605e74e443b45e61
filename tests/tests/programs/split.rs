//! Random splits: `grappa-ingest --split`, what `info` and `plan` say about it, and options that contradict it.

use std::{fs, ops::Range, path::PathBuf};

use grappa_tests::{
    files::names_in,
    program::{self, Ran, command, run},
};
use tempfile::TempDir;

/// 200 nodes of two large classes, and a class with one node.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let edges: String = (0..200).map(|node| format!("{node} {}\n", (node + 1) % 200)).collect();
        let label = |node| if node == 17 { 2 } else { node % 2 };
        let labels: String = (0..200).map(|node| format!("{}\n", label(node))).collect();
        let sets: String = (0..200)
            .map(|node| format!("{} {} 0\n", node % 2, node % 3 / 2))
            .collect();
        fs::write(bench.at("edges.tsv"), edges).unwrap();
        fs::write(bench.at("labels.txt"), labels).unwrap();
        fs::write(bench.at("sets.txt"), sets).unwrap();
        fs::write(bench.at("ids.txt"), "1\n2\n").unwrap();
        fs::create_dir(bench.at("stores")).unwrap();
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ingest(&self, arguments: &[&str]) -> Ran {
        let mut command = program::ingest(&self.at("edges.tsv"), &self.at("stores/out.grappa"));
        run(command.current_dir(self.folder.path()).args(arguments))
    }

    fn made(&self, arguments: &[&str]) -> Ran {
        let _ = fs::remove_dir_all(self.at("stores/out.grappa"));
        self.ingest(arguments).success()
    }

    fn info(&self) -> Ran {
        run(command("grappa-store")
            .args(["info", "--json"])
            .arg(self.at("stores/out.grappa")))
        .success()
    }
}

#[test]
fn info_shows_the_split_and_how_it_was_drawn() {
    let bench = Bench::new();
    bench.made(&["--split", "60/20/20"]);
    let info = bench.info().json();
    assert_eq!(info["splits"], serde_json::json!({"train": 120, "val": 40, "test": 40}));
    assert_eq!(info["random_split"], "60/20/20, seed 0");
    bench.made(&[
        "--labels",
        "labels.txt",
        "--split",
        "50/25/25",
        "--split-seed",
        "9",
        "--stratify",
    ]);
    assert_eq!(bench.info().json()["random_split"], "50/25/25, seed 9, stratified");
    let text = run(command("grappa-store").arg("info").arg(bench.at("stores/out.grappa"))).success();
    assert!(
        text.stdout.contains("(random, 50/25/25, seed 9, stratified)"),
        "{}",
        text.stdout
    );
    bench.made(&["--train", "ids.txt"]);
    assert!(bench.info().json()["random_split"].is_null());
}

#[test]
fn a_class_without_training_nodes_is_a_warning() {
    let bench = Bench::new();
    let labels = ["--labels", "labels.txt"];
    for (arguments, parts) in [
        (
            &["--split", "40/30/30", "--stratify"][..],
            ["class 2", "give train a larger share"],
        ),
        (&["--train", "ids.txt"], ["class 2", "--train"]),
    ] {
        let ran = bench.made(&[&labels[..], arguments].concat());
        let warning = ran
            .stderr
            .lines()
            .find(|line| line.contains("no training node"))
            .unwrap_or_else(|| panic!("{}", ran.stderr));
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
    }
    let ran = bench.made(&[&labels[..], &["--split", "60/20/20", "--stratify"]].concat());
    assert!(!ran.stderr.contains("no training node"), "{}", ran.stderr);
    // In sets of classes, the third class has no node at all. That is not the split's doing.
    let ran = bench.made(&["--labels", "sets.txt", "--split", "60/20/20"]);
    assert!(!ran.stderr.contains("no training node"), "{}", ran.stderr);
}

/// With 1 MiB, the check takes 2^17 classes at a time.
#[test]
fn classes_without_training_nodes_are_found_however_many_there_are() {
    let bench = Bench::new();
    let nodes = 80_000;
    let edges: String = (0..nodes)
        .map(|node| format!("{node} {}\n", (node + 1) % nodes))
        .collect();
    let class = |node| match node {
        10 => 7,
        11 => 140_000,
        _ => node % 2,
    };
    let labels: String = (0..nodes).map(|node| format!("{}\n", class(node))).collect();
    fs::write(bench.at("edges.tsv"), edges).unwrap();
    fs::write(bench.at("labels.txt"), labels).unwrap();
    let budget = ["--memory", "1MiB", "--threads", "1"];
    let ran = bench.made(&[&["--labels", "labels.txt", "--train", "ids.txt"][..], &budget].concat());
    assert!(
        ran.stderr.contains("no training node has classes 7, 140000: 2 of"),
        "{}",
        ran.stderr
    );
}

#[test]
fn contradictions_name_both_options_and_the_remedy() {
    let bench = Bench::new();
    for file in ["--train", "--val", "--test"] {
        bench
            .ingest(&["--split", "60/20/20", file, "ids.txt"])
            .misuse(&["--split", file]);
    }
    bench
        .ingest(&["--split", "60/20/30"])
        .misuse(&["--split", "add up to 110 percent", "give 60/20/20"]);
    bench
        .ingest(&["--split", "0.6/0.2/0.2"])
        .misuse(&["add up to 1 percent", "give 60/20/20"]);
    bench
        .ingest(&["--split", "60"])
        .misuse(&["TRAIN/VAL/TEST in percent, such as 60/20/20"]);
    bench.ingest(&["--stratify"]).misuse(&["--split"]);
    bench.ingest(&["--split-seed", "3"]).misuse(&["--split"]);
    bench
        .ingest(&["--split", "60/20/20", "--stratify"])
        .failure(&["--stratify needs labels", "--labels"]);
    bench
        .ingest(&["--split", "60/20/20", "--stratify", "--labels", "sets.txt"])
        .failure(&["one class per node", "sets.txt", "omit --stratify"]);
    bench
        .ingest(&["--split", "0.1/49.9/50"])
        .failure(&["200 nodes into 0.1/49.9/50 leaves none for train", "a larger share"]);
    assert_eq!(names_in(&bench.at("stores")), [""; 0]);
}

#[test]
fn nodes_of_a_split_without_a_label_are_a_warning() {
    let bench = Bench::new();
    let label = |node| if node % 50 == 7 { "-1\n" } else { "1\n" };
    let ids = |ids: Range<u32>| ids.map(|id| format!("{id}\n")).collect();
    for (name, lines) in [
        ("some.txt", (0..200).map(label).collect()),
        ("train.txt", ids(0..100)),
        ("val.txt", ids(100..107)),
        ("test.txt", ids(150..200)),
    ] {
        let lines: String = lines;
        fs::write(bench.at(name), lines).unwrap();
    }
    let splits = ["--train", "train.txt", "--val", "val.txt", "--test", "test.txt"];
    let ran = bench.made(&[&["--nodes", "200", "--labels", "some.txt"][..], &splits].concat());
    let warned = |text: &str| ran.stderr.contains(text);
    assert!(
        warned("train.txt: 2 of 100 nodes have no label, for example "),
        "{}",
        ran.stderr
    );
    assert!(
        warned("training stops when it meets one; leave them out"),
        "{}",
        ran.stderr
    );
    assert!(
        warned("test.txt: 1 of 50 nodes have no label, for example 157: scores are"),
        "{}",
        ran.stderr
    );
    assert!(!warned("val.txt"), "{}", ran.stderr);
}

#[test]
fn the_split_of_a_dataset_is_used_or_replaced_or_missed() {
    let bench = Bench::new();
    let ogb = bench.at("ogb");
    for folder in ["raw", "split/random"] {
        fs::create_dir_all(ogb.join(folder)).unwrap();
    }
    fs::write(ogb.join("raw/edge.csv"), "0,1\n1,2\n2,0\n").unwrap();
    fs::write(ogb.join("raw/num-node-list.csv"), "3\n").unwrap();
    let ingest = |more: &[&str]| {
        let mut ingest = command("grappa-ingest");
        let store = bench.at("stores/ogb.grappa");
        ingest.arg("--out").arg(&store).arg("--ogb").arg(&ogb);
        let ran = run(ingest.args(more));
        let _ = fs::remove_dir_all(store);
        ran
    };
    let replaced = "--split 40/30/30 replaces the split";
    let random = ["--split", "40/30/30"];
    let missed = ingest(&[]).success().stderr;
    assert!(missed.contains("the store has no splits; give --split"), "{missed}");
    let pickled = ogb.join("split/random/split_dict.pt");
    fs::write(&pickled, "").unwrap();
    ingest(&[]).failure(&["split/random/split_dict.pt", "torch.load(sys.argv[1]", "--split"]);
    assert!(ingest(&random).success().stderr.contains(replaced));
    for name in ["train", "valid", "test"] {
        fs::write(
            ogb.join(format!("split/random/{name}.csv")),
            if name == "train" { "1\n" } else { "0\n" },
        )
        .unwrap();
    }
    fs::write(ogb.join("split/random/valid.csv"), "2\n").unwrap();
    assert_eq!(ingest(&[]).success().stderr, "");
    let ran = ingest(&random).success();
    assert!(ran.stderr.contains(replaced), "{}", ran.stderr);
}

#[test]
fn nodes_beyond_the_shares_are_in_no_split() {
    let bench = Bench::new();
    let labels = bench.at("labels.txt");
    let labels = labels.to_str().unwrap();
    for (more, expected) in [
        (&[][..], [20, 2, 4]),
        // Of 99 or 100 nodes of a class, and one node of another.
        (&["--stratify", "--labels", labels], [20, 2, 4]),
    ] {
        bench.made(&[&["--nodes", "200", "--split", "10/1/2"], more].concat());
        let info = bench.info().json();
        let nodes = ["train", "val", "test"].map(|name| info["splits"][name].as_u64().unwrap());
        assert_eq!(nodes, expected);
    }
}

/// The plan of a split must be within 5 % of its files.
#[test]
fn a_plan_counts_the_split() {
    let bench = Bench::new();
    for (nodes, shares) in [("100000", "60/20/20"), ("300000", "1/1/98")] {
        bench.made(&["--nodes", nodes, "--split", shares]);
        let made = bench.info().json()["bytes"]["splits"].as_f64().unwrap();
        let plan = ["plan", "--json", "--nodes", nodes, "--edges", "200", "--split", shares];
        let plan = run(command("grappa-store").args(plan)).success().json();
        let planned = plan["bytes"]["splits"].as_f64().unwrap();
        assert!((planned - made).abs() <= made / 20.0, "{planned} planned, {made} made");
    }
    let plan = [
        "plan", "--nodes", "1G", "--edges", "200", "--memory", "300MiB", "--split", "60/20/20",
    ];
    run(command("grappa-store").args(plan)).failure(&["a split of 1000000000 nodes", "at least 358 MiB"]);
}
