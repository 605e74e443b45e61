//! Unfinished results whose files are damaged, or removed while a process works on them.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use grappa_tests::{
    files::{assert_same, copy_folder, files_of, memory_folder, names_in},
    graph::Graph,
    held::Held,
    kills::{Damage, ingest_jobs},
    program::{self, CommandWords, Ran, command, run},
    random::Random,
};

/// Changes a byte in the middle of a file.
fn flip(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let (mut byte, at) = ([0], file.metadata().unwrap().len() / 2);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// Holds the command before a change, kills it there, and lets `damage` change what it left.
fn kill_before(change: &str, command: &mut Command, damage: impl FnOnce()) {
    assert!(Held::before(change, command).kill());
    damage();
}

/// A command that makes a store, and the folder in which it grows.
struct Making<'a> {
    store: PathBuf,
    command: &'a dyn Fn(&Path) -> Command,
}

impl Making<'_> {
    fn partial(&self) -> PathBuf {
        self.store.with_extension("grappa.partial")
    }

    fn resume(&self) -> Ran {
        run((self.command)(&self.store).arg("--resume"))
    }

    /// Kills the command before a change, and flips a byte of a file that it has finished.
    fn flip_before(&self, change: &str, file: &str) {
        kill_before(change, &mut (self.command)(&self.store), || flip(&self.partial().join(file)));
    }

    /// Resumes the run, which must refuse to go on and name the file. Then does what the error says.
    fn expect_refusal(&self, file: &str) {
        let refused = self.resume().failure(&[file, "start again", "without --resume"]);
        assert!(!self.store.exists(), "a damaged store is published");
        let (_, remedy) = refused.stderr.split_once('`').expect("a command");
        let (remedy, _) = remedy.split_once('`').expect("the end of the command");
        assert!(Command::new("sh").args(["-c", remedy]).status().unwrap().success());
        assert!(!self.partial().exists(), "{remedy}");
        run(&mut (self.command)(&self.store)).success();
    }
}

fn ingest(inputs: &Path) -> impl Fn(&Path) -> Command {
    let files = Graph::random(1, 3000, 30_000, 8).write(inputs);
    move |store| {
        let mut command = program::ingest(&files.edges, store);
        files.node_arguments(&mut command);
        // One worker, so that its files have known names.
        command.words("--chunks 3 --threads 1 --quiet");
        command
    }
}

fn sbm(store: &Path) -> Command {
    let mut command = command("grappa-gen");
    command.words("sbm --nodes 3000 --feature-dim 8 --chunks 3");
    command.words("--threads 1 --quiet --out").arg(store);
    command
}

#[test]
fn a_damaged_file_that_an_ingest_had_finished_is_not_published() {
    need_faults!();
    let folder = memory_folder();
    let command = ingest(folder.path());
    let making = Making { store: folder.path().join("graph.grappa"), command: &command };
    // Before the manifest is written, and when only the journal is left to remove.
    for (change, file) in [
        ("create manifest.tmp", "chunk-0/features"),
        ("create manifest.tmp", "chunk-2/edges"),
        ("create manifest.tmp", "splits/train.roaring"),
        ("remove journal", "chunk-1/labels"),
    ] {
        making.flip_before(change, file);
        making.expect_refusal(file);
        fs::remove_dir_all(&making.store).unwrap();
    }
}

#[test]
fn a_damaged_dictionary_of_strings_is_refused_and_does_not_keep_ingest_busy() {
    need_faults!();
    let folder = memory_folder();
    let edges = folder.path().join("edges.tsv");
    let lines = (0..20_000).map(|k| format!("user-{}\tuser-{}\n", k % 7000, k * 31 % 7000));
    fs::write(&edges, lines.collect::<String>()).unwrap();
    let command = |store: &Path| {
        let mut command = program::ingest(&edges, store);
        command.words("--ids string --memory 32MiB --threads 1 --quiet");
        command
    };
    let making = Making { store: folder.path().join("graph.grappa"), command: &command };
    kill_before("create chunk-0/edges", &mut command(&making.store), || {
        let partial = making.partial();
        // Keys of strings come from the dictionary, which has checksums, and from no file that has none.
        let scratch = names_in(&partial.join("scratch"));
        let is_known = |name: &String| ["edges-", "ids"].iter().any(|known| name.starts_with(known));
        assert!(scratch.iter().all(is_known), "{scratch:?}");
        let dictionary = File::options().write(true).open(partial.join("ids/dictionary"));
        dictionary.unwrap().write_all_at(&[0; 64], 8192).unwrap();
    });
    making.expect_refusal("ids/dictionary");
}

#[test]
fn damaged_files_that_can_be_made_again_are() {
    need_faults!();
    let folder = memory_folder();
    let [source, generated, placed] = ["source", "generated", "placed"].map(|name| folder.path().join(name));
    let source = source.with_extension("grappa");
    run(&mut sbm(&source)).success();
    let place = |store: &Path| {
        let mut command = command("grappa-store");
        command.arg("place").arg(&source).words("--chunks 0,2 --copy --quiet --to");
        command.arg(store);
        command
    };
    for (store, command, file) in
        [(&generated, &sbm as &dyn Fn(&Path) -> Command, "chunk-1/edges"), (&placed, &place, "chunk-2/features")]
    {
        let store = store.with_extension("grappa");
        run(&mut command(&store)).success();
        let expected = files_of(&store);
        fs::remove_dir_all(&store).unwrap();
        let making = Making { store, command };
        making.flip_before("create manifest.tmp", file);
        making.resume().success();
        assert_same(&making.store, &expected, file);
    }
}

