//! Writes the files of a run while training continues.

use std::{
    fmt::Debug,
    panic::resume_unwind,
    thread::{Scope, ScopedJoinHandle},
};

use crate::{
    Error, Result,
    checkpoint::{Checkpoint, Checkpoints},
    folder::RunFolder,
    summary::Summary,
};

/// Said if [`RunFolder::sync_metrics`] fails.
pub const UNSYNCED: &str = "metrics.jsonl may lack lines after a power failure";

/// Says that a file could not be written, and what that means for training.
pub fn not_written(lack: &str, error: &Error) -> String {
    format!("{lack}: {error}; training continues, and older files are unchanged")
}

/// The files that follow an epoch. They are written in this order. Without the best model, the checkpoint is not written either: one to
/// resume from never lacks the best model of its time.
#[derive(Debug, Default)]
pub struct RunFiles {
    /// The model of the best evaluation so far.
    pub best: Option<Checkpoint>,
    /// The state to resume from.
    pub latest: Option<Checkpoint>,
    /// The summary and the report.
    pub pages: Option<Box<dyn RunPages>>,
}

/// The contents of the summary and the report.
pub trait RunPages: Debug + Send {
    /// The result so far.
    fn summary(&self) -> &Summary;
    /// The report, an HTML page.
    fn html(&self) -> String;
}

/// What could not be written.
#[derive(Debug, Default)]
pub struct Unwritten {
    /// What is missing, and why.
    pub problems: Vec<(&'static str, Error)>,
    /// The checkpoints, to try again.
    pub best: Option<Checkpoint>,
    /// As `best`.
    pub latest: Option<Checkpoint>,
}

/// Writes [`RunFiles`] on another thread, one epoch at a time.
pub struct BackgroundWriter<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    folder: &'env RunFolder,
    checkpoints: &'env Checkpoints,
    /// The thread that writes the last files.
    writing: Option<ScopedJoinHandle<'scope, Unwritten>>,
}

impl<'scope, 'env> BackgroundWriter<'scope, 'env> {
    /// A writer whose threads end before `scope` does.
    pub fn new(scope: &'scope Scope<'scope, 'env>, folder: &'env RunFolder, checkpoints: &'env Checkpoints) -> Self {
        Self { scope, folder, checkpoints, writing: None }
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

    /// Waits until the files are written. Returns what could not be written: training continues without it, and the older file is
    /// unchanged. None if no files were being written.
    pub fn wait(&mut self) -> Option<Unwritten> {
        let ended = self.writing.take().map(ScopedJoinHandle::join);
        ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Unwritten {
    /// Notes what lacks if a file could not be written. Returns whether that is so.
    fn note(&mut self, lack: &'static str, written: Result<()>) -> bool {
        written.map_err(|error| self.problems.push((lack, error))).is_err()
    }
}

impl RunFiles {
    /// Writes the files now.
    pub fn write(self, folder: &RunFolder, checkpoints: &Checkpoints) -> Unwritten {
        let mut unwritten = Unwritten::default();
        if let Some(best) = self.best
            && unwritten.note("no checkpoint", checkpoints.save_best(&best).map(|_| ()))
        {
            unwritten.best = Some(best);
        }
        if let Some(latest) = self.latest {
            unwritten.note(UNSYNCED, folder.sync_metrics());
            if unwritten.best.is_some() || unwritten.note("no checkpoint", checkpoints.save(&latest).map(|_| ())) {
                unwritten.latest = Some(latest);
            }
        }
        if let Some(pages) = self.pages {
            unwritten.note("no summary", folder.write_summary(pages.summary()));
            unwritten.note("no report", folder.write_report(&pages.html()));
        }
        unwritten
    }
}
