//! Files for readers that need paths.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A folder, in memory if possible, that is removed when this is dropped.
pub struct Scratch(TempDir);

impl Scratch {
    /// # Panics
    /// If no folder can be made.
    pub fn new() -> Self {
        let in_memory = tempfile::Builder::new().prefix("grappa-fuzz-").tempdir_in("/dev/shm");
        Self(in_memory.unwrap_or_else(|_| tempfile::tempdir().expect("a temporary folder can be made")))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file of this name with these bytes.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        // Some file systems flush a file that is truncated and written again; a new one is free.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(bytes));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
