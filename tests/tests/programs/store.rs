//! Tests of `grappa-store info`, `export` and `plan` on sound stores. Damaged stores are in `damage`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{assert_same, files_of, memory_folder},
    npy::Npy,
    program::{self, command, run},
};
use serde_json::json;
use tempfile::TempDir;

/// A small store with features, labels and splits, and its input.
struct Sample {
    folder: TempDir,
}

const NODES: u64 = 300;

impl Sample {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sample = Self { folder };
        let edges: String = (0..3000u64)
            .map(|i| format!("{}\t{}\n", i * i % 299, i * 17 % 300))
            .collect();
        fs::write(sample.at("edges.tsv"), edges).unwrap();
        let features: String = (0..NODES).map(|i| format!("{},{},{}\n", i, i * 2, i % 7)).collect();
        fs::write(sample.at("features.csv"), features).unwrap();
        let labels: String = (0..NODES).map(|i| format!("{}\n", i % 5)).collect();
        fs::write(sample.at("labels.csv"), labels).unwrap();
        for (name, start) in [("train", 0), ("val", 100)] {
            let ids: String = (start..start + 50).map(|i| format!("{i}\n")).collect();
            fs::write(sample.at(name), ids).unwrap();
        }
        sample.ingest(
            "sample.grappa",
            ["edges.tsv", "features.csv", "labels.csv", "train", "val"],
        );
        sample
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.at("sample.grappa")
    }

    fn ingest(&self, out: &str, [edges, features, labels, train, val]: [&str; 5]) {
        run(command("grappa-ingest")
            .current_dir(self.folder.path())
            .args([
                "--out",
                out,
                "--edges",
                edges,
                "--features",
                features,
                "--labels",
                labels,
            ])
            .args([
                "--train", train, "--val", val, "--nodes", "300", "--chunks", "5", "--quiet",
            ]))
        .success();
    }
}

/// `grappa-store COMMAND STORE`.
fn of_store(name: &str, store: &Path) -> Command {
    let mut command = command("grappa-store");
    command.arg(name).arg(store);
    command
}

#[test]
fn a_sound_store_is_said_to_be() {
    let sample = Sample::new();
    let report = run(of_store("verify", &sample.store()).arg("--json")).success().json();
    assert_eq!((&report["ok"], &report["problems"]), (&json!(true), &json!([])));
    assert_eq!(report["files"], files_of(&sample.store()).len());
    let text = run(&mut of_store("verify", &sample.store())).success().stdout;
    assert!(text.contains("sample.grappa: no problems; "), "{text}");
}

