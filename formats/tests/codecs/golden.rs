//! Files of each format version that was ever released: today's encoder writes these bytes, today's decoder reads them.
//!
//! After adding a sample, run the tests once with `WRITE_GOLDEN=1`: files that are missing are written. Files that are
//! there are never changed, since somebody's store looks like them.

use std::{fs, path::PathBuf};

use crate::samples;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

pub fn bytes(name: &str) -> Vec<u8> {
    let path = folder().join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

#[test]
fn encoders_write_the_golden_files() {
    for sample in samples::all() {
        let path = folder().join(sample.name);
        if std::env::var_os("WRITE_GOLDEN").is_some() && !path.exists() {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&path, &sample.bytes).unwrap();
        }
        assert!(
            bytes(sample.name) == sample.bytes,
            "{} is written differently now",
            sample.name
        );
    }
}

#[test]
fn decoders_read_the_golden_files() {
    let mut names: Vec<_> = samples::all().iter().map(|sample| sample.name).collect();
    for name in &names {
        samples::read(name, &bytes(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    names.sort_unstable();
    let mut files: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    files.sort_unstable();
    assert!(names.iter().all(|name| files.iter().any(|file| file == name)));
}
