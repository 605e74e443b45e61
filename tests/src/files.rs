//! The contents of folders, and their comparison.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A temporary folder, in memory if possible. It is for tests that make many stores and would mostly wait for the disk.
pub fn memory_folder() -> TempDir {
    let shared_memory = Path::new("/dev/shm");
    let folder = if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() };
    folder.or_else(|_| tempfile::tempdir()).unwrap()
}

/// The files in a folder: relative path and bytes.
pub fn files_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The names in a folder, sorted.
pub fn names_in(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// Checks that a folder contains exactly these files with these bytes.
#[track_caller]
pub fn assert_same(folder: &Path, expected: &BTreeMap<PathBuf, Vec<u8>>, context: &str) {
    let found = files_of(folder);
    assert!(found.keys().eq(expected.keys()), "{:?} and {:?}: {context}", found.keys(), expected.keys());
    for (path, bytes) in &found {
        assert!(bytes == &expected[path], "{} differs: {context}", path.display());
    }
}

/// Copies a folder.
pub fn copy_folder(from: &Path, to: &Path) {
    for (path, bytes) in files_of(from) {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
