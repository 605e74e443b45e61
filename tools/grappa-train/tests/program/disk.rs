//! Training on a full disk, and under the limits of a shell.

use std::process::Command;

use grappa_tests::program::{self, run, with_short_files};
use tempfile::tempdir;

use crate::workers::{command, folder, train};

#[test]
fn aggregates_are_made_without_features_if_both_do_not_fit() {
    let folder = tempdir().unwrap();
    let store = folder.path().join("graph.grappa");
    let mut generate = program::command("grappa-gen");
    // 65,536 rows of 256 bytes in two chunks: 8 MiB for the aggregates of a chunk, 16 MiB with its features.
    generate.args([
        "rmat",
        "--scale",
        "16",
        "--edge-factor",
        "2",
        "--feature-dim",
        "64",
        "--chunks",
        "2",
    ]);
    generate.args(["--classes", "4", "--train-fraction", "0.01", "--quiet", "--out"]);
    run(generate.arg(&store)).success();
    let trained = |mib: u32, out: &str| {
        let options = [
            "--memory",
            "24MiB",
            "--epochs",
            "1",
            "--layers",
            "2",
            "--hidden",
            "8",
            "--fanouts",
            "3,3",
        ];
        let more = ["--batch", "64", "--partitions", "1", "--out", out];
        let train = command(folder.path(), &[&options[..], &more].concat());
        run(&mut with_short_files(&train, mib << 10)).success().stdout
    };
    let kind = |what: &str| format!("pre-aggregated features (mean, {what}) are in the store now");
    let limited = trained(12, "limited");
    assert!(limited.contains(&kind("16.0 MiB")), "{limited}");
    std::fs::remove_dir_all(store.join("aggregates")).unwrap();
    let roomy = trained(64, "roomy");
    assert!(roomy.contains(&kind("32.1 MiB")), "{roomy}");
}

/// `grappa-train` with the run and the store of `folder`.
fn of_run(folder: &std::path::Path, verb: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    command
        .current_dir(folder)
        .args([verb, "run", "--quiet"])
        .args(arguments);
    command
}

/// The signal of that limit ended programs without a message.
#[test]
fn a_limit_of_the_length_of_files_is_an_error_that_names_what_cannot_be_written() {
    let folder = folder();
    let at = folder.path();
    let options = ["--epochs", "1", "--layers", "1", "--out"];
    run(&mut train(at, &[&options[..], &["run"]].concat())).success();
    for (command, what) in [
        (
            of_run(at, "predict", &["graph.grappa", "--out", "all.parquet"]),
            "cannot write a scratch file",
        ),
        (of_run(at, "export", &["--out", "all.safetensors"]), "all.safetensors"),
        (train(at, &[&options[..], &["other"]].concat()), "other/"),
    ] {
        let failed = run(&mut with_short_files(&command, 1));
        assert_eq!(failed.code, Some(1), "{}", failed.stderr);
        for part in [what, "File too large"] {
            assert!(failed.stderr.contains(part), "{part} in {}", failed.stderr);
        }
    }
}

/// Messages of a process that ends because libtorch, the loader or a thread that has begun gets no memory: none of them can refuse it.
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
    let folder = folder();
    let at = folder.path();
    run(&mut train(at, &["--epochs", "1", "--out", "run"])).success();
    let gat = ["--model", "gat", "--partitions", "4", "--epochs", "1", "--out", "gat"];
    for mebibytes in [300, 480, 560, 700] {
        for command in [
            train(at, &gat),
            of_run(at, "predict", &["graph.grappa", "--out", "all.npy"]),
        ] {
            let mut limited = Command::new("sh");
            limited
                .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
                .arg((mebibytes << 10).to_string());
            let ran = run(&mut program::started_by(limited, &command));
            let is_error = ran.code == Some(1) && ran.stderr.contains("error: ");
            let is_ours = ran.code == Some(0) || is_error;
            assert!(
                is_ours || NOT_OURS.iter().any(|message| ran.stderr.contains(message)),
                "{mebibytes} MiB: {:?} {}",
                ran.code,
                ran.stderr
            );
            assert!(!ran.stderr.contains("panicked"), "{mebibytes} MiB: {}", ran.stderr);
            let _ = std::fs::remove_dir_all(at.join("gat"));
            let _ = std::fs::remove_file(at.join("all.npy"));
        }
    }
}
