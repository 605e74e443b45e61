//! Runs that have nothing left to do.

use std::path::Path;

use grappa_io::regular;
use serde::Serialize;
use serde_json::Value;

use super::{
    checkpoint::{Checkpoints, RunState},
    config::{Evaluate, TrainConfig},
    folder::{CHECKPOINTS, REPORT, SUMMARY, is_finished},
    summary_file,
};

/// A run that is finished. As JSON, it is its `summary.json` without the checksum.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FinishedRun {
    /// Finished epochs.
    #[serde(skip)]
    pub epochs: u64,
    /// The number of epochs that the run was started with, or last resumed with.
    #[serde(skip)]
    pub epochs_max: u64,
    /// The patience of early stopping, if that ended the run.
    #[serde(skip)]
    pub early_stopping: Option<u64>,
    /// The state of the run.
    #[serde(skip)]
    pub state: RunState,
    /// The result.
    #[serde(flatten)]
    pub summary: Value,
}

impl FinishedRun {
    /// The run in `folder`, if all its files belong to a finished run, and resuming it with the options in `config` would change
    /// none of its results. Changes no file.
    ///
    /// If a file cannot be read or is damaged, the run does not count as finished: resuming it makes the file again, or says what is wrong.
    pub fn find(folder: &Path, config: &TrainConfig) -> Option<Self> {
        let summary: Value = serde_json::from_str(&summary_file::read(&folder.join(SUMMARY)).ok()??.json).ok()?;
        let report = regular::read_if_there(&folder.join(REPORT)).ok().flatten();
        let latest = Checkpoints::look(&folder.join(CHECKPOINTS)).latest().ok()?;
        let (_, checkpoint) = latest.found.filter(|_| latest.warnings.is_empty())?;
        let state = checkpoint.state;
        let before = &summary["config"];
        let epochs_max = before["epochs"].as_u64()?;
        let early_stopping = before["early-stopping"].as_u64()?;
        // While a run trains, its summary and its report cover fewer epochs, or say that it is running.
        let is_written = summary["epochs"] == state.epoch && is_finished(&report?);
        let is_over = state.is_over(epochs_max, early_stopping) && state.is_over(config.epochs, config.early_stopping);
        // The scores may become exact: the user asks for it, or there was no room for it before.
        let is_auto = config.evaluate == Evaluate::Auto;
        let is_scored =
            before["evaluate"] == config.evaluate.to_string() && !(is_auto && summary["evaluated"] == "sampled");
        let is_named = config.class_names.is_none();
        (is_written && is_over && is_scored && is_named).then(|| Self {
            epochs: state.epoch,
            epochs_max,
            early_stopping: (state.epoch < epochs_max).then_some(early_stopping),
            state,
            summary,
        })
    }
}
