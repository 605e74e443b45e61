//! Options of a resumed run go over those of the run, and not over the defaults.

use grappa_tests::program::run;

use crate::workers::{folder, metrics, train};

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
