//! Planted links and folders with names that programs use are neither followed nor emptied.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;

use grappa_tests::{
    files::{files_of, memory_folder, names_in},
    graph::{Graph, GraphFiles},
    held::{self, Held},
    program::{self, CommandWords, command, run},
};

const PRECIOUS: &str = "precious";

#[test]
fn a_link_in_place_of_the_next_assignment_is_not_followed() {
    let folder = memory_folder();
    let [store, victim] = ["graph.grappa", "victim"].map(|name| folder.path().join(name));
    run(command("grappa-gen")
        .words("rmat --scale 8 --chunks 4 --quiet --out")
        .arg(&store))
    .success();
    fs::write(&victim, PRECIOUS).unwrap();
    for name in ["1.tmp", "CURRENT.tmp"] {
        symlink(&victim, store.join("assignments").join(name)).unwrap();
    }
    run(command("grappa-store")
        .arg("repartition")
        .arg(&store)
        .args(["--partitions", "2"]))
    .success();
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert_eq!(names_in(&store.join("assignments")), ["0", "1", "CURRENT"]);
    for name in ["1", "CURRENT"] {
        assert!(!store.join("assignments").join(name).is_symlink());
    }
    run(command("grappa-store").arg("verify").arg(&store)).success();
}

/// An ingest with scratch files in the folder `tmp`.
fn ingest(files: &GraphFiles, store: &Path, tmp: &Path) -> Command {
    let mut command = program::ingest(&files.edges, store);
    files.node_arguments(&mut command);
    command.words("--chunks 8 --memory 24MiB --quiet --tmp").arg(tmp);
    command
}

/// Starts an ingest and kills it after it has spilled. Returns its scratch folder.
fn killed_ingest(files: &GraphFiles, store: &Path, tmp: &Path) -> PathBuf {
    assert!(Held::before("create chunk-0/edges", &mut ingest(files, store, tmp)).kill());
    let folders = fs::read_dir(tmp).unwrap().map(|entry| entry.unwrap().path());
    let [scratch] = &folders.collect::<Vec<_>>()[..] else {
        panic!("one folder for scratch files")
    };
    assert!(!names_in(scratch).is_empty(), "nothing is spilled");
    scratch.clone()
}

#[test]
fn scratch_files_are_in_a_private_folder_that_resume_finds() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let folder = memory_folder();
    let files = Graph::random(1, 20_000, 400_000, 16).write(folder.path());
    let [store, tmp] = ["graph.grappa", "tmp"].map(|name| folder.path().join(name));
    let mut names = Vec::new();
    for _ in 0..2 {
        let scratch = killed_ingest(&files, &store, &tmp);
        assert_eq!(fs::metadata(&scratch).unwrap().mode() & 0o777, 0o700);
        names.push(scratch);
        run(ingest(&files, &store, &tmp).arg("--resume")).success();
        assert_eq!(names_in(&tmp), [""; 0]);
        fs::remove_dir_all(&store).unwrap();
    }
    assert_ne!(names[0], names[1], "others can guess the name");
}

#[test]
fn scratch_files_of_a_removed_store_are_named_and_the_next_run_removes_them() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let folder = memory_folder();
    let files = Graph::random(1, 20_000, 400_000, 16).write(folder.path());
    let [store, other, tmp, partial] =
        ["graph.grappa", "other.grappa", "tmp", "graph.grappa.partial"].map(|name| folder.path().join(name));
    let scratch = killed_ingest(&files, &store, &tmp);
    let name = scratch.file_name().unwrap().to_str().unwrap();
    run(&mut ingest(&files, &store, &tmp)).failure(&["an earlier run left", name, "--resume"]);

    let interrupted = Held::before("create chunk-0/edges", ingest(&files, &store, &tmp).arg("--resume"));
    interrupted.signal(Signal::TERM);
    let ran = interrupted.wait();
    assert!(
        ran.stderr.contains(name) && ran.stderr.contains("--resume"),
        "{}",
        ran.stderr
    );

    fs::remove_dir_all(&partial).unwrap();
    // A folder with the same contents that others can access, and a link to a private one, may be planted.
    let [open, own] = ["grappa-scratch-0000000000000000", "own"].map(|name| tmp.join(name));
    for copy in [&open, &own] {
        fs::create_dir(copy).unwrap();
        fs::copy(scratch.join("store"), copy.join("store")).unwrap();
        fs::write(copy.join("file"), PRECIOUS).unwrap();
    }
    fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
    symlink(&own, tmp.join("grappa-scratch-0000000000000001")).unwrap();
    run(&mut ingest(&files, &other, &tmp)).success();
    assert!(scratch.exists(), "another store removed it");
    run(&mut ingest(&files, &store, &tmp)).success();
    assert!(!scratch.exists());
    for copy in [&open, &own] {
        assert_eq!(fs::read_to_string(copy.join("file")).unwrap(), PRECIOUS);
    }
}

