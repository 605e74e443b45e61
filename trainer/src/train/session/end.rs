//! The end of a run: the last scores, the summary and the report, or the checkpoint of a run that was asked to stop.

use grappa_run::{
    Error as RunError,
    background::{RunFiles, RunPages, UNSYNCED},
    config::Evaluate,
    stages::Stage,
    summary::Summary,
};

use super::{
    files::survive,
    run::{RunInProgress, scored, tell_if_long},
    watcher::Watcher,
};
use crate::{
    Error, Result,
    train::evaluate::evaluations::{Evaluation, evaluate_exactly},
};

impl RunInProgress<'_, '_> {
    /// Evaluates the best model exactly if its scores are sampled ones and may be exact, and writes the summary and the report.
    pub(super) fn finish(mut self, watcher: &mut dyn Watcher) -> Result<Summary> {
        self.wait_for_files(watcher)?;
        let exact = self.final_scores(watcher)?;
        self.trainer.clock.enter(Stage::Report);
        let mut pages = self.pages(true);
        if let Some(exact) = exact {
            let scores = scored(&exact);
            pages.summary.set_scores(&scores);
            pages.scores = Some(scores);
        }
        let mut summary = pages.summary.clone();
        survive(watcher, "no end of the journal", self.output.journal.finish());
        survive(watcher, "no report", self.output.folder.write_report(&pages.html()));
        summary.set_seconds(self.output.before + self.trainer.clock.seconds());
        survive(watcher, "no summary", self.output.folder.write_summary(&summary));
        self.write_again()?;
        Ok(summary)
    }

    /// Tries once more to write the checkpoints that could not be written. Without them, the run has no result.
    fn write_again(&mut self) -> Result<()> {
        let unwritten = std::mem::take(&mut self.output.unwritten);
        let files = RunFiles { best: unwritten.best, latest: unwritten.latest, pages: None };
        let unwritten = files.write(self.output.folder, self.output.checkpoints);
        let lack = match (&unwritten.best, &unwritten.latest) {
            (None, None) => return Ok(()),
            (None, _) => "the last checkpoint",
            (_, None) => "the best model",
            _ => "the best model and the last checkpoint",
        };
        let errors: Vec<String> = unwritten.problems.iter().map(|(_, error)| error.to_string()).collect();
        let is_full = unwritten.problems.iter().any(|(_, error)| error.is_disk_full());
        let remedy = match is_full {
            true => "free space on the disk, then rerun with --resume",
            false => "fix the cause, then rerun with --resume",
        };
        let problem = format!(
            "training is finished, but {lack} could not be written: {}; files of earlier epochs are unchanged: {remedy}",
            errors.join("; ")
        );
        Err(Error::run_file(self.output.folder.path(), problem))
    }

    /// The exact scores of the best model, if evaluations sampled neighbors and may be exact. The trainer then has that model. Without
    /// a best model, the scores are of the last one.
    fn final_scores(&mut self, watcher: &mut dyn Watcher) -> Result<Option<Evaluation>> {
        // Lines of the journal may be missing.
        let scores = self.output.state.scores.as_ref();
        let is_sampled = scores.is_some_and(|scores| scores.evaluated == Evaluate::Sampled);
        let was_sampled = is_sampled
            || self.output.journal.records().iter().any(|record| record.evaluated == Some(Evaluate::Sampled));
        // At the times of seeds, there is no exact evaluation.
        let may_be_exact = self.trainer.config.evaluate == Evaluate::Auto && !self.trainer.data.uses_times;
        let is_due = may_be_exact && was_sampled;
        self.trainer.clock.enter(Stage::Evaluate);
        let has_model = is_due && self.load_best_model(watcher)?;
        if !self.trainer.has_final_evaluation(has_model, watcher.progress())? {
            return Ok(None);
        }
        let model = self.trainer.config.model;
        let (on, history, evaluations) = self.trainer.on_graph(watcher.progress());
        let scored = evaluations.scored_exactly(&on, history);
        let seconds = scored.as_ref().ok().and_then(|scored| evaluations.seconds_of(Some(scored), model));
        tell_if_long("the exact evaluation of the best model", seconds, watcher);
        let (mut on, ..) = self.trainer.on_graph(watcher.progress());
        match evaluate_exactly(&mut on, scored) {
            Err(error) if error.is_stopped() => Err(Error::Stopped {
                place: "before the exact evaluation of the best model".into(),
                kept: "all epochs are finished, and the last checkpoint has their result".into(),
            }),
            // The epochs of the run are worth more than this evaluation.
            Err(error) if error.is_disk_full() || error.is_budget() => {
                watcher.warn(&format!(
                    "no exact evaluation of the best model: {error}; its scores come from sampled neighbors"
                ));
                Ok(None)
            }
            evaluated => evaluated,
        }
    }

    /// Gives the trainer the best model. False if there is one, and it was not saved.
    fn load_best_model(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        if self.output.state.best.is_none_or(|best| best.step == self.trainer.steps()) {
            return Ok(true);
        }
        match self.output.checkpoints.best_of(&self.output.state) {
            Ok(Some((path, checkpoint))) => {
                self.trainer.learner.load_model(&path, &checkpoint)?;
                Ok(true)
            }
            Ok(None) => Ok(true),
            Err(error @ RunError::RunFile { .. }) => {
                watcher.warn(&format!("{error}; so its scores come from sampled neighbors"));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a checkpoint of a run that was asked to stop, and returns the error that says so.
    pub(super) fn stopped(&mut self, watcher: &mut dyn Watcher) -> Error {
        if let Err(error) = self.wait_for_files(watcher) {
            return error;
        }
        let place = self.trainer.place(self.output.state.epoch);
        if let Some(group) = &self.trainer.processes.group {
            group.announce(true, "was asked to stop");
        }
        let missing = match self.trainer.lacks_rows_of_others() {
            true => Some("other ranks send their embeddings after an epoch"),
            false => (!self.trainer.collect_left_behind()).then_some("another rank is missing"),
        };
        if let Some(reason) = missing {
            let kept = format!("{reason}, so the epoch is not saved; earlier checkpoints are intact");
            return Error::Stopped { place, kept };
        }
        let checkpoint = match self.output.checkpoint(&mut self.trainer) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                let kept = format!("its state could not be saved ({error}); earlier checkpoints are intact");
                return Error::Stopped { place, kept };
            }
        };
        survive(watcher, UNSYNCED, self.output.folder.sync_metrics());
        let unwritten = std::mem::take(&mut self.output.unwritten);
        let best = unwritten.best.map_or(Ok(()), |best| self.output.checkpoints.save_best(&best).map(|_| ()));
        let kept = match best.and_then(|()| self.output.checkpoints.save(&checkpoint)) {
            Ok(_) => "a checkpoint has its state".into(),
            Err(error) => format!("its state could not be saved ({error}); earlier checkpoints are intact"),
        };
        Error::Stopped { place, kept }
    }
}
