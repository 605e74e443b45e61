//! A written file of predictions.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use grappa_console::{ByteSize, duration, peak_rss_bytes, printable};
use grappa_engine::io::ledger::Ledger;
use serde::Serialize;

use super::model::PredictingModel;

/// The file, and what it took to write it.
#[derive(Serialize)]
pub struct WrittenFile {
    path: String,
    bytes: u64,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
    /// Who may take how much of `--memory`, and why.
    memory: Ledger,
}

impl WrittenFile {
    /// A file that is finished by a program that began at `begin`.
    pub fn new(path: &Path, bytes: u64, memory: Ledger, begin: Instant) -> Self {
        Self {
            path: path.display().to_string(),
            bytes,
            seconds: begin.elapsed().as_secs_f64(),
            peak_rss_bytes: peak_rss_bytes(),
            memory,
        }
    }

    /// A line about the file. `content` is its number of rows, in words.
    pub fn text(&self, content: &str, model: &PredictingModel) -> String {
        let mut text = format!(
            "{}: {content}, {}, {}; {}",
            printable(&self.path),
            ByteSize(self.bytes),
            model.text(),
            duration(Duration::from_secs_f64(self.seconds)),
        );
        if let Some(bytes) = self.peak_rss_bytes {
            text += &format!(" (peak memory {})", ByteSize(bytes));
        }
        text
    }
}
