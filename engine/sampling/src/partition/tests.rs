//! Repartitioning: its result, its state after a kill at any point, and its effect on other processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use grappa_engine::verify::verify;
use grappa_formats::{
    ChunkId, PartitionId,
    assignment::{Assignment, Current, Serves},
};
use grappa_ingestion::generate::store::{StoreOptions, generate_store};
use grappa_io::{Error, progress::Silent};
use grappa_storage::{Store, files};
use grappa_synthetic::{Model, Recipe, Rmat};

use super::*;

/// A graph of 512 nodes in `chunks` chunks.
pub fn store_of(folder: &Path, chunks: u32) -> Store {
    generated(folder, chunks, None)
}

/// A slice of that graph with the chunks `present`.
pub fn slice_of(folder: &Path, chunks: u32, present: RangeInclusive<u32>) -> Store {
    generated(folder, chunks, Some(vec![present]))
}

fn generated(folder: &Path, chunks: u32, only_chunks: Option<Vec<RangeInclusive<u32>>>) -> Store {
    let options = StoreOptions {
        // So that chunks have very different sizes.
        random_permutation: false,
        chunks: Some(chunks),
        only_chunks,
        ..StoreOptions::new(Recipe::new(Model::Rmat(Rmat::graph500(9, 8.0)), 3), folder.join("graph.grappa"))
    };
    generate_store(&options, &Silent).unwrap();
    Store::open(&options.out).unwrap()
}

const OPTIONS: RepartitionOptions =
    RepartitionOptions { partitions: 3, schedule: Schedule::Sweep, seed: 1, super_epoch: None };

fn repartition_of(store: &Store, options: &RepartitionOptions) -> grappa_io::Result<Repartitioned> {
    repartition(store.path(), store.manifest(), options)
}

fn assert_sound(store: &Path, context: &str) {
    let report = verify(store, 1, &Silent).unwrap();
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
}

fn assignments_of(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(store.join("assignments")).unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())
    });
    files.collect()
}

fn names_of(store: &Path) -> Vec<String> {
    assignments_of(store).into_keys().collect()
}

#[test]
fn each_repartitioning_is_the_next_generation_and_super_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let sizes = chunk_sizes(store.manifest());
    for generation in 1..6 {
        let made = repartition_of(&store, &OPTIONS).unwrap();
        let expected =
            assignment(Schedule::Sweep, std::slice::from_ref(&sizes), 3, 1, generation - 1, generation).unwrap();
        assert_eq!((made.super_epoch, &made.assignment), (generation - 1, &expected));
        assert_eq!(Store::open(store.path()).unwrap().assignment(), &expected);
        let before = (generation - 1).to_string();
        assert_eq!(names_of(store.path()), [before, generation.to_string(), "CURRENT".into()]);
        assert_sound(store.path(), "repartitioned");
    }
    let options = RepartitionOptions { super_epoch: Some(40), schedule: Schedule::Shuffle, ..OPTIONS };
    let made = repartition_of(&store, &options).unwrap();
    assert_eq!(
        (made.super_epoch, made.assignment),
        (40, assignment(Schedule::Shuffle, std::slice::from_ref(&sizes), 3, 1, 40, 6).unwrap())
    );
}

#[test]
fn an_open_store_keeps_its_assignment_and_can_read_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    for _ in 0..3 {
        repartition_of(&store, &OPTIONS).unwrap();
    }
    assert!(!names_of(store.path()).contains(&"0".into()), "the file is removed");
    assert_eq!((store.generation(), store.assignment().schedule()), (0, "whole"));
    let newest = store.newest_assignment().unwrap();
    assert_eq!((newest.generation(), newest.schedule()), (3, "sweep"));
}

#[test]
fn a_store_can_be_opened_and_verified_while_it_is_repartitioned() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                repartition_of(&store, &OPTIONS).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut before = 0;
        while !done.load(Ordering::Relaxed) {
            let generation = Store::open(store.path()).unwrap().generation();
            assert!(generation >= before);
            before = generation;
            assert_sound(store.path(), "meanwhile");
        }
    });
}

