//! The files of a run: checkpoints, records, summary and report.

use std::time::{Duration, Instant};

use grappa_io::machine::peak_rss_bytes;
use grappa_report::Report;
use grappa_run::{
    background::{BackgroundWriter, RunFiles, RunPages, Unwritten, not_written},
    checkpoint::{Checkpoint, RunState},
    folder::RunFolder,
    journal::{EpochRecord, Journal},
    stages::{Stage, StageSeconds},
    summary::Summary,
};

use super::{Run, Watcher};
use crate::{
    Result,
    train::{EpochStats, Evaluation, Trainer, epoch::Save},
};

/// The summary and the report are written at most so often while a run trains.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Writes checkpoints to resume from, between epochs and within them.
pub(super) struct Saver<'run, 'scope, 'env> {
    /// The time between two of them; 0 for none by time.
    seconds: f64,
    /// Whether a checkpoint needs other ranks. They meet after each epoch.
    needs_others: bool,
    folder: &'env RunFolder,
    before: StageSeconds,
    state: &'run mut RunState,
    journal: &'run mut Journal,
    writer: &'run mut BackgroundWriter<'scope, 'env>,
    unwritten: &'run mut Unwritten,
    saved: &'run mut Instant,
    problems: &'run mut Vec<String>,
}

impl Saver<'_, '_, '_> {
    /// Sets the parts of the state that the trainer and the clock know.
    pub(super) fn update_state(&mut self, trainer: &mut Trainer) {
        self.state.step = trainer.steps();
        self.state.generation = trainer.generation();
        self.state.seconds_by_stage = self.before + trainer.clock.seconds();
        self.state.seconds = self.state.seconds_by_stage.total();
    }

    /// Whether the last checkpoint is old.
    fn is_time(&self) -> bool {
        self.seconds > 0.0 && self.saved.elapsed().as_secs_f64() >= self.seconds
    }

    /// A checkpoint that has all that a resumed run needs.
    fn checkpoint(&mut self, trainer: &mut Trainer) -> Checkpoint {
        trainer.clock.enter(Stage::Checkpoint);
        // Lines that are still missing were warned about.
        let _ = self.journal.flush();
        self.update_state(trainer);
        *self.saved = Instant::now();
        trainer.checkpoint(self.state, true)
    }
}

impl Save for Saver<'_, '_, '_> {
    fn is_due(&self) -> bool {
        !self.needs_others && self.is_time()
    }

    fn save(&mut self, trainer: &mut Trainer) -> Result<()> {
        self.folder.check()?;
        let latest = Some(self.checkpoint(trainer));
        if let Some(unwritten) = self.writer.wait() {
            let problems = unwritten.problems.iter();
            self.problems
                .extend(problems.map(|(lack, error)| not_written(lack, error)));
            *self.unwritten = unwritten;
        }
        // Without the best model of its time, there is no checkpoint to resume from.
        let best = self.unwritten.best.take();
        self.writer.start(RunFiles {
            best,
            latest,
            pages: None,
        });
        Ok(())
    }
}

impl<'scope, 'env> Run<'scope, 'env> {
    /// A checkpoint that has all that a resumed run needs.
    pub(super) fn checkpoint(&mut self) -> Checkpoint {
        let (trainer, mut saver) = self.saver();
        saver.checkpoint(trainer)
    }

    /// The trainer, and what saves its state.
    pub(super) fn saver(&mut self) -> (&mut Trainer, Saver<'_, 'scope, 'env>) {
        let saver = Saver {
            seconds: 60.0 * self.config.checkpoint_minutes,
            needs_others: self.trainer.group.is_some(),
            folder: self.folder,
            before: self.before,
            state: &mut self.state,
            journal: &mut self.journal,
            writer: &mut self.writer,
            unwritten: &mut self.unwritten,
            saved: &mut self.saved,
            problems: &mut self.save_problems,
        };
        (&mut self.trainer, saver)
    }

    pub(super) fn start_checkpoint(&mut self) {
        let latest = Some(self.checkpoint());
        self.start_writing(RunFiles {
            latest,
            ..RunFiles::default()
        });
    }

    /// Starts to write files, and the best model if it could not be written before.
    pub(super) fn start_writing(&mut self, files: RunFiles) {
        let unwritten = std::mem::take(&mut self.unwritten);
        self.writer.start(RunFiles {
            best: files.best.or(unwritten.best),
            ..files
        });
    }

