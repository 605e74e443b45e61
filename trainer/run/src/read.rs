//! What a run has written, for programs that show it: every file is checked against its checksum, and against the others.

use std::path::Path;

use grappa_io::{Error as EngineError, Position, regular};

use crate::{
    Error, Result,
    folder::{SUMMARY, config_of},
    journal, summary_file,
    summary_file::StoredSummary,
};

/// The options of the run in `folder`, as a JSON object.
///
/// # Errors
/// If the file is missing, damaged, or no configuration.
pub fn config(folder: &Path) -> Result<String> {
    let table = config_of(folder)?.table();
    Ok(serde_json::to_string(&table).expect("options are representable"))
}

/// The summary of the run in `folder`, as a JSON object. None if there is no such file, because there was no checkpoint.
///
/// # Errors
/// If the file is damaged, or belongs to another run.
pub fn summary(folder: &Path) -> Result<Option<String>> {
    Ok(stored(folder)?.map(|summary| summary.json))
}

/// The metrics of the run in `folder`: a JSON object for each epoch, each in a line. A run that trains may have more epochs than its
/// summary.
///
/// # Errors
/// If the file is damaged, or lacks an epoch.
pub fn metrics(folder: &Path) -> Result<String> {
    // First the summary: the lines of its epochs are older.
    let summary = stored(folder)?;
    let path = folder.join(journal::METRICS);
    let text = regular::read_if_there(&path)?;
    let is_there = text.is_some();
    let (records, whole) = journal::checked_lines(&path, text.unwrap_or_default())?;
    let remedy = "restore the file from a copy, or train the run again with --force";
    let position = (1..).zip(&records).find(|(epoch, record)| record.epoch != *epoch).map(|(epoch, _)| epoch);
    if let Some(epoch) = position {
        let problem = format!("the metrics of epoch {epoch} are missing: {remedy}");
        return Err(EngineError::input(&path, Position::Line(epoch), problem).into());
    }
    let epochs = summary.filter(StoredSummary::is_finished).map_or(0, |summary| summary.epochs);
    if (records.len() as u64) < epochs {
        let problem = match is_there {
            true => {
                format!("the metrics after epoch {} are missing, and the run has {epochs}: {remedy}", records.len())
            }
            false => format!("missing, and the run has {epochs} epochs: {remedy}"),
        };
        return Err(Error::run_file(&path, problem));
    }
    Ok(whole)
}

fn stored(folder: &Path) -> Result<Option<StoredSummary>> {
    let path = folder.join(SUMMARY);
    let Some(summary) = summary_file::read(&path)? else { return Ok(None) };
    match summary.config.digest() == config_of(folder)?.digest() {
        true => Ok(Some(summary)),
        false => Err(Error::run_file(
            &path,
            "it belongs to another run than config.toml, or config.toml was edited: restore both from a copy, or train the run again \
             with --force",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        checkpoint::RunState, config::TrainConfig, folder::RunFolder, journal::EpochRecord, stages::StageSeconds,
        summary::Summary,
    };

    /// A finished run of three epochs.
    fn run(folder: &Path) {
        let config = TrainConfig { epochs: 3, ..TrainConfig::default() };
        let run = RunFolder::create(folder, &config).unwrap();
        let mut journal = run.journal(0, 0).unwrap();
        for epoch in 1..=3 {
            journal.append(EpochRecord { epoch, loss: 0.1 + epoch as f64, ..EpochRecord::default() }).unwrap();
        }
        let state = RunState { epoch: 3, ..RunState::default() };
        run.write_summary(&Summary::new(journal.records(), &state, &config, StageSeconds::default())).unwrap();
    }

    #[test]
    fn a_sound_run_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let config: serde_json::Value = serde_json::from_str(&config(folder.path()).unwrap()).unwrap();
        assert_eq!(config["epochs"], 3);
        let summary: serde_json::Value = serde_json::from_str(&summary(folder.path()).unwrap().unwrap()).unwrap();
        assert_eq!((&summary["epochs"], summary.get("checksum")), (&3.into(), None));
        let metrics = metrics(folder.path()).unwrap();
        assert_eq!(metrics.lines().count(), 3);
        assert_eq!(metrics, fs::read_to_string(folder.path().join(journal::METRICS)).unwrap());
    }

    #[test]
    fn a_flipped_byte_of_the_summary_is_found() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let path = folder.path().join(SUMMARY);
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            for flip in [1, 0x20, 0x80] {
                let mut damaged = sound.clone();
                damaged[at] ^= flip;
                fs::write(&path, &damaged).unwrap();
                let error = summary(folder.path()).expect_err("it is damaged").to_string();
                assert!(error.contains("summary.json: ") && error.contains("--resume"), "{error}");
            }
        }
        for end in 0..sound.len() {
            fs::write(&path, &sound[..end]).unwrap();
            summary(folder.path()).expect_err("it is cut");
        }
    }

    #[test]
    fn files_of_two_runs_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let other = tempfile::tempdir().unwrap();
        let config = TrainConfig { hidden: 7, ..TrainConfig::default() };
        drop(RunFolder::create(other.path(), &config).unwrap());
        fs::copy(other.path().join("config.toml"), folder.path().join("config.toml")).unwrap();
        let error = summary(folder.path()).unwrap_err().to_string();
        assert!(error.contains("summary.json: it belongs to another run"), "{error}");
    }

    #[test]
    fn an_epoch_without_metrics_is_named() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let path = folder.path().join(journal::METRICS);
        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for (kept, expected) in [
            (vec![0, 2], "metrics.jsonl:2: the metrics of epoch 2 are missing"),
            (vec![1, 2], "metrics.jsonl:1: the metrics of epoch 1 are missing"),
            (vec![0, 1], "metrics.jsonl: the metrics after epoch 2 are missing"),
            (vec![], "metrics.jsonl: the metrics after epoch 0 are missing"),
        ] {
            fs::write(&path, kept.iter().map(|&line| lines[line]).collect::<String>()).unwrap();
            let error = metrics(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("--force"), "{error}");
        }
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let error = metrics(folder.path()).unwrap_err().to_string();
        assert!(error.contains("metrics after epoch 2"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = metrics(folder.path()).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl: missing, and the run has 3 epochs"), "{error}");
    }
}
