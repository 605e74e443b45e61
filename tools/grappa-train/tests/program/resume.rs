//! Options of a resumed run override the options of the run, and not the defaults.

use std::fs;

use grappa_tests::program::run;

use crate::fixture::{TrainFolder, assert_failed};

#[test]
fn a_resumed_run_checks_its_options_with_those_of_the_run() {
    let folder = TrainFolder::new();
    let whole = "--layers 3 --fanouts 5,5,5 --optimizer sgd --momentum 0.5";
    folder.trained(&format!("{whole} --epochs 1 --partitions 2 --out run"));
    // Alone, each of them contradicts the defaults.
    for (epochs, options) in [(2, "--fanouts 5,5,5"), (3, "--momentum 0.5 --workers 2")] {
        folder.trained(&format!("--resume --epochs {epochs} --out run {options}"));
        assert_eq!(folder.metrics("run").len(), epochs);
    }
    for (options, error) in grappa_skip::cases![
        "--resume --out run --layers 2", "the run to resume has layers 3, and layers 2 was given";
        "--resume --out run --keep 0", "keep is 0";
        // A new run has the defaults.
        "--resume auto --fanouts 5,5,5 --out new", "fanouts 5,5,5 are for 3 layer(s), and the model has 2";
    ] {
        run(&mut folder.train(options)).failure(&[error]);
    }
}

#[test]
fn a_resumed_run_says_where_it_continues_and_why_it_ends() {
    let folder = TrainFolder::new();
    let expect = |options: &str, expected: &str| {
        let stdout = folder.trained(&format!("--out run --layers 1 {options}")).stdout;
        assert!(stdout.contains(expected), "{stdout}");
        stdout
    };
    let first = expect("--epochs 2", "");
    assert!(!first.contains("continue"), "{first}");
    expect("--resume --epochs 3", "continues after epoch 2 of 3, from run/checkpoints/step-");
    expect("--resume --epochs 1", "the run is finished (3 of 3 epochs)");
    fs::remove_dir_all(folder.path("run/checkpoints")).unwrap();
    expect("--resume --epochs 2", "no checkpoint to continue from: training starts with epoch 1");

    // Without learning no evaluation is better than the first.
    let options = "--out early --layers 1 --epochs 9 --lr 1e-30 --early-stopping 2 --workers 2";
    let early = folder.trained(options).stdout;
    for part in [
        "early stopping ended the run after epoch 3 of 9: 2 evaluation(s) without a better one",
        "(epoch 1 of 3, ended by early stopping)",
    ] {
        assert!(early.contains(part), "{early}");
    }
    let summary = folder.summary("early");
    assert_eq!((&summary["early_stopping_epoch"], &summary["processes"]), (&3.into(), &2.into()));
    assert!(folder.read("early/report.html").contains("<dt>processes</dt><dd>2</dd>"));
}

#[test]
fn an_error_of_several_processes_has_its_cause_once() {
    let folder = TrainFolder::new();
    let ran = run(&mut folder.train("--epochs 1 --workers 2 --out graph.grappa/manifest/run"));
    assert_failed(&ran, &["cannot create"]);
    for line in ran.stderr.lines().filter(|line| line.contains("cannot create")) {
        assert_eq!(line.matches("Not a directory").count(), 1, "{line}");
    }
}
