//! Tests of `grappa-store info`, `export` and `plan` on sound stores. Damaged stores are in `damage`.

use std::path::Path;

use grappa_tests::{files::assert_same, folder::ProgramFolder, npy::Npy, program::Ran};
use serde_json::{Value, json};

const NODES: u64 = 300;

/// A folder with a small store `sample.grappa` with features, labels and splits, and its input.
fn sample() -> ProgramFolder {
    let folder = ProgramFolder::new();
    let write = |name: &str, lines: std::ops::Range<u64>, line: fn(u64) -> String| {
        folder.write(name, lines.map(line).collect::<String>());
    };
    write("edges.tsv", 0..3000, |i| format!("{}\t{}\n", i * i % 299, i * 17 % 300));
    write("features.csv", 0..NODES, |i| format!("{},{},{}\n", i, i * 2, i % 7));
    write("labels.csv", 0..NODES, |i| format!("{}\n", i % 5));
    write("train", 0..50, |i| format!("{i}\n"));
    write("val", 100..150, |i| format!("{i}\n"));
    ingest_sample(&folder, "sample", "edges.tsv", ["features.csv", "labels.csv", "train", "val"]);
    folder
}

fn ingest_sample(folder: &ProgramFolder, out: &str, edges: &str, [features, labels, train, val]: [&str; 4]) {
    let nodes = format!("--features {features} --labels {labels} --train {train} --val {val}");
    let options = "--nodes 300 --chunks 5 --quiet";
    folder.success(&format!("ingest --out {out}.grappa --edges {edges} {nodes} {options}"));
}

fn info(folder: &ProgramFolder, store: &str) -> Value {
    folder.success(&format!("store info {store} --json")).json()
}

#[test]
fn info_tells_people_and_programs_the_same() {
    let folder = sample();
    let object = info(&folder, "sample.grappa");
    for (key, value) in [("nodes", 300), ("edges", 3000), ("chunks", 5), ("classes", 5), ("generation", 0)] {
        assert_eq!(object[key], value, "{key}");
    }
    assert_eq!(object["features"]["dim"], 3);
    assert_eq!(object["features"]["dtype"], "f32");
    assert_eq!(object["features"]["bytes"], object["bytes"]["features"]);
    assert_eq!(object["splits"], json!({"train": 50, "val": 50, "test": null}));
    let buckets = object["degree_histogram"].as_array().unwrap();
    let nodes = buckets.iter().map(|bucket| bucket["nodes"].as_u64().unwrap());
    assert_eq!(nodes.sum::<u64>(), NODES);
    let lengths: usize = folder.files("sample.grappa").values().map(Vec::len).sum();
    assert_eq!(object["bytes"]["total"], lengths);

    let text = folder.success("store info sample.grappa").stdout;
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
    let folder = sample();
    let expected = folder.files("sample.grappa");
    for edges in ["again.tsv", "again.csv", "again.npy"] {
        let files = ["x.npy", "y.npy", "train.npy", "val.npy"].map(|name| format!("{edges}.{name}"));
        let [x, y, train, val] = files.each_ref().map(String::as_str);
        let nodes = format!("--features {x} --labels {y} --split train {train} --split val {val}");
        folder.success(&format!("store export sample.grappa --edges {edges} {nodes}"));
        ingest_sample(&folder, edges, edges, [x, y, train, val]);
        assert_same(&folder.path(&format!("{edges}.grappa")), &expected, edges);
    }
}

#[test]
fn edges_go_to_stdout_and_an_export_needs_something_to_export() {
    let folder = sample();
    let export = |options: &str| folder.run(&format!("store export sample.grappa {options}"));
    let [text, input] = [export("--edges -").success().stdout, folder.read("edges.tsv")];
    let [found, expected] = [&text, &input].map(|text| {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort();
        lines
    });
    assert_eq!(found, expected);

    export("").misuse(&["--edges"]);
    for (options, parts) in [
        ("--edges edges.tsv", &["edges.tsv exists"][..]),
        ("--weights w.npy", &["no weights"]),
        ("--edges - --labels y.npy", &["stdout"]),
        // Nothing is written if a part of the request is impossible.
        ("--edges all.csv --split tests t.npy", &["no split \"tests\""]),
        ("--edges all.csv --weights w.npy", &["no weights"]),
        ("--edges all.csv --labels edges.tsv", &[".npy"]),
        // A file that is not what its name says.
        ("--edges e.feather", &["e.feather", ".npy"]),
        ("--features x.tsv", &["x.tsv", ".npy"]),
        ("--ids ids.npz", &["ids.npz", ".npy"]),
        ("--split train t.gz", &["t.gz", ".txt"]),
    ] {
        export(options).failure(parts);
    }
    let names = ["edges.tsv", "features.csv", "labels.csv", "sample.grappa", "train", "val"];
    assert_eq!(folder.names(), names);
}

