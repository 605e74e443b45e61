//! On a full disk, useless files are removed, and the error names a remedy.
//!
//! A limit on file length stands in for a full disk. It needs no privileges, and its errors occur at the same places.

use std::{fs, path::Path, process::Command};

use grappa_tests::{
    files::{files_of, memory_folder},
    program::{Ran, command, program, run},
};

/// Runs `grappa-store` with the length of files limited to `kib` KiB.
fn limited(kib: u32, arguments: &[&str], store: &Path) -> Ran {
    let mut shell = Command::new("sh");
    // Ignore the signal, so that writes fail instead.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kib * 1024 / FILE_BLOCK);
    shell.args(["-c", &script, "sh"]).arg(program("grappa-store"));
    let (verb, options) = arguments.split_first().unwrap();
    shell.arg(verb).arg(store).args(options).env_remove("RUST_BACKTRACE");
    run(&mut shell)
}

/// The unit of a shell's `ulimit -f`.
const FILE_BLOCK: u32 = 512;

fn store(folder: &Path, more: &[&str]) -> std::path::PathBuf {
    let store = folder.join("graph.grappa");
    let mut generate = command("grappa-gen");
    generate
        .args(["rmat", "--scale", "12", "--chunks", "2", "--quiet", "--out"])
        .arg(&store)
        .args(more);
    run(&mut generate).success();
    store
}

#[test]
fn aggregates_that_do_not_fit_leave_nothing_and_name_what_would_help() {
    let folder = memory_folder();
    let store = store(folder.path(), &["--feature-dim", "16"]);
    let before = files_of(&store);
    let failed = limited(64, &["preaggregate", "--kind", "mean"], &store);
    failed.failure(&["mean.partial", "--dtype f16", "--first-hop sampled", "MiB of disk"]);
    assert_eq!(files_of(&store), before);
    assert!(!store.join("aggregates/mean.partial").exists());
    // The disk has space again.
    limited(10_000, &["preaggregate", "--kind", "mean"], &store).success();
}

#[test]
fn features_that_do_not_fit_leave_nothing_and_name_what_would_help() {
    let folder = memory_folder();
    let store = store(folder.path(), &[]);
    let before = files_of(&store);
    for kind in ["degrees", "fastrp"] {
        let failed = limited(64, &["add-features", "--kind", kind], &store);
        failed.failure(&["features.partial", "--dtype", "MiB of disk"]);
        assert_eq!(files_of(&store), before);
        assert!(!store.join("features.partial").exists());
    }
    limited(10_000, &["add-features", "--kind", "fastrp"], &store).success();
}

#[test]
fn an_ingest_that_does_not_fit_goes_on_when_there_is_room() {
    let folder = memory_folder();
    let inputs = grappa_tests::graph::Graph::random(3, 4000, 40_000, 16).write(folder.path());
    let out = folder.path().join("graph.grappa");
    let ingest = |kib: u32, more: Option<&str>| {
        let mut shell = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kib * 1024 / FILE_BLOCK);
        shell.args(["-c", &script, "sh"]).arg(program("grappa-ingest"));
        shell
            .args(["--chunks", "2", "--edges"])
            .arg(&inputs.edges)
            .arg("--out")
            .arg(&out)
            .arg("--features")
            .arg(&inputs.features);
        run(shell.args(more))
    };
    ingest(64, None).failure(&["graph.grappa.partial", "--resume"]);
    ingest(64, Some("--resume")).failure(&["--resume"]);
    ingest(10_000, Some("--resume")).success();
    run(command("grappa-store").arg("verify").arg(&out)).success();
    assert!(!fs::exists(folder.path().join("graph.grappa.partial")).unwrap());
}
