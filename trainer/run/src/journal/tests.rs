use std::{fs, path::PathBuf};

use tempfile::{TempDir, tempdir};

use super::*;

fn record(epoch: u64) -> EpochRecord {
    EpochRecord {
        epoch,
        step: epoch * 100,
        loss: 1.0 / epoch as f64,
        val_accuracy: epoch.is_multiple_of(2).then_some(0.1 * epoch as f64),
        sampled_edges: u64::MAX,
        ..EpochRecord::default()
    }
}

/// A folder with the records of this many epochs, and its file of metrics.
fn written(epochs: u64) -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), 0, 0).unwrap();
    (1..=epochs).for_each(|epoch| journal.append(record(epoch)).unwrap());
    let path = folder.path().join(METRICS);
    (folder, path)
}

#[test]
fn epochs_read_back_with_every_digit() {
    let folder = tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), 0, 0).unwrap();
    for epoch in 1..=3 {
        journal.append(record(epoch)).unwrap();
        // Another process sees them at once.
        assert_eq!(read_records(folder.path()).unwrap(), journal.records());
    }
    assert_eq!(journal.records().len(), 3);
}

#[test]
fn a_line_is_an_object_with_the_documented_keys() {
    let folder = tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), 0, 0).unwrap();
    let infinite = EpochRecord { loss: f64::INFINITY, ..record(1) };
    journal.append(infinite).unwrap();
    let text = fs::read_to_string(folder.path().join(METRICS)).unwrap();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(line["loss"].is_null() && line["val_accuracy"].is_null());
    assert_eq!(line["seconds_by_stage"]["backward"], 0.0);
    assert_eq!(line["epoch"], 1);
    let keys = [
        "activation_bytes",
        "bytes_read",
        "bytes_sent",
        "checksum",
        "concurrent",
        "coverage_mean",
        "epoch",
        "evaluated",
        "feature_bytes",
        "generation",
        "gradient_bytes",
        "halo_bytes",
        "learning_rate",
        "loss",
        "partitions",
        "peak_rss_bytes",
        "sampled_edges",
        "sampled_edges_per_second",
        "seconds",
        "seconds_by_stage",
        "step",
        "test_accuracy",
        "test_micro_f1",
        "train_accuracy",
        "val_accuracy",
        "val_loss",
        "val_macro_f1",
        "val_micro_f1",
        "val_roc_auc",
    ];
    let mut found: Vec<&String> = line.as_object().unwrap().keys().collect();
    found.sort();
    assert_eq!(found, keys);
    // And what is no number is one again.
    assert!(read_records(folder.path()).unwrap()[0].loss.is_nan());
}

#[test]
fn records_after_the_checkpoint_are_dropped_on_resume() {
    let (folder, _) = written(5);
    let mut journal = Journal::open(folder.path(), 3, 300).unwrap();
    assert_eq!(journal.records(), [record(1), record(2), record(3)]);
    let again = EpochRecord { loss: 9.0, ..record(4) };
    journal.append(again.clone()).unwrap();
    assert_eq!(read_records(folder.path()).unwrap(), [record(1), record(2), record(3), again]);
}

#[test]
fn a_torn_last_line_is_cut_off_wherever_it_is_torn() {
    let (_folder, path) = written(2);
    let whole = fs::read(&path).unwrap();
    let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in first..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let (mut metrics, records) = metrics::open(&path, u64::MAX).unwrap();
        assert_eq!(records, [record(1)], "cut at {end}");
        metrics.append(metrics::line_of(&record(2)).as_bytes()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole, "cut at {end}");
    }
    // After a power failure there may be zeros.
    fs::write(&path, [&whole[..first], &[0; 50], b"\n"].concat()).unwrap();
    assert_eq!(metrics::open(&path, u64::MAX).unwrap().1, [record(1)]);
}

#[test]
fn a_pipe_in_place_of_the_metrics_is_an_error_at_once() {
    let folder = tempdir().unwrap();
    let path = folder.path().join(METRICS);
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let error = Journal::open(folder.path(), 0, 0).unwrap_err().to_string();
    assert!(error.contains("metrics.jsonl") && error.contains("pipe"), "{error}");
}

#[test]
fn a_flipped_byte_of_the_metrics_is_found() {
    let (folder, path) = written(2);
    let whole = fs::read(&path).unwrap();
    // Without its line feed, the last line is taken for half an append.
    for at in 0..whole.len() - 1 {
        for flip in [1, 0x20, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            fs::write(&path, &damaged).unwrap();
            let error = Journal::open(folder.path(), 2, 0).expect_err("it is damaged").to_string();
            assert!(error.contains("metrics.jsonl:") && error.contains("remove the line"), "{error}");
            read_records(folder.path()).expect_err("it is damaged");
            assert_eq!(fs::read(&path).unwrap(), damaged, "nothing is cut off");
        }
    }
}

#[test]
fn a_line_in_the_middle_that_is_no_record_is_named() {
    let (folder, path) = written(1);
    let line = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{line}nonsense\n{{\"epoch\": 3}}\n")).unwrap();
    let error = Journal::open(folder.path(), 3, 0).unwrap_err().to_string();
    assert!(error.contains("metrics.jsonl:2: no metrics of an epoch"), "{error}");
    // Nothing was cut off before that was noticed.
    assert!(fs::read_to_string(&path).unwrap().ends_with("{\"epoch\": 3}\n"));
}

#[test]
fn a_line_whose_epoch_is_out_of_order_is_named() {
    let (folder, path) = written(5);
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for (order, line) in [([0, 1, 3, 2, 4], 4), ([0, 1, 4, 3, 2], 4), ([0, 1, 1, 2, 3], 3), ([1, 0, 2, 3, 4], 2)] {
        let exchanged = order.map(|line| lines[line]).concat();
        fs::write(&path, &exchanged).unwrap();
        let error = Journal::open(folder.path(), 8, 0).unwrap_err().to_string();
        let place = format!("metrics.jsonl:{line}: metrics of epoch");
        assert!(error.contains(&place) && error.contains("remove that line"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), exchanged, "nothing is cut off");
    }
    // A line that was lost is not damage.
    fs::write(&path, whole.replace(lines[2], "")).unwrap();
    assert_eq!(Journal::open(folder.path(), 8, 0).unwrap().records().len(), 4);
}
