//! Detects that a file was replaced or modified.

use std::{
    fs::{self, File, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

use crate::{Error, Result};

/// Properties of a file that change when it is replaced, truncated, appended to or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Time of the last write: seconds and nanoseconds. Changes of name and permissions do not count.
    modified: (i64, i64),
}

impl Identity {
    /// Identity of an open regular file. `path` is its name in errors.
    pub(crate) fn from_file(file: &File, path: &Path) -> Result<Self> {
        let metadata = file.metadata().map_err(Error::io("look at", path))?;
        if !metadata.is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(Error::io("read", path)(source));
        }
        Ok(Self::from(&metadata))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fails if `path` now names another file, or if the file was written to or its length changed. Costs a system
    /// call.
    pub(crate) fn check_path(&self, path: &Path) -> Result<()> {
        let metadata = fs::metadata(path).map_err(Error::io("look again at", path))?;
        self.check(path, &Self::from(&metadata))
    }

    /// Fails if `file`, just opened at `path`, is another file or was modified.
    pub(crate) fn check_file(&self, file: &File, path: &Path) -> Result<()> {
        self.check(path, &Self::from_file(file, path)?)
    }

    fn check(&self, path: &Path, now: &Self) -> Result<()> {
        let change = if (now.device, now.inode) != (self.device, self.inode) {
            "it was replaced by another file".to_owned()
        } else if now.bytes != self.bytes {
            format!("its length changed from {} to {} bytes", self.bytes, now.bytes)
        } else if now.modified != self.modified {
            "it was written to".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Changed { path: path.to_owned(), change })
    }
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::FileExt, time::SystemTime};

    use super::*;

    #[test]
    fn every_change_of_the_content_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        type Change = fn(&Path);
        let changes: [(&str, Change); 5] = [
            ("its length changed from 100 to 99 bytes", |path| {
                File::options().write(true).open(path).unwrap().set_len(99).unwrap();
            }),
            ("its length changed from 100 to 101 bytes", |path| {
                File::options().write(true).open(path).unwrap().set_len(101).unwrap();
            }),
            ("it was written to", |path| {
                let file = File::options().write(true).open(path).unwrap();
                file.write_all_at(b"new", 50).unwrap();
                // The clock of file systems is coarse. Set the time instead of waiting for a tick.
                file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }),
            ("it was replaced by another file", |path| {
                let other = path.with_extension("other");
                fs::write(&other, [1; 100]).unwrap();
                fs::rename(other, path).unwrap();
            }),
            ("No such file", |path| fs::remove_file(path).unwrap()),
        ];
        for (expected, change) in changes {
            fs::write(&path, [0; 100]).unwrap();
            let identity = Identity::from_file(&File::open(&path).unwrap(), &path).unwrap();
            identity.check_path(&path).unwrap();
            change(&path);
            let error = identity.check_path(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("file"), "{error}");
        }
    }

    #[test]
    fn a_renamed_file_counts_as_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, [0; 100]).unwrap();
        let identity = Identity::from_file(&File::open(&old).unwrap(), &old).unwrap();
        fs::rename(&old, &new).unwrap();
        identity.check_path(&new).unwrap();
        identity.check_file(&File::open(&new).unwrap(), &new).unwrap();
    }

    #[test]
    fn folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Identity::from_file(&File::open(folder.path()).unwrap(), folder.path()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
