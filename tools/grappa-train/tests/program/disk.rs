//! Training on a full disk.

use grappa_tests::program::{self, run, with_short_files};
use tempfile::tempdir;

use crate::workers::command;

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
