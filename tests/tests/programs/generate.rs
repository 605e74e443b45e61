//! `grappa-gen` as a user runs it: exit codes, output, and what is on disk. Killed generators are in `crash`.

use grappa_tests::folder::{ProgramFolder, least_memory};

#[test]
fn one_json_object_says_what_was_made() {
    let folder = ProgramFolder::new();
    let ran = folder.success("gen rmat --scale 10 --chunks 4 --out g --json");
    let told = ran.json();
    assert_eq!((&told["nodes"], &told["chunks"]), (&1024.into(), &4.into()));
    assert_eq!(told["edges"], told["edges_read"]);
    assert_eq!(told["rejected"], 0);
    for key in ["seconds", "edges_per_second", "peak_rss_bytes"] {
        assert!(told[key].as_f64() > Some(0.0), "{key}");
    }
    let bytes: usize = folder.files("g").values().map(Vec::len).sum();
    assert_eq!(told["bytes_on_disk"], bytes);
    assert_eq!(ran.stderr, "");
}

#[test]
fn wrong_usage_is_code_2_and_leaves_nothing() {
    let folder = ProgramFolder::new();
    for options in [
        "rmat --out g",
        "rmat --scale 9 --nodes 512 --out g",
        "rmat --nodes 500 --out g",
        "er --nodes 100 --chunks 101 --out g",
        "sbm --nodes 100 --homophily 2 --out g",
        "er --nodes 100 --as tsv --dedup --out g",
    ] {
        let ran = folder.run(&format!("gen {options}")).misuse(&[]);
        assert!(ran.stderr.starts_with("error: "), "{options}: {}", ran.stderr);
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_graph_with_types_is_made_and_told() {
    let folder = ProgramFolder::new();
    let line = "gen typed --nodes user=500 --nodes item=200 --edges user:buys:item=3000 --reverse --classes item=5 \
                --feature-dim item=8 --out g --json";
    let told = folder.success(line).json();
    assert_eq!((&told["nodes"], &told["edges"]), (&700.into(), &6000.into()));
    assert_eq!(told["relations"][1]["name"], "item:rev_buys:user");
    let bytes: usize = folder.files("g").values().map(Vec::len).sum();
    assert_eq!(told["bytes_on_disk"], bytes);
    folder.success("store verify g");
    let info = folder.success("store info g --json").json();
    assert_eq!(info["node_types"][1]["classes"], 5);
    folder.run(line).failure(&["exists"]);
    let large = "gen typed --nodes user=1000000000000 --edges user:knows:user=1000000000000 --feature-dim user=1000 --out large";
    folder.run(large).failure(&["of disk", "make a smaller one"]);
    folder.success(&format!("{line} --force --features procedural"));
    let least = least_memory(&folder.run(&format!("{line} --force --memory 1KiB")).failure(&[]));
    folder.success(&format!("{line} --force --memory {least}"));
}

#[test]
fn computed_features_have_no_other_type_than_f32() {
    let folder = ProgramFolder::new();
    let line = "gen sbm --nodes 100 --feature-dim 4 --features procedural --out g --feature-dtype";
    for dtype in ["f16", "bf16", "int8"] {
        let ran = folder.run(&format!("{line} {dtype}"));
        ran.misuse(&["--feature-dtype", "--features stored"]);
    }
    assert_eq!(folder.names(), [""; 0]);
    folder.success(&format!("{line} f32"));
}

#[test]
fn existing_outputs_are_kept() {
    let folder = ProgramFolder::new();
    for name in ["g", "h.labels.npy"] {
        folder.write(name, "precious");
    }
    for options in ["er --nodes 100 --out g", "er --nodes 100 --as npy --out g", "sbm --nodes 100 --as tsv --out h.tsv"]
    {
        folder.run(&format!("gen {options}")).failure(&["exists"]);
    }
    assert_eq!(folder.names(), ["g", "h.labels.npy"]);
    assert!(folder.files("").values().all(|bytes| bytes == b"precious"));
    folder.run("gen er --nodes 100 --out missing/g").failure(&["missing/g"]);
}

#[test]
fn a_graph_that_cannot_fit_the_disk_is_refused_at_once() {
    let folder = ProgramFolder::on_disk();
    for options in ["--edge-factor 0.0001 --feature-dim 4096 --out g", "--edge-factor 10000 --as npy --out g.npy"] {
        folder.run(&format!("gen er --scale 39 {options}")).failure(&["takes at least"]);
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_is_enough() {
    let folder = ProgramFolder::new();
    for model in ["er --nodes 1000 --out g --threads 2", "sbm --nodes 1000 --feature-dim 8 --out h"] {
        let least = least_memory(&folder.run(&format!("gen {model} --memory 1")).failure(&[]));
        folder.success(&format!("gen {model} --memory {least}"));
    }
}

#[test]
fn class_means_that_exceed_the_memory_are_refused_for_files_too() {
    let folder = ProgramFolder::new();
    let sbm = "gen sbm --nodes 65536 --classes 32768 --feature-dim 2048 --as npy --out g.npy --memory 64MiB";
    folder.run(sbm).failure(&["the features' mean of each class", "--classes"]);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn an_edge_list_has_its_node_files_beside_it() {
    let folder = ProgramFolder::new();
    let told = folder.success("gen sbm --nodes 100 --feature-dim 3 --as tsv --out g.tsv --json").json();
    let names = "g.features.npy g.labels.npy g.test.npy g.train.npy g.tsv g.val.npy";
    assert_eq!(folder.names().join(" "), names);
    assert_eq!(told["edges"], folder.read("g.tsv").lines().count());
    let bytes: usize = folder.files("").values().map(Vec::len).sum();
    assert_eq!(told["bytes_on_disk"], bytes);
    assert_eq!(told["chunks"], 0);
}

#[test]
fn a_split_without_nodes_has_no_file() {
    let folder = ProgramFolder::new();
    folder.success("gen sbm --nodes 100 --train-fraction 0.5 --val-fraction 0 --as npy --out g.npy");
    assert_eq!(folder.names(), ["g.labels.npy", "g.npy", "g.test.npy", "g.train.npy"]);
}
