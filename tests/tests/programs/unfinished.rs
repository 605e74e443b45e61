//! Unfinished results whose files are damaged, or removed while a process works on them.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use grappa_tests::{
    files::{assert_same, copy_folder, memory_folder, names_in},
    folder::ProgramFolder,
    graph::{Graph, NODE_FILES},
    held::Held,
    kills::{Damage, ingest_jobs},
    program::Ran,
    random::Random,
};

/// Changes a byte in the middle of a file.
fn flip(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let (mut byte, at) = ([0], file.metadata().unwrap().len() / 2);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// A command that makes the store `graph.grappa` in a folder.
struct Making {
    folder: ProgramFolder,
    line: String,
}

impl Making {
    /// An ingest with one worker, so that its files have known names.
    fn ingest() -> Self {
        let folder = ProgramFolder::new();
        Graph::random(1, 3000, 30_000, 8).write(folder.root());
        let line = format!("ingest --edges edges.tsv {NODE_FILES} --chunks 3 --threads 1 --quiet --out graph.grappa");
        Self { folder, line }
    }

    fn store(&self) -> PathBuf {
        self.folder.path("graph.grappa")
    }

    fn partial(&self) -> PathBuf {
        self.folder.path("graph.grappa.partial")
    }

    fn held(&self, change: &str) -> Held {
        Held::before(change, &mut self.folder.command(&self.line))
    }

    fn resume(&self) -> Ran {
        self.folder.run(&format!("{} --resume", self.line))
    }

    /// Kills the command before a change, and flips a byte of a file that it has finished.
    fn flip_before(&self, change: &str, file: &str) {
        assert!(self.held(change).kill());
        flip(&self.partial().join(file));
    }

    /// Resumes the run, which must refuse to go on and name the file. Then does what the error says.
    fn expect_refusal(&self, file: &str) {
        let refused = self.resume().failure(&[file, "start again", "without --resume"]);
        assert!(!self.store().exists(), "a damaged store is published");
        let (_, remedy) = refused.stderr.split_once('`').expect("a command");
        let (remedy, _) = remedy.split_once('`').expect("the end of the command");
        let removed = Command::new("sh").args(["-c", remedy]).current_dir(self.folder.root()).status().unwrap();
        assert!(removed.success() && !self.partial().exists(), "{remedy}");
        self.folder.success(&self.line);
    }
}

const SBM: &str = "gen sbm --nodes 3000 --chunks 3 --threads 1 --quiet";

#[test]
fn a_damaged_file_that_an_ingest_had_finished_is_not_published() {
    need_faults!();
    let making = Making::ingest();
    // Before the manifest is written, and when only the journal is left to remove.
    for (change, file) in [
        ("create manifest.tmp", "chunk-0/features"),
        ("create manifest.tmp", "chunk-2/edges"),
        ("create manifest.tmp", "splits/train.roaring"),
        ("remove journal", "chunk-1/labels"),
    ] {
        making.flip_before(change, file);
        making.expect_refusal(file);
        making.folder.remove("graph.grappa");
    }
}

#[test]
fn a_damaged_dictionary_of_strings_is_refused_and_does_not_keep_ingest_busy() {
    need_faults!();
    let folder = ProgramFolder::new();
    let lines = (0..20_000).map(|k| format!("user-{}\tuser-{}\n", k % 7000, k * 31 % 7000));
    folder.write("edges.tsv", lines.collect::<String>());
    let line = "ingest --edges edges.tsv --ids string --memory 32MiB --threads 1 --quiet --out graph.grappa";
    let making = Making { folder, line: line.to_owned() };
    assert!(making.held("create chunk-0/edges").kill());
    // Keys of strings come from the dictionary, which has checksums, and from no file that has none.
    let scratch = names_in(&making.partial().join("scratch"));
    let is_known = |name: &String| ["edges-", "ids"].iter().any(|known| name.starts_with(known));
    assert!(scratch.iter().all(is_known), "{scratch:?}");
    let dictionary = File::options().write(true).open(making.partial().join("ids/dictionary"));
    dictionary.unwrap().write_all_at(&[0; 64], 8192).unwrap();
    making.expect_refusal("ids/dictionary");
}

#[test]
fn damaged_files_that_can_be_made_again_are() {
    need_faults!();
    let gen_store = format!("{SBM} --feature-dim 8 --out graph.grappa");
    let place = "store place source.grappa --chunks 0,2 --copy --quiet --to graph.grappa";
    for (line, file) in [(&*gen_store, "chunk-1/edges"), (place, "chunk-2/features")] {
        let making = Making { folder: ProgramFolder::new(), line: line.to_owned() };
        let folder = &making.folder;
        folder.success(&format!("{SBM} --feature-dim 8 --out source.grappa"));
        folder.success(line);
        let expected = folder.files("graph.grappa");
        folder.remove("graph.grappa");
        making.flip_before("create manifest.tmp", file);
        making.resume().success();
        assert_same(&making.store(), &expected, file);
    }
}

#[test]
fn damaged_rows_of_an_earlier_run_are_computed_again() {
    need_faults!();
    let folder = ProgramFolder::new();
    folder.success(&format!("{SBM} --feature-dim 8 --out featured"));
    folder.success(&format!("{SBM} --out plain"));
    let add = "store add-features store --kind fastrp --dim 4 --hops 2 --quiet";
    let aggregate = "store preaggregate store --kind mean --quiet";
    for (before, line, change, file) in grappa_skip::cases![
        "featured", aggregate, "create index.tmp", "aggregates/mean.partial/chunk-1";
        "plain", add, "create features.partial/manifest.tmp", "features.partial/rows/chunk-1";
        "plain", add, "create features.partial/manifest.tmp", "features.partial/hop-1/chunk-0";
        // The files are in their places, and only the manifest is missing.
        "plain", add, "rename store/manifest", "chunk-0/features";
    ] {
        let [before, store] = [before, "store"].map(|name| folder.path(name));
        copy_folder(&before, &store);
        folder.success(line);
        let expected = folder.files("store");
        folder.remove("store");
        copy_folder(&before, &store);
        assert!(Held::before(change, &mut folder.command(line)).kill());
        flip(&store.join(file));
        folder.success(line);
        assert_same(&store, &expected, file);
        folder.remove("store");
    }
}

#[test]
fn damage_of_any_kind_in_a_join_on_disk_is_found_or_has_no_effect() {
    need_faults!();
    let [inputs, scratch] = [memory_folder(), memory_folder()];
    let mut jobs = ingest_jobs(inputs.path());
    jobs.retain(|job| job.name == "ingest, string ids joined on disk");
    let job = jobs.remove(0).tried(scratch.path());
    let changes = job.changes.len() as u64;
    let mut random = Random::new(3);
    for (number, damage) in (0..).zip(Damage::ALL) {
        // The last fifth of the changes is the commit.
        let change = changes / 5 + number * changes / 10;
        let limit = Duration::from_secs(60);
        let outcome = job.damage(scratch.path(), change, damage, &mut random, limit);
        outcome.unwrap_or_else(|fault| panic!("change {change}, {damage:?} of {fault}"));
    }
}

#[test]
fn a_damaged_path_of_the_scratch_folder_is_not_followed() {
    need_faults!();
    let mut making = Making::ingest();
    let tmp = making.folder.path("tmp");
    making.line += &format!(" --tmp {}", tmp.display());
    assert!(making.held("create chunk-1/edges").kill());
    // A path that is cut off names the folder of all scratch folders.
    let file = making.partial().join("scratch-folder");
    let path = fs::read(&file).unwrap();
    fs::write(&file, &path[..tmp.as_os_str().len()]).unwrap();
    making.resume().failure(&["scratch-folder", "start again"]);
    assert_eq!(names_in(&tmp).len(), 1, "the scratch folder stays");
}

#[test]
fn an_ingest_whose_unfinished_store_is_removed_stops_and_leaves_the_next_one_alone() {
    need_faults!();
    let making = Making::ingest();
    let folder = &making.folder;
    folder.success(&making.line);
    let expected = folder.files("graph.grappa");
    folder.remove("graph.grappa");
    for change in ["create edges-0-0", "create chunk-0/edges", "create manifest.tmp"] {
        let first = making.held(change);
        folder.remove("graph.grappa.partial");
        let second = making.held("create chunk-1/edges");
        first.release();
        let stopped = first.wait().failure(&["graph.grappa.partial", "removed or replaced"]);
        assert!(!stopped.stderr.contains("--resume"), "{}", stopped.stderr);
        second.release();
        second.wait().success();
        assert_same(&making.store(), &expected, change);
        assert!(!making.partial().exists(), "{change}");
        folder.remove("graph.grappa");
    }
    // Without a second one, the folder stays away.
    let alone = making.held("create chunk-0/edges");
    folder.remove("graph.grappa.partial");
    alone.release();
    alone.wait().failure(&["removed or replaced"]);
    assert!(!making.partial().exists() && !making.store().exists());
}
