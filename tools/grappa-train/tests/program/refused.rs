//! A run that is refused leaves nothing, so the next try can use the same folder.

use grappa_tests::program::run;

use crate::fixture::TrainFolder;

#[test]
fn a_refused_run_can_be_tried_again_in_the_same_folder() {
    let folder = TrainFolder::with("sbm --nodes 500 --feature-dim 8");
    let train = |options: &str| run(&mut folder.train(&format!("--layers 1 --epochs 1 {options}")));
    train("--out run --partitions 1000").failure(&["1000", "chunks"]);
    assert!(!folder.path("run").exists());
    train("--out run").success();
    train("--out run").failure(&["already contains a run"]);
    assert!(folder.path("run/summary.json").exists());
    // Without --out, the folder has the name of the store, not that of a second run.
    train("--partitions 1000").failure(&["chunks"]);
    train("").success();
    assert!(folder.path("graph.run/summary.json").exists());
}
