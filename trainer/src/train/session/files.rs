//! The files of a run: checkpoints, records, summary and report.

use std::time::Instant;

use grappa_io::machine::peak_rss_bytes;
use grappa_run::{
    background::{BackgroundWriter, RunFiles, Unwritten, not_written},
    checkpoint::{Checkpoint, Checkpoints, RunState},
    folder::RunFolder,
    journal::{EpochRecord, Journal},
    stages::{Stage, StageSeconds},
};

use super::watcher::Watcher;
use crate::{
    Result,
    train::{
        epoch::{EpochStats, Save},
        evaluate::evaluations::Evaluation,
        trainer::Trainer,
    },
};

/// The files of a run, and what is written to them.
pub(super) struct RunOutput<'scope, 'env> {
    pub folder: &'env RunFolder,
    pub checkpoints: &'env Checkpoints,
    pub writer: BackgroundWriter<'scope, 'env>,
    /// The state after the last finished epoch.
    pub state: RunState,
    pub journal: Journal,
    /// Wall time of the processes that worked on the run before this one.
    pub before: StageSeconds,
    /// The wall time that the records have.
    pub recorded: StageSeconds,
    /// The time of the last checkpoint to resume from.
    pub saved: Instant,
    /// What could not be written the last time.
    pub unwritten: Unwritten,
    /// Warnings about checkpoints within the epoch.
    pub save_problems: Vec<String>,
    /// The time of the last report.
    pub shown: Option<Instant>,
}

impl RunOutput<'_, '_> {
    /// Sets the parts of the state that the trainer and its clock know.
    pub fn update_state(&mut self, trainer: &mut Trainer) {
        self.state.step = trainer.steps();
        self.state.generation = trainer.generation();
        self.state.seconds_by_stage = self.before + trainer.clock.seconds();
        self.state.seconds = self.state.seconds_by_stage.total();
    }

    /// Whether the last checkpoint is older than this many minutes; 0 for none by time.
    pub fn is_time(&self, minutes: f64) -> bool {
        minutes > 0.0 && self.saved.elapsed().as_secs_f64() >= 60.0 * minutes
    }

    /// A checkpoint that has all that a resumed run needs.
    ///
    /// # Errors
    /// As [`Trainer::checkpoint`].
    pub fn checkpoint(&mut self, trainer: &mut Trainer) -> Result<Checkpoint> {
        trainer.clock.enter(Stage::Checkpoint);
        // Lines that are still missing were warned about.
        let _ = self.journal.flush();
        self.update_state(trainer);
        self.saved = Instant::now();
        trainer.checkpoint(&self.state, true)
    }

    /// Starts to write a checkpoint.
    pub fn start_checkpoint(&mut self, trainer: &mut Trainer, watcher: &mut dyn Watcher) -> Result<()> {
        let latest = survive_full_disk(watcher, "no checkpoint", self.checkpoint(trainer))?;
        self.start_writing(RunFiles { latest, ..RunFiles::default() });
        Ok(())
    }

    /// Starts to write files, and the best model if it could not be written before.
    pub fn start_writing(&mut self, files: RunFiles) {
        let unwritten = std::mem::take(&mut self.unwritten);
        self.writer.start(RunFiles { best: files.best.or(unwritten.best), ..files });
    }