#[test]
fn damaged_rows_of_an_earlier_run_are_computed_again() {
    need_faults!();
    let folder = memory_folder();
    let [plain, featured] = ["plain", "featured"].map(|name| folder.path().join(name));
    run(&mut sbm(&featured)).success();
    let mut without = command("grappa-gen");
    without.words("sbm --nodes 3000 --chunks 3 --quiet --out");
    run(without.arg(&plain)).success();
    let add: &[&str] = &["add-features", "--kind", "fastrp", "--dim", "4", "--hops", "2"];
    let aggregate: &[&str] = &["preaggregate", "--kind", "mean"];
    for (before, arguments, change, file) in grappa_skip::cases![
        &featured, aggregate, "create index.tmp", "aggregates/mean.partial/chunk-1";
        &plain, add, "create features.partial/manifest.tmp", "features.partial/rows/chunk-1";
        &plain, add, "create features.partial/manifest.tmp", "features.partial/hop-1/chunk-0";
        // The files are in their places, and only the manifest is missing.
        &plain, add, "rename store/manifest", "chunk-0/features";
    ] {
        let store = folder.path().join("store");
        copy_folder(before, &store);
        let make = || {
            let mut command = command("grappa-store");
            command.arg("--quiet").arg(arguments[0]).arg(&store).args(&arguments[1..]);
            command
        };
        run(&mut make()).success();
        let expected = files_of(&store);
        fs::remove_dir_all(&store).unwrap();
        copy_folder(before, &store);
        kill_before(change, &mut make(), || flip(&store.join(file)));
        run(&mut make()).success();
        assert_same(&store, &expected, file);
        fs::remove_dir_all(&store).unwrap();
    }
}

#[test]
fn damage_of_any_kind_in_a_join_on_disk_is_found_or_has_no_effect() {
    need_faults!();
    let [inputs, scratch] = [memory_folder(), memory_folder()];
    let mut jobs = ingest_jobs(inputs.path());
    jobs.retain(|(job, _)| job.name == "ingest, string ids joined on disk");
    let job = jobs.remove(0).0.tried(scratch.path(), 1);
    let changes = job.changes(scratch.path()).len() as u64;
    let mut random = Random::new(3);
    for (number, damage) in (0..).zip(Damage::ALL) {
        // The last fifth of the changes is the commit.
        let change = changes / 5 + number * changes / 10;
        let limit = Duration::from_secs(60);
        let (outcome, file) = job.damage(scratch.path(), change, damage, &mut random, limit);
        assert!(!outcome.is_fault(), "change {change}, {damage:?} of {}: {outcome:?}", file.display());
    }
}

#[test]
fn a_damaged_path_of_the_scratch_folder_is_not_followed() {
    need_faults!();
    let folder = memory_folder();
    let plain = ingest(folder.path());
    let tmp = folder.path().join("tmp");
    let command = |store: &Path| {
        let mut command = plain(store);
        command.arg("--tmp").arg(&tmp);
        command
    };
    let making = Making { store: folder.path().join("graph.grappa"), command: &command };
    kill_before("create chunk-1/edges", &mut command(&making.store), || {
        // A path that is cut off names the folder of all scratch folders.
        let file = making.partial().join("scratch-folder");
        let path = fs::read(&file).unwrap();
        fs::write(&file, &path[..tmp.as_os_str().len()]).unwrap();
    });
    making.resume().failure(&["scratch-folder", "start again"]);
    assert_eq!(names_in(&tmp).len(), 1, "the scratch folder stays");
}

#[test]
fn an_ingest_whose_unfinished_store_is_removed_stops_and_leaves_the_next_one_alone() {
    need_faults!();
    let folder = memory_folder();
    let command = ingest(folder.path());
    let making = Making { store: folder.path().join("graph.grappa"), command: &command };
    run(&mut command(&making.store)).success();
    let expected = files_of(&making.store);
    fs::remove_dir_all(&making.store).unwrap();
    for change in ["create edges-0-0", "create chunk-0/edges", "create manifest.tmp"] {
        let first = Held::before(change, &mut command(&making.store));
        fs::remove_dir_all(making.partial()).unwrap();
        let second = Held::before("create chunk-1/edges", &mut command(&making.store));
        first.release();
        let stopped = first.wait().failure(&["graph.grappa.partial", "removed or replaced"]);
        assert!(!stopped.stderr.contains("--resume"), "{}", stopped.stderr);
        second.release();
        second.wait().success();
        assert_same(&making.store, &expected, change);
        assert!(!making.partial().exists(), "{change}");
        fs::remove_dir_all(&making.store).unwrap();
    }
    // Without a second one, the folder stays away.
    let alone = Held::before("create chunk-0/edges", &mut command(&making.store));
    fs::remove_dir_all(making.partial()).unwrap();
    alone.release();
    alone.wait().failure(&["removed or replaced"]);
    assert!(!making.partial().exists() && !making.store.exists());
}
