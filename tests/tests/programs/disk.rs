//! On a full disk, useless files are removed, and the error names a remedy.

use std::{fs, path::Path};

use grappa_tests::{
    files::{files_of, memory_folder},
    program::{self, Ran, command, run, with_short_files},
};

/// Runs `grappa-store` with the length of files limited to `kib` KiB.
fn limited(kib: u32, arguments: &[&str], store: &Path) -> Ran {
    let mut command = command("grappa-store");
    let (verb, options) = arguments.split_first().unwrap();
    command.arg(verb).arg(store).args(options);
    run(&mut with_short_files(&command, kib))
}

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
        let mut ingest = program::ingest(&inputs.edges, &out);
        ingest
            .args(["--chunks", "2"])
            .arg("--features")
            .arg(&inputs.features)
            .args(more);
        run(&mut with_short_files(&ingest, kib))
    };
    ingest(64, None).failure(&["graph.grappa.partial", "`ulimit -f`", "--resume"]);
    ingest(64, Some("--resume")).failure(&["--resume"]);
    ingest(10_000, Some("--resume")).success();
    run(command("grappa-store").arg("verify").arg(&out)).success();
    assert!(!fs::exists(folder.path().join("graph.grappa.partial")).unwrap());
}

/// The signal of that limit ended programs without a message.
#[test]
fn a_limit_of_the_length_of_files_is_an_error_that_names_the_file_and_the_limit() {
    let folder = memory_folder();
    let store = store(folder.path(), &["--feature-dim", "16"]);
    let at = |name: &str| folder.path().join(name);
    let mut generate = command("grappa-gen");
    generate.args([
        "rmat",
        "--scale",
        "12",
        "--feature-dim",
        "16",
        "--chunks",
        "2",
        "--quiet",
        "--out",
    ]);
    let mut export = command("grappa-store");
    export.arg("export").arg(&store).arg("--edges");
    let mut preaggregate = command("grappa-store");
    preaggregate.arg("preaggregate").arg(&store).args(["--kind", "mean"]);
    for (name, command) in [
        ("generated.grappa", generate.arg(at("generated.grappa"))),
        ("edges.tsv", export.arg(at("edges.tsv"))),
        ("mean.partial", &mut preaggregate),
    ] {
        let failed = run(&mut with_short_files(command, 64));
        failed.failure(&[name, "File too large", "raise the limit (`ulimit -f`)"]);
    }
}
