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
    container::{FileKind, Header},
};
use grappa_io::{Result, map::Access, progress::Silent};
use grappa_storage::Store;
use grappa_tests::{
    files::{assert_same, copy_folder, files_of, memory_folder},
    graph::{Graph, SPLITS},
    program::{self, CommandWords, command, run},
    random::Random,
};
use tempfile::TempDir;

/// Default number of flips.
const FLIPS: u64 = 10_000;

/// Offset of the version in a file's header.
const VERSION_AT: usize = 12;

/// Stores that together have every kind of file.
fn stores(folder: &Path) -> Vec<PathBuf> {
    let graph = Graph::random(7, 90, 700, 5);
    let files = graph.write(folder);
    let make = |name: &str, edges: &Path, more: &[&str]| {
        let out = folder.join(name);
        let mut command = program::ingest(edges, &out);
        run(command.args(["--chunks", "3"]).args(more)).success();
        out
    };
    let mut all = program::ingest(&files.edges, &folder.join("all.grappa"));
    run(files.node_arguments(&mut all).words("--chunks 3 --feature-dtype int8")).success();
    let weighted = folder.join("weighted.tsv");
    let line = |(k, (source, target)): (usize, &(u64, u64))| format!("{source}\t{target}\t{}\n", k % 7);
    fs::write(&weighted, graph.edges.iter().enumerate().map(line).collect::<String>()).unwrap();
    // String ids in the order of a given partition.
    let named = folder.join("named.tsv");
    let line = |(source, target): &(u64, u64)| format!("node {source}\tnode {target}\n");
    fs::write(&named, graph.edges.iter().map(line).collect::<String>()).unwrap();
    let ids: BTreeSet<u64> = graph.edges.iter().flat_map(|&(source, target)| [source, target]).collect();
    let parts = folder.join("parts.txt");
    fs::write(&parts, (0..ids.len()).map(|rank| format!("{}\n", rank % 3)).collect::<String>()).unwrap();
    let assign = format!("file:{}", parts.display());
    vec![
        folder.join("all.grappa"),
        make("weighted.grappa", &weighted, &["--undirected"]),
        make("named.grappa", &named, &["--ids", "string", "--format", "tsv", "--assign", &assign]),
    ]
}

