//! The epochs of a run on rank 0.

use std::time::{Duration, Instant, SystemTime};

use grappa_io::size::duration;
use grappa_report::Report;
use grappa_run::{
    background::{RunFiles, RunPages, not_written},
    scores::ModelScores,
    stages::Stage,
    summary::Summary,
};

use super::agreement::score_of_first;
use super::run_facts;
use super::{
    files::{RunOutput, survive, survive_full_disk},
    start::tell_warnings,
    watcher::Watcher,
};
use crate::{
    Result,
    train::{evaluate::evaluations::Evaluation, trainer::Trainer},
};

/// A checkpoint is written before an evaluation that is expected to take longer than this.
const LONG_EVALUATION_SECONDS: f64 = 5.0;
/// If nothing else is known, an evaluation is expected to take that long if the graph has at least as many nodes and edges.
const LARGE_GRAPH: u64 = 1 << 24;
/// The summary and the report are written at most so often while a run trains.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A run in progress.
pub(super) struct RunInProgress<'scope, 'env> {
    pub trainer: Trainer,
    pub output: RunOutput<'scope, 'env>,
    /// The command line of this process, and the time when it started.
    pub process: (String, SystemTime),
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Wall time of the last evaluation.
    pub evaluation_seconds: Option<f64>,
    /// Whether nodes with NaN logits were warned about.
    pub warned_of_nan: bool,
    /// Whether the baseline was told.
    pub told_baseline: bool,
}

impl RunInProgress<'_, '_> {
    pub(super) fn train(mut self, watcher: &mut dyn Watcher) -> Result<Summary> {
        self.prepare(watcher)?;
        let chosen = run_facts::chosen(&self.trainer);
        let started = self.output.journal.start(self.trainer.config.requested().table(), &chosen);
        survive(watcher, "no options in the event file", started);
        while !self.is_over() {
            self.epoch(watcher)?;
        }
        if self.output.state.ended_early(self.trainer.config.epochs, self.trainer.config.early_stopping) {
            watcher.tell(&format!(
                "early stopping ended the run after epoch {} of {}: {} evaluation(s) without a better one",
                self.output.state.epoch, self.trainer.config.epochs, self.output.state.early_stopping.waited
            ));
        }
        self.finish(watcher)
    }

