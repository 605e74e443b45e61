//! TensorBoard's event files.
//!
//! A file is a sequence of TFRecords, each an `Event` in the wire format of Protocol Buffers:
//!
//! ```text
//! TFRecord   length    u64, little-endian
//!            u32       masked CRC-32C of those 8 bytes
//!            bytes     the event
//!            u32       masked CRC-32C of the event
//!
//! Event      1 wall_time: double    2 step: int64
//!            3 file_version: string | 5 summary: Summary | 7 session_log: SessionLog
//! Summary    1 value: repeated { 1 tag: string, 2 simple_value: float }
//! SessionLog 1 status: enum, START = 1
//! ```
//!
//! Sources: tensorflow/core/util/event.proto, framework/summary.proto and lib/io/record_writer.cc. The first event has the
//! version. The second one starts a session at a step: readers then drop that step and later ones of other files. So a run that
//! was killed and resumed is one curve.

use std::{
    fs::File,
    path::Path,
    time::{Duration, SystemTime},
};

use grappa_io::{Error as EngineError, durable};

use super::{appended::Appended, record::EpochRecord};
use crate::Result;

/// Names of event files begin with this, by which TensorBoard finds them.
pub(crate) const EVENTS: &str = "events.out.tfevents.";

/// Creates a new file in `folder` for the steps after `step`.
pub(super) fn create(folder: &Path, step: u64, now: SystemTime) -> Result<Appended> {
    let since = since_epoch(now);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|&letter| letter.is_ascii_alphanumeric() || letter == '-').collect();
    // Readers sort files by name, so a second file of the same second gets a higher number.
    let mut number = 0;
    let (path, file) = loop {
        let name = format!("{EVENTS}{:010}.{host}.{}.{number}", since.as_secs(), std::process::id());
        let path = folder.join(name);
        durable::kill_point("create", &path);
        match File::options().append(true).create_new(true).open(&path) {
            Ok(file) => break (path, file),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(EngineError::io("create", &path)(error).into()),
        }
    };
    let mut events = Appended::new(&path, file, 0);
    let version = event(now, 0, |event| event.bytes(3, b"brain.Event:2"));
    let start = event(now, step + 1, |event| event.message(7, |session| session.varint(1, 1)));
    events.append(&[version, start].concat())?;
    Ok(events)
}

/// The metrics of an epoch, at its last step. Leaves out values that are not finite.
pub(super) fn of_epoch(record: &EpochRecord, now: SystemTime) -> Vec<u8> {
    event(now, record.step, |event| {
        event.message(5, |summary| {
            for (tag, value) in scalars(record) {
                summary.message(1, |entry| {
                    entry.bytes(1, tag.as_bytes());
                    entry.float(2, value as f32);
                });
            }
        });
    })
}

/// A summary at step 0. `fill` receives the time in seconds, too.
pub(super) fn summary(now: SystemTime, fill: impl FnOnce(&mut Message, f64)) -> Vec<u8> {
    event(now, 0, |event| event.message(5, |summary| fill(summary, since_epoch(now).as_secs_f64())))
}

fn since_epoch(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Tags and values of an epoch's metrics.
fn scalars(record: &EpochRecord) -> Vec<(String, f64)> {
    let optional = [
        ("loss/train", Some(record.loss)),
        ("loss/val", record.val_loss),
        ("accuracy/train", record.train_accuracy),
        ("accuracy/val", record.val_accuracy),
        ("accuracy/test", record.test_accuracy),
        ("loss/test", record.test_loss),
        ("scores/test_macro_f1", record.test_macro_f1),
        ("scores/test_roc_auc", record.test_roc_auc),
        ("scores/test_average_precision", record.test_average_precision),
        ("scores/val_mrr", record.val_mrr),
        ("scores/test_mrr", record.test_mrr),
        ("scores/val_hits_at_10", record.val_hits_at_10),
        ("scores/test_hits_at_10", record.test_hits_at_10),
        ("scores/val_recall_at_20", record.val_recall_at_20),
        ("scores/test_recall_at_20", record.test_recall_at_20),
        ("scores/val_map_at_20", record.val_map_at_20),
        ("scores/test_map_at_20", record.test_map_at_20),
        ("scores/val_ndcg_at_20", record.val_ndcg_at_20),
        ("scores/test_ndcg_at_20", record.test_ndcg_at_20),
        ("scores/val_macro_f1", record.val_macro_f1),
        ("scores/val_micro_f1", record.val_micro_f1),
        ("scores/test_micro_f1", record.test_micro_f1),
        ("scores/val_roc_auc", record.val_roc_auc),
        ("scores/val_average_precision", record.val_average_precision),
        ("scores/val_rmse", record.val_rmse),
        ("scores/val_mae", record.val_mae),
        ("scores/val_r2", record.val_r2),
        ("scores/test_rmse", record.test_rmse),
        ("scores/test_mae", record.test_mae),
        ("scores/test_r2", record.test_r2),
        ("run/epoch", Some(record.epoch as f64)),
        ("run/learning_rate", Some(record.learning_rate)),
        ("run/coverage", record.coverage_mean),
        ("run/generation", Some(record.generation as f64)),
        ("run/peak_rss_bytes", record.peak_rss_bytes.map(|bytes| bytes as f64)),
        ("run/sampled_edges_per_second", Some(record.sampled_edges_per_second)),
        ("bytes/read", Some(record.bytes_read as f64)),
        ("bytes/gradients", Some(record.gradient_bytes as f64)),
        ("bytes/sent", Some(record.bytes_sent as f64)),
        ("bytes/halo", Some(record.halo_bytes as f64)),
        ("bytes/rows", Some(record.row_bytes as f64).filter(|&bytes| bytes > 0.0)),
        ("seconds/epoch", Some(record.seconds)),
    ];
    let measured = optional.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
    let stages = record.seconds_by_stage.iter();
    let stages = stages.map(|(stage, seconds)| (format!("seconds/{}", stage.name()), seconds));
    measured.chain(stages).filter(|(_, value)| value.is_finite()).collect()
}

/// An event as a TFRecord.
fn event(now: SystemTime, step: u64, fill: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, since_epoch(now).as_secs_f64());
    event.varint(2, step);
    fill(&mut event);
    let length = (event.0.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length).to_le_bytes(), &event.0, &masked_crc(&event.0).to_le_bytes()].concat()
}

/// A message in the wire format of Protocol Buffers.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A field with a whole number or a bool.
    pub(super) fn varint(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.raw_varint(value);
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.raw_varint(value.len() as u64);
        self.0.extend(value);
    }

    fn float(&mut self, field: u32, value: f32) {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    /// Seven bits a byte, the lowest first; the highest bit says that there are more.
    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// TFRecords mask checksums, since they may be of data that has checksums in it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), a byte at a time: a few hundred bytes an epoch.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(u32::MAX, |crc, &byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests;
