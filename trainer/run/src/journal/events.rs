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

/// An open event file.
#[derive(Debug)]
pub(super) struct EventFile {
    events: Appended,
}

impl EventFile {
    /// Creates a new file in `folder` for the steps after `step`.
    pub(super) fn create(folder: &Path, step: u64, now: SystemTime) -> Result<Self> {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = host
            .trim()
            .chars()
            .filter(|&letter| letter.is_ascii_alphanumeric() || letter == '-')
            .collect();
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
        let seconds = since.as_secs_f64();
        let version = event(seconds, 0, |event| event.bytes(3, b"brain.Event:2"));
        let start = event(seconds, step + 1, |event| {
            event.message(7, |session| session.varint(1, 1))
        });
        events.append(&[version, start].concat())?;
        Ok(Self { events })
    }

    /// Adds the metrics of an epoch, at its last step. Leaves out values that are not finite.
    pub(super) fn append(&mut self, record: &EpochRecord, now: SystemTime) -> Result<()> {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let scalars = scalars(record);
        let event = event(since.as_secs_f64(), record.step, |event| {
            event.message(5, |summary| {
                for (tag, value) in scalars {
                    summary.message(1, |entry| {
                        entry.bytes(1, tag.as_bytes());
                        entry.float(2, value as f32);
                    });
                }
            });
        });
        self.events.append(&event)
    }

    /// Adds a summary at step 0. `fill` receives the time in seconds, too.
    pub(super) fn summary(&mut self, now: SystemTime, fill: impl FnOnce(&mut Message, f64)) -> Result<()> {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs_f64();
        let event = event(seconds, 0, |event| event.message(5, |summary| fill(summary, seconds)));
        self.events.append(&event)
    }
}

/// Tags and values of an epoch's metrics.
fn scalars(record: &EpochRecord) -> Vec<(String, f64)> {
    let optional = [
        ("loss/train", Some(record.loss)),
        ("loss/val", record.val_loss),
        ("accuracy/train", record.train_accuracy),
        ("accuracy/val", record.val_accuracy),
        ("accuracy/test", record.test_accuracy),
        ("scores/val_macro_f1", record.val_macro_f1),
        ("scores/val_micro_f1", record.val_micro_f1),
        ("scores/test_micro_f1", record.test_micro_f1),
        ("scores/val_roc_auc", record.val_roc_auc),
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
        ("seconds/epoch", Some(record.seconds)),
    ];
    let measured = optional
        .into_iter()
        .filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
    let stages = record.seconds_by_stage.iter();
    let stages = stages.map(|(stage, seconds)| (format!("seconds/{}", stage.name()), seconds));
    measured.chain(stages).filter(|(_, value)| value.is_finite()).collect()
}