    /// Decides how to evaluate the model, unless all epochs are finished.
    fn prepare(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let before = self.output.journal.records().iter().rev().find_map(|record| record.evaluated);
        let prepared = self.trainer.prepare(self.output.state.epoch, before, watcher.progress());
        tell_warnings(&mut self.trainer, watcher);
        match prepared {
            Err(error) if error.is_stopped() => Err(self.stopped(watcher)),
            prepared => {
                watcher.tell(&prepared?);
                Ok(())
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.output.state.is_over(self.trainer.config.epochs, self.trainer.config.early_stopping)
    }

    /// Trains an epoch, evaluates it, and starts to write its files.
    fn epoch(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        // Partitions of the epoch may be written to the folder.
        self.output.folder.check()?;
        watcher.begin(self.output.state.epoch + 1, self.trainer.config.epochs);
        let (learning_rate, epoch) = (self.output.state.learning_rate, self.output.state.epoch);
        let config = self.trainer.config.clone();
        let trained = self.trainer.saved_epoch(
            epoch,
            &|step, steps| learning_rate.at(&config.rate_options(), epoch, step, steps),
            Some(&mut self.output),
            watcher.progress(),
        );
        std::mem::take(&mut self.output.save_problems).iter().for_each(|problem| watcher.warn(problem));
        tell_warnings(&mut self.trainer, watcher);
        let stats = match trained {
            Err(error) if error.is_stopped() => return Err(self.stopped(watcher)),
            trained => trained?,
        };
        let last_rate =
            learning_rate.at(&config.rate_options(), epoch, stats.steps.saturating_sub(1), stats.steps.max(1));
        let evaluation = match self.trainer.config.is_evaluated(epoch) {
            true => self.evaluate(watcher)?,
            false => None,
        };
        // The files of the epoch before were written while this one trained.
        self.wait_for_files(watcher)?;
        self.trainer.end_epoch();
        self.output.state.epoch += 1;
        self.output.update_state(&mut self.trainer);
        let is_best = evaluation.as_ref().is_some_and(|evaluation| self.observe(evaluation));
        let record = self.output.record(&self.trainer, &stats, evaluation.as_ref(), last_rate);
        watcher.epoch(&record, self.trainer.config.epochs);
        self.trainer.clock.enter(Stage::Report);
        let written = self.output.journal.append(record);
        survive(watcher, "no line in metrics.jsonl yet", written);
        self.start_files(is_best, watcher)
    }

    /// Evaluates the model. None if the disk is too full.
    fn evaluate(&mut self, watcher: &mut dyn Watcher) -> Result<Option<Evaluation>> {
        let is_long = match self.evaluation_seconds {
            Some(seconds) => seconds > LONG_EVALUATION_SECONDS,
            None => {
                let trainer = &self.trainer;
                let seconds = trainer.evaluations.seconds_of(None, trainer.config.model);
                tell_if_long("an evaluation", seconds, watcher);
                let graph = &trainer.data.graph;
                let is_large = graph.positions().chunks().nodes() + graph.edges() >= LARGE_GRAPH;
                seconds.map_or(is_large, |seconds| seconds > LONG_EVALUATION_SECONDS)
            }
        };
        self.collect_residuals(is_long, watcher)?;
        if is_long {
            self.wait_for_files(watcher)?;
            self.output.start_checkpoint(&mut self.trainer, watcher)?;
        }
        self.trainer.clock.enter(Stage::Evaluate);
        let begin = Instant::now();
        let state = &self.output.state;
        let evaluated =
            self.trainer.evaluate(state.epoch, &|score| state.early_stopping.improves(score), watcher.progress());
        if let Err(error) = &evaluated
            && error.is_stopped()
        {
            return Err(self.stopped(watcher));
        }
        let evaluated = survive_full_disk(watcher, "no evaluation", evaluated)?.flatten();
        if evaluated.is_some() {
            self.evaluation_seconds = Some(begin.elapsed().as_secs_f64());
        }
        if let Some(group) = &self.trainer.processes.group {
            score_of_first(group, || evaluated.as_ref()?.score(self.trainer.config.monitor))?;
        }
        if let Some(evaluation) = &evaluated {
            self.check_logits(evaluation, watcher)?;
            self.tell_baseline(evaluation, watcher);
        }
        Ok(evaluated)
    }

    /// Takes the score of an evaluation of the last finished epoch. Returns whether it is the best one.
    fn observe(&mut self, evaluation: &Evaluation) -> bool {
        let mut is_best = false;
        if let Some(score) = evaluation.score(self.trainer.config.monitor) {
            let config = &self.trainer.config;
            is_best = self.output.state.observe(&config.rate_options(), score, evaluation.test_score());
        }
        if is_best || self.output.state.best.is_none() {
            self.output.state.scores = Some(scored(evaluation));
        }
        is_best
    }

    /// Waits until the files of the epoch before are written, and warns about files that could not be written.
    pub(super) fn wait_for_files(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.trainer.clock.enter(Stage::Checkpoint);
        let unwritten = self.output.writer.wait();
        self.output.folder.check()?;
        let Some(unwritten) = unwritten else { return Ok(()) };
        for (lack, error) in &unwritten.problems {
            watcher.warn(&not_written(lack, error));
        }
        self.output.unwritten = unwritten;
        if !self.is_over() {
            // The next checkpoint replaces it. It takes memory.
            self.output.unwritten.latest = None;
        }
        Ok(())
    }

    /// Starts to write the files of the last finished epoch.
    pub(super) fn start_files(&mut self, is_best: bool, watcher: &mut dyn Watcher) -> Result<()> {
        let is_over = self.is_over();
        let every = self.trainer.config.checkpoint_every;
        let by_epochs = every > 0 && self.output.state.epoch.is_multiple_of(every);
        let by_time = self.output.is_time(self.trainer.config.checkpoint_minutes);
        let is_saved = is_over || by_epochs || by_time;
        self.trainer.clock.enter(Stage::Checkpoint);
        self.collect_residuals(is_saved, watcher)?;
        let best = is_best.then(|| self.trainer.checkpoint(&self.output.state, false)).transpose()?;
        let latest = match is_saved {
            true => survive_full_disk(watcher, "no checkpoint", self.output.checkpoint(&mut self.trainer))?,
            false => None,
        };
        self.trainer.clock.enter(Stage::Report);
        let is_due = self.output.shown.is_none_or(|shown| shown.elapsed() >= REPORT_INTERVAL);
        // At the end of the run they are written once, with its last scores.
        let pages = (is_due && !is_over).then(|| Box::new(self.pages(false)) as Box<dyn RunPages>);
        self.output.start_writing(RunFiles { best, latest, pages });
        Ok(())
    }

    pub(super) fn pages(&mut self, is_finished: bool) -> Report {
        self.output.shown = Some(Instant::now());
        Report {
            name: self.trainer.data.name(),
            records: self.output.journal.records().to_vec(),
            summary: self.summary(),
            scores: self.output.state.scores.clone(),
            classes: self.classes.clone(),
            facts: run_facts::facts(&self.trainer, &self.process.0, self.process.1),
            is_finished,
        }
    }

    pub(super) fn summary(&mut self) -> Summary {
        let seconds = self.output.before + self.trainer.clock.seconds();
        let mut summary =
            Summary::new(self.output.journal.records(), &self.output.state, self.trainer.config.requested(), seconds);
        summary.processes = self.trainer.processes.count();
        summary.memory = Some(self.trainer.ledger.clone()).filter(|ledger| !ledger.phases.is_empty());
        summary
    }

    /// Prepares a checkpoint, if one is due.
    pub(super) fn collect_residuals(&mut self, is_due: bool, watcher: &mut dyn Watcher) -> Result<()> {
        match self.trainer.collect_residuals(is_due) {
            Err(error) if error.is_stopped() => Err(self.stopped(watcher)),
            collected => collected,
        }
    }
}

/// Tells how long an evaluation takes, if that is known and long.
pub(super) fn tell_if_long(work: &str, seconds: Option<f64>, watcher: &mut dyn Watcher) {
    if let Some(seconds) = seconds.filter(|&seconds| seconds > LONG_EVALUATION_SECONDS) {
        let about = duration(Duration::from_secs_f64(seconds.round()));
        watcher.tell(&format!("{work} takes roughly {about}, by the time of the steps"));
    }
}

/// The scores for the summary and the report. The report has the scores of the test nodes, or of the validation nodes if there are no
/// test nodes.
pub(super) fn scored(evaluation: &Evaluation) -> ModelScores {
    let val = &evaluation.val;
    let (split, report) = match &evaluation.test {
        Some(test) if test.nodes > 0 => ("test", test),
        _ => ("val", val),
    };
    ModelScores {
        evaluated: evaluation.method,
        val_accuracy: val.accuracy,
        val_micro_f1: val.micro_f1,
        val_macro_f1: val.macro_f1,
        val_roc_auc: val.roc_auc,
        val_average_precision: val.average_precision,
        val_loss: val.loss,
        val_rmse: val.rmse,
        val_mae: val.mae,
        val_r2: val.r2,
        val_mrr: val.links.as_ref().and_then(|links| links.filtered.mrr),
        val_hits_at_10: val.links.as_ref().and_then(|links| links.filtered.hits_at_10),
        val_recall_at_20: val.by_source().and_then(|sources| sources.recall_at_20),
        val_map_at_20: val.by_source().and_then(|sources| sources.map_at_20),
        val_ndcg_at_20: val.by_source().and_then(|sources| sources.ndcg_at_20),
        test_accuracy: evaluation.test_accuracy(),
        split: split.to_owned(),
        report: report.clone(),
    }
}