/// The states that a run can leave if it is killed, in the order of its steps: a description, whether the new
/// generation is current, and the files.
fn states(
    before: &BTreeMap<String, Vec<u8>>,
    after: &BTreeMap<String, Vec<u8>>,
    generation: u64,
) -> Vec<(String, bool, BTreeMap<String, Vec<u8>>)> {
    let mut folder = before.clone();
    let mut states = vec![("nothing done".to_owned(), false, folder.clone())];
    let name = generation.to_string();
    for (name, is_new) in [(name.as_str(), false), ("CURRENT", true)] {
        let bytes = &after[name];
        let temporary = format!("{name}.tmp");
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
            folder.insert(temporary.clone(), bytes[..length].to_vec());
            states.push((format!("{length} bytes of {temporary}"), false, folder.clone()));
        }
        folder.remove(&temporary);
        folder.insert(name.to_owned(), bytes.clone());
        states.push((format!("{name} renamed"), is_new, folder.clone()));
    }
    states
}

#[test]
fn a_kill_at_any_point_leaves_the_old_or_the_new_generation() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    for generation in 1..5 {
        let before = assignments_of(store.path());
        repartition_of(&store, &OPTIONS).unwrap();
        let after = assignments_of(store.path());
        for (context, is_new, files) in states(&before, &after, generation) {
            let assignments = store.path().join("assignments");
            fs::remove_dir_all(&assignments).unwrap();
            fs::create_dir(&assignments).unwrap();
            for (name, bytes) in &files {
                fs::write(assignments.join(name), bytes).unwrap();
            }
            let counts = if is_new { generation } else { generation - 1 };
            assert_eq!(Store::open(store.path()).unwrap().generation(), counts, "{context}");
            assert_sound(store.path(), &context);
            let next = repartition_of(&store, &OPTIONS).unwrap();
            assert_eq!(next.assignment.generation(), counts + 1, "{context}");
            let names = [counts.to_string(), (counts + 1).to_string(), "CURRENT".into()];
            assert_eq!(names_of(store.path()), names, "{context}");
            assert_sound(store.path(), &context);
        }
        // Continue from the run that was not killed.
        for (name, bytes) in &after {
            fs::write(store.path().join("assignments").join(name), bytes).unwrap();
        }
    }
}

#[test]
fn one_of_two_simultaneous_repartitionings_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let lock = repartition::lock(store.path()).unwrap();
    let error = repartition_of(&store, &OPTIONS).unwrap_err().to_string();
    assert!(error.contains("another process") && error.contains("is writing here"), "{error}");
    assert_eq!(names_of(store.path()), ["0", "CURRENT"]);
    drop(lock);
    repartition_of(&store, &OPTIONS).unwrap();
}

#[test]
fn a_store_that_cannot_be_partitioned_is_an_error_and_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let expect = |store: &Store, partitions, parts: &[&str]| {
        let options = RepartitionOptions { partitions, ..OPTIONS };
        let error = repartition_of(store, &options).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(names_of(store.path()), ["0", "CURRENT"]);
    };
    expect(&store, 0, &["at least 1"]);
    expect(&store, 8, &["has 7 chunks", "at most 7", "--chunks"]);
    repartition_of(&store, &RepartitionOptions { partitions: 7, ..OPTIONS }).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let slice = slice_of(folder.path(), 7, 2..=3);
    expect(&slice, 3, &["has 2 chunks", "at most 2"]);
    let options = RepartitionOptions { partitions: 2, ..OPTIONS };
    let made = repartition_of(&slice, &options).unwrap();
    assert_sound(slice.path(), "a slice");
    let reports = report(slice.manifest(), &made.assignment);
    let chunks = reports.iter().flat_map(|report| &report.base_chunks);
    assert_eq!(chunks.copied().collect::<BTreeSet<_>>(), BTreeSet::from([2, 3]));
    assert!(reports.iter().all(|report| report.cut_edges > 0), "{reports:?}");
}

#[test]
fn a_folder_that_cannot_be_written_to_leaves_the_old_generation() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    // Not even root can create a file where there is a folder.
    for name in ["1.tmp", "CURRENT.tmp"] {
        let blocked = store.path().join("assignments").join(name);
        fs::create_dir(&blocked).unwrap();
        let error = repartition_of(&store, &OPTIONS).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if *path == blocked), "{error}");
        assert_eq!(Store::open(store.path()).unwrap().generation(), 0);
        // CURRENT is replaced second. Before that, the file that it will name is complete.
        let is_there = store.path().join("assignments/1").exists();
        assert_eq!(is_there, name == "CURRENT.tmp");
        fs::remove_dir(&blocked).unwrap();
        assert_sound(store.path(), name);
    }
    repartition_of(&store, &OPTIONS).unwrap();
}

