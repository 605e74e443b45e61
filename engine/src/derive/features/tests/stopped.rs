//! Runs that end before the store has its features, and those that come after.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU32, Ordering},
};

use super::*;

/// Panics after a number of aggregated tiles.
struct Stop(AtomicU32);

impl Progress for Stop {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            resume_unwind(Box::new("stopped"));
        }
    }
}

#[test]
fn a_run_that_is_stopped_anywhere_leaves_the_store_as_it_was_and_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let expected = |name: &str, options: &AddFeatures| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        let store = store(&folder);
        add_features(&store, options, &Silent).unwrap();
        added_files(store.path())
    };
    let options = AddFeatures {
        // Several tiles in the last hop, one in each before.
        budget: Budget::new(OVERHEAD, 2),
        ..fastrp(1)
    };
    let (expected, expected_other) = (expected("whole", &options), expected("other", &fastrp(2)));
    let (mut kept, mut tiles) = (0, 0);
    for tile in 1.. {
        let (_folder, store) = in_folder(store);
        let before = fs::read(store.path().join(files::MANIFEST)).unwrap();
        let run = || add_features(&store, &options, &Stop(tile.into()));
        if catch_unwind(AssertUnwindSafe(run)).is_ok() {
            tiles = tile;
            break;
        }
        assert!(fs::read(store.path().join(files::MANIFEST)).unwrap() == before);
        assert!(Store::open(store.path()).unwrap().manifest().features.is_none());
        assert_sound(store.path());
        // Every third is followed by a run that makes something else.
        let (options, expected) = match tile % 3 {
            0 => (&fastrp(2), &expected_other),
            _ => (&options, &expected),
        };
        let added = add_features(&store, options, &Silent).unwrap();
        kept = kept.max(added.chunks_kept);
        assert!(added_files(store.path()) == *expected, "stopped at tile {tile}");
        assert!(!store.path().join(files::FEATURES_PARTIAL).exists());
        assert_sound(store.path());
    }
    assert!(tiles > 5 && kept >= 2, "{tiles} tiles, {kept} chunks kept");
}

/// A store as it is when a run was killed with all rows made, and the rows of the first `placed` chunks in their places. Returns
/// the files of the finished one.
fn stopped_before_the_manifest(store: &Store, placed: u32) -> BTreeMap<String, Vec<u8>> {
    let root = store.path();
    let before = fs::read(root.join(files::MANIFEST)).unwrap();
    let recipe = recipe(&fastrp(1), manifest_digest(root).unwrap());
    add_features(store, &fastrp(1), &Silent).unwrap();
    let after = added_files(root);
    let partial = root.join(files::FEATURES_PARTIAL);
    fs::create_dir_all(partial.join(ROWS)).unwrap();
    fs::write(partial.join(RECIPE), recipe).unwrap();
    fs::rename(root.join(files::MANIFEST), partial.join(files::MANIFEST)).unwrap();
    fs::write(root.join(files::MANIFEST), before).unwrap();
    for chunk in placed..CHUNKS {
        let place = root.join(format!("chunk-{chunk}/features"));
        fs::rename(place, partial.join(ROWS).join(format!("chunk-{chunk}"))).unwrap();
    }
    after
}

#[test]
fn a_run_that_is_killed_while_files_go_to_their_places_is_continued() {
    for placed in [0, 2, CHUNKS] {
        let (_folder, store) = in_folder(store);
        let after = stopped_before_the_manifest(&store, placed);
        assert!(Store::open(store.path()).unwrap().manifest().features.is_none());
        assert_sound(store.path());
        let added = add_features(&store, &fastrp(1), &Silent).unwrap();
        assert_eq!(added.chunks_kept, CHUNKS);
        assert!(added_files(store.path()) == after, "{placed} chunks were in their places");
        assert!(!store.path().join(files::FEATURES_PARTIAL).exists());
    }
}

#[test]
fn damaged_files_and_files_of_another_recipe_are_remade() {
    let (_folder, damaged) = in_folder(store);
    let after = stopped_before_the_manifest(&damaged, 2);
    let placed = damaged.path().join("chunk-1/features");
    fs::File::options().write(true).open(placed).unwrap().set_len(100).unwrap();
    add_features(&damaged, &fastrp(1), &Silent).unwrap();
    assert!(added_files(damaged.path()) == after);

    let (_folder, other) = in_folder(store);
    stopped_before_the_manifest(&other, 2);
    let added = add_features(&other, &degrees(), &Silent).unwrap();
    assert_eq!((added.dim, added.chunks_kept), (36, 0));
    assert_sound(other.path());
}

#[test]
fn files_that_cannot_be_renamed_are_kept_for_the_next_run() {
    let (_folder, store) = in_folder(store);
    // Also root can't put a file where a folder is.
    let blocked = store.path().join("chunk-3/features");
    fs::create_dir(&blocked).unwrap();
    let error = add_features(&store, &fastrp(1), &Silent).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if *path == blocked), "{error}");
    assert!(Store::open(store.path()).unwrap().manifest().features.is_none());
    fs::remove_dir(&blocked).unwrap();
    let added = add_features(&store, &fastrp(1), &Silent).unwrap();
    assert_eq!(added.chunks_kept, CHUNKS);
    assert_sound(store.path());
}
