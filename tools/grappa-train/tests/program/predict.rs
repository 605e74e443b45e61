//! What `predict` tells and writes, and commands that do not exist.

use std::{fs, process::Command};

use grappa_tests::{
    parquet::{Column, write_table},
    program::{self, run},
};

use crate::workers::{folder, metrics, train};

#[test]
fn predictions_come_with_the_number_that_the_run_monitors() {
    let folder = folder();
    for (monitor, told, other, text) in [
        ("loss", "val_loss", "val", "(validation loss "),
        ("score", "val", "val_loss", " %)"),
    ] {
        let options = ["--epochs", "1", "--layers", "1", "--monitor", monitor, "--out", monitor];
        run(&mut train(folder.path(), &options)).success();
        let predict = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
            command.current_dir(folder.path());
            command.args(["predict", monitor, "graph.grappa", "--nodes", "1,2"]);
            run(command.args(more)).success()
        };
        let model = predict(&["--json"]).json()["model"].clone();
        let epoch = metrics(&folder.path().join(monitor)).remove(0);
        let recorded = match monitor {
            "loss" => &epoch["val_loss"],
            _ => &epoch["val_accuracy"],
        };
        assert!(recorded.is_number(), "{epoch}");
        assert_eq!(&model[told], recorded, "{model}");
        assert!(model[other].is_null(), "{model}");
        let stdout = predict(&[]).stdout;
        assert!(stdout.contains(text), "{stdout}");
    }
}

/// Options of `predict` and `export` that would give something else than they ask for.
#[test]
fn results_that_would_not_be_what_was_asked_for_are_refused() {
    let folder = folder();
    run(&mut train(
        folder.path(),
        &["--epochs", "1", "--layers", "1", "--out", "run"],
    ))
    .success();
    let trained = |command: &str, more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        program.current_dir(folder.path()).args([command, "run"]).args(more);
        program
    };
    for values in ["--embeddings", "--logits", "--probabilities", "--force"] {
        run(&mut trained("predict", &["graph.grappa", "--nodes", "1,2", values])).misuse(&[values, "--nodes"]);
    }
    run(&mut trained("export", &["--out", "model.pt"])).failure(&["model.pt", ".safetensors"]);
    assert!(!folder.path().join("model.pt").exists());
    run(&mut trained("export", &["--out", "model.safetensors"])).success();
    run(&mut trained("predict", &["graph.grappa", "--out", "-", "--json"])).failure(&["stdout", "--json"]);
}

/// `-` prints what a file would contain. A file that exists is replaced only with `--force`.
#[test]
fn predictions_and_models_go_to_stdout_or_replace_a_file_if_told() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let options = ["--epochs", "1", "--layers", "1", "--out", "run"];
    run(&mut train(folder.path(), &options)).success();
    let trained = |line: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        run(program.current_dir(folder.path()).args(line.split(' ')))
    };
    for more in ["", " --probabilities", " --logits --split test"] {
        let printed = trained(&format!("predict run graph.grappa --out -{more}"))
            .success()
            .stdout;
        trained(&format!("predict run graph.grappa --out p.csv --force{more}")).success();
        assert_eq!(printed, fs::read_to_string(at("p.csv")).unwrap());
        assert!(printed.starts_with("id,"), "{printed}");
    }
    for line in [
        "predict run graph.grappa --out p.parquet",
        "export run --out model.safetensors",
    ] {
        trained(line).success();
        trained(line).failure(&["exists", "--force"]);
        trained(&format!("{line} --force")).success();
    }
    // A run is replaced too, and gone when the new one has finished.
    run(&mut train(folder.path(), &options)).failure(&["already contains a run", "--force"]);
    let more = ["--epochs", "2", "--layers", "1", "--out", "run", "--force"];
    run(&mut train(folder.path(), &more)).success();
    assert_eq!(metrics(&at("run")).len(), 2);
    assert!(!at("run/replaced").exists());
    let refused = [
        "--partitions",
        "1000",
        "--epochs",
        "2",
        "--layers",
        "1",
        "--out",
        "run",
        "--force",
    ];
    run(&mut train(folder.path(), &refused)).failure(&["chunks"]);
    assert_eq!(metrics(&at("run")).len(), 2);
}

