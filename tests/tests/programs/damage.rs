//! All damage to a store is found: flipped bytes of every file, and files that are truncated, too long, missing,
//! swapped or of a newer version. Neither verification nor reading panics. Reading a store with a flipped byte returns
//! the written data or an error.
//!
//! `GRAPPA_FLIPS=1000000 cargo test -p grappa-tests damage` flips more bytes than by default.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    thread,
};

use grappa_engine::verify::{VerifyReport, verify};
use grappa_formats::{
    NodeId,
    container::{FORMAT_VERSION, FileKind, Header},
};
use grappa_io::{Result, map::Access, progress::Silent};
use grappa_storage::Store;
use grappa_tests::{
    files::{assert_same, copy_folder, files_of},
    folder::ProgramFolder,
    graph::{Graph, SPLITS},
    random::Random,
};
use serde_json::json;

/// Default number of flips.
const FLIPS: u64 = 6000;

/// Offset of the version in a file's header.
const VERSION_AT: usize = 12;

/// A folder with stores that together have every kind of file, and the path of each.
fn fixture() -> (ProgramFolder, Vec<PathBuf>) {
    let folder = ProgramFolder::new();
    let graph = Graph::random(7, 90, 700, 5);
    graph.write(folder.root());
    let line = |(k, (source, target)): (usize, &(u64, u64))| format!("{source}\t{target}\t{}\n", k % 7);
    folder.write("weighted.tsv", graph.edges.iter().enumerate().map(line).collect::<String>());
    // String ids in the order of a given partition.
    let line = |(source, target): &(u64, u64)| format!("node {source}\tnode {target}\n");
    folder.write("named.tsv", graph.edges.iter().map(line).collect::<String>());
    let ids: BTreeSet<u64> = graph.edges.iter().flat_map(|&(source, target)| [source, target]).collect();
    folder.write("parts.txt", (0..ids.len()).map(|rank| format!("{}\n", rank % 3)).collect::<String>());
    let stores = [
        ("all.grappa", ALL),
        ("weighted.grappa", "weighted.tsv --undirected"),
        ("named.grappa", "named.tsv --ids string --format tsv --assign file:parts.txt"),
    ];
    let paths = stores.map(|(name, edges)| {
        folder.success(&format!("ingest --chunks 3 --out {name} --edges {edges}"));
        folder.path(name)
    });
    (folder, paths.into())
}

/// Edges of a store with features in int8, labels and splits.
const ALL: &str = "edges.tsv --features features.npy --labels labels.npy --train train.npy --val val.npy --test test.npy \
                   --feature-dtype int8";

/// Reads everything in a store, through all readers. Returns a hash of the data.
fn read_all(path: &Path) -> Result<u64> {
    let store = Store::open(path)?;
    let manifest = store.manifest();
    let mut read = DefaultHasher::new();
    let mut sources = Vec::new();
    for chunk in store.present_chunks() {
        let (labels, features) = (store.labels(chunk, Access::Random)?, store.features(chunk)?);
        let chunk = store.chunk(chunk)?;
        let rows = chunk.rows();
        for row in 0..rows.rows() {
            sources.clear();
            // The degree in the adjacency list itself: a damaged list is empty, whatever its directory says.
            let sources_of_row = rows.row(row)?;
            sources_of_row.decode_into(&mut sources);
            (&sources, sources_of_row.lower_bound(5), rows.degree(row)?).hash(&mut read);
            for k in (0..sources_of_row.degree()).step_by(3) {
                sources_of_row.get(k).hash(&mut read);
            }
            if let Some(weights) = chunk.weights() {
                let edges = weights.range(row, &rows)?;
                let mut values = vec![0.0; (edges.end - edges.start) as usize];
                weights.copy(edges, &mut values)?;
                values.iter().for_each(|value| value.to_bits().hash(&mut read));
            }
            if let Some(labels) = &labels {
                labels.single(row)?.hash(&mut read);
            }
            if let Some(features) = &features {
                features.row(row)?.hash(&mut read);
            }
        }
        for row in rows.range(0..rows.rows()) {
            row?.degree().hash(&mut read);
        }
    }
    for node in (0..manifest.nodes).map(NodeId) {
        let id = store.external_id(node)?;
        (id.to_string(), store.node(&id)?).hash(&mut read);
    }
    for name in SPLITS {
        let split = store.split(name)?;
        split.map(|split| split.iter().collect::<Vec<_>>()).hash(&mut read);
    }
    store.newest_assignment()?.generation().hash(&mut read);
    Ok(read.finish())
}

