//! Folders of files that are one input, as Spark, Dask, Polars and DuckDB write them.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Position, Result};

use crate::input::Input;

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
            let problem = format!(
                "this folder has a folder in it, {}, and files are not looked for there; name a folder that has files only (or \
                 several files, of edges), or use --ogb for a folder of the Open Graph Benchmark",
                file.display()
            );
            return Err(Error::input(path, Position::Whole, problem));
        }
        files.push(file);
    }
    if files.is_empty() {
        let problem = "this folder has no files; names that begin with _ or . do not count";
        return Err(Error::input(path, Position::Whole, problem));
    }
    alphanumeric_sort::sort_path_slice(&mut files);
    refuse_twins(&files)?;
    Ok(files)
}

/// Several inputs, whose rows are one table, with the files of folders in the place of the folders.
///
/// # Errors
/// As [`files_of`], or if a file is there twice: under its name, packed, or as a copy that a program left beside it.
pub fn files_of_all(inputs: &[Input]) -> Result<Vec<Input>> {
    let mut all = Vec::new();
    for input in inputs {
        match input {
            Input::Path(path) => all.extend(files_of(path)?.into_iter().map(Input::Path)),
            Input::Parts(parts) => all.extend(parts.files.iter().map(Input::from)),
            Input::Memory(_) => all.push(input.clone()),
        }
    }
    let files = all.iter().filter_map(|input| match input {
        Input::Path(path) => Some(path.clone()),
        Input::Parts(_) | Input::Memory(_) => None,
    });
    refuse_twins(&files.collect::<Vec<_>>())?;
    Ok(all)
}

/// Fails if two of the files are one, or one of them is a copy of another, as their names say.
fn refuse_twins(files: &[PathBuf]) -> Result<()> {
    let mut seen = HashMap::new();
    let mut originals: HashMap<PathBuf, &Path> = HashMap::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(metadata) = fs::metadata(file)
            && seen.insert((metadata.dev(), metadata.ino()), file).is_some()
        {
            let problem =
                "this file is named twice, by itself or in a folder, so its rows would count twice; name it once";
            return Err(Error::input(file, Position::Whole, problem));
        }
        if let Some(other) = originals.insert(file.with_file_name(original_of(&name)), file) {
            return Err(twins(file, other));
        }
    }
    let names: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let Some(original) = numbered_copy_of(original_of(&name)).map(|name| file.with_file_name(name)) else {
            continue;
        };
        if let Some(other) = originals.get(&original).filter(|other| names.contains(**other)) {
            return Err(twins(file, other));
        }
    }
    Ok(())
}

fn twins(file: &Path, other: &Path) -> Error {
    let problem = format!(
        "this looks like the data of {} once more, so its rows would count twice; move one of them elsewhere, or give it another name if its \
         data is other",
        other.display()
    );
    Error::input(file, Position::Whole, problem)
}

/// The name of the original, if a file with this name is a packed or backup copy; otherwise the name itself.
fn original_of(name: &str) -> &str {
    const COPIES: [&str; 11] =
        [".gz", ".zst", ".zstd", ".bgz", "~", ".bak", ".orig", ".old", ".backup", ".copy", ".save"];
    let mut name = name;
    while let Some(original) = COPIES.iter().find_map(|copy| name.strip_suffix(copy)).filter(|name| !name.is_empty()) {
        name = original;
    }
    match name.strip_prefix('#').and_then(|name| name.strip_suffix('#')) {
        Some(autosaved) if !autosaved.is_empty() => autosaved,
        _ => name,
    }
}

/// The name of the original, if a file with this name is a second download or a copy that a desktop made: `p (1).csv`, `p copy.csv`.
fn numbered_copy_of(name: &str) -> Option<String> {
    if let Some(name) = name.strip_prefix("Copy of ") {
        return Some(name.to_owned());
    }
    let (stem, extension) = match name.split_once('.') {
        Some((stem, extension)) => (stem, format!(".{extension}")),
        None => (name, String::new()),
    };
    let numbered = stem.strip_suffix(')').and_then(|stem| {
        let (stem, number) = stem.rsplit_once('(')?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(stem)
    });
    let copied = [" - Copy", " copy", "_copy", "-copy"].iter().find_map(|copy| stem.strip_suffix(copy));
    let original = numbered.or(copied)?.trim_end();
    (!original.is_empty()).then(|| format!("{original}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (files, twice) in [
            (&["p.csv", "p.csv.gz"][..], true),
            (&["p.csv.gz", "p.csv.zst"], true),
            (&["p.csv", "p.csv~"], true),
            (&["p.csv", "p.csv.bak"], true),
            (&["p.csv", "#p.csv#"], true),
            (&["p.csv", "p (1).csv"], true),
            (&["p.csv.gz", "p (1).csv.gz"], true),
            (&["p.csv", "p copy.csv"], true),
            (&["p.csv", "Copy of p.csv"], true),
            (&["p (1).csv", "p (2).csv"], false),
            (&["p.csv", "p.1.csv", "p-2.csv", "q.csv.gz"], false),
            (&["a.old.csv", "a.csv"], false),
        ] {
            for name in files {
                fs::write(at(name), name).unwrap();
            }
            let paths: Vec<_> = files.iter().map(|name| at(name)).collect();
            let inputs: Vec<Input> = paths.iter().map(Input::from).collect();
            let found = [files_of_all(&inputs).is_err(), files_of(folder.path()).is_err()];
            assert_eq!(found, [twice; 2], "{files:?}");
            files.iter().for_each(|name| fs::remove_file(at(name)).unwrap());
        }
        fs::write(at("p.csv"), "").unwrap();
        std::os::unix::fs::symlink(at("p.csv"), at("q.csv")).unwrap();
        for paths in [
            vec![at("p.csv"), at("p.csv")],
            vec![folder.path().to_owned(), at("p.csv")],
            vec![at("p.csv"), at("q.csv")],
        ] {
            let inputs: Vec<Input> = paths.iter().map(Input::from).collect();
            let error = files_of_all(&inputs).unwrap_err().to_string();
            assert!(error.contains("named twice"), "{error}");
        }
    }

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