/// The ids of all nodes, and of a split, as integers or as text, whatever the name asks for.
#[test]
fn ids_are_exported_as_arrays_and_as_lines() {
    let folder = sample();
    folder.success("store export sample.grappa --ids ids.txt --split train train.txt");
    folder.success("store export sample.grappa --ids ids.npy");
    let lines = |name: &str| -> Vec<u64> { folder.read(name).lines().map(|line| line.parse().unwrap()).collect() };
    let ids = lines("ids.txt");
    assert_eq!(ids, (0..NODES).collect::<Vec<_>>());
    let train = lines("train.txt");
    assert_eq!(train, (0..50).collect::<Vec<_>>());
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    assert!(folder.bytes("ids.npy").ends_with(&bytes));
}

/// Each part of the plan must be within 25 % of the store.
#[test]
fn plans_agree_with_stores() {
    let folder = ProgramFolder::new();
    for (graph, plan) in grappa_skip::cases![
        "rmat --scale 16 --feature-dim 100 --feature-dtype f16", "--dim 100 --dtype f16";
        "er --nodes 50000 --chunks 7", "--degrees even --chunks 7";
    ] {
        folder.success(&format!("gen {graph} --edge-factor 16 --seed 1 --out made --force"));
        let store = info(&folder, "made");
        let numbers = format!("--nodes {} --edges {}", store["nodes"], store["edges"]);
        let plan = folder.success(&format!("store plan --json {numbers} {plan}")).json();
        assert_eq!(plan["chunks"], store["chunks"]);
        for part in ["edges", "degrees", "features", "other", "total"] {
            let [planned, made] = [&plan, &store].map(|object| object["bytes"][part].as_f64().unwrap());
            let is_near = (planned - made).abs() <= made / 4.0;
            assert!(is_near, "{part}: {planned} planned, {made} made");
        }
    }
}