#[test]
fn damage_to_any_generation_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    for _ in 0..2 {
        repartition_of(&store, &OPTIONS).unwrap();
    }
    for (name, bytes) in assignments_of(store.path()) {
        let path = format!("assignments/{name}");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            fs::write(store.path().join(&path), damaged).unwrap();
            let problems = verify(store.path(), 1, &Silent).unwrap().problems;
            assert!(problems.iter().any(|p| p.file == path), "{path}: {at}: {problems:?}");
            if name != "1" {
                let error = Store::open(store.path()).unwrap_err().to_string();
                assert!(error.contains(&path), "{error}");
            }
        }
        fs::write(store.path().join(&path), bytes).unwrap();
    }
    assert_sound(store.path(), "restored");
}

/// Its checksums are correct, but no assignment of chunks to partitions gives this table.
#[test]
fn a_table_that_contradicts_itself_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let serves =
        |i: ChunkId, j: ChunkId| Serves { base: Some(PartitionId(u32::from(i.0 > 3 && j.0 > 5))), variable: None };
    let table = Assignment::from_fn(0, 7, 2, "sweep", serves);
    fs::write(store.path().join("assignments/0"), table.encode().0).unwrap();
    let problems = verify(store.path(), 1, &Silent).unwrap().problems;
    assert_eq!((problems.len(), problems[0].file.as_str()), (1, "assignments/0"), "{problems:?}");
    assert!(Store::open(store.path()).is_err());
}

#[test]
fn the_last_generation_has_no_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_of(folder.path(), 7);
    let assignments = store.path().join("assignments");
    let last = assignment(Schedule::Sweep, &[chunk_sizes(store.manifest())], 2, 0, 0, u64::MAX).unwrap();
    fs::write(assignments.join(u64::MAX.to_string()), last.encode().0).unwrap();
    let current = Current { generation: u64::MAX };
    fs::write(assignments.join("CURRENT"), current.encode()).unwrap();
    let error = repartition_of(&store, &OPTIONS).unwrap_err().to_string();
    assert!(error.contains("no generation after"), "{error}");
    assert_eq!(store.newest_assignment().unwrap(), last);
}

#[test]
fn verify_tells_the_assignments_of_a_store_from_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, slice] = ["whole", "slice"].map(|name| folder.path().join(name));
    [&whole, &slice].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    let problems = |store: &Store| verify(store.path(), 1, &Silent).unwrap().problems;
    for store in [store_of(&whole, 16), slice_of(&slice, 16, 2..=9)] {
        for (seed, schedule) in (0..4).flat_map(|seed| Schedule::ALL.map(|schedule| (seed, schedule))) {
            for partitions in [1, 2, 3, 8] {
                let options = RepartitionOptions { partitions, schedule, seed, ..OPTIONS };
                repartition_of(&store, &options).unwrap();
                assert_eq!(problems(&store), [], "{options:?}");
            }
        }
        // That of a store whose large chunks are small here.
        let mut sizes = chunk_sizes(store.manifest());
        sizes.reverse();
        for schedule in Schedule::ALL {
            let current = repartition_of(&store, &OPTIONS).unwrap().assignment;
            let generation = current.generation();
            let path = store.path().join(files::assignment(generation));
            let sound = fs::read(&path).unwrap();
            // A shuffle does not depend on sizes, but on the chunks that a slice has.
            let expected = usize::from(schedule != Schedule::Shuffle || !store.manifest().is_whole());
            let other = assignment(schedule, std::slice::from_ref(&sizes), 3, 5, 1, generation).unwrap();
            fs::write(&path, other.encode().0).unwrap();
            let found = problems(&store);
            assert_eq!(found.len(), expected, "{schedule}: {found:?}");
            assert!(found.iter().all(|problem| problem.description.contains("another store")), "{found:?}");
            fs::write(&path, sound).unwrap();
        }
        let before = files::assignment(repartition_of(&store, &OPTIONS).unwrap().assignment.generation() - 1);
        fs::remove_file(store.path().join(&before)).unwrap();
        let found = problems(&store);
        assert!(found.len() == 1 && found[0].file == before, "{found:?}");
        repartition_of(&store, &OPTIONS).unwrap();
        assert_eq!(problems(&store), []);
    }
}