    /// Starts to write the files of the last finished epoch.
    pub(super) fn start_files(&mut self, is_best: bool, watcher: &mut dyn Watcher) -> Result<()> {
        let is_over = self.is_over();
        let every = self.config.checkpoint_every;
        let by_epochs = every > 0 && self.state.epoch.is_multiple_of(every);
        let by_time = self.saver().1.is_time();
        let is_saved = is_over || by_epochs || by_time;
        self.trainer.clock.enter(Stage::Checkpoint);
        self.collect_residuals(is_saved, watcher)?;
        let best = is_best.then(|| self.trainer.checkpoint(&self.state, false));
        let latest = is_saved.then(|| self.checkpoint());
        self.trainer.clock.enter(Stage::Report);
        let is_due = self.shown.is_none_or(|shown| shown.elapsed() >= REPORT_INTERVAL);
        // At the end of the run they are written once, with its last scores.
        let pages = (is_due && !is_over).then(|| Box::new(self.pages(false)) as Box<dyn RunPages>);
        self.start_writing(RunFiles { best, latest, pages });
        Ok(())
    }

    pub(super) fn pages(&mut self, is_finished: bool) -> Report {
        self.shown = Some(Instant::now());
        Report {
            name: self.name.clone(),
            records: self.journal.records().to_vec(),
            summary: self.summary(),
            scores: self.state.scores.clone(),
            classes: self.classes.clone(),
            facts: self.trainer.facts(&self.process.0, self.process.1),
            is_finished,
        }
    }

    pub(super) fn summary(&mut self) -> Summary {
        let seconds = self.before + self.trainer.clock.seconds();
        let mut summary = Summary::new(self.journal.records(), &self.state, &self.config, seconds);
        summary.processes = self.trainer.rank().1;
        summary
    }

    /// Waits until the files of the epoch before are written, and warns about files that could not be written.
    ///
    /// # Errors
    /// If the folder of the run was removed or replaced: whatever training computes could not be kept.
    pub(super) fn wait_for_files(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.trainer.clock.enter(Stage::Checkpoint);
        let unwritten = self.writer.wait();
        self.folder.check()?;
        let Some(unwritten) = unwritten else { return Ok(()) };
        for (lack, error) in &unwritten.problems {
            watcher.warn(&not_written(lack, error));
        }
        self.unwritten = unwritten;
        if !self.is_over() {
            // The next checkpoint replaces it. It takes memory.
            self.unwritten.latest = None;
        }
        Ok(())
    }

    /// The record of the last finished epoch.
    pub(super) fn record(&mut self, stats: &EpochStats, evaluation: Option<&Evaluation>, rate: f64) -> EpochRecord {
        let val = evaluation.map(|evaluation| &evaluation.val);
        let seconds = self.state.seconds_by_stage - self.recorded;
        self.recorded = self.state.seconds_by_stage;
        EpochRecord {
            epoch: self.state.epoch,
            step: self.state.step,
            loss: stats.loss,
            train_accuracy: stats.train_accuracy,
            evaluated: evaluation.map(|evaluation| evaluation.method),
            val_loss: val.and_then(|report| report.loss),
            val_accuracy: val.and_then(|report| report.accuracy),
            test_accuracy: evaluation.and_then(Evaluation::test_accuracy),
            val_macro_f1: val.and_then(|report| report.macro_f1),
            val_micro_f1: val.and_then(|report| report.micro_f1),
            test_micro_f1: evaluation.and_then(|evaluation| evaluation.test.as_ref()?.micro_f1),
            val_roc_auc: val.and_then(|report| report.roc_auc),
            seconds: seconds.total(),
            seconds_by_stage: seconds,
            sampled_edges: stats.sampled_edges,
            sampled_edges_per_second: stats.sampled_edges as f64 / seconds.training().max(1e-9),
            bytes_read: stats.bytes_read,
            gradient_bytes: stats.gradient_bytes,
            bytes_sent: stats.bytes_sent,
            halo_bytes: stats.halo_bytes,
            coverage_mean: Some(stats.coverage),
            learning_rate: rate,
            generation: self.state.generation,
            partitions: self.trainer.config.partitions(),
            concurrent: self.trainer.config.concurrent(),
            peak_rss_bytes: peak_rss_bytes(),
        }
    }
}

/// Turns a failed write into a warning: training continues, and the old file stays.
pub(super) fn survive<T>(watcher: &mut dyn Watcher, lack: &str, written: grappa_run::Result<T>) {
    if let Err(error) = written {
        watcher.warn(&not_written(lack, &error));
    }
}