/// A folder with the stores, and the path of each.
fn fixture() -> (TempDir, Vec<PathBuf>) {
    let folder = memory_folder();
    let stores = stores(folder.path());
    (folder, stores)
}

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
                labels.labels().single(row)?.hash(&mut read);
            }
            if let Some(features) = &features {
                features.features().row(row)?.hash(&mut read);
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
fn survives(store: &Path, what: &str) -> (VerifyReport, Result<u64>) {
    let verified = catch_unwind(AssertUnwindSafe(|| verify(store, 1, &Silent)));
    let read = catch_unwind(AssertUnwindSafe(|| read_all(store)));
    let read = read.unwrap_or_else(|_| panic!("reading panics: {what}"));
    let report = verified.unwrap_or_else(|_| panic!("verify panics: {what}")).unwrap_or_else(|error| {
        // If it can't be opened, it can't be mistaken for a sound store.
        let problem = grappa_engine::verify::Problem { file: String::new(), offset: 0, what: error.to_string() };
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
            let (folder, stores) = (folder.path(), &stores);
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
        let what = format!("{} in {}: {offset}: {old:#04x} ^ {mask:#04x}", path.display(), store.display());
        let (report, read) = survives(store, &what);
        assert!(!report.is_ok(), "not reported: {what}");
        if let Ok(read) = read {
            assert_eq!(read, sound[store], "read without an error: {what}");
        }
        let named = report.problems.iter().any(|problem| Path::new(&problem.file) == path);
        assert!(named, "{what}: another file is blamed: {:?}", report.problems);
        file.write_all_at(&[old], offset).unwrap();
    }
    for store in stores {
        assert!(verify(store, 1, &Silent).unwrap().is_ok(), "the flips were not undone");
    }
}

/// Damages each file of each store with `damage`, and checks that the report names it.
fn each_file_damaged(damage: impl Fn(&[u8], &mut Random) -> Vec<u8>, what: &str) {
    let (_folder, stores) = fixture();
    let mut random = Random::new(9);
    for store in &stores {
        for (path, bytes) in files_of(store) {
            let file = store.join(&path);
            let damaged = damage(&bytes, &mut random);
            fs::write(&file, &damaged).unwrap();
            let what = format!("{} {what}: {} of {} bytes", path.display(), damaged.len(), bytes.len());
            let (report, _) = survives(store, &what);
            let named = report.problems.iter().any(|problem| Path::new(&problem.file) == path);
            assert!(named, "{what}: {:?}", report.problems);
            assert!(path == Path::new("assignments/CURRENT") || Store::open(store).is_err(), "opened: {what}");
            fs::write(&file, &bytes).unwrap();
        }
    }
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
    let (_folder, stores) = fixture();
    for store in &stores {
        for (path, mut bytes) in files_of(store) {
            if path.ends_with("CURRENT") {
                continue;
            }
            let file = store.join(&path);
            let whole = bytes.clone();
            bytes[VERSION_AT] += 1;
            fs::write(&file, &bytes).unwrap();
            let what = format!("{} of a newer version", path.display());
            let (report, _) = survives(store, &what);
            let newer = report.problems.iter().any(|problem| problem.what.contains("version"));
            assert!(newer, "{what}: {:?}", report.problems);
            fs::write(&file, &whole).unwrap();
        }
    }
}

#[test]
fn a_missing_file_is_reported_and_the_store_not_opened() {
    let (_folder, stores) = fixture();
    for store in &stores {
        for (path, bytes) in files_of(store) {
            let file = store.join(&path);
            fs::remove_file(&file).unwrap();
            let what = format!("{} missing", path.display());
            assert!(!survives(store, &what).0.is_ok(), "{what}");
            assert!(Store::open(store).is_err(), "opened: {what}");
            fs::write(&file, &bytes).unwrap();
        }
    }
}

#[test]
fn swapped_files_are_reported() {
    let (_folder, stores) = fixture();
    for store in &stores {
        let files: Vec<_> = files_of(store).into_iter().collect();
        for (a, b) in files.iter().zip(&files[1..]) {
            fs::write(store.join(&a.0), &b.1).unwrap();
            fs::write(store.join(&b.0), &a.1).unwrap();
            let what = format!("{} and {} swapped", a.0.display(), b.0.display());
            assert!(!survives(store, &what).0.is_ok(), "{what}");
            fs::write(store.join(&a.0), &a.1).unwrap();
            fs::write(store.join(&b.0), &b.1).unwrap();
        }
        assert!(verify(store, 1, &Silent).unwrap().is_ok());
    }
    // A file of another store with the same shape is sound by itself.
    let other = tempfile::tempdir().unwrap();
    let graph = Graph::random(8, 90, 700, 5);
    let out = other.path().join("all.grappa");
    let mut ingest = program::ingest(&graph.write(other.path()).edges, &out);
    let files = graph.write(other.path());
    run(files.node_arguments(&mut ingest).words("--chunks 3 --feature-dtype int8")).success();
    let theirs = files_of(&out);
    for (path, bytes) in files_of(&stores[0]) {
        if theirs[&path] == bytes {
            continue;
        }
        let file = stores[0].join(&path);
        fs::write(&file, &theirs[&path]).unwrap();
        let what = format!("{} of another store", path.display());
        assert!(!survives(&stores[0], &what).0.is_ok(), "{what}");
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn the_program_names_file_and_offset_and_exits_with_1() {
    let (_folder, stores) = fixture();
    let store = &stores[0];
    let before = files_of(store);
    let verify = |more: &[&str]| run(command("grappa-store").arg("verify").arg(store).args(more));
    let sound = verify(&["--json"]).success().json();
    assert_eq!(sound["ok"], true);
    assert_eq!(sound["files"].as_u64().unwrap(), before.len() as u64);
    assert_eq!(sound["problems"].as_array().unwrap().len(), 0);
    assert_same(store, &before, "verify only reads");

    let file = store.join("chunk-1/features");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let ran = verify(&["--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let found = ran.json();
    assert_eq!(found["ok"], false);
    let problems: BTreeMap<&str, u64> = found["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| (problem["file"].as_str().unwrap(), problem["offset"].as_u64().unwrap()))
        .collect();
    assert_eq!(problems.len(), 1, "{found}");
    assert!(problems.contains_key("chunk-1/features"), "{found}");
    assert!(found["problems"][0]["what"].as_str().is_some_and(|what| !what.is_empty()));
    let ran = verify(&[]).failure(&["all.grappa", "1 problem"]);
    assert!(ran.stdout.contains("chunk-1/features"), "{}", ran.stdout);
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
    let (folder, stores) = fixture();
    let [all, weighted, named] = &stores[..] else { panic!("three stores") };
    let out = folder.path().join("out");
    let sample = ["sample", "--seeds", "all", "--batch", "90", "--batches", "1", "--fanouts", "-1"];
    let sampled = |view| [&sample[..], &["--view", view]].concat();
    let edges = vec!["export", "--edges", "OUT.tsv"];
    let mut cases = vec![
        (all, "chunk-1/features", vec!["export", "--features", "OUT.npy"]),
        (all, "chunk-1/labels", vec!["export", "--labels", "OUT.npy"]),
        (weighted, "chunk-1/weights", edges.clone()),
        (named, "ids/dictionary", edges.clone()),
        (named, "ids/order", edges.clone()),
        (all, "chunk-1/features", sampled("memory")),
        (all, "chunk-1/features", vec!["preaggregate", "--kind", "mean"]),
    ];
    for file in ["chunk-1/edges", "chunk-1/degrees"] {
        cases.extend([
            (all, file, edges.clone()),
            (all, file, sampled("memory")),
            (all, file, sampled("mapped")),
            (all, file, vec!["preaggregate", "--kind", "mean"]),
            (weighted, file, vec!["add-features", "--kind", "fastrp", "--dim", "8"]),
            (all, file, vec!["info", "--coverage"]),
        ]);
    }
    // With Elias-Fano code, degrees are not in the adjacency lists.
    cases.push((weighted, "chunk-1/degrees", vec!["add-features", "--kind", "degrees"]));
    for (number, (store, file, arguments)) in cases.into_iter().enumerate() {
        with_flip(store, file, |place| {
            let mut program = command("grappa-store");
            program.arg(arguments[0]).arg(store);
            for argument in &arguments[1..] {
                program.arg(argument.replace("OUT", &format!("{}-{number}", out.display())));
            }
            println!("{program:?}");
            run(&mut program).failure(&[place]);
        });
        // Files that a program would continue with, and another one must not.
        let unfinished = store.join("features.partial");
        if unfinished.exists() {
            fs::remove_dir_all(unfinished).unwrap();
        }
    }
}

#[test]
fn paths_without_a_store_are_errors() {
    let (folder, stores) = fixture();
    let told = |path: &Path, parts: &[&str]| {
        for name in ["info", "verify"] {
            run(command("grappa-store").arg(name).arg(path)).failure(parts);
        }
    };
    told(&folder.path().join("no.grappa"), &["no.grappa", "no such store"]);
    told(&folder.path().join("edges.tsv"), &["edges.tsv", "is a file"]);
    told(folder.path(), &["manifest"]);
    let partial = folder.path().join("all.grappa.partial");
    fs::rename(&stores[0], &partial).unwrap();
    told(&partial, &["not finished", "--resume"]);
    told(&stores[0], &["not finished", "--resume"]);
    run(&mut command("grappa-store")).misuse(&["verify", "info"]);
}
