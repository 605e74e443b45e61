//! The score of a run that its predictions come with.

use std::process::Command;

use grappa_tests::program::run;

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
