//! An append-only log of a run's finished work. A killed run is resumed from it.
//!
//! A line is one record: the XXH3-64 of the JSON in hexadecimal, a space, the JSON. A line that is torn or does not
//! match its checksum ends the log: the work it recorded counts as unfinished. An append is one `write`, so a killed
//! process leaves whole lines. After a power failure the log may be shorter, but it is never wrong.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::OFlags;
use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

use super::{durable, regular};
use crate::{Error, Result};

/// An open journal.
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Starts a new, empty journal.
    pub fn create(path: &Path) -> Result<Self> {
        durable::begin_change("create", path)?;
        let file = File::create_new(path).map_err(Error::io("create", path))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Whether the journal is missing or has no whole line. Then the run was killed before it began any work.
    pub fn is_empty(path: &Path) -> Result<bool> {
        let file = match regular::open(path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        let mut line = Vec::new();
        BufReader::new(file).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
        Ok(!line.ends_with(b"\n"))
    }

    /// Opens the journal of an earlier run. Returns its records, and truncates a torn end.
    pub fn resume<R: DeserializeOwned>(path: &Path) -> Result<(Self, Vec<R>)> {
        let text = regular::read(path)?;
        let (mut records, mut good) = (Vec::new(), 0);
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let Some(record) = parse(line) else { break };
            records.push(record);
            good += line.len();
        }
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(Error::io("open", path))?;
        file.set_len(good as u64).map_err(Error::io("truncate", path))?;
        Ok((Self { path: path.to_owned(), file: Mutex::new(file) }, records))
    }

    /// Appends a record.
    pub fn append(&self, record: &impl Serialize) -> Result<()> {
        let json = serde_json::to_string(record).map_err(io::Error::from).map_err(Error::io("write", &self.path))?;
        let line = format!("{:016x} {json}\n", xxh3_64(json.as_bytes()));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        durable::begin_change("append to", &self.path)?;
        file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))
    }
}

fn parse<R: DeserializeOwned>(line: &[u8]) -> Option<R> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (checksum, json) = line.split_once(' ')?;
    if u64::from_str_radix(checksum, 16).ok()? != xxh3_64(json.as_bytes()) {
        return None;
    }
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_torn_line_ends_the_log_and_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::create(&path).unwrap();
        for n in 0..5u32 {
            journal.append(&n).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for end in 0..=whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let expected = whole[..end].iter().filter(|&&byte| byte == b'\n').count() as u32;
            assert_eq!(Journal::is_empty(&path).unwrap(), expected == 0);
            let (journal, records) = Journal::resume::<u32>(&path).unwrap();
            assert_eq!(records, (0..expected).collect::<Vec<_>>());
            journal.append(&99u32).unwrap();
            let (_, records) = Journal::resume::<u32>(&path).unwrap();
            assert_eq!(records.last(), Some(&99), "a record after a torn one is read");
        }
    }

    #[test]
    fn a_damaged_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::create(&path).unwrap().append(&12345u32).unwrap();
        let text = fs::read_to_string(&path).unwrap().replace("12345", "12346");
        fs::write(&path, text).unwrap();
        assert!(Journal::resume::<u32>(&path).unwrap().1.is_empty());
    }
}