/// Verifies and reads a damaged store; neither may panic. Returns the report and the hash of the data.
#[track_caller]
fn survives(store: &Path, case: &str) -> (VerifyReport, Result<u64>) {
    let verified = catch_unwind(AssertUnwindSafe(|| verify(store, 1, &Silent)));
    let read = catch_unwind(AssertUnwindSafe(|| read_all(store)));
    let read = read.unwrap_or_else(|_| panic!("reading panics: {case}"));
    let report = verified.unwrap_or_else(|_| panic!("verify panics: {case}")).unwrap_or_else(|error| {
        // If it can't be opened, it can't be mistaken for a sound store.
        let problem = grappa_engine::verify::Problem { file: String::new(), offset: 0, description: error.to_string() };
        VerifyReport { problems: vec![problem], ..VerifyReport::default() }
    });
    (report, read)
}

#[test]
fn sound_stores_are_found_sound_and_can_be_read() {
    let (_folder, stores) = fixture();
    let mut kinds: Vec<String> = Vec::new();
    for store in &stores {
        let report = verify(store, 2, &Silent).unwrap();
        assert!(report.is_ok(), "{}: {:?}", store.display(), report.problems);
        assert_eq!(read_all(store).unwrap(), read_all(store).unwrap());
        kinds.extend(files_of(store).keys().map(|path| path.to_str().unwrap().to_owned()));
    }
    for kind in [
        "manifest",
        "assignments/0",
        "assignments/CURRENT",
        "chunk-2/edges",
        "chunk-2/degrees",
        "chunk-2/weights",
        "chunk-2/features",
        "chunk-2/labels",
        "splits/train.roaring",
        "ids/dictionary",
        "ids/order",
    ] {
        assert!(kinds.iter().any(|path| path == kind), "no store has {kind}, which this test is to damage");
    }
}

#[test]
fn every_flipped_byte_is_reported_and_none_is_read() {
    let flips = std::env::var("GRAPPA_FLIPS").map_or(FLIPS, |flips| flips.parse().expect("GRAPPA_FLIPS is a number"));
    let (folder, stores) = fixture();
    let threads = 2;
    thread::scope(|scope| {
        for thread in 0..threads {
            let (folder, stores) = (folder.root(), &stores);
            scope.spawn(move || {
                let copies: Vec<_> = stores
                    .iter()
                    .map(|store| {
                        let copy = folder.join(format!("{thread}-{}", store.file_name().unwrap().display()));
                        copy_folder(store, &copy);
                        copy
                    })
                    .collect();
                flip_bytes(&copies, flips.div_ceil(threads), thread);
            });
        }
    });
}

/// Flips bytes one after the other, equally often in every file.
fn flip_bytes(stores: &[PathBuf], flips: u64, seed: u64) {
    let mut random = Random::new(seed);
    let files: Vec<(&PathBuf, PathBuf, Vec<u8>)> = stores
        .iter()
        .flat_map(|store| files_of(store).into_iter().map(move |(path, bytes)| (store, path, bytes)))
        .collect();
    let sound: BTreeMap<&PathBuf, u64> = stores.iter().map(|store| (store, read_all(store).unwrap())).collect();
    for k in 0..flips {
        let (store, path, bytes) = &files[k as usize % files.len()];
        let offset = random.below(bytes.len() as u64);
        let mask = 1 + random.below(255) as u8;
        let file = OpenOptions::new().write(true).open(store.join(path)).unwrap();
        let old = bytes[offset as usize];
        file.write_all_at(&[old ^ mask], offset).unwrap();
        let case = format!("{} in {}: {offset}: {old:#04x} ^ {mask:#04x}", path.display(), store.display());
        let (report, read) = survives(store, &case);
        assert!(!report.is_ok(), "not reported: {case}");
        if let Ok(read) = read {
            assert_eq!(read, sound[store], "read without an error: {case}");
        }
        let named = report.problems.iter().any(|problem| Path::new(&problem.file) == path);
        assert!(named, "{case}: another file is blamed: {:?}", report.problems);
        file.write_all_at(&[old], offset).unwrap();
    }
    for store in stores {
        assert!(verify(store, 1, &Silent).unwrap().is_ok(), "the flips were not undone");
    }
}