#[test]
fn info_tells_people_and_programs_the_same() {
    let sample = Sample::new();
    let object = run(of_store("info", &sample.store()).arg("--json")).success().json();
    assert_eq!(
        (&object["nodes"], &object["edges"], &object["chunks"]),
        (&json!(300), &json!(3000), &json!(5))
    );
    assert_eq!(object["features"]["dim"], 3);
    assert_eq!(object["features"]["dtype"], "f32");
    assert_eq!(object["features"]["bytes"], object["bytes"]["features"]);
    assert_eq!(object["splits"], json!({"train": 50, "val": 50, "test": null}));
    assert_eq!((&object["classes"], &object["generation"]), (&json!(5), &json!(0)));
    let buckets = object["degree_histogram"].as_array().unwrap();
    assert_eq!(
        buckets
            .iter()
            .map(|bucket| bucket["nodes"].as_u64().unwrap())
            .sum::<u64>(),
        NODES
    );
    let lengths: usize = files_of(&sample.store()).values().map(Vec::len).sum();
    assert_eq!(object["bytes"]["total"], lengths);

    let text = run(&mut of_store("info", &sample.store())).success().stdout;
    for line in [
        "  nodes          300\n",
        "  edges          3000\n",
        "  features       3 x f32\n",
        "  splits         train 50, val 50\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn exported_and_reingested_stores_are_equal() {
    let sample = Sample::new();
    let expected = files_of(&sample.store());
    for edges in ["again.tsv", "again.csv", "again.npy"] {
        let of = |name: &str| format!("{edges}.{name}");
        let [x, y, train, val] = ["x.npy", "y.npy", "train.npy", "val.npy"].map(of);
        run(of_store("export", &sample.store())
            .current_dir(sample.folder.path())
            .args(["--edges", edges, "--features", &x, "--labels", &y])
            .args(["--split", "train", &train, "--split", "val", &val]))
        .success();
        sample.ingest(&of("grappa"), [edges, &x, &y, &train, &val]);
        assert_same(&sample.at(&of("grappa")), &expected, edges);
    }
}

#[test]
fn edges_go_to_stdout_and_an_export_needs_something_to_export() {
    let sample = Sample::new();
    let export = || of_store("export", &sample.store());
    let text = run(export().args(["--edges", "-"])).success().stdout;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort();
    let input = fs::read_to_string(sample.at("edges.tsv")).unwrap();
    let mut expected: Vec<_> = input.lines().collect();
    expected.sort();
    assert_eq!(lines, expected);

    run(&mut export()).misuse(&["--edges"]);
    run(export().arg("--edges").arg(sample.at("edges.tsv"))).failure(&["edges.tsv exists"]);
    run(export().args(["--weights", "w.npy"])).failure(&["no weights"]);
    run(export().args(["--edges", "-", "--labels", "y.npy"])).failure(&["stdout"]);

    // Nothing is written if a part of the request is impossible.
    for (impossible, why) in [
        (&["--split", "tests", "t.npy"][..], "no split \"tests\""),
        (&["--weights", "w.npy"], "no weights"),
        (&["--labels", "edges.tsv"], ".npy"),
    ] {
        let ran = export()
            .current_dir(sample.folder.path())
            .args(["--edges", "all.csv"])
            .args(impossible)
            .output();
        let stderr = String::from_utf8(ran.unwrap().stderr).unwrap();
        assert!(stderr.contains(why), "{stderr}");
        assert!(!sample.at("all.csv").exists());
    }

    // A file that is not what its name says.
    for (option, file) in [("--edges", "e.feather"), ("--features", "x.tsv"), ("--ids", "ids.npz")] {
        run(export().arg(option).arg(sample.at(file))).failure(&[file, ".npy"]);
        assert!(!sample.at(file).exists());
    }
    run(export().args(["--split", "train"]).arg(sample.at("t.gz"))).failure(&["t.gz", ".txt"]);
}

/// The ids of all nodes, and of a split, as integers or as text, whatever the name asks for.
#[test]
fn ids_are_exported_as_arrays_and_as_lines() {
    let sample = Sample::new();
    let at = |name: &str| sample.at(name);
    run(of_store("export", &sample.store())
        .arg("--ids")
        .arg(at("ids.txt"))
        .args(["--split", "train"])
        .arg(at("train-2.txt")))
    .success();
    run(of_store("export", &sample.store()).arg("--ids").arg(at("ids.npy"))).success();
    let lines = |name: &str| -> Vec<u64> {
        let text = fs::read_to_string(at(name)).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let ids = lines("ids.txt");
    assert_eq!(ids, (0..ids.len() as u64).collect::<Vec<_>>());
    let train = lines("train-2.txt");
    assert_eq!(train.len(), 50);
    assert!(train.is_sorted() && train.iter().all(|id| ids.contains(id)));
    let array = fs::read(at("ids.npy")).unwrap();
    let of_array: Vec<u64> = array[array.len() - 8 * ids.len()..]
        .as_chunks()
        .0
        .iter()
        .map(|id| u64::from_le_bytes(*id))
        .collect();
    assert_eq!(of_array, ids);
}

/// Each part of the plan must be within 25 % of the store.
#[test]
fn plans_agree_with_stores() {
    let folder = memory_folder();
    let made = |name: &str, model: &str, more: &[&str]| {
        let store = folder.path().join(name);
        run(command("grappa-gen")
            .args([model, "--edge-factor", "16", "--seed", "1", "--out"])
            .arg(&store)
            .args(more))
        .success();
        run(of_store("info", &store).arg("--json")).success().json()
    };
    let features = ["--feature-dim", "100", "--feature-dtype", "f16"];
    let rmat = made("rmat", "rmat", &[&["--scale", "16"][..], &features].concat());
    let er = made("er", "er", &["--nodes", "50000", "--chunks", "7"]);
    for (store, more) in [
        (&rmat, ["--dim", "100", "--dtype", "f16"].as_slice()),
        (&er, ["--degrees", "even", "--chunks", "7"].as_slice()),
    ] {
        let (nodes, edges) = (store["nodes"].to_string(), store["edges"].to_string());
        let plan = run(command("grappa-store")
            .args(["plan", "--json", "--nodes", &nodes, "--edges", &edges])
            .args(more));
        let plan = plan.success().json();
        assert_eq!(plan["chunks"], store["chunks"]);
        for part in ["edges", "degrees", "features", "other", "total"] {
            let [planned, made] = [&plan, store].map(|object| object["bytes"][part].as_f64().unwrap());
            assert!(
                (planned - made).abs() <= made / 4.0,
                "{part}: {planned} planned, {made} made"
            );
        }
    }
}

#[test]
fn a_plan_says_what_it_takes_for_granted() {
    let plan = || {
        let mut command = command("grappa-store");
        command.args([
            "plan", "--nodes", "1G", "--edges", "16G", "--dim", "128", "--dtype", "f16",
        ]);
        command
    };
    let text = run(plan().args(["--disk-bandwidth", "1.4GB/s", "--threads", "2", "--free-memory", "8GiB"]))
        .success()
        .stdout;
    for part in [
        "chunks         238\n",
        "ingest",
        "super-epoch",
        "as skewed as in R-MAT",
        "1.3 GiB/s; 2 threads",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    run(plan().args(["--memory", "1MiB"])).failure(&["at least ", "--memory"]);
    run(plan().args(["--disk-bandwidth", "0"])).misuse(&["more than 0 bytes per second"]);
    run(command("grappa-store").args(["plan", "--edges", "1", "--nodes", "many"])).misuse(&["2.5M"]);
}

/// Ids that are not dense are exported unchanged, and ingested in the same node order.
#[test]
fn scattered_and_named_nodes_survive_a_round_trip() {
    let folder = memory_folder();
    let at = |name: &str| folder.path().join(name);
    let scattered: String = (1..2000u64)
        .map(|i| format!("{}\t{}\n", i * i % 997 * 1_000_003, (i % 89) << 41))
        .collect();
    fs::write(at("scattered.tsv"), scattered).unwrap();
    let names = |i: u64| {
        ["plain", "with blank", "a,b", "say \"a\"", "#5", "größe"][i as usize % 6].to_owned() + &(i / 6).to_string()
    };
    let quoted = |name: String| format!("\"{}\"", name.replace('"', "\"\""));
    let named: String = (0..500)
        .map(|i| format!("{},{}\n", quoted(names(i % 83)), quoted(names(i * i % 101))))
        .collect();
    fs::write(at("named.csv"), named).unwrap();
    for (ids, input, outputs) in [
        (
            "sparse",
            "scattered.tsv",
            &["scattered-2.tsv", "scattered-2.csv", "scattered-2.npy"][..],
        ),
        ("string", "named.csv", &["named-2.csv"][..]),
    ] {
        let ingest = |edges: &str| {
            let out = at(&format!("{edges}.grappa"));
            let mut ingest = program::ingest(&at(edges), &out);
            run(ingest
                .args(["--ids", ids, "--chunks", "3", "--train"])
                .arg(at(&format!("{ids}.train"))))
            .success();
            out
        };
        let first_ids: Vec<String> = match ids {
            "sparse" => (1..9u64).map(|i| (i << 41).to_string()).collect(),
            _ => [0, 1, 2, 3, 5].map(names).to_vec(),
        };
        fs::write(at(&format!("{ids}.train")), first_ids.join("\n")).unwrap();
        let store = ingest(input);
        let expected = files_of(&store);
        for output in outputs {
            run(of_store("export", &store).arg("--edges").arg(at(output))).success();
            assert_same(&ingest(output), &expected, output);
        }
        let split = at(&format!("{ids}.train-2{}", if ids == "sparse" { ".npy" } else { "" }));
        run(of_store("export", &store).args(["--split", "train"]).arg(&split)).success();
        if ids == "string" {
            let mut lines = first_ids;
            lines.sort();
            assert_eq!(fs::read_to_string(&split).unwrap(), lines.join("\n") + "\n");
        }
    }
    let store = at("named.csv.grappa");
    run(of_store("export", &store).arg("--edges").arg(at("named.tsv"))).success();
    run(of_store("export", &store).arg("--edges").arg(at("named.npy"))).failure(&["ids are strings"]);
}

#[test]
fn training_is_planned_from_a_store_or_from_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("graph.grappa");
    let generate = [
        "rmat",
        "--scale",
        "12",
        "--edge-factor",
        "8",
        "--feature-dim",
        "16",
        "--classes",
        "4",
        "--train-fraction",
        "0.2",
        "--out",
    ];
    run(command("grappa-gen").args(generate).arg(&store)).success();
    let plan = || {
        let mut plan = command("grappa-store");
        plan.arg("plan");
        plan
    };
    let of_store = run(plan().arg(&store).args(["--train", "--json"])).success().json();
    let numbers = [
        "--nodes",
        "4096",
        "--edges",
        "32768",
        "--dim",
        "16",
        "--classes",
        "4",
        "--train",
        "--train-fraction",
        "0.2",
        "--json",
    ];
    let of_numbers = run(plan().args(numbers)).success().json();
    for key in ["partitions", "concurrent", "steps"] {
        assert_eq!(of_store["train"][key], of_numbers["train"][key], "{key}");
    }
    assert_eq!(of_store["train"]["steps"], 1);
    assert!(of_numbers["ingest"]["seconds"].as_f64().unwrap() > 0.0);
    let measured = run(plan()
        .arg(&store)
        .args(["--train", "--json", "--measure"])
        .arg(folder.path()))
    .success()
    .json();
    assert!(measured["disk_bandwidth"].as_u64().unwrap() > 1 << 20, "{measured}");
    assert_ne!(measured["rates"]["train"], of_store["rates"]["train"]);
    // The rates of one plan are those of another.
    let rates = folder.path().join("rates.json");
    fs::write(&rates, measured["rates"].to_string()).unwrap();
    let again = run(plan().arg(&store).args(["--train", "--json", "--rates"]).arg(&rates))
        .success()
        .json();
    assert_eq!(again["rates"], measured["rates"]);

    let text = run(plan().arg(&store).arg("--train")).success().stdout;
    for part in ["pre-aggregation", "epoch", "exact evaluation", "memory", "GraphSAGE"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    run(plan().arg(&store)).misuse(&["--train"]);
    run(plan().args(["--nodes", "10", "--edges", "10", "--train"])).failure(&["give --dim"]);
    run(plan().args(["--nodes", "10", "--edges", "10", "--train", "--dim", "4"])).failure(&["--train-fraction"]);
    let fanouts = ["--train", "--fanouts", "5,5,5"];
    run(plan().arg(&store).args(fanouts)).failure(&["3 number(s) for 2 layers"]);
    // Options that say nothing about a store, and runs that training refuses.
    for option in ["--computed-features", "--free-memory=1GiB", "--weighted"] {
        let (name, _) = option.split_once('=').unwrap_or((option, ""));
        run(plan().arg(&store).args(["--train", option])).misuse(&["cannot be used with", name]);
    }
    let concurrent = ["--train", "--partitions", "2", "--concurrent", "8"];
    run(plan().arg(&store).args(concurrent)).failure(&["--concurrent is 8, and there are 2 partition(s)"]);
    let partitions = ["--train", "--partitions", "70000"];
    run(plan().arg(&store).args(partitions)).failure(&["--partitions is 70000, and there are", "chunk"]);
    let computed = ["--computed-features", "--first-hop", "preaggregated"];
    run(plan().args(numbers).args(computed)).failure(&["computed, not stored", "--first-hop sampled"]);
    let computed = ["--computed-features", "--first-hop", "sampled"];
    run(plan().args(numbers).args(computed)).success();
    let little = run(plan().arg(&store).args(["--train", "--memory", "20kB"])).success();
    assert!(little.stdout.contains("in mapped files"), "{}", little.stdout);
}

#[test]
fn stores_without_edges_survive_a_round_trip() {
    let folder = memory_folder();
    let at = |name: &str| folder.path().join(name);
    for (name, text) in [
        ("dense.tsv", "0 0\n2 2\n"),
        ("sparse.tsv", "70 70\n5 5\n"),
        ("string.csv", "a,a\n\"b,c\",\"b,c\"\n"),
        ("weighted.tsv", "0 0 0.5\n2 2 1\n"),
    ] {
        fs::write(at(name), text).unwrap();
    }
    Npy::new(&[3, 1], [0.5f32, 1.5, 2.5]).write(&at("x.npy"));
    let ingest = |edges: &str, more: &[&str]| {
        let out = at(&format!("{edges}.grappa"));
        let mut ingest = program::ingest(&at(edges), &out);
        ingest
            .current_dir(folder.path())
            .args(["--self-loops", "drop"])
            .args(more);
        (run(&mut ingest), out)
    };
    let exported = [
        (
            "dense.tsv",
            &["--nodes", "3"][..],
            &["dense-2.tsv", "dense-2.csv", "dense-2.npy"][..],
        ),
        (
            "sparse.tsv",
            &["--ids", "sparse", "--node-ids", "sparse.ids"],
            &["sparse-2.tsv", "sparse-2.csv", "sparse-2.npy"],
        ),
        (
            "string.csv",
            &["--ids", "string", "--node-ids", "string.ids"],
            &["string-2.csv", "string-2.tsv"],
        ),
    ];
    fs::write(at("sparse.ids"), "5\n70\n").unwrap();
    fs::write(at("string.ids"), "a\nb,c\n").unwrap();
    for (input, nodes, outputs) in exported {
        let (ran, store) = ingest(input, nodes);
        ran.success();
        let expected = files_of(&store);
        for output in outputs {
            // Without the option, names of columns between tabs may be those of nodes.
            let more: &[&str] = match *output {
                "string-2.tsv" => &["--header", "yes"],
                _ => &[],
            };
            run(of_store("export", &store).arg("--edges").arg(at(output))).success();
            let (ran, again) = ingest(output, &[nodes, more].concat());
            let stderr = ran.success().stderr;
            assert!(stderr.contains("there are no edges in this file"), "{stderr}");
            // The manifest counts the edges of the input.
            let mut files = files_of(&again);
            let manifest = Path::new("manifest");
            files.insert(manifest.to_owned(), expected[manifest].clone());
            assert!(files == expected, "{output}");
            run(of_store("verify", &again).arg("--quiet")).success();
        }
    }
    // The rows of features are nodes too. Nothing tells the number of nodes without them.
    fs::copy(at("dense-2.npy"), at("rows.npy")).unwrap();
    ingest("rows.npy", &["--features", "x.npy"]).0.success();
    fs::copy(at("dense-2.npy"), at("alone.npy")).unwrap();
    ingest("alone.npy", &[])
        .0
        .failure(&["alone.npy: there are no edges", "--nodes", "--node-ids"]);
    // An array without edges has a header.
    fs::write(at("cut.npy"), "").unwrap();
    ingest("cut.npy", &["--nodes", "3"])
        .0
        .failure(&["cut.npy", "NumPy's save"]);

    let (ran, weighted) = ingest("weighted.tsv", &["--nodes", "3"]);
    ran.success();
    run(of_store("export", &weighted).current_dir(folder.path()).args([
        "--edges",
        "weighted-2.npy",
        "--weights",
        "w.npy",
    ]))
    .success();
    let (ran, again) = ingest("weighted-2.npy", &["--nodes", "3", "--weights", "w.npy"]);
    ran.success();
    let info = run(of_store("info", &again).arg("--json")).success().json();
    assert_eq!((&info["weighted"], &info["edges"]), (&true.into(), &0.into()), "{info}");
}
