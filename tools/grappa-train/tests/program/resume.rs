//! Options of a resumed run go over those of the run, and not over the defaults.

use std::fs;

use grappa_tests::program::run;

use crate::workers::{command, folder, metrics, train};

#[test]
fn a_resumed_run_checks_its_options_with_those_of_the_run() {
    let folder = folder();
    let whole = [
        "--layers",
        "3",
        "--fanouts",
        "5,5,5",
        "--optimizer",
        "sgd",
        "--momentum",
        "0.5",
    ];
    let out = ["--out", "run"];
    run(&mut train(
        folder.path(),
        &[&whole[..], &["--epochs", "1", "--partitions", "2"], &out].concat(),
    ))
    .success();
    // Alone, each of them contradicts the defaults.
    for (epochs, options) in [
        ("2", &["--fanouts", "5,5,5"][..]),
        ("3", &["--momentum", "0.5"]),
        ("4", &["--momentum", "0.5", "--workers", "2"]),
    ] {
        let resumed = [&["--resume", "--epochs", epochs], &out[..], options].concat();
        run(&mut train(folder.path(), &resumed)).success();
        assert_eq!(metrics(&folder.path().join("run")).len().to_string(), epochs);
    }
    let refused = |options: &[&str], expected: &[&str]| {
        let resumed = [&["--resume"], &out[..], options].concat();
        run(&mut train(folder.path(), &resumed)).failure(expected);
    };
    refused(
        &["--layers", "2"],
        &["the run to resume has layers 3, and layers 2 was given"],
    );
    refused(&["--keep", "0"], &["keep is 0"]);
    // A new run has the defaults.
    let new = ["--resume", "auto", "--fanouts", "5,5,5", "--out", "new"];
    run(&mut train(folder.path(), &new)).failure(&["fanouts 5,5,5 are for 3 layer(s), and the model has 2"]);
}

#[test]
fn a_resumed_run_says_where_it_continues_and_why_it_ends() {
    let folder = folder();
    let out = ["--out", "run", "--layers", "1"];
    let stdout = |options: &[&str]| {
        run(&mut command(folder.path(), &[&out[..], options].concat()))
            .success()
            .stdout
    };
    let first = stdout(&["--epochs", "2"]);
    assert!(!first.contains("continue"), "{first}");
    let more = stdout(&["--resume", "--epochs", "3"]);
    assert!(
        more.contains("continues after epoch 2 of 3, from run/checkpoints/step-"),
        "{more}"
    );
    let fewer = stdout(&["--resume", "--epochs", "1"]);
    assert!(fewer.contains("the run is finished (3 of 3 epochs)"), "{fewer}");
    fs::remove_dir_all(folder.path().join("run/checkpoints")).unwrap();
    let again = stdout(&["--resume", "--epochs", "2"]);
    assert!(
        again.contains("no checkpoint to continue from: training starts with epoch 1"),
        "{again}"
    );

    // Without learning no evaluation is better than the first.
    let options = [
        "--out",
        "early",
        "--layers",
        "1",
        "--epochs",
        "9",
        "--lr",
        "1e-30",
        "--early-stopping",
        "2",
        "--workers",
        "2",
    ];
    let early = run(&mut command(folder.path(), &options)).success().stdout;
    assert!(
        early.contains("early stopping ended the run after epoch 3 of 9: 2 evaluation(s) without a better one")
            && early.contains("(epoch 1 of 3, ended by early stopping)"),
        "{early}"
    );
    let summary = fs::read_to_string(folder.path().join("early/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(
        (&summary["early_stopping_epoch"], &summary["processes"]),
        (&3.into(), &2.into())
    );
    let report = fs::read_to_string(folder.path().join("early/report.html")).unwrap();
    assert!(report.contains("<dt>processes</dt><dd>2</dd>"));
}

#[test]
fn an_error_of_several_processes_has_its_cause_once() {
    let folder = folder();
    let options = ["--epochs", "1", "--workers", "2", "--out", "graph.grappa/manifest/run"];
    let ran = run(&mut train(folder.path(), &options));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for line in ran.stderr.lines().filter(|line| line.contains("cannot create")) {
        assert_eq!(line.matches("Not a directory").count(), 1, "{line}");
    }
    assert!(ran.stderr.contains("cannot create"), "{}", ran.stderr);
}