/// Replaces each file of each store by what `change` makes of it, or removes it, while `check` looks at the store.
fn with_each_file(mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>, check: impl Fn(&Path, &Path)) {
    let (_folder, stores) = fixture();
    for store in &stores {
        for (path, bytes) in files_of(store) {
            let file = store.join(&path);
            match change(&bytes) {
                Some(changed) => fs::write(&file, changed).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            check(store, &path);
            fs::write(&file, &bytes).unwrap();
        }
    }
}

/// Damages each file of each store with `damage`, and checks that the report names it.
fn each_file_damaged(damage: impl Fn(&[u8], &mut Random) -> Vec<u8>, case: &str) {
    let mut random = Random::new(9);
    with_each_file(
        |bytes| Some(damage(bytes, &mut random)),
        |store, path| {
            let case = format!("{} {case}", path.display());
            let (report, _) = survives(store, &case);
            let named = report.problems.iter().any(|problem| Path::new(&problem.file) == path);
            assert!(named, "{case}: {:?}", report.problems);
            assert!(path == Path::new("assignments/CURRENT") || Store::open(store).is_err(), "opened: {case}");
        },
    );
}

#[test]
fn a_truncated_file_is_reported_and_not_opened() {
    for _ in 0..3 {
        each_file_damaged(|bytes, random| bytes[..random.below(bytes.len() as u64) as usize].to_vec(), "cut");
    }
    each_file_damaged(|_, _| Vec::new(), "emptied");
}

#[test]
fn a_file_with_bytes_appended_is_reported_and_not_opened() {
    each_file_damaged(|bytes, random| [bytes, &[random.draw() as u8]].concat(), "with a byte more");
    each_file_damaged(|bytes, _| [bytes, bytes].concat(), "twice");
}

#[test]
fn a_file_of_a_newer_version_says_so() {
    let newer = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[VERSION_AT] = FORMAT_VERSION as u8 + 1;
        Some(bytes)
    };
    with_each_file(newer, |store, path| {
        let case = format!("{} of a newer version", path.display());
        let (report, _) = survives(store, &case);
        let says_so = report.problems.iter().any(|problem| problem.description.contains("version"));
        // A text file has no version.
        assert!(says_so || path.ends_with("CURRENT"), "{case}: {:?}", report.problems);
    });
}

#[test]
fn a_missing_file_is_reported_and_the_store_not_opened() {
    with_each_file(
        |_| None,
        |store, path| {
            let case = format!("{} missing", path.display());
            assert!(!survives(store, &case).0.is_ok(), "{case}");
            assert!(Store::open(store).is_err(), "opened: {case}");
        },
    );
}

