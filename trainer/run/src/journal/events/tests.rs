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
        assert_eq!(u32::from_le_bytes(head[8..].try_into().unwrap()), masked_crc(&head[..8]));
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
    let mut events = create(folder.path(), 300, now).unwrap();
    let record = EpochRecord {
        epoch: 4,
        step: 400,
        loss: f64::NAN,
        val_accuracy: Some(0.75),
        val_loss: Some(1.25),
        bytes_read: 1 << 40,
        ..EpochRecord::default()
    };
    events.append(&of_epoch(&record, now)).unwrap();
    let name = events.path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("events.out.tfevents.1700000000."), "{name}");

    let records = records(&fs::read(&events.path).unwrap());
    let [version, start, epoch] = &records[..] else { panic!("{records:?}") };
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
    let [first, rest @ ..] = path else { return vec![bytes.to_vec()] };
    let found = fields(bytes).into_iter().filter(|(field, _)| field == first);
    found.flat_map(|(_, content)| nested(&content, rest)).collect()
}

#[test]
fn options_are_hyperparameters_and_auto_is_what_it_became() {
    let folder = tempdir().unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let mut events = create(folder.path(), 0, now).unwrap();
    let config = TrainConfig { lr: 0.25, residual: true, out: Some("a/b".into()), ..TrainConfig::default() };
    let chosen = [("fanouts", "15,10".to_owned())].into_iter().collect();
    let start = |summary: &mut Message, seconds| hparams::start(summary, config.table(), &chosen, seconds);
    events.append(&summary(now, start)).unwrap();
    events.append(&summary(now, hparams::end)).unwrap();

    let records = records(&fs::read(&events.path).unwrap());
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
    assert_eq!(fields(&end), [(1, 1u64.to_le_bytes().to_vec()), (2, 7f64.to_le_bytes().to_vec())]);
}

#[test]
fn a_second_file_of_the_same_second_comes_after_the_first() {
    let folder = tempdir().unwrap();
    let now = SystemTime::now();
    let first = create(folder.path(), 0, now).unwrap();
    let second = create(folder.path(), 0, now).unwrap();
    assert!(first.path < second.path);
}
