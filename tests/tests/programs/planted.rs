//! Planted links and folders with names that programs use are neither followed nor emptied.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
};

use rustix::process::Signal;

use grappa_tests::{
    files::{files_of, names_in},
    folder::ProgramFolder,
    graph::Graph,
    held::Held,
};

const PRECIOUS: &str = "precious";

#[test]
fn a_link_in_place_of_the_next_assignment_is_not_followed() {
    let folder = ProgramFolder::new();
    folder.success("gen rmat --scale 8 --chunks 4 --quiet --out graph.grappa");
    let victim = folder.write("victim", PRECIOUS);
    let assignments = folder.path("graph.grappa/assignments");
    for name in ["1.tmp", "CURRENT.tmp"] {
        symlink(&victim, assignments.join(name)).unwrap();
    }
    folder.success("store repartition graph.grappa --partitions 2");
    assert_eq!(folder.read("victim"), PRECIOUS);
    assert_eq!(names_in(&assignments), ["0", "1", "CURRENT"]);
    for name in ["1", "CURRENT"] {
        assert!(!assignments.join(name).is_symlink());
    }
    folder.success("store verify graph.grappa");
}

/// A folder with the files of a graph.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    Graph::random(1, 4000, 60_000, 16).write(folder.root());
    folder
}

/// An ingest with scratch files in the folder `tmp`.
fn ingest(store: &str) -> String {
    let files = "--edges edges.tsv --features features.npy --labels labels.npy --train train.npy";
    format!("ingest {files} --chunks 8 --memory 24MiB --quiet --tmp tmp --out {store}")
}

fn resume() -> String {
    ingest("graph.grappa") + " --resume"
}

/// Starts an ingest and kills it after it has spilled. Returns its scratch folder.
fn killed_ingest(folder: &ProgramFolder) -> PathBuf {
    let mut command = folder.command(&ingest("graph.grappa"));
    assert!(Held::before("create chunk-0/edges", &mut command).kill());
    let names = names_in(&folder.path("tmp"));
    let [name] = &names[..] else { panic!("one folder for scratch files") };
    let scratch = folder.path("tmp").join(name);
    assert!(!names_in(&scratch).is_empty(), "nothing is spilled");
    scratch
}

#[test]
fn scratch_files_are_in_a_private_folder_that_resume_finds() {
    need_faults!();
    let folder = folder();
    let [first, second] = [(), ()].map(|()| {
        let scratch = killed_ingest(&folder);
        assert_eq!(fs::metadata(&scratch).unwrap().mode() & 0o777, 0o700);
        folder.success(&resume());
        assert_eq!(names_in(&folder.path("tmp")), [""; 0]);
        folder.remove("graph.grappa");
        scratch
    });
    assert_ne!(first, second, "others can guess the name");
}

#[test]
fn scratch_files_of_a_removed_store_are_named_and_the_next_run_removes_them() {
    need_faults!();
    let folder = folder();
    let scratch = killed_ingest(&folder);
    let name = scratch.file_name().unwrap().to_str().unwrap();
    folder.run(&ingest("graph.grappa")).failure(&["an earlier run left", name, "--resume"]);

    let interrupted = Held::before("create chunk-0/edges", &mut folder.command(&resume()));
    interrupted.signal(Signal::TERM);
    let stderr = interrupted.wait().stderr;
    assert!(stderr.contains(name) && stderr.contains("--resume"), "{stderr}");

    folder.remove("graph.grappa.partial");
    // A folder with the same contents that others can access, and a link to a private one, may be planted.
    let planted = ["tmp/grappa-scratch-0000000000000000", "tmp/own"];
    for copy in planted {
        folder.write(&format!("{copy}/file"), PRECIOUS);
        fs::copy(scratch.join("store"), folder.path(copy).join("store")).unwrap();
    }
    fs::set_permissions(folder.path("tmp/own"), Permissions::from_mode(0o700)).unwrap();
    symlink(folder.path("tmp/own"), folder.path("tmp/grappa-scratch-0000000000000001")).unwrap();
    folder.success(&ingest("other.grappa"));
    assert!(scratch.exists(), "another store removed it");
    folder.success(&ingest("graph.grappa"));
    assert!(!scratch.exists());
    for copy in planted {
        assert_eq!(folder.read(&format!("{copy}/file")), PRECIOUS);
    }
}

#[test]
fn a_planted_scratch_folder_is_neither_followed_nor_emptied() {
    need_faults!();
    let folder = folder();
    let scratch = killed_ingest(&folder);
    let own = folder.path("own");
    fs::rename(&scratch, &own).unwrap();

    folder.write("victim/file", PRECIOUS);
    symlink(folder.path("victim"), &scratch).unwrap();
    folder.run(&resume()).failure(&["grappa-scratch-", "other users"]);
    assert_eq!(folder.read("victim/file"), PRECIOUS);
    fs::remove_file(&scratch).unwrap();

    // A folder that others may write to can contain anything.
    fs::create_dir(&scratch).unwrap();
    fs::write(scratch.join("file"), PRECIOUS).unwrap();
    folder.run(&resume()).failure(&["grappa-scratch-", "other users"]);
    assert_eq!(fs::read_to_string(scratch.join("file")).unwrap(), PRECIOUS);
    fs::remove_dir_all(&scratch).unwrap();

    fs::rename(&own, &scratch).unwrap();
    folder.success(&resume());
    assert_eq!(names_in(&folder.path("tmp")), [""; 0]);
}

#[test]
fn a_pipe_in_place_of_a_spill_file_is_refused_at_once() {
    need_faults!();
    let folder = folder();
    // A second thread would remove spill files meanwhile.
    let mut command = folder.command(&(ingest("graph.grappa") + " --threads 1"));
    let ingest = Held::before("create chunk-0/edges", &mut command);
    let tmp = folder.path("tmp");
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
    let folder = folder();
    folder.write("graph.grappa.partial/thesis.tex", PRECIOUS);
    folder.run("ingest --edges edges.tsv --out graph.grappa --resume").failure(&["thesis.tex", "--out"]);
    assert_eq!(folder.read("graph.grappa.partial/thesis.tex"), PRECIOUS);
}

#[test]
fn an_export_leaves_a_folder_beside_it_alone() {
    let folder = ProgramFolder::new();
    folder.success("gen rmat --scale 8 --feature-dim 4 --quiet --out graph.grappa");
    folder.write("x.npy.scratch/thesis.tex", PRECIOUS);
    folder.success("store export graph.grappa --features x.npy");
    assert_eq!(folder.read("x.npy.scratch/thesis.tex"), PRECIOUS);
    // The program's own scratch file has no name.
    assert_eq!(folder.names(), ["graph.grappa", "x.npy", "x.npy.scratch"]);
}