#[test]
fn swapped_files_are_reported() {
    let (_folder, stores) = fixture();
    for store in &stores {
        let files: Vec<_> = files_of(store).into_iter().collect();
        for (a, b) in files.iter().zip(&files[1..]) {
            fs::write(store.join(&a.0), &b.1).unwrap();
            fs::write(store.join(&b.0), &a.1).unwrap();
            let case = format!("{} and {} swapped", a.0.display(), b.0.display());
            assert!(!survives(store, &case).0.is_ok(), "{case}");
            fs::write(store.join(&a.0), &a.1).unwrap();
            fs::write(store.join(&b.0), &b.1).unwrap();
        }
        assert!(verify(store, 1, &Silent).unwrap().is_ok());
    }
    // A file of another store with the same shape is sound by itself.
    let other = ProgramFolder::new();
    Graph::random(8, 90, 700, 5).write(other.root());
    other.success(&format!("ingest --chunks 3 --out all.grappa --edges {ALL}"));
    let theirs = other.files("all.grappa");
    for (path, bytes) in files_of(&stores[0]) {
        if theirs[&path] == bytes {
            continue;
        }
        let file = stores[0].join(&path);
        fs::write(&file, &theirs[&path]).unwrap();
        let case = format!("{} of another store", path.display());
        assert!(!survives(&stores[0], &case).0.is_ok(), "{case}");
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn the_program_names_file_and_offset_and_exits_with_1() {
    let (folder, stores) = fixture();
    let before = folder.files("all.grappa");
    let sound = folder.success("store verify all.grappa --json").json();
    assert_eq!((&sound["ok"], &sound["problems"]), (&json!(true), &json!([])));
    assert_eq!(sound["files"], before.len());
    let text = folder.success("store verify all.grappa").stdout;
    assert!(text.contains("all.grappa: no problems; "), "{text}");
    assert_same(&stores[0], &before, "verify only reads");

    with_flip(&stores[0], "chunk-1/features", |_| {
        let ran = folder.run("store verify all.grappa --json");
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let found = ran.json();
        assert_eq!(found["ok"], false);
        let [problem] = &found["problems"].as_array().unwrap()[..] else { panic!("{found}") };
        assert!(problem["file"] == "chunk-1/features" && problem["offset"].is_u64(), "{found}");
        assert!(problem["what"].as_str().is_some_and(|text| !text.is_empty()));
        let ran = folder.run("store verify all.grappa").failure(&["all.grappa", "1 problem"]);
        assert!(ran.stdout.contains("chunk-1/features"), "{}", ran.stdout);
    });
}

/// Flips the byte in the middle of a file's payload while `body` runs. `body` gets the name that errors use for the
/// place.
fn with_flip(store: &Path, file: &str, body: impl FnOnce(&str)) {
    let path = store.join(file);
    let sound = fs::read(&path).unwrap();
    let kind = FileKind(sound[8..12].try_into().unwrap());
    let header = Header::decode(&sound, kind, sound.len() as u64).unwrap();
    let at = header.payload_bytes / 2;
    let block = header.block(at / u64::from(header.block_bytes));
    let mut damaged = sound.clone();
    damaged[(header.payload_offset + at) as usize] ^= 1;
    fs::write(&path, damaged).unwrap();
    body(&format!("{}: payload block at offset {}", path.display(), header.payload_offset + block.start));
    fs::write(&path, sound).unwrap();
}

#[test]
fn a_program_that_reads_a_damaged_file_names_it_and_the_place() {
    let (folder, _) = fixture();
    let edges = "export STORE --edges OUT.tsv";
    let mean = "preaggregate STORE --kind mean";
    let sampled = |view| format!("sample STORE --seeds all --batch 90 --batches 1 --fanouts -1 --view {view}");
    let sampled = ["memory", "mapped"].map(sampled);
    let [memory, mapped] = sampled.each_ref().map(String::as_str);
    let mut cases = vec![
        ("all", "chunk-1/features", "export STORE --features OUT.npy"),
        ("all", "chunk-1/labels", "export STORE --labels OUT.npy"),
        ("weighted", "chunk-1/weights", edges),
        ("named", "ids/dictionary", edges),
        ("named", "ids/order", edges),
        ("all", "chunk-1/features", memory),
        ("all", "chunk-1/features", mean),
        // With Elias-Fano code, degrees are not in the adjacency lists.
        ("weighted", "chunk-1/degrees", "add-features STORE --kind degrees"),
    ];
    for file in ["chunk-1/edges", "chunk-1/degrees"] {
        cases.extend([edges, memory, mapped, mean, "info STORE --coverage"].map(|line| ("all", file, line)));
        cases.push(("weighted", file, "add-features STORE --kind fastrp --dim 8"));
    }
    for (number, (store, file, line)) in cases.into_iter().enumerate() {
        let store = format!("{store}.grappa");
        with_flip(&folder.path(&store), file, |place| {
            let line =
                line.replace("STORE", &folder.path(&store).to_string_lossy()).replace("OUT", &number.to_string());
            println!("{line}");
            folder.run(&format!("store {line}")).failure(&[place]);
        });
        // Files that a program would continue with, and another one must not.
        let _ = fs::remove_dir_all(folder.path(&store).join("features.partial"));
    }
}

#[test]
fn paths_without_a_store_are_errors() {
    let (folder, stores) = fixture();
    fs::rename(&stores[0], folder.path("all.grappa.partial")).unwrap();
    for (path, parts) in [
        ("no.grappa", &["no.grappa", "no such store"][..]),
        ("edges.tsv", &["edges.tsv", "is a file"]),
        (".", &["manifest"]),
        ("all.grappa.partial", &["not finished", "--resume"]),
        ("all.grappa", &["not finished", "--resume"]),
    ] {
        for name in ["info", "verify"] {
            folder.run(&format!("store {name} {path}")).failure(parts);
        }
    }
    folder.run("store").misuse(&["verify", "info"]);
}
