use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{manifest::Manifest, splits};
use grappa_io::{map::Access, progress::Silent};
use grappa_storage::{Store, files};

use super::sample::{NODES, Sample, in_folder};
use crate::verify::{Problem, verify};

fn problems(path: &Path) -> Vec<Problem> {
    verify(path, 1, &Silent).unwrap().problems
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn sound_stores_have_no_problems() {
    for sample in [Sample::ALL_PARTS, Sample::STRINGS, Sample { without: Some(1), ..Sample::ALL_PARTS }] {
        let (_folder, path) = in_folder(|folder| sample.write(folder));
        let report = verify(&path, 2, &Silent).unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
        let files = files_of(&path);
        let bytes = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert_eq!((report.files, report.bytes), (files.len() as u64, bytes));
    }
}

/// Flips every byte of every file: the bytes at one offset in all files at once. The manifest is flipped separately,
/// because the other files are found through it.
#[test]
fn any_flipped_byte_is_reported_in_its_file() {
    for sample in [Sample::ALL_PARTS, Sample::STRINGS] {
        let (_folder, path) = in_folder(|folder| sample.write(folder));
        let files: Vec<_> = files_of(&path)
            .into_iter()
            .map(|file| (file.strip_prefix(&path).unwrap().to_str().unwrap().to_owned(), fs::read(file).unwrap()))
            .collect();
        let (manifest, others): (Vec<_>, Vec<_>) = files.iter().partition(|(name, _)| name == "manifest");
        flip_all(&path, &manifest);
        flip_all(&path, &others);
        assert_eq!(problems(&path), []);
    }
}

fn flip_all(path: &Path, files: &[&(String, Vec<u8>)]) {
    let longest = files.iter().map(|(_, sound)| sound.len()).max().unwrap();
    for at in 0..longest {
        // Between header and payload of features are four thousand zeros. Testing some of them is enough.
        if (200..4000).contains(&at)
            && files.iter().all(|(name, sound)| at >= sound.len() || name.ends_with("features"))
            && at % 97 != 0
        {
            continue;
        }
        let mut flipped = Vec::new();
        for (name, sound) in files.iter().filter(|(_, sound)| at < sound.len()) {
            write_byte(&path.join(name), at, sound[at] ^ 1 << (at % 8));
            flipped.push(name.as_str());
        }
        let problems = problems(path);
        let mut reported: Vec<_> = problems.iter().map(|problem| problem.file.as_str()).collect();
        reported.dedup();
        assert_eq!(reported, flipped, "byte {at}: {problems:?}");
        for (name, sound) in files.iter().filter(|(_, sound)| at < sound.len()) {
            write_byte(&path.join(name), at, sound[at]);
        }
    }
}

/// In place: rewriting whole files makes some file systems wait for the disk.
fn write_byte(file: &Path, at: usize, byte: u8) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[byte], at as u64).unwrap();
}

#[test]
fn a_damaged_block_is_named_by_its_offset() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    let file = path.join("chunk-2/features");
    let mut bytes = fs::read(&file).unwrap();
    bytes[4200] ^= 1;
    fs::write(&file, bytes).unwrap();
    let problems = problems(&path);
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].file.as_str(), problems[0].offset), ("chunk-2/features", 4096));
}

#[test]
fn every_problem_is_told() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    fs::remove_file(path.join("chunk-0/labels")).unwrap();
    fs::write(path.join("chunk-1/edges.tmp"), "left over").unwrap();
    fs::write(path.join("notes"), "mine").unwrap();
    let cut = path.join("chunk-2/weights");
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    let problems = problems(&path);
    let files: Vec<_> = problems.iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(files, ["chunk-0/labels", "chunk-1/edges.tmp", "chunk-2/weights", "notes"], "{problems:?}");
}

#[test]
fn without_a_manifest_checksums_still_tell() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    for (file, at) in [("manifest", 100), ("chunk-1/edges", 130)] {
        let file = path.join(file);
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] ^= 4;
        fs::write(&file, bytes).unwrap();
    }
    let problems = problems(&path);
    let files: Vec<_> = problems.iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(files, ["chunk-1/edges", "manifest"]);
}

/// A store whose checksums are all right, and whose manifest does not say what its files do.
fn tampered(tamper: impl FnOnce(&mut Manifest)) -> Vec<Problem> {
    let (_folder, path) = in_folder(|folder| folder.join("tampered.grappa"));
    Sample::ALL_PARTS.write_with(&path, tamper);
    problems(&path)
}

#[track_caller]
fn expect_one(problems: &[Problem], file: &str, expected: &str) {
    assert!(
        problems.len() == 1 && problems[0].file == file && problems[0].description.contains(expected),
        "{problems:?}"
    );
}

