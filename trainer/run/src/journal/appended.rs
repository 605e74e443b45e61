//! A file that grows by whole records, also on a disk that is full for a while.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable};

use crate::Result;

/// An open file to which records are appended.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) path: PathBuf,
    file: File,
    /// Bytes of whole records in the file.
    length: u64,
    /// Records that could not be written yet.
    pending: Vec<u8>,
}

impl Appended {
    /// A file with `length` bytes of whole records. It was opened to append.
    pub(super) fn new(path: &Path, file: File, length: u64) -> Self {
        Self {
            path: path.to_owned(),
            file,
            length,
            pending: Vec::new(),
        }
    }

    /// Appends a record, after those that could not be written before.
    ///
    /// # Errors
    /// If the file cannot be written to. It then has no part of the record; a later append or flush tries again.
    pub(super) fn append(&mut self, record: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(record);
        self.flush()
    }

    /// Writes the records that could not be written before.
    ///
    /// # Errors
    /// As [`Appended::append`].
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        durable::kill_point("append to", &self.path);
        match self.file.write_all(&self.pending) {
            Ok(()) => {
                self.length += self.pending.len() as u64;
                self.pending.clear();
                Ok(())
            }
            Err(error) => {
                // Readers stop at a part of a record. Cutting it off needs no space.
                let _ = self.file.set_len(self.length);
                Err(EngineError::io("write", &self.path)(error).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, mem::swap};

    use super::*;

    #[test]
    fn records_that_a_full_disk_had_no_room_for_are_written_once_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let open = |path: &Path| File::options().create(true).append(true).open(path).unwrap();
        let mut full = open(Path::new("/dev/full"));
        let mut records = Appended::new(&path, open(&path), 0);
        records.append(b"1\n").unwrap();
        swap(&mut records.file, &mut full);
        for record in [b"2\n", b"3\n"] {
            let error = records.append(record).unwrap_err();
            assert!(error.is_disk_full(), "{error}");
        }
        swap(&mut records.file, &mut full);
        records.append(b"4\n").unwrap();
        records.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1\n2\n3\n4\n");
    }
}