/// An event as a TFRecord.
fn event(wall_time: f64, step: u64, fill: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, wall_time);
    event.varint(2, step);
    fill(&mut event);
    let length = (event.0.len() as u64).to_le_bytes();
    [
        &length[..],
        &masked_crc(&length).to_le_bytes(),
        &event.0,
        &masked_crc(&event.0).to_le_bytes(),
    ]
    .concat()
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

    /// A field with a double.
    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    /// A field with bytes or a string.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.raw_varint(value.len() as u64);
        self.0.extend(value);
    }

    fn float(&mut self, field: u32, value: f32) {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    /// A field with a message.
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
    !bytes
        .iter()
        .fold(u32::MAX, |crc, &byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;
    use crate::{config::TrainConfig, journal::hparams};

    /// RFC 3720, B.4, and the check value of the Rocksoft catalog.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    }

    /// A reader that shares no code with the writer but the checksum: fields as numbers, wire types and contents.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, rest) = bytes.split_first().expect("a varint");
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let content = match tag & 7 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                wire_type => {
                    let length = match wire_type {
                        1 => 8,
                        5 => 4,
                        2 => varint(&mut bytes) as usize,
                        other => panic!("wire type {other}"),
                    };
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    content.to_vec()
                }
            };
            fields.push((tag >> 3, content));
        }
        fields
    }

    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(12);
            let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
            assert_eq!(
                u32::from_le_bytes(head[8..].try_into().unwrap()),
                masked_crc(&head[..8])
            );
            let (record, rest) = rest.split_at(length);
            let (checksum, rest) = rest.split_at(4);
            assert_eq!(u32::from_le_bytes(checksum.try_into().unwrap()), masked_crc(record));
            records.push(record.to_vec());
            bytes = rest;
        }
        records
    }

    #[test]
    fn events_read_back_with_their_steps_tags_and_values() {
        let folder = tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let mut events = EventFile::create(folder.path(), 300, now).unwrap();
        let record = EpochRecord {
            epoch: 4,
            step: 400,
            loss: f64::NAN,
            val_accuracy: Some(0.75),
            val_loss: Some(1.25),
            bytes_read: 1 << 40,
            ..EpochRecord::default()
        };
        events.append(&record, now).unwrap();
        let name = events.events.path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("events.out.tfevents.1700000000."), "{name}");

        let records = records(&fs::read(&events.events.path).unwrap());
        let [version, start, epoch] = &records[..] else {
            panic!("{records:?}")
        };
        let time = (1, 1_700_000_000.25_f64.to_le_bytes().to_vec());
        let step = |step: u64| (2, step.to_le_bytes().to_vec());
        assert_eq!(fields(version), [time.clone(), step(0), (3, b"brain.Event:2".to_vec())]);
        // Steps from here on are new.
        assert_eq!(fields(start), [time.clone(), step(301), (7, vec![8, 1])]);
        let epoch = fields(epoch);
        assert_eq!((&epoch[0], &epoch[1], epoch[2].0), (&time, &step(400), 5));
        let scalars: Vec<(String, f32)> = fields(&epoch[2].1)
            .iter()
            .map(|(_, value)| {
                let value = fields(value);
                assert_eq!((value[0].0, value[1].0, value.len()), (1, 2, 2));
                let number = f32::from_le_bytes(value[1].1[..].try_into().unwrap());
                (String::from_utf8(value[0].1.clone()).unwrap(), number)
            })
            .collect();
        let value = |tag: &str| scalars.iter().find(|(found, _)| found == tag).map(|(_, value)| *value);
        assert_eq!((value("accuracy/val"), value("loss/val")), (Some(0.75), Some(1.25)));
        assert_eq!(value("bytes/read"), Some((1_u64 << 40) as f32));
        assert_eq!(value("seconds/backward"), Some(0.0));
        // Not measured, and no number.
        assert_eq!((value("accuracy/test"), value("loss/train")), (None, None));
    }

    /// The contents of the nested fields on a path of field numbers.
    fn nested(bytes: &[u8], path: &[u64]) -> Vec<Vec<u8>> {
        let [first, rest @ ..] = path else {
            return vec![bytes.to_vec()];
        };
        let found = fields(bytes).into_iter().filter(|(field, _)| field == first);
        found.flat_map(|(_, content)| nested(&content, rest)).collect()
    }

    #[test]
    fn options_are_hyperparameters_and_auto_is_what_it_became() {
        let folder = tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let mut events = EventFile::create(folder.path(), 0, now).unwrap();
        let config = TrainConfig {
            lr: 0.25,
            residual: true,
            out: Some("a/b".into()),
            ..TrainConfig::default()
        };
        let chosen = [("fanouts", "15,10".to_owned())].into_iter().collect();
        let start = |summary: &mut Message, seconds| hparams::start(summary, &config, &chosen, seconds);
        events.summary(now, start).unwrap();
        events.summary(now, hparams::end).unwrap();

        let records = records(&fs::read(&events.events.path).unwrap());
        let (start, end) = (&records[2], &records[3]);
        assert_eq!(nested(start, &[5, 1, 1]), [b"_hparams_/session_start_info"]);
        assert_eq!(nested(start, &[5, 1, 9, 1, 1]), [b"hparams"]);
        let start = nested(start, &[5, 1, 9, 1, 2, 3]).remove(0);
        assert_eq!(nested(&start, &[5]), [7f64.to_le_bytes()]);
        let option = |name: &str| {
            let entries = nested(&start, &[1]);
            let entry = entries.iter().find(|entry| nested(entry, &[1]) == [name.as_bytes()])?;
            Some(fields(&nested(entry, &[2])[0]).remove(0))
        };
        assert_eq!(option("lr"), Some((2, 0.25f64.to_le_bytes().to_vec())));
        assert_eq!(option("layers"), Some((2, 2f64.to_le_bytes().to_vec())));
        assert_eq!(option("residual"), Some((4, 1u64.to_le_bytes().to_vec())));
        assert_eq!(option("model"), Some((3, b"sage".to_vec())));
        assert_eq!(option("fanouts"), Some((3, b"15,10".to_vec())));
        assert_eq!((option("out"), option("norm")), (None, Some((3, b"auto".to_vec()))));
        let end = nested(end, &[5, 1, 9, 1, 2, 4]).remove(0);
        assert_eq!(
            fields(&end),
            [(1, 1u64.to_le_bytes().to_vec()), (2, 7f64.to_le_bytes().to_vec())]
        );
    }

    #[test]
    fn a_second_file_of_the_same_second_comes_after_the_first() {
        let folder = tempdir().unwrap();
        let now = SystemTime::now();
        let first = EventFile::create(folder.path(), 0, now).unwrap();
        let second = EventFile::create(folder.path(), 0, now).unwrap();
        assert!(first.events.path < second.events.path);
    }
}