#[test]
fn a_manifest_that_disagrees_with_its_files_is_noticed() {
    let problems = tampered(|manifest| {
        let buckets = &mut manifest.chunks[1].bucket_edges;
        buckets[0] += 1;
        buckets[2] -= 1;
    });
    expect_one(&problems, "chunk-1/edges", "edges come from chunk 0");

    let problems = tampered(|manifest| {
        manifest.chunks[2].bucket_edges[0] += 1;
        manifest.chunks[2].edges += 1;
        manifest.edges += 1;
    });
    expect_one(&problems, "chunk-2/edges", "but the manifest says");

    let problems = tampered(|manifest| manifest.splits[1].nodes += 1);
    expect_one(&problems, "splits/val.roaring", "30 nodes, but the manifest says 31");

    let problems = tampered(|manifest| manifest.labels.as_mut().unwrap().classes = 5);
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[..3].iter().all(|p| p.file.ends_with("labels")));
    expect_one(&problems[3..], "schema", "names of 4 classes, but the store has 5");

    let problems = tampered(|manifest| manifest.edge_options.self_loops = grappa_formats::manifest::SelfLoops::Add);
    assert_eq!(problems.len(), 3, "{problems:?}");
    let description = &problems[0].description;
    assert!(description.contains("has 0 self-loops, not one"), "{description}");
    assert!(!description.contains("internal number"), "{description}");

    let problems = tampered(|manifest| manifest.weighted = false);
    assert!(problems.iter().all(|p| p.description.contains("nothing in it requires")), "{problems:?}");
    assert_eq!(problems.len(), 3);

    let problems = tampered(|manifest| drop(manifest.files.remove(0)));
    assert!(problems.iter().any(|p| p.file == "manifest" && p.description.contains("does not list chunk-0/degrees")));
    assert!(problems.iter().any(|p| p.file == "chunk-0/degrees" && p.description.contains("no part of the store")));
}

#[test]
fn overlapping_splits_are_noticed() {
    let (folder, path) = in_folder(|folder| folder.join("overlap.grappa"));
    Sample::ALL_PARTS.write_with(&path, |manifest| {
        let set = (0..30).collect();
        let (bytes, digest) = splits::encode("test", NODES, &set);
        let file = folder.path().join("overlap.grappa.partial/splits/test.roaring");
        fs::write(file, &bytes).unwrap();
        let path = files::split("test");
        let entry = manifest.files.iter_mut().find(|file| file.path == path).unwrap();
        (entry.bytes, entry.digest) = (bytes.len() as u64, digest);
    });
    let problems = problems(&path);
    let descriptions: Vec<_> = problems.iter().map(|problem| problem.description.as_str()).collect();
    assert_eq!(
        descriptions,
        ["6 nodes are in train too; splits must not overlap", "6 nodes are in val too; splits must not overlap"]
    );
}

#[test]
fn an_assignment_that_is_not_there_is_noticed() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    let current = grappa_formats::assignment::Current { generation: 4 };
    fs::write(path.join(files::CURRENT), current.encode()).unwrap();
    expect_one(&problems(&path), "assignments/4", "CURRENT names this assignment, and it is missing");
    assert!(Store::open(&path).is_err());
}

/// Files of rows that changed places, with a manifest that says so.
#[test]
fn files_of_other_chunks_do_not_pass_for_those_of_this_one() {
    for name in ["edges", "degrees", "weights", "features", "labels"] {
        let (folder, path) = in_folder(|folder| folder.join("swapped.grappa"));
        Sample::ALL_PARTS.write_with(&path, |manifest| {
            let partial = folder.path().join("swapped.grappa.partial");
            let [a, b] = [0, 1].map(|chunk| format!("chunk-{chunk}/{name}"));
            fs::rename(partial.join(&a), partial.join("aside")).unwrap();
            fs::rename(partial.join(&b), partial.join(&a)).unwrap();
            fs::rename(partial.join("aside"), partial.join(&b)).unwrap();
            let at = [a, b].map(|path| manifest.files.iter().position(|file| file.path == path).unwrap());
            let [first, second] = at.map(|i| manifest.files[i].clone());
            (manifest.files[at[0]].bytes, manifest.files[at[0]].digest) = (second.bytes, second.digest);
            (manifest.files[at[1]].bytes, manifest.files[at[1]].digest) = (first.bytes, first.digest);
        });
        let problems = problems(&path);
        let chunks: Vec<_> = problems.iter().map(|p| p.file.split('/').next().unwrap()).collect();
        assert_eq!(chunks, ["chunk-0", "chunk-1"], "{name}: {problems:?}");
        let store = Store::open(&path).unwrap();
        let chunk = grappa_formats::ChunkId(0);
        let is_refused = match name {
            "features" => store.features(chunk).is_err(),
            "labels" => store.labels(chunk, Access::Random).is_err(),
            _ => store.chunk(chunk).is_err(),
        };
        assert!(is_refused, "{name}");
    }
}
