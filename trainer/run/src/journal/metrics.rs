//! `metrics.jsonl`: a line for each epoch.
//!
//! ```text
//! {"epoch":1,"step":100, .., "checksum":"0123456789abcdef"}     XXH3-64 of the line before `,"checksum"`; 16 hexadecimal digits
//! ```

use std::path::Path;

use grappa_io::{Error as EngineError, Position, durable, regular};
use xxhash_rust::xxh3::xxh3_64;

use super::{appended::Appended, record::EpochRecord};
use crate::Result;

/// The last key of a line.
const CHECKSUM: &str = ",\"checksum\":\"";
/// The end of a line after its checksum.
const END: &str = "\"}\n";

/// Opens the file, which is made if it is not there, and returns its records up to the one of `epoch`; what comes after
/// it is cut off, as is a last line that is torn.
pub(super) fn open(path: &Path, epoch: u64) -> Result<(Appended, Vec<EpochRecord>)> {
    let text = regular::read_if_there(path)?.unwrap_or_default();
    let (records, length) = parse(path, &text, epoch)?;
    let file = durable::open_to_append(path)?;
    durable::kill_point("truncate", path);
    file.set_len(length).map_err(EngineError::io("truncate", path))?;
    Ok((Appended::new(path, file, length), records))
}

/// The records up to the one of `epoch`, and how many bytes they take. A last line that is torn is not read.
pub(super) fn parse(path: &Path, text: &[u8], epoch: u64) -> Result<(Vec<EpochRecord>, u64)> {
    let (mut records, mut length) = (Vec::new(), 0);
    let (mut end, mut before) = (0, 0);
    for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
        end += line.len();
        let problem = match record_of(line) {
            // A torn line: half an append, or the zeros that a power failure leaves.
            _ if !line.ends_with(b"\n") => break,
            Err(_) if end == text.len() && line.contains(&0) => break,
            // Lines after the one of `epoch` are cut off, whatever they are.
            Err(_) if before > epoch => break,
            Ok(record) if record.epoch > epoch => {
                before = record.epoch;
                continue;
            }
            Ok(record) if record.epoch > before => {
                (before, length) = (record.epoch, end);
                records.push(record);
                continue;
            }
            Ok(record) => format!(
                "metrics of epoch {} do not follow the metrics of epoch {before}, so lines were exchanged or repeated; restore the file from a \
                 copy, or remove that line to resume without it",
                record.epoch
            ),
            Err(problem) => format!("{problem}; restore the file from a copy, or remove the line to resume without it"),
        };
        return Err(EngineError::input(path, Position::Line(number), problem).into());
    }
    Ok((records, length as u64))
}

pub(super) fn line_of(record: &EpochRecord) -> String {
    let object = serde_json::to_string(record).expect("a record is representable");
    let keys = object.strip_suffix('}').expect("a record is an object");
    format!("{keys}{CHECKSUM}{:016x}{END}", xxh3_64(keys.as_bytes()))
}

/// The record of a line, or why there is none.
fn record_of(line: &[u8]) -> std::result::Result<EpochRecord, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let parts = text.strip_suffix(END).and_then(|text| text.rsplit_once(CHECKSUM));
    let (keys, checksum) = parts.ok_or("no metrics of an epoch: the line does not end with a checksum")?;
    if format!("{:016x}", xxh3_64(keys.as_bytes())) != checksum {
        return Err("damaged: the checksum of the line does not match its contents".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| format!("no metrics of an epoch: {error}"))
}