#[test]
fn a_planted_scratch_folder_is_neither_followed_nor_emptied() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let folder = memory_folder();
    let files = Graph::random(1, 20_000, 400_000, 16).write(folder.path());
    let [store, tmp, victim] = ["graph.grappa", "tmp", "victim"].map(|name| folder.path().join(name));
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), PRECIOUS).unwrap();
    let scratch = killed_ingest(&files, &store, &tmp);
    let own = folder.path().join("own");
    fs::rename(&scratch, &own).unwrap();

    symlink(&victim, &scratch).unwrap();
    run(ingest(&files, &store, &tmp).arg("--resume")).failure(&["grappa-scratch-", "other users"]);
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), PRECIOUS);
    fs::remove_file(&scratch).unwrap();

    // A folder that others may write to can contain anything.
    fs::create_dir(&scratch).unwrap();
    fs::write(scratch.join("file"), PRECIOUS).unwrap();
    run(ingest(&files, &store, &tmp).arg("--resume")).failure(&["grappa-scratch-", "other users"]);
    assert_eq!(fs::read_to_string(scratch.join("file")).unwrap(), PRECIOUS);
    fs::remove_dir_all(&scratch).unwrap();

    fs::rename(&own, &scratch).unwrap();
    run(ingest(&files, &store, &tmp).arg("--resume")).success();
    assert_eq!(names_in(&tmp), [""; 0]);
}

#[test]
fn a_pipe_in_place_of_a_spill_file_is_refused_at_once() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let folder = memory_folder();
    let files = Graph::random(1, 20_000, 400_000, 16).write(folder.path());
    let [store, tmp] = ["graph.grappa", "tmp"].map(|name| folder.path().join(name));
    let ingest = Held::before(
        "create chunk-0/edges",
        // A second thread would remove spill files meanwhile.
        ingest(&files, &store, &tmp).args(["--threads", "1"]),
    );
    let spilled = files_of(&tmp).into_keys().map(|path| tmp.join(path));
    for path in spilled.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("edges-")) {
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    ingest.release();
    ingest.wait().failure(&["edges-", "this is a pipe"]);
}

#[test]
fn a_folder_that_is_no_unfinished_store_is_not_emptied() {
    let folder = memory_folder();
    let files = Graph::random(1, 100, 1000, 2).write(folder.path());
    let store = folder.path().join("graph.grappa");
    let partial = folder.path().join("graph.grappa.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("thesis.tex"), PRECIOUS).unwrap();
    run(program::ingest(&files.edges, &store).arg("--resume")).failure(&["thesis.tex", "--out"]);
    assert_eq!(fs::read_to_string(partial.join("thesis.tex")).unwrap(), PRECIOUS);
}

#[test]
fn an_export_leaves_a_folder_beside_it_alone() {
    let folder = memory_folder();
    let [store, features] = ["graph.grappa", "features.npy"].map(|name| folder.path().join(name));
    let mut generate = command("grappa-gen");
    generate.words("rmat --scale 8 --feature-dim 4 --quiet --out");
    run(generate.arg(&store)).success();
    let beside = folder.path().join("features.npy.scratch");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("thesis.tex"), PRECIOUS).unwrap();
    let mut export = command("grappa-store");
    run(export.arg("export").arg(&store).arg("--features").arg(&features)).success();
    assert_eq!(fs::read_to_string(beside.join("thesis.tex")).unwrap(), PRECIOUS);
    // The program's own scratch file has no name.
    assert_eq!(
        names_in(folder.path()),
        ["features.npy", "features.npy.scratch", "graph.grappa"]
    );
}