#[test]
fn a_plan_says_what_it_takes_for_granted() {
    let folder = ProgramFolder::new();
    let plan =
        |options: &str| folder.run(&format!("store plan --nodes 1G --edges 16G --dim 128 --dtype f16 {options}"));
    let text = plan("--disk-bandwidth 1.4GB/s --threads 2 --free-memory 8GiB").success().stdout;
    let chunks = "chunks         238\n";
    for part in [chunks, "ingest", "super-epoch", "as skewed as in R-MAT", "1.3 GiB/s; 2 threads"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    plan("--memory 1MiB").failure(&["at least ", "--memory"]);
    plan("--disk-bandwidth 0").misuse(&["more than 0 bytes per second"]);
    folder.run("store plan --edges 1 --nodes many").misuse(&["2.5M"]);
}

/// A name of a node, with characters that text formats quote.
fn name(i: u64) -> String {
    let names = ["plain", "with blank", "a,b", "say \"a\"", "#5", "größe"];
    format!("{}{}", names[i as usize % 6], i / 6)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Ids that are not dense are exported unchanged, and ingested in the same node order.
#[test]
fn scattered_and_named_nodes_survive_a_round_trip() {
    let folder = ProgramFolder::new();
    let scattered = (1..2000u64).map(|i| format!("{}\t{}\n", i * i % 997 * 1_000_003, (i % 89) << 41));
    folder.write("scattered.tsv", scattered.collect::<String>());
    let named = (0..500).map(|i| format!("{},{}\n", quoted(&name(i % 83)), quoted(&name(i * i % 101))));
    folder.write("named.csv", named.collect::<String>());
    let integers: Vec<String> = (1..9u64).map(|i| (i << 41).to_string()).collect();
    folder.write("sparse.train", integers.join("\n"));
    let mut names = [0, 1, 2, 3, 5].map(name);
    folder.write("string.train", names.join("\n"));
    for (ids, input, outputs) in
        [("sparse", "scattered.tsv", &["2.tsv", "2.csv", "2.npy"][..]), ("string", "named.csv", &["named-2.csv"])]
    {
        let ingest = |edges: &str| {
            let options = format!("--ids {ids} --chunks 3 --train {ids}.train");
            folder.success(&format!("ingest --edges {edges} {options} --out {edges}.grappa"));
        };
        ingest(input);
        let expected = folder.files(&format!("{input}.grappa"));
        for output in outputs {
            folder.success(&format!("store export {input}.grappa --edges {output}"));
            ingest(output);
            assert_same(&folder.path(&format!("{output}.grappa")), &expected, output);
        }
    }
    folder.success("store export scattered.tsv.grappa --split train train.npy");
    folder.success("store export named.csv.grappa --split train train");
    names.sort();
    assert_eq!(folder.read("train"), names.join("\n") + "\n");
    folder.success("store export named.csv.grappa --edges named.tsv");
    folder.run("store export named.csv.grappa --edges named.npy").failure(&["ids are strings"]);
}

#[test]
fn training_is_planned_from_a_store_or_from_numbers() {
    const NUMBERS: &str = "--nodes 4096 --edges 32768 --dim 16 --classes 4 --train --train-fraction 0.2 --json";
    let folder = ProgramFolder::on_disk();
    let graph = "rmat --scale 12 --edge-factor 8 --feature-dim 16 --classes 4 --train-fraction 0.2";
    folder.success(&format!("gen {graph} --out graph.grappa"));
    let plan = |options: &str| folder.run(&format!("store plan {options}"));
    let of_store = plan("graph.grappa --train --json").success().json();
    let of_numbers = plan(NUMBERS).success().json();
    for key in ["partitions", "concurrent", "steps"] {
        assert_eq!(of_store["train"][key], of_numbers["train"][key], "{key}");
    }
    assert_eq!(of_store["train"]["steps"], 1);
    assert!(of_numbers["ingest"]["seconds"].as_f64().unwrap() > 0.0);
    let measured = plan("graph.grappa --train --json --measure .").success().json();
    assert!(measured["disk_bandwidth"].as_u64().unwrap() > 1 << 20, "{measured}");
    assert_ne!(measured["rates"]["train"], of_store["rates"]["train"]);
    // The rates of one plan are those of another.
    folder.write("rates.json", measured["rates"].to_string());
    let again = plan("graph.grappa --train --json --rates rates.json").success().json();
    assert_eq!(again["rates"], measured["rates"]);

    let text = plan("graph.grappa --train").success().stdout;
    for part in ["pre-aggregation", "epoch", "exact evaluation", "memory", "GraphSAGE"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Options that say nothing about a store.
    plan("graph.grappa").misuse(&["--train"]);
    for option in ["--computed-features", "--free-memory=1GiB", "--weighted"] {
        let name = option.split('=').next().unwrap();
        plan(&format!("graph.grappa --train {option}")).misuse(&["cannot be used with", name]);
    }
    // Runs that training refuses.
    for (options, parts) in grappa_skip::cases![
        "--nodes 10 --edges 10 --train", &["give --dim"][..];
        "--nodes 10 --edges 10 --train --dim 4", &["--train-fraction"];
        "graph.grappa --train --fanouts 5,5,5", &["3 number(s) for 2 layers"];
        "graph.grappa --train --partitions 2 --concurrent 8", &["--concurrent is 8, and there are 2 partition(s)"];
        "graph.grappa --train --partitions 70000", &["--partitions is 70000, and there are", "chunk"];
    ] {
        plan(options).failure(parts);
    }
    let computed = plan(&format!("{NUMBERS} --computed-features --first-hop preaggregated"));
    computed.failure(&["computed, not stored", "--first-hop sampled"]);
    plan(&format!("{NUMBERS} --computed-features --first-hop sampled")).success();
    let little = plan("graph.grappa --train --memory 20kB").success().stdout;
    assert!(little.contains("in mapped files"), "{little}");
}

#[test]
fn training_links_is_planned_from_a_store_or_from_numbers() {
    const LINKS: &str = "--train --task link --fanouts 5,5 --edges-per-epoch 2048 --candidates all --json";
    let folder = ProgramFolder::on_disk();
    folder.success("gen rmat --scale 12 --edge-factor 8 --feature-dim 16 --as npy --out e.npy");
    let plan = |options: &str| folder.run(&format!("store plan {options}"));
    folder.success(
        "ingest --edges e.npy --features e.features.npy --nodes 4096 --edge-split 80/10/10 --out graph.grappa",
    );
    folder.success("ingest --edges e.npy --features e.features.npy --nodes 4096 --out whole.grappa");
    let of_store = plan(&format!("graph.grappa {LINKS}")).success().json();
    let numbers = "--nodes 4096 --edges 32768 --dim 16 --edge-split 80/10/10";
    let of_numbers = plan(&format!("{numbers} {LINKS}")).success().json();
    for answer in [of_store, of_numbers] {
        let train = &answer["train"];
        assert_eq!((&train["steps"], &train["evaluates_exactly"]), (&2.into(), &true.into()), "{train}");
    }
    plan(&format!("whole.grappa {LINKS}")).failure(&["held out", "--edge-split"]);
    plan(&format!("{numbers} --train --task link --candidates 0")).misuse(&["at least 1, or all"]);
}

#[test]
fn stores_without_edges_survive_a_round_trip() {
    let folder = ProgramFolder::new();
    for (name, text) in [
        ("dense.tsv", "0 0\n2 2\n"),
        ("sparse.tsv", "70 70\n5 5\n"),
        ("string.csv", "a,a\n\"b,c\",\"b,c\"\n"),
        ("weighted.tsv", "0 0 0.5\n2 2 1\n"),
        ("sparse.ids", "5\n70\n"),
        ("string.ids", "a\nb,c\n"),
    ] {
        folder.write(name, text);
    }
    Npy::new(&[3, 1], [0.5f32, 1.5, 2.5]).write(&folder.path("x.npy"));
    let ingest = |edges: &str, more: &str| -> Ran {
        folder.run(&format!("ingest --edges {edges} --out {edges}.grappa --self-loops drop {more}"))
    };
    for (input, nodes, outputs) in [
        ("dense.tsv", "--nodes 3", &["dense-2.tsv", "dense-2.csv", "dense-2.npy"][..]),
        ("sparse.tsv", "--ids sparse --node-ids sparse.ids", &["sparse-2.tsv", "sparse-2.csv", "sparse-2.npy"]),
        (
            "string.csv",
            "--ids string --node-ids string.ids",
            // Without the option, names of columns between tabs may be those of nodes.
            &["string-2.csv", "string-2.tsv --header yes"],
        ),
    ] {
        ingest(input, nodes).success();
        let expected = folder.files(&format!("{input}.grappa"));
        for output in outputs {
            let (output, more) = output.split_once(' ').unwrap_or((output, ""));
            folder.success(&format!("store export {input}.grappa --edges {output}"));
            let stderr = ingest(output, &format!("{nodes} {more}")).success().stderr;
            assert!(stderr.contains("there are no edges in this file"), "{stderr}");
            // The manifest counts the edges of the input.
            let mut files = folder.files(&format!("{output}.grappa"));
            let manifest = Path::new("manifest");
            files.insert(manifest.to_owned(), expected[manifest].clone());
            assert!(files == expected, "{output}");
            folder.success(&format!("store verify {output}.grappa --quiet"));
        }
    }
    // The rows of features are nodes too. Nothing tells the number of nodes without them.
    ingest("dense-2.npy", "--features x.npy --force").success();
    folder.write("alone.npy", folder.bytes("dense-2.npy"));
    ingest("alone.npy", "").failure(&["alone.npy: there are no edges", "--nodes", "--node-ids"]);
    // An array without edges has a header.
    folder.write("cut.npy", "");
    ingest("cut.npy", "--nodes 3").failure(&["cut.npy", "NumPy's save"]);

    ingest("weighted.tsv", "--nodes 3").success();
    folder.success("store export weighted.tsv.grappa --edges weighted-2.npy --weights w.npy");
    ingest("weighted-2.npy", "--nodes 3 --weights w.npy").success();
    let info = info(&folder, "weighted-2.npy.grappa");
    assert_eq!((&info["weighted"], &info["edges"]), (&true.into(), &0.into()), "{info}");
}
