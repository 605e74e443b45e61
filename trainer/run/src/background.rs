//! Writes the files of a run while training continues.

use std::{
    panic::resume_unwind,
    thread::{Scope, ScopedJoinHandle},
};

use crate::{
    Result,
    checkpoint::{Checkpoint, Checkpoints},
    facts::RunFacts,
    folder::RunFolder,
    journal::EpochRecord,
    report::Report,
    scores::ModelScores,
    summary::Summary,
};

/// Said if [`RunFolder::sync_metrics`] fails.
pub const UNSYNCED: &str = "metrics.jsonl may lack lines after a power failure";

/// The files that follow an epoch. They are written in this order, so a checkpoint to resume from never lacks the best model of
/// its time.
#[derive(Debug, Default)]
pub struct RunFiles {
    /// The model of the best evaluation so far.
    pub best: Option<Checkpoint>,
    /// The state to resume from.
    pub latest: Option<Checkpoint>,
    /// The summary and the report.
    pub pages: Option<Pages>,
}

/// The contents of the summary and the report.
#[derive(Debug)]
pub struct Pages {
    /// As [`Report::name`].
    pub name: String,
    /// As [`Report::records`].
    pub records: Vec<EpochRecord>,
    /// The result so far.
    pub summary: Summary,
    /// The scores at the best epoch.
    pub scores: Option<ModelScores>,
    /// As [`Report::classes`].
    pub classes: Vec<String>,
    /// As [`Report::facts`].
    pub facts: RunFacts,
    /// As [`Report::is_finished`].
    pub is_finished: bool,
}

/// Writes [`RunFiles`] on another thread, those of one epoch at a time.
pub struct BackgroundWriter<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    folder: &'env RunFolder,
    checkpoints: &'env Checkpoints,
    /// The thread that writes the last files. It returns what could not be written.
    writing: Option<ScopedJoinHandle<'scope, Vec<String>>>,
}

impl<'scope, 'env> BackgroundWriter<'scope, 'env> {
    /// A writer whose threads end before `scope` does.
    pub fn new(scope: &'scope Scope<'scope, 'env>, folder: &'env RunFolder, checkpoints: &'env Checkpoints) -> Self {
        Self {
            scope,
            folder,
            checkpoints,
            writing: None,
        }
    }

    /// Starts to write files. The files before must be written: [`BackgroundWriter::wait`] makes sure of that.
    ///
    /// # Panics
    /// If other files are being written.
    pub fn start(&mut self, files: RunFiles) {
        assert!(self.writing.is_none(), "the files before are written");
        let (folder, checkpoints) = (self.folder, self.checkpoints);
        self.writing = Some(self.scope.spawn(move || files.write(folder, checkpoints)));
    }

    /// Waits until the files are written. Returns a message for each that could not be written: training continues without it,
    /// and the older file is unchanged.
    pub fn wait(&mut self) -> Vec<String> {
        let ended = self.writing.take().map(ScopedJoinHandle::join);
        ended.map_or_else(Vec::new, |ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl RunFiles {
    fn write(self, folder: &RunFolder, checkpoints: &Checkpoints) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |lack: &str, written: Result<()>| {
            if let Err(error) = written {
                problems.push(format!(
                    "{lack}: {error}; training continues, and older files are unchanged"
                ));
            }
        };
        if let Some(best) = self.best {
            note("no checkpoint", checkpoints.save_best(&best).map(|_| ()));
        }
        if let Some(latest) = self.latest {
            note(UNSYNCED, folder.sync_metrics());
            note("no checkpoint", checkpoints.save(&latest).map(|_| ()));
        }
        if let Some(pages) = self.pages {
            note("no summary", folder.write_summary(&pages.summary));
            note("no report", folder.write_report(&pages.html()));
        }
        problems
    }
}

impl Pages {
    /// The report.
    pub fn html(&self) -> String {
        let report = Report {
            name: &self.name,
            records: &self.records,
            summary: &self.summary,
            scores: self.scores.as_ref().map(|scores| &scores.report),
            scored: self.scores.as_ref().map_or("test", |scores| &scores.split),
            classes: &self.classes,
            facts: &self.facts,
            is_finished: self.is_finished,
        };
        report.html()
    }
}
