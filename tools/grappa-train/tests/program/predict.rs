//! Output of `predict`, and commands that do not exist.

use std::fs;

use grappa_tests::{
    parquet::{Column, write_table},
    program::{self, CommandWords, run},
};

use crate::{fixture::TrainFolder, scores::ingest};

/// A folder with a store and a short run.
fn trained(options: &str) -> TrainFolder {
    let folder = TrainFolder::new();
    folder.trained(&format!("--layers 1 --out run {options}"));
    folder
}

#[test]
fn predictions_come_with_the_number_that_the_run_monitors() {
    for (monitor, record, told, other, text) in [
        ("loss", "val_loss", "val_loss", "val", "(validation loss "),
        ("score", "val_accuracy", "val", "val_loss", " %)"),
    ] {
        let folder = trained(&format!("--epochs 1 --monitor {monitor}"));
        let predict = |more: &str| {
            let arguments = format!("predict run graph.grappa --nodes 1,2 {more}");
            run(&mut folder.program(&arguments)).success()
        };
        let model = predict("--json").json()["model"].clone();
        let recorded = &folder.metrics("run")[0][record];
        assert!(recorded.is_number());
        assert_eq!(&model[told], recorded, "{model}");
        assert!(model[other].is_null(), "{model}");
        let stdout = predict("").stdout;
        assert!(stdout.contains(text), "{stdout}");
    }
}

/// Options of `predict` and `export` that would give something else than they ask for, files that exist, and `-`, which
/// prints what a file would contain.
#[test]
fn predictions_and_models_go_to_stdout_or_replace_a_file_if_told() {
    let folder = trained("--epochs 1");
    let program = |line: &str| run(&mut folder.program(line));
    for values in ["--embeddings", "--logits", "--probabilities", "--force"] {
        program(&format!("predict run graph.grappa --nodes 1,2 {values}")).misuse(&[values, "--nodes"]);
    }
    program("export run --out model.pt").failure(&["model.pt", ".safetensors"]);
    assert!(!folder.path("model.pt").exists());
    program("predict run graph.grappa --out - --json").failure(&["stdout", "--json"]);

    for more in ["", " --logits --split test"] {
        let printed = program(&format!("predict run graph.grappa --out -{more}")).success().stdout;
        program(&format!("predict run graph.grappa --out p.csv --force{more}")).success();
        assert_eq!(printed, folder.read("p.csv"));
        assert!(printed.starts_with("id,"), "{printed}");
    }
    for line in ["predict run graph.grappa --out p.parquet", "export run --out model.safetensors"] {
        program(line).success();
        program(line).failure(&["exists", "--force"]);
        program(&format!("{line} --force")).success();
    }
    // A run is replaced too, and gone when the new one has finished.
    run(&mut folder.train("--epochs 1 --layers 1 --out run")).failure(&["already contains a run", "--force"]);
    folder.trained("--epochs 2 --layers 1 --out run --force");
    assert_eq!(folder.metrics("run").len(), 2);
    assert!(!folder.path("run/replaced").exists());
    let refused = "--partitions 1000 --epochs 2 --layers 1 --out run --force";
    run(&mut folder.train(refused)).failure(&["chunks"]);
    assert_eq!(folder.metrics("run").len(), 2);
}

#[test]
fn predictions_of_listed_nodes_are_written_in_the_order_of_the_list() {
    let folder = trained("--epochs 1");
    folder.write("ids.txt", "7\n3\n1999\n7\n");
    fs::create_dir(folder.path("parts")).unwrap();
    for (file, ids) in
        [("list.parquet", &[8, 1999, 5][..]), ("parts/part.9.parquet", &[8, 1999]), ("parts/part.10.parquet", &[5])]
    {
        write_table(&folder.path(file), &[("id", Column::Integers(ids))], 2);
    }
    for (kind, width) in [("", 8), ("--logits", 0)] {
        let rows = |nodes: usize, more: &str| {
            let arguments = format!("predict run graph.grappa --out p.npy --force {kind} {more}");
            run(&mut folder.program(&arguments)).success();
            // The header has 128 bytes.
            let bytes = fs::read(folder.path("p.npy")).unwrap()[128..].to_vec();
            let width = bytes.len() / nodes;
            bytes.chunks_exact(width).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let all = rows(2000, "");
        assert!(width == 0 || all[0].len() == width);
        for (list, ids) in
            [("ids.txt", &[7, 3, 1999, 7][..]), ("list.parquet", &[8, 1999, 5]), ("parts", &[8, 1999, 5])]
        {
            let expected: Vec<_> = ids.iter().map(|&id: &usize| all[id].clone()).collect();
            assert_eq!(rows(ids.len(), &format!("--ids {list}")), expected, "{list}");
        }
    }
}

#[test]
fn a_command_that_does_not_exist_is_told_from_a_store() {
    let folder = TrainFolder::empty();
    for (arguments, unexpected) in [
        ("evaluate run graph.grappa", "unexpected argument 'run'"),
        ("train graph.grappa", "unexpected argument 'graph.grappa'"),
    ] {
        let commands = "predict, export, report, compare, env, config";
        run(&mut folder.program(arguments)).misuse(&[unexpected, "one store", commands, "--split test"]);
    }
}

/// Some output is about the kind of a store: of one store, and not of `graph.grappa`.
#[test]
fn training_says_whether_it_uses_edge_weights_and_that_scores_are_about_a_slice() {
    let folder = TrainFolder::new();
    let edges = |node| format!("{node}\t{}\t0.5\n", (node + 1) % 60);
    let features = |node| format!("{},1\n", node % 2);
    ingest(&folder, "weighted.grappa", 60, [&edges, &features, &|node| format!("{}\n", node % 2)]);
    let mut place = program::command("grappa-store");
    place.current_dir(folder.root());
    run(place.words("place graph.grappa --chunks 0-3 --edges inside --to slice.grappa")).success();
    let about_slice = "the store is a slice of its graph, with 4 of 8 chunks: training and scores are about";
    for (arguments, uses_weights, ignores_weights, is_slice) in [
        ("weighted.grappa", true, false, false),
        ("weighted.grappa --model gat", false, true, false),
        ("slice.grappa", false, false, true),
        ("graph.grappa", false, false, false),
    ] {
        let ran = run(&mut folder.program(&format!("{arguments} --epochs 1"))).success();
        let output = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(output.contains("edge weights are used"), uses_weights, "{arguments}: {output}");
        let ignored = "edge weights are not used";
        assert_eq!(ran.stderr.contains(ignored), ignores_weights, "{arguments}: {output}");
        assert_eq!(ran.stdout.contains(about_slice), is_slice, "{arguments}: {output}");
    }
}

#[test]
fn predict_and_export_warn_if_the_best_model_is_missing() {
    let folder = trained("--epochs 2");
    for entry in fs::read_dir(folder.path("run/checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("best-") {
            fs::remove_file(path).unwrap();
        }
    }
    for arguments in ["predict run graph.grappa --nodes 1", "export run --out model.safetensors"] {
        let stderr = run(&mut folder.program(arguments)).success().stderr;
        let is_warned = stderr.contains("WARN") && stderr.contains("the best model of the run");
        assert!(is_warned, "{stderr}");
    }
}
