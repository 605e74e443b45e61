//! Folders in which programs run as in a shell.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    files::{files_of, memory_folder, names_in},
    program::{self, Ran},
};

/// A folder in which programs run. Names are relative to it, and contain no blanks in lines of commands.
#[derive(Debug)]
pub struct ProgramFolder {
    _folder: TempDir,
    /// Without links.
    path: PathBuf,
}

impl ProgramFolder {
    /// A folder in memory if possible.
    #[expect(clippy::new_without_default, reason = "a default value does not touch the file system")]
    pub fn new() -> Self {
        Self::at(memory_folder())
    }

    /// A folder on a disk. A file system in memory has no page cache to bypass or to count.
    pub fn on_disk() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(folder: TempDir) -> Self {
        let path = fs::canonicalize(folder.path()).unwrap();
        Self { _folder: folder, path }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// The path of a name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, and the folder that its name has. Returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The text of a file.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The bytes of a file.
    #[track_caller]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Removes a folder.
    #[track_caller]
    pub fn remove(&self, name: &str) {
        fs::remove_dir_all(self.path(name)).unwrap();
    }

    /// The files of a folder.
    pub fn files(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        files_of(&self.path(name))
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        names_in(&self.path)
    }

    /// The command of a line such as `store info graph.grappa`, for `grappa-store info graph.grappa`.
    pub fn command(&self, line: &str) -> Command {
        program::line(&self.path, line)
    }

    /// Runs the command of a line.
    pub fn run(&self, line: &str) -> Ran {
        program::run(&mut self.command(line))
    }

    /// Runs the command of a line, which must succeed.
    #[track_caller]
    pub fn success(&self, line: &str) -> Ran {
        self.run(line).success()
    }
}

/// The memory that an error says is needed, such as `17 MiB`, without the blank.
#[track_caller]
pub fn least_memory(refused: &Ran) -> String {
    let (_, after) = refused.stderr.split_once("at least ").expect("an error about memory");
    let (least, _) = after.split_once(" is needed").expect("a size");
    least.replace(' ', "")
}
