//! Training on a full disk, and under the limits of a shell.

use std::{fs, process::Command};

use grappa_tests::program::{run, started_by, with_short_files};

use crate::fixture::{TrainFolder, assert_failed};

#[test]
fn aggregates_are_made_without_features_if_both_do_not_fit() {
    // 65,536 rows of 256 bytes in two chunks: 8 MiB for the aggregates of a chunk, 16 MiB with its features.
    let rmat = "rmat --scale 16 --edge-factor 2 --feature-dim 64 --chunks 2";
    let folder = TrainFolder::with(&format!("{rmat} --classes 4 --train-fraction 0.01"));
    for (mib, bytes) in [(12, "16.0 MiB"), (64, "32.1 MiB")] {
        let options = "--memory 24MiB --epochs 1 --layers 2 --hidden 8 --fanouts 3,3 --batch 64 --partitions 1";
        let train = folder.train_command(&format!("{options} --out {mib}"));
        let stdout = run(&mut with_short_files(&train, mib << 10)).success().stdout;
        let expected = format!("pre-aggregated features (mean, {bytes}) are in the store now");
        assert!(stdout.contains(&expected), "{stdout}");
        fs::remove_dir_all(folder.path("graph.grappa/aggregates")).unwrap();
    }
}

/// The signal of that limit ended programs without a message.
#[test]
fn a_limit_of_the_length_of_files_is_an_error_that_names_what_cannot_be_written() {
    let folder = TrainFolder::new();
    let options = "graph.grappa --epochs 1 --layers 1 --quiet --out";
    run(&mut folder.program(&format!("{options} run"))).success();
    for (arguments, expected) in grappa_skip::cases![
        "predict run --quiet graph.grappa --out all.parquet", "cannot write a scratch file";
        "export run --quiet --out all.safetensors", "all.safetensors";
        &*format!("{options} other"), "other/";
    ] {
        let failed = run(&mut with_short_files(&folder.program(arguments), 1));
        assert_failed(&failed, &[expected, "File too large"]);
    }
}

/// Messages of a process that ends because libtorch, the loader or a thread that has begun gets no memory: none of them
/// can refuse it.
const NOT_OURS: [&str; 6] = [
    "error while loading shared libraries",
    "terminate called",
    "libgomp: Thread creation failed",
    "libgomp: Out of memory",
    "failed to register TLS destructor",
    "failed to allocate an alternative stack",
];

#[test]
fn too_little_address_space_for_training_never_ends_in_a_panic() {
    let folder = TrainFolder::new();
    folder.trained("--epochs 1 --out run");
    for mebibytes in [300, 480, 560, 700] {
        for command in [
            folder.train("--model gat --partitions 4 --epochs 1 --out gat"),
            folder.program("predict run graph.grappa --quiet --out all.npy"),
        ] {
            let mut limited = Command::new("sh");
            limited.args(["-c", "ulimit -v \"$0\" && exec \"$@\""]);
            limited.arg((mebibytes << 10).to_string());
            let ran = run(&mut started_by(limited, &command));
            let context = format!("{mebibytes} MiB: {:?} {}", ran.code, ran.stderr);
            let is_ours = ran.code == Some(0) || ran.code == Some(1) && ran.stderr.contains("error: ");
            let is_told = is_ours || NOT_OURS.iter().any(|message| ran.stderr.contains(message));
            assert!(is_told && !ran.stderr.contains("panicked"), "{context}");
            let _ = fs::remove_dir_all(folder.path("gat"));
            let _ = fs::remove_file(folder.path("all.npy"));
        }
    }
}
