//! Files and folders that tasks make.

use std::{fs, io::ErrorKind, path::Path};

use anyhow::{Context, Result};

/// Copies a file, or the files of a folder.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        make_parent(to)?;
        return fs::copy(from, to)
            .map(drop)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()));
    }
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        // Python leaves a folder of compiled scripts.
        if entry.file_type()?.is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Writes a file, and makes its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the folder of a file.
pub fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().expect("a file is in a folder");
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

/// Makes a folder empty, or makes it.
pub fn fresh(folder: &Path) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Removes a folder if it exists.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
