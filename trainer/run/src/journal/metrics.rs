//! `metrics.jsonl`: a line for each epoch.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, Position, durable, regular};

use super::record::EpochRecord;
use crate::Result;

/// An open `metrics.jsonl`.
#[derive(Debug)]
pub(super) struct Metrics {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
}

impl Metrics {
    /// Opens the file, which is made if it is not there, and returns its records up to the one of `epoch`; what comes after
    /// it is cut off, as is a last line that is torn.
    pub(super) fn open(path: &Path, epoch: u64) -> Result<(Self, Vec<EpochRecord>)> {
        // First, because opening a pipe in its place for writing would wait.
        let text = regular::read_if_there(path)?.unwrap_or_default();
        let (records, length) = parse(path, &text, epoch)?;
        durable::kill_point("create", path);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(EngineError::io("open", path))?;
        durable::kill_point("truncate", path);
        file.set_len(length).map_err(EngineError::io("truncate", path))?;
        let metrics = Self {
            path: path.to_owned(),
            file,
            length,
        };
        Ok((metrics, records))
    }

    /// Appends a line; on a full disk, none rather than half of one.
    pub(super) fn append(&mut self, record: &EpochRecord) -> Result<()> {
        let mut line = serde_json::to_string(record).expect("a record is representable");
        line.push('\n');
        durable::kill_point("append to", &self.path);
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails too, the torn line is noticed when the file is opened again.
                let _ = self.file.set_len(self.length);
                Err(EngineError::io("write", &self.path)(error).into())
            }
        }
    }
}

/// The records up to the one of `epoch`, and how many bytes they take. A last line that is torn is not read.
pub(super) fn read(path: &Path, epoch: u64) -> Result<(Vec<EpochRecord>, u64)> {
    parse(path, &regular::read(path)?, epoch)
}

fn parse(path: &Path, text: &[u8], epoch: u64) -> Result<(Vec<EpochRecord>, u64)> {
    let (mut records, mut length) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
        let is_last = length + line.len() == text.len();
        match serde_json::from_slice::<EpochRecord>(line) {
            Ok(record) if record.epoch > epoch => break,
            // A torn line: half an append, or the rest after a power failure.
            _ if !line.ends_with(b"\n") => break,
            Err(_) if is_last => break,
            Ok(record) => records.push(record),
            Err(error) => {
                let what = format!("no metrics of an epoch: {error}; remove the line to go on without it");
                return Err(EngineError::input(path, Position::Line(number), what).into());
            }
        }
        length += line.len();
    }
    Ok((records, length as u64))
}
