//! Circles among files: the files of a crate import in one direction.
//!
//! [`modules`] reads a crate as the compiler does: it follows `mod` lines from the root and leaves out tests. Each `use` line and
//! each path is traced to the file that defines the item, through any number of re-exports. So a file that only declares
//! modules and re-exports their items is part of no circle.

mod circles;
mod modules;
mod paths;

use std::path::{Path, PathBuf};

use anyhow::Result;

pub use self::modules::Crate;
use crate::command::root;

/// Adds the circles of each crate whose root is among `files`.
pub fn check(files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    for file in files.iter().filter(|file| is_root(file)) {
        let krate = Crate::read(&root(), file)?;
        problems.extend(circles::of_crate(&krate).iter().map(ToString::to_string));
    }
    Ok(())
}

/// Whether a crate starts at this file. Tests, benches and examples are crates that nobody imports.
fn is_root(file: &Path) -> bool {
    let folder = file.parent().unwrap_or(Path::new(""));
    file.ends_with("src/lib.rs")
        || file.ends_with("src/main.rs")
        || (folder.ends_with("src/bin") && file.extension().is_some_and(|extension| extension == "rs"))
        || (file.ends_with("main.rs") && folder.parent().is_some_and(|parent| parent.ends_with("src/bin")))
}

#[cfg(test)]
mod tests;