    /// The record of the last finished epoch.
    pub fn record(
        &mut self,
        trainer: &Trainer,
        stats: &EpochStats,
        evaluation: Option<&Evaluation>,
        rate: f64,
    ) -> EpochRecord {
        let val = evaluation.map(|evaluation| &evaluation.val);
        let test = evaluation.and_then(|evaluation| evaluation.test.as_ref());
        let seconds = self.state.seconds_by_stage - self.recorded;
        self.recorded = self.state.seconds_by_stage;
        EpochRecord {
            epoch: self.state.epoch,
            step: self.state.step,
            loss: stats.loss,
            train_accuracy: stats.train_accuracy,
            evaluated: evaluation.map(|evaluation| evaluation.method),
            val_loss: val.and_then(|report| report.loss),
            test_loss: test.and_then(|report| report.loss),
            val_accuracy: val.and_then(|report| report.accuracy),
            test_accuracy: evaluation.and_then(Evaluation::test_accuracy),
            val_macro_f1: val.and_then(|report| report.macro_f1),
            test_macro_f1: test.and_then(|report| report.macro_f1),
            val_micro_f1: val.and_then(|report| report.micro_f1),
            test_micro_f1: test.and_then(|report| report.micro_f1),
            val_roc_auc: val.and_then(|report| report.roc_auc),
            test_roc_auc: test.and_then(|report| report.roc_auc),
            val_average_precision: val.and_then(|report| report.average_precision),
            test_average_precision: test.and_then(|report| report.average_precision),
            val_rmse: val.and_then(|report| report.rmse),
            val_mae: val.and_then(|report| report.mae),
            val_r2: val.and_then(|report| report.r2),
            test_rmse: test.and_then(|report| report.rmse),
            test_mae: test.and_then(|report| report.mae),
            test_r2: test.and_then(|report| report.r2),
            val_mrr: val.and_then(|report| report.links.as_ref()?.filtered.mrr),
            val_hits_at_10: val.and_then(|report| report.links.as_ref()?.filtered.hits_at_10),
            val_recall_at_20: val.and_then(|report| report.by_source()?.recall_at_20),
            val_map_at_20: val.and_then(|report| report.by_source()?.map_at_20),
            val_ndcg_at_20: val.and_then(|report| report.by_source()?.ndcg_at_20),
            test_mrr: test.and_then(|report| report.links.as_ref()?.filtered.mrr),
            test_hits_at_10: test.and_then(|report| report.links.as_ref()?.filtered.hits_at_10),
            test_recall_at_20: test.and_then(|report| report.by_source()?.recall_at_20),
            test_map_at_20: test.and_then(|report| report.by_source()?.map_at_20),
            test_ndcg_at_20: test.and_then(|report| report.by_source()?.ndcg_at_20),
            seconds: seconds.total(),
            seconds_by_stage: seconds,
            sampled_edges: stats.sampled_edges,
            sampled_edges_per_second: stats.sampled_edges as f64 / seconds.training().max(1e-9),
            bytes_read: stats.bytes_read,
            gradient_bytes: stats.gradient_bytes,
            bytes_sent: stats.bytes_sent,
            halo_bytes: stats.halo_bytes,
            row_bytes: stats.row_bytes,
            feature_bytes: stats.feature_bytes,
            activation_bytes: stats.activation_bytes,
            message_error: stats.message_error,
            coverage_mean: Some(stats.coverage),
            learning_rate: rate,
            generation: self.state.generation,
            partitions: trainer.config.partitions(),
            concurrent: trainer.config.concurrent(),
            peak_rss_bytes: peak_rss_bytes(),
        }
    }
}

impl Save for RunOutput<'_, '_> {
    fn is_due(&self, trainer: &Trainer) -> bool {
        // A checkpoint of several ranks needs all of them. They meet after each epoch.
        trainer.processes.group.is_none() && self.is_time(trainer.config.checkpoint_minutes)
    }

    fn save(&mut self, trainer: &mut Trainer) -> Result<()> {
        self.folder.check()?;
        let latest = match self.checkpoint(trainer) {
            Err(error) if error.is_disk_full() => {
                self.save_problems
                    .push(format!("no checkpoint: {error}; training continues, and older files are unchanged"));
                None
            }
            checkpoint => Some(checkpoint?),
        };
        if let Some(unwritten) = self.writer.wait() {
            let problems = unwritten.problems.iter();
            self.save_problems.extend(problems.map(|(lack, error)| not_written(lack, error)));
            self.unwritten = unwritten;
        }
        // Without the best model of its time, there is no checkpoint to resume from.
        let best = self.unwritten.best.take();
        self.writer.start(RunFiles { best, latest, pages: None });
        Ok(())
    }
}

/// Turns a failed write into a warning: training continues, and the old file stays.
pub(super) fn survive<T>(watcher: &mut dyn Watcher, lack: &str, written: grappa_run::Result<T>) {
    if let Err(error) = written {
        watcher.warn(&not_written(lack, &error));
    }
}

/// Turns a full disk into a warning and no result.
pub(super) fn survive_full_disk<T>(watcher: &mut dyn Watcher, lack: &str, done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_disk_full() => {
            watcher.warn(&format!("{lack}: {error}; training continues without it"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
