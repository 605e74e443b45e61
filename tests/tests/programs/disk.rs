//! On a full disk, useless files are removed, and the error names a remedy.

use grappa_tests::{
    folder::ProgramFolder,
    graph::Graph,
    program::{Ran, run, with_short_files},
};

/// Runs a command with the length of files limited to `kib` KiB.
fn limited(folder: &ProgramFolder, kib: u32, line: &str) -> Ran {
    run(&mut with_short_files(&folder.command(line), kib))
}

/// A folder with a store.
fn folder(options: &str) -> ProgramFolder {
    let folder = ProgramFolder::new();
    folder.success(&format!("gen rmat --scale 12 --chunks 2 --quiet --out graph.grappa {options}"));
    folder
}

#[test]
fn aggregates_that_do_not_fit_leave_nothing_and_name_what_would_help() {
    let folder = folder("--feature-dim 16");
    let before = folder.files("graph.grappa");
    let preaggregate = "store preaggregate graph.grappa --kind mean";
    let remedies = ["mean.partial", "--dtype f16", "--first-hop sampled", "MiB of disk"];
    limited(&folder, 64, preaggregate).failure(&remedies);
    assert_eq!(folder.files("graph.grappa"), before);
    assert!(!folder.path("graph.grappa/aggregates/mean.partial").exists());
    // The disk has space again.
    limited(&folder, 10_000, preaggregate).success();
}

#[test]
fn features_that_do_not_fit_leave_nothing_and_name_what_would_help() {
    let folder = folder("");
    let before = folder.files("graph.grappa");
    for kind in ["degrees", "fastrp"] {
        let failed = limited(&folder, 64, &format!("store add-features graph.grappa --kind {kind}"));
        failed.failure(&["features.partial", "--dtype", "MiB of disk"]);
        assert_eq!(folder.files("graph.grappa"), before);
        assert!(!folder.path("graph.grappa/features.partial").exists());
    }
    limited(&folder, 10_000, "store add-features graph.grappa --kind fastrp").success();
}

#[test]
fn an_ingest_that_does_not_fit_goes_on_when_there_is_room() {
    let folder = ProgramFolder::new();
    Graph::random(3, 4000, 40_000, 16).write(folder.root());
    let ingest = |kib: u32, more: &str| {
        let line = "ingest --edges edges.tsv --features features.npy --chunks 2 --out graph.grappa";
        limited(&folder, kib, &format!("{line} {more}"))
    };
    ingest(64, "").failure(&["graph.grappa.partial", "`ulimit -f`", "--resume"]);
    ingest(64, "--resume").failure(&["--resume"]);
    ingest(10_000, "--resume").success();
    folder.success("store verify graph.grappa");
    assert!(!folder.path("graph.grappa.partial").exists());
}

/// The signal of that limit ended programs without a message.
#[test]
fn a_limit_of_the_length_of_files_is_an_error_that_names_the_file_and_the_limit() {
    let folder = folder("--feature-dim 16");
    for (name, line) in grappa_skip::cases![
        "new.grappa", "gen rmat --scale 12 --feature-dim 16 --chunks 2 --quiet --out new.grappa";
        "edges.tsv", "store export graph.grappa --edges edges.tsv";
        "mean.partial", "store preaggregate graph.grappa --kind mean";
    ] {
        let parts = [name, "File too large", "raise the limit (`ulimit -f`)"];
        limited(&folder, 64, line).failure(&parts);
    }
}
