//! Folders of files that are one input, as Spark, Dask, Polars and DuckDB write them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Position, Result};

/// The files of an input: `path` itself, or the files in it if it is a folder, in the order of their names, in which `part.10` comes
/// after `part.9`. As in Hadoop, names that begin with `_` or `.` are no data: marks of success, and checksums.
///
/// # Errors
/// If the folder cannot be read, has no files, or has a folder in it.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut files = Vec::new();
    for entry in entries.map_err(Error::io("read", path))? {
        let file = entry.path();
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b"_") || name.starts_with(b".") {
            continue;
        }
        if file.is_dir() {
            let what = format!(
                "this folder has a folder in it, {}, and files are not looked for there; name a folder that has files only (or \
                 several files, of edges), or use --ogb for a folder of the Open Graph Benchmark",
                file.display()
            );
            return Err(Error::input(path, Position::Whole, what));
        }
        files.push(file);
    }
    if files.is_empty() {
        let what = "this folder has no files; names that begin with _ or . do not count";
        return Err(Error::input(path, Position::Whole, what));
    }
    alphanumeric_sort::sort_path_slice(&mut files);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_of_their_numbers_and_marks_are_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let message = || files_of(folder.path()).unwrap_err().to_string();
        fs::write(at("_SUCCESS"), "").unwrap();
        fs::write(at(".part.9.parquet.crc"), "").unwrap();
        assert!(message().contains("has no files"), "{}", message());
        let names = ["part.9.parquet", "part.10.parquet", "part.100.parquet"];
        for name in names {
            fs::write(at(name), "").unwrap();
        }
        assert_eq!(files_of(folder.path()).unwrap(), names.map(at));
        assert_eq!(files_of(&at("part.9.parquet")).unwrap(), [at("part.9.parquet")]);
        fs::create_dir(at("_temporary")).unwrap();
        assert_eq!(files_of(folder.path()).unwrap(), names.map(at));
        fs::create_dir(at("day=1")).unwrap();
        for part in ["day=1", "--ogb"] {
            assert!(message().contains(part), "{}", message());
        }
    }
}
