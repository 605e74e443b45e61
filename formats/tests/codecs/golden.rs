//! Golden files of every released layout. The current encoder writes the newest layout; the current decoder reads all.
//!
//! `v1` has the files of the first writers, with a checksum for each 64 KiB of payload. `v1-pages` has the files whose
//! layout changed since: those with random reads. Their payload starts at a page boundary and has a checksum per page. `v2` has the kinds
//! of version 2, `v3` times.
//!
//! After adding a sample, run the tests once with `WRITE_GOLDEN=1`, which writes missing files. Existing files are
//! never changed, because stores of users have their layout.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grappa_formats::container::MAGIC;

use crate::samples;

fn folder(layout: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(layout)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// The file in the layout of the first writers that wrote it.
pub fn bytes(name: &str) -> Vec<u8> {
    let mut files = ["v1", "v1-pages", "v2", "v3"].map(|layout| folder(layout).join(name)).into_iter();
    read(&files.find(|path| path.exists()).unwrap_or_else(|| panic!("no golden file is named {name}")))
}

/// The folder of new files of a sample.
fn newest_layout(sample: &samples::Sample) -> &'static str {
    match sample.bytes[12] {
        version if !sample.bytes.starts_with(&MAGIC) || version == 1 => "v1-pages",
        2 => "v2",
        _ => "v3",
    }
}

#[test]
fn encoders_write_the_golden_files() {
    for sample in samples::all() {
        let layout = newest_layout(&sample);
        let [old, new] = ["v1", layout].map(|layout| folder(layout).join(sample.name));
        let is_golden = |path: &PathBuf| path.exists() && read(path) == sample.bytes;
        if std::env::var_os("WRITE_GOLDEN").is_some() && !new.exists() && !is_golden(&old) {
            fs::create_dir_all(folder(layout)).unwrap();
            fs::write(&new, &sample.bytes).unwrap();
        }
        let newest = if new.exists() { new } else { old };
        assert!(is_golden(&newest), "{} is written differently now", sample.name);
    }
}

#[test]
fn decoders_read_the_golden_files() {
    let names: Vec<_> = samples::all().iter().map(|sample| sample.name).collect();
    for (layout, files) in [("v1", 22), ("v1-pages", 21), ("v2", 3), ("v3", 6)] {
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
