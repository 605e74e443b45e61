//! Training on a full disk. A limit on the length of files stands in for it.

use std::process::Command;

use grappa_tests::program::{self, run};
use tempfile::tempdir;

/// The unit of a shell's `ulimit -f`.
const FILE_BLOCK: u32 = 512;

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
        let mut shell = Command::new("sh");
        // Ignore the signal, so that writes fail instead.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", (mib << 20) / FILE_BLOCK);
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_grappa-train"), "graph.grappa"]);
        shell.args([
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
        ]);
        shell.args(["--batch", "64", "--partitions", "1", "--threads", "1", "--out", out]);
        run(shell.current_dir(folder.path())).success().stdout
    };
    let kind = |what: &str| format!("pre-aggregated features (mean, {what}) are in the store now");
    let limited = trained(12, "limited");
    assert!(limited.contains(&kind("16.0 MiB")), "{limited}");
    std::fs::remove_dir_all(store.join("aggregates")).unwrap();
    let roomy = trained(64, "roomy");
    assert!(roomy.contains(&kind("32.1 MiB")), "{roomy}");
}
