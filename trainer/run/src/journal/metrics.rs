//! `metrics.jsonl`: a line for each epoch.

use std::{fs::OpenOptions, path::Path};

use grappa_io::{Error as EngineError, Position, durable, regular};

use super::{appended::Appended, record::EpochRecord};
use crate::Result;

/// An open `metrics.jsonl`.
#[derive(Debug)]
pub(super) struct Metrics {
    lines: Appended,
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
        let lines = Appended::new(path, file, length);
        Ok((Self { lines }, records))
    }

    /// Appends a line, after those that a full disk had no room for.
    pub(super) fn append(&mut self, record: &EpochRecord) -> Result<()> {
        let mut line = serde_json::to_string(record).expect("a record is representable");
        line.push('\n');
        self.lines.append(line.as_bytes())
    }

    /// Writes the lines that a full disk had no room for.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.lines.flush()
    }
}

/// The records up to the one of `epoch`, and how many bytes they take. A last line that is torn is not read.
pub(super) fn read(path: &Path, epoch: u64) -> Result<(Vec<EpochRecord>, u64)> {
    parse(path, &regular::read(path)?, epoch)
}

fn parse(path: &Path, text: &[u8], epoch: u64) -> Result<(Vec<EpochRecord>, u64)> {
    let (mut records, mut length) = (Vec::new(), 0);
    let (mut end, mut before) = (0, 0);
    for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
        end += line.len();
        let wrong = |what: String| Err(EngineError::input(path, Position::Line(number), what).into());
        match serde_json::from_slice::<EpochRecord>(line) {
            // A torn line: half an append, or the rest after a power failure.
            _ if !line.ends_with(b"\n") => break,
            // Lines after the one of `epoch` are cut off, whatever they are.
            Err(_) if end == text.len() || before > epoch => break,
            Ok(record) if record.epoch > epoch => before = record.epoch,
            Ok(record) if record.epoch <= before => {
                return wrong(format!(
                    "metrics of epoch {} do not follow those of epoch {before}, so one of the two lines is damaged; remove that line to \
                     go on without it",
                    record.epoch
                ));
            }
            Ok(record) => {
                (before, length) = (record.epoch, end);
                records.push(record);
            }
            Err(error) => {
                return wrong(format!(
                    "no metrics of an epoch: {error}; remove the line to go on without it"
                ));
            }
        }
    }
    Ok((records, length as u64))
}
