//! A run that is refused leaves nothing, so the next try can use the same folder.

use std::{path::Path, process::Command};

use grappa_tests::{
    files::memory_folder,
    program::{self, run},
};

fn train(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    command.current_dir(folder).args(["graph.grappa", "--layers", "1"]);
    command.args(["--epochs", "1", "--quiet"]).args(options);
    command
}

#[test]
fn a_refused_run_can_be_tried_again_in_the_same_folder() {
    let folder = memory_folder();
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", "500", "--feature-dim", "8", "--quiet", "--out"]);
    run(generate.arg(folder.path().join("graph.grappa"))).success();

    let at = folder.path().join("run");
    run(&mut train(folder.path(), &["--out", "run", "--partitions", "1000"])).failure(&["1000", "chunks"]);
    assert!(!at.exists());
    run(&mut train(folder.path(), &["--out", "run"])).success();
    run(&mut train(folder.path(), &["--out", "run"])).failure(&["already contains a run"]);
    assert!(at.join("summary.json").exists());
    // Without --out, the folder has the name of the store, not that of a second run.
    run(&mut train(folder.path(), &["--partitions", "1000"])).failure(&["chunks"]);
    run(&mut train(folder.path(), &[])).success();
    assert!(folder.path().join("graph.run/summary.json").exists());
}
