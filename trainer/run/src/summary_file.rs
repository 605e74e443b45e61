//! `summary.json`: the result of a run, with a checksum.
//!
//! ```text
//! {
//!   "test_accuracy": 0.8,
//!   ..,
//!   "checksum": "0123456789abcdef"     XXH3-64 of the text before the comma; 16 hexadecimal digits
//! }
//! ```

use std::path::Path;

use grappa_io::regular;
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result, config::TrainConfig, summary::Summary};

/// The last key.
const CHECKSUM: &str = ",\n  \"checksum\": \"";
/// The end of the file after its checksum.
const END: &str = "\"\n}\n";

/// A summary that was read.
#[derive(Debug)]
pub(crate) struct StoredSummary {
    /// Its JSON object, without the checksum.
    pub json: String,
    /// Finished epochs.
    pub epochs: u64,
    early_stopping_epoch: Option<u64>,
    /// The configuration of the run.
    pub config: TrainConfig,
}

impl StoredSummary {
    /// Whether the run had nothing left to do.
    pub fn is_finished(&self) -> bool {
        self.early_stopping_epoch.is_some() || self.epochs >= self.config.epochs
    }
}

/// The text of the file.
pub(crate) fn text(summary: &Summary) -> String {
    let object = serde_json::to_string_pretty(summary).expect("a summary is representable");
    let keys = object.strip_suffix("\n}").expect("a summary is an object");
    format!("{keys}{CHECKSUM}{:016x}{END}", xxh3_64(keys.as_bytes()))
}

/// The summary in a file. None if there is no file.
///
/// # Errors
/// If it has no checksum, is damaged, or is no summary.
pub(crate) fn read(path: &Path) -> Result<Option<StoredSummary>> {
    #[derive(Deserialize)]
    struct Keys {
        epochs: u64,
        early_stopping_epoch: Option<u64>,
        config: TrainConfig,
    }
    let Some(bytes) = regular::read_if_there(path)? else { return Ok(None) };
    let refused = |problem: String| {
        let remedy = "restore it from a copy, or write it again with --resume";
        Error::run_file(path, format!("{problem}: {remedy}"))
    };
    let text = String::from_utf8(bytes).map_err(|error| refused(format!("damaged: not UTF-8: {error}")))?;
    let parts = text.strip_suffix(END).and_then(|text| text.rsplit_once(CHECKSUM));
    let (keys, checksum) = parts.ok_or_else(|| {
        refused(
            "it does not end with a checksum, because it was cut, edited, or written by an earlier version".to_owned(),
        )
    })?;
    if format!("{:016x}", xxh3_64(keys.as_bytes())) != checksum {
        return Err(refused("damaged: its checksum does not match its contents".to_owned()));
    }
    let json = format!("{keys}\n}}");
    let Keys { epochs, early_stopping_epoch, config } =
        serde_json::from_str(&json).map_err(|error| refused(format!("no summary of a run: {error}")))?;
    Ok(Some(StoredSummary { json, epochs, early_stopping_epoch, config }))
}