#[test]
fn predictions_of_listed_nodes_are_written_in_the_order_of_the_list() {
    let folder = folder();
    let train_options = ["--epochs", "1", "--layers", "1", "--out", "run"];
    run(&mut train(folder.path(), &train_options)).success();
    fs::write(folder.path().join("ids.txt"), "7\n3\n1999\n7\n").unwrap();
    fs::create_dir(folder.path().join("parts")).unwrap();
    for (file, ids) in [
        ("list.parquet", &[8, 1999, 5][..]),
        ("parts/part.9.parquet", &[8, 1999]),
        ("parts/part.10.parquet", &[5]),
    ] {
        write_table(&folder.path().join(file), &[("id", Column::Integers(ids))], 2);
    }
    for (kind, width) in [(None, 8), (Some("--logits"), 0)] {
        let rows = |name: &str, nodes: usize, more: &[&str]| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
            program.current_dir(folder.path());
            program
                .args(["predict", "run", "graph.grappa", "--out", name])
                .args(kind);
            run(program.args(more)).success();
            let bytes = fs::read(folder.path().join(name)).unwrap();
            fs::remove_file(folder.path().join(name)).unwrap();
            // The header has 128 bytes.
            let bytes = bytes[128..].to_vec();
            let width = bytes.len() / nodes;
            bytes.chunks_exact(width).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let all = rows("all.npy", 2000, &[]);
        assert!(width == 0 || all[0].len() == width);
        let listed = rows("listed.npy", 4, &["--ids", "ids.txt"]);
        assert_eq!(listed, [7, 3, 1999, 7].map(|id| all[id].clone()), "{kind:?}");
        for list in ["list.parquet", "parts"] {
            let listed = rows("listed.npy", 3, &["--ids", list]);
            assert_eq!(listed, [8, 1999, 5].map(|id| all[id].clone()), "{list}");
        }
    }
}

#[test]
fn a_command_that_does_not_exist_is_told_from_a_store() {
    for arguments in [&["evaluate", "run", "graph.grappa"][..], &["train", "graph.grappa"]] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        let ran = run(program.args(arguments));
        assert_eq!(ran.code, Some(2));
        let unexpected = format!("unexpected argument '{}'", arguments[1]);
        for part in [
            &unexpected,
            "one store",
            "predict, export, report, env, config",
            "--split test",
        ] {
            assert!(ran.stderr.contains(part), "{part:?} is not in: {}", ran.stderr);
        }
    }
}

#[test]
fn training_says_that_it_ignores_edge_weights() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let edges: String = (0..60)
        .map(|node| format!("{node}\t{}\t0.5\n", (node + 1) % 60))
        .collect();
    fs::write(at("edges.tsv"), edges).unwrap();
    let rows: String = (0..60).map(|node| format!("{},1\n", node % 2)).collect();
    fs::write(at("features.csv"), rows).unwrap();
    let labels: String = (0..60).map(|node| format!("{}\n", node % 2)).collect();
    fs::write(at("labels.csv"), labels).unwrap();
    let mut ingest = program::ingest(&at("edges.tsv"), &at("weighted.grappa"));
    ingest.arg("--features").arg(at("features.csv"));
    ingest.arg("--labels").arg(at("labels.csv"));
    run(ingest.args(["--split", "60/20/20"])).success();
    let trained = |store: &str, out: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        program
            .current_dir(folder.path())
            .args([store, "--epochs", "1", "--out", out]);
        run(&mut program).success().stderr
    };
    let weighted = trained("weighted.grappa", "a");
    assert!(weighted.contains("does not use the edge weights"), "{weighted}");
    let plain = trained("graph.grappa", "b");
    assert!(!plain.contains("weights"), "{plain}");
}

#[test]
fn training_on_a_slice_says_that_its_scores_are_about_the_slice() {
    let folder = folder();
    let slice = folder.path().join("slice.grappa");
    let mut place = program::command("grappa-store");
    place
        .arg("place")
        .arg(folder.path().join("graph.grappa"))
        .args(["--chunks", "0-3", "--edges", "inside", "--to"]);
    run(place.arg(&slice)).success();
    for (store, out, is_slice) in [("slice.grappa", "a", true), ("graph.grappa", "b", false)] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        program
            .current_dir(folder.path())
            .args([store, "--epochs", "1", "--out", out]);
        let stdout = run(&mut program).success().stdout;
        let says =
            stdout.contains("the store is a slice of its graph, with 4 of 8 chunks: training and scores are about");
        assert_eq!(says, is_slice, "{stdout}");
    }
}

#[test]
fn predict_and_export_warn_if_the_best_model_is_missing() {
    let folder = folder();
    let options = ["--epochs", "2", "--layers", "1", "--out", "run"];
    run(&mut train(folder.path(), &options)).success();
    for entry in fs::read_dir(folder.path().join("run/checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("best-") {
            fs::remove_file(path).unwrap();
        }
    }
    for arguments in [
        &["predict", "run", "graph.grappa", "--nodes", "1"][..],
        &["export", "run", "--out", "model.safetensors"],
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
        let stderr = run(program.current_dir(folder.path()).args(arguments)).success().stderr;
        assert!(
            stderr.contains("WARN") && stderr.contains("the best model of the run"),
            "{stderr}"
        );
    }
}
