//! A run as its folder has it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use grappa_run::{
    Error, Result,
    checkpoint::{Checkpoints, Latest, RunState},
    config::{Auto, TrainConfig},
    folder::{CHECKPOINTS, CONFIG, config_of},
    journal::{EpochRecord, read_records},
    summary::Summary,
};

use crate::tables::option_text;

/// A run to compare with others, as of its last checkpoint.
#[derive(Debug)]
pub(crate) struct ComparedRun {
    /// The shortest name that no other run has.
    pub name: String,
    pub folder: PathBuf,
    pub config: TrainConfig,
    /// The epochs up to the checkpoint.
    pub records: Vec<EpochRecord>,
    pub state: RunState,
    pub summary: Summary,
}

impl ComparedRun {
    /// Reads the run in a folder, and problems that this survived.
    pub(crate) fn read(folder: &Path) -> Result<(Self, Vec<String>)> {
        if !folder.join(CONFIG).exists() {
            let problem = format!("it contains no run (no {CONFIG}): name the folder of a run");
            return Err(Error::run_file(folder, problem));
        }
        let config = config_of(folder)?;
        let checkpoints = folder.join(CHECKPOINTS);
        let latest = if checkpoints.exists() { Checkpoints::look(&checkpoints).latest()? } else { Latest::default() };
        let Some((_, checkpoint)) = latest.found else {
            let problem = "it has no checkpoint yet, so there is nothing to compare: wait for one, or name other runs";
            return Err(Error::run_file(folder, problem));
        };
        let state = checkpoint.state;
        let mut records = read_records(folder)?;
        records.retain(|record| record.epoch <= state.epoch);
        let run = Self {
            name: folder.display().to_string(),
            folder: folder.to_owned(),
            summary: Summary::new(&records, &state, &config, state.seconds_by_stage),
            config,
            records,
            state,
        };
        Ok((run, latest.warnings))
    }

    /// Whether the run has epochs left.
    pub(super) fn is_over(&self) -> bool {
        self.state.is_over(self.config.epochs, self.config.early_stopping)
    }

    /// The options as text, by name.
    pub(super) fn options(&self) -> impl Iterator<Item = (String, String)> {
        self.config.table().into_iter().map(|(option, value)| {
            let text = option_text(&value, self.chosen(&option).as_deref());
            (option, text)
        })
    }

    /// What an option became that is `auto`, if the run notes it.
    fn chosen(&self, option: &str) -> Option<String> {
        match option {
            "partitions" if self.config.partitions == Auto::Auto => Some(self.summary.partitions.to_string()),
            "concurrent" if self.config.concurrent == Auto::Auto => Some(self.summary.concurrent.to_string()),
            _ => None,
        }
    }
}

/// Gives runs the names of their folders if all of these differ, and else leaves the paths.
pub(super) fn shorten_names(runs: &mut [ComparedRun]) {
    let names: Vec<String> =
        runs.iter().filter_map(|run| Some(run.folder.file_name()?.to_string_lossy().into_owned())).collect();
    if names.iter().collect::<BTreeSet<_>>().len() == runs.len() {
        for (run, name) in runs.iter_mut().zip(names) {
            run.name = name;
        }
    }
}

/// The CSS class of the color of the run with a number.
pub(super) fn color(number: usize) -> String {
    format!("run-{number}")
}
