//! Golden files of every released layout. The current encoder writes the newest layout; the current decoder reads all.
//!
//! `v1` has the files of the first writers, with a checksum for each 64 KiB of payload. `v1-pages` has the files whose
//! layout changed since: those with random reads. Their payload starts at a page boundary and has a checksum per page.
//!
//! After adding a sample, run the tests once with `WRITE_GOLDEN=1`, which writes missing files. Existing files are
//! never changed, because stores of users have their layout.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::samples;

fn folder(layout: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(layout)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// The file in the layout of the first writers that wrote it.
pub fn bytes(name: &str) -> Vec<u8> {
    let [old, new] = ["v1", "v1-pages"].map(|layout| folder(layout).join(name));
    read(if old.exists() { &old } else { &new })
}

#[test]
fn encoders_write_the_golden_files() {
    for sample in samples::all() {
        let [old, new] = ["v1", "v1-pages"].map(|layout| folder(layout).join(sample.name));
        let is_golden = |path: &PathBuf| path.exists() && read(path) == sample.bytes;
        if std::env::var_os("WRITE_GOLDEN").is_some() && !new.exists() && !is_golden(&old) {
            fs::create_dir_all(folder("v1-pages")).unwrap();
            fs::write(&new, &sample.bytes).unwrap();
        }
        let newest = if new.exists() { new } else { old };
        assert!(is_golden(&newest), "{} is written differently now", sample.name);
    }
}

#[test]
fn decoders_read_the_golden_files() {
    let names: Vec<_> = samples::all().iter().map(|sample| sample.name).collect();
    for (layout, files) in [("v1", 22), ("v1-pages", 21)] {
        let mut read_files = 0;
        for entry in fs::read_dir(folder(layout)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(names.contains(&name), "no sample is named {name}");
            samples::read(name, &read(&path)).unwrap_or_else(|e| panic!("{layout}/{name}: {e}"));
            read_files += 1;
        }
        assert!(read_files >= files, "{layout} has {read_files} files");
    }
}
