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
    /// Whether the file may have a part of a record after the whole ones.
    is_torn: bool,
}

impl Appended {
    /// A file with `length` bytes of whole records. It was opened to append.
    pub(super) fn new(path: &Path, file: File, length: u64) -> Self {
        Self { path: path.to_owned(), file, length, pending: Vec::new(), is_torn: false }
    }

    /// Appends a record, after those that could not be written before.
    ///
    /// # Errors
    /// If the file cannot be written to. It then has no part of the record, unless that cannot be cut off either; a later append or flush
    /// first cuts it off, and tries again.
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
        if self.is_torn {
            // Another record behind a part of one would make a line that is none.
            self.cut()?;
        }
        durable::kill_point("append to", &self.path);
        match self.file.write_all(&self.pending) {
            Ok(()) => {
                self.length += self.pending.len() as u64;
                self.pending.clear();
                Ok(())
            }
            Err(error) => {
                self.is_torn = true;
                // Readers stop at a part of a record. Cutting it off needs no space. If it fails, the next flush tries again.
                let _ = self.cut();
                Err(EngineError::io("write", &self.path)(error).into())
            }
        }
    }

    /// Cuts off what comes after the whole records.
    fn cut(&mut self) -> Result<()> {
        self.file.set_len(self.length).map_err(EngineError::io("truncate", &self.path))?;
        self.is_torn = false;
        Ok(())
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
            // A device cannot be cut. A file can, also on a full disk.
            records.is_torn = false;
            let error = records.append(record).unwrap_err();
            assert!(error.is_disk_full(), "{error}");
        }
        swap(&mut records.file, &mut full);
        records.append(b"4\n").unwrap();
        records.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1\n2\n3\n4\n");
    }

    #[test]
    fn a_part_of_a_record_that_could_not_be_cut_off_is_cut_off_before_the_next_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let open = |path: &Path| File::options().create(true).append(true).open(path).unwrap();
        let mut full = open(Path::new("/dev/full"));
        let mut records = Appended::new(&path, open(&path), 0);
        records.append(b"1\n").unwrap();
        swap(&mut records.file, &mut full);
        records.append(b"2 long\n").unwrap_err();
        // While it cannot be cut off, nothing is appended, and that is an error.
        let error = records.append(b"3\n").unwrap_err().to_string();
        assert!(error.contains("cannot truncate"), "{error}");
        swap(&mut records.file, &mut full);
        open(&path).write_all(b"2 lo").unwrap();
        records.append(b"4\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1\n2 long\n3\n4\n");
    }
}
