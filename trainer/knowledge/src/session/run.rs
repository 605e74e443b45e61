//! The epochs of a run.

use std::time::{Instant, SystemTime};

use grappa_formats::{EdgePart, permutation::Feistel, random};
use grappa_io::{ledger::Ledger, machine::peak_rss_bytes};
use grappa_report::Report;
use grappa_run::{
    background::{RunPages, not_written},
    checkpoint::{PartialEpoch, RunState},
    config::{Evaluate, TrainConfig},
    folder::RunFolder,
    journal::{EpochRecord, Journal},
    scores::{ModelScores, ScoreReport},
    stages::{Stage, StageClock, StageSeconds},
    summary::Summary,
    watcher::Watcher,
};

use super::{facts::facts, files::SavedStates};
use crate::{
    Error, Result,
    buckets::{Buckets, Visits},
    evaluate::{KnownAnswers, Ranking},
    residents::Residents,
    rows::Rows,
    step::{Stepper, TripleModel},
    triples::{Triple, Triples},
};

/// The summary and the report are written at most so often while a run trains.
const REPORT_SECONDS: f64 = 1.0;
// Keys of random numbers.
const ORDER_KEY: u64 = 0x6f72_6465;
const NEGATIVES_KEY: u64 = 0x6e65_6761;

/// A run in progress.
pub(super) struct Run<'a> {
    pub model: TripleModel,
    pub triples: Triples,
    pub known: KnownAnswers,
    pub visits: Visits,
    pub buckets: Buckets,
    pub entities: Residents,
    pub relations: Rows,
    pub stepper: Stepper,
    /// Triples of a batch.
    pub batch: usize,
    /// Candidates of a held-out triple; none for all entities.
    pub candidates: Option<u32>,
    pub config: TrainConfig,
    pub folder: &'a RunFolder,
    pub saved: SavedStates<'a>,
    /// The state after the last finished epoch, and within the epoch in progress.
    pub state: RunState,
    pub journal: Journal,
    pub clock: StageClock,
    /// Wall time of the processes that worked on the run before this one.
    pub before: StageSeconds,
    /// The wall time that the records have.
    pub recorded: StageSeconds,
    pub ledger: Ledger,
    /// The time of the last checkpoint to resume from.
    pub written_at: Instant,
    /// The time of the last report.
    pub shown: Option<Instant>,
    /// Bytes of rows that the epochs before moved.
    pub moved_bytes: u64,
    /// The command line of this process, and the time when it started.
    pub process: (String, SystemTime),
}

/// The scores of the validation and the test triples.
struct Evaluation {
    val: ScoreReport,
    test: Option<ScoreReport>,
}

impl Evaluation {
    fn mrr(report: &ScoreReport) -> Option<f64> {
        report.links.as_ref().and_then(|links| links.filtered.mrr)
    }

    fn hits_at_10(report: &ScoreReport) -> Option<f64> {
        report.links.as_ref().and_then(|links| links.filtered.hits_at_10)
    }
}

impl Run<'_> {
    pub(super) fn train(mut self, watcher: &mut dyn Watcher) -> Result<Summary> {
        let chosen = self.facts().chosen;
        let started = self.journal.start(self.config.table(), &chosen);
        survive(watcher, "no options in the event file", started);
        while !self.is_over() {
            self.epoch(watcher)?;
        }
        if self.state.ended_early(self.config.epochs, self.config.early_stopping) {
            watcher.tell(&format!(
                "early stopping ended the run after epoch {} of {}: {} evaluation(s) without a better one",
                self.state.epoch, self.config.epochs, self.state.early_stopping.waited
            ));
        }
        self.clock.enter(Stage::Report);
        let pages = self.pages(true);
        survive(watcher, "no end of the journal", self.journal.finish());
        survive(watcher, "no report", self.folder.write_report(&pages.html()));
        let mut summary = pages.summary;
        summary.set_seconds(self.before + self.clock.seconds());
        survive(watcher, "no summary", self.folder.write_summary(&summary));
        Ok(summary)
    }

    fn is_over(&self) -> bool {
        self.state.is_over(self.config.epochs, self.config.early_stopping)
    }

    /// Steps of an epoch. Each visit ends with a batch of its own.
    fn steps(&self) -> u64 {
        (0..self.visits.pairs().len()).map(|visit| self.buckets.count(visit).div_ceil(self.batch as u64)).sum()
    }

    /// Trains an epoch, evaluates it, and writes its files.
    fn epoch(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        self.folder.check()?;
        let epoch = self.state.epoch;
        watcher.begin(epoch + 1, self.config.epochs);
        let rate = self.steps_of_epoch(watcher)?;
        let partial = self.state.partial.unwrap_or_default();
        let evaluation = match self.config.is_evaluated(epoch) {
            true => self.evaluate(watcher)?,
            false => None,
        };
        self.state.partial = None;
        self.state.epoch += 1;
        self.note_seconds();
        let is_best = evaluation.as_ref().is_some_and(|evaluation| self.observe(evaluation));
        let record = self.record(&partial, evaluation.as_ref(), rate);
        watcher.epoch(&record, self.config.epochs);
        self.clock.enter(Stage::Report);
        let written = self.journal.append(record);
        survive(watcher, "no line in metrics.jsonl yet", written);
        self.write_files(is_best, watcher)
    }

    /// Trains the steps of an epoch that are left. Returns the learning rate of the last one.
    fn steps_of_epoch(&mut self, watcher: &mut dyn Watcher) -> Result<f64> {
        let (epoch, steps, batch) = (self.state.epoch, self.steps(), self.batch as u64);
        let options = self.config.rate_options();
        let learning_rate = self.state.learning_rate;
        let key = random::combine(self.config.seed, epoch);
        watcher.progress().steps("training", steps);
        self.clock.enter(Stage::Load);
        let order: Vec<usize> =
            self.visits.of_epoch(epoch).into_iter().filter(|&visit| self.buckets.count(visit) > 0).collect();
        let mut partial = self.state.partial.unwrap_or_default();
        watcher.progress().advance(partial.steps, 0);
        let (mut first_step, mut buffer, mut triples) = (0, Vec::new(), Vec::with_capacity(self.batch));
        for (place, &visit) in order.iter().enumerate() {
            let count = self.buckets.count(visit);
            let end_step = first_step + count.div_ceil(batch);
            if end_step <= partial.steps {
                first_step = end_step;
                continue;
            }
            self.clock.enter(Stage::Load);
            let pairs = self.visits.pairs();
            self.entities.enter(pairs[visit], order.get(place + 1).map(|&next| pairs[next]))?;
            self.buckets.load(visit, &mut buffer)?;
            self.clock.enter(Stage::Forward);
            let shuffled = Feistel::new(count, random::combine(random::combine(key, ORDER_KEY), visit as u64));
            for step in partial.steps.max(first_step)..end_step {
                if watcher.progress().is_stopped() {
                    return Err(self.stopped(watcher));
                }
                let all = self.buckets.triples(visit, &buffer);
                let places = (step - first_step) * batch..((step - first_step + 1) * batch).min(count);
                triples.clear();
                triples.extend(places.map(|place| Triple::from_numbers(all[shuffled.forward(place) as usize])));
                let rate = learning_rate.at(&options, epoch, step, steps);
                let of_step = random::combine(random::combine(key, NEGATIVES_KEY), step);
                let loss = self.stepper.step(&triples, &mut self.entities, &mut self.relations, rate as f32, of_step);
                if !loss.is_finite() {
                    return Err(Error::Diverged(format!(
                        "the loss is {loss} in step {} of epoch {}: use a smaller --lr; checkpoints of earlier steps are intact",
                        step + 1,
                        epoch + 1
                    )));
                }
                partial.steps += 1;
                partial.seeds += triples.len() as u64;
                partial.loss += loss;
                partial.is_trained = partial.steps == steps;
                self.state.step += 1;
                self.state.partial = Some(partial);
                watcher.progress().advance(1, 0);
                if self.is_time() && !partial.is_trained {
                    self.save([false, true], watcher);
                    self.clock.enter(Stage::Forward);
                }
            }
            first_step = end_step;
        }
        Ok(learning_rate.at(&options, epoch, steps.saturating_sub(1), steps.max(1)))
    }

    /// Ranks the validation triples, and the test triples if the model is better than before.
    fn evaluate(&mut self, watcher: &mut dyn Watcher) -> Result<Option<Evaluation>> {
        self.clock.enter(Stage::Evaluate);
        match self.ranked(watcher) {
            Err(error) if error.is_stopped() => Err(self.stopped(watcher)),
            ranked => ranked.map(Some),
        }
    }

    fn ranked(&mut self, watcher: &mut dyn Watcher) -> Result<Evaluation> {
        let ranking = Ranking {
            triples: &self.triples,
            model: &self.model,
            known: &self.known,
            candidates: self.candidates,
            memory: self.config.memory.0,
        };
        let val = ranking.of_part(EdgePart::Val, &mut self.entities, &self.relations, watcher.progress())?;
        let val = val.unwrap_or_default();
        let score = self.config.monitor.value_in(&val);
        let is_better = score.is_none_or(|score| self.state.early_stopping.improves(score));
        let test = match is_better {
            true => ranking.of_part(EdgePart::Test, &mut self.entities, &self.relations, watcher.progress())?,
            false => None,
        };
        Ok(Evaluation { val, test })
    }

    /// Takes the score of an evaluation of the last finished epoch. Returns whether it is the best one.
    fn observe(&mut self, evaluation: &Evaluation) -> bool {
        let mut is_best = false;
        if let Some(score) = self.config.monitor.value_in(&evaluation.val) {
            let test = evaluation.test.as_ref().and_then(Evaluation::mrr);
            is_best = self.state.observe(&self.config.rate_options(), score, test);
        }
        if is_best || self.state.best.is_none() {
            let (split, report) = match &evaluation.test {
                Some(test) => ("test", test),
                None => ("val", &evaluation.val),
            };
            self.state.scores = Some(ModelScores {
                evaluated: Evaluate::Exact,
                val_mrr: Evaluation::mrr(&evaluation.val),
                val_hits_at_10: Evaluation::hits_at_10(&evaluation.val),
                split: split.to_owned(),
                report: report.clone(),
                ..ModelScores::default()
            });
        }
        is_best
    }

    fn note_seconds(&mut self) {
        self.state.seconds_by_stage = self.before + self.clock.seconds();
        self.state.seconds = self.state.seconds_by_stage.total();
    }

    fn record(&mut self, partial: &PartialEpoch, evaluation: Option<&Evaluation>, rate: f64) -> EpochRecord {
        let seconds = self.state.seconds_by_stage - self.recorded;
        self.recorded = self.state.seconds_by_stage;
        let moved_bytes =
            self.entities.moved_bytes - std::mem::replace(&mut self.moved_bytes, self.entities.moved_bytes);
        let (val, test) = (evaluation.map(|evaluation| &evaluation.val), evaluation.and_then(|of| of.test.as_ref()));
        let parts = self.entities.shape().parts;
        EpochRecord {
            epoch: self.state.epoch,
            step: self.state.step,
            loss: partial.loss / partial.seeds.max(1) as f64,
            evaluated: evaluation.map(|_| Evaluate::Exact),
            val_mrr: val.and_then(Evaluation::mrr),
            val_hits_at_10: val.and_then(Evaluation::hits_at_10),
            test_mrr: test.and_then(Evaluation::mrr),
            test_hits_at_10: test.and_then(Evaluation::hits_at_10),
            seconds: seconds.total(),
            seconds_by_stage: seconds,
            sampled_edges: partial.seeds,
            sampled_edges_per_second: partial.seeds as f64 / seconds.training().max(1e-9),
            bytes_read: moved_bytes,
            learning_rate: rate,
            partitions: parts,
            concurrent: parts.min(2),
            peak_rss_bytes: peak_rss_bytes(),
            ..EpochRecord::default()
        }
    }

    /// Writes the files of the last finished epoch.
    fn write_files(&mut self, is_best: bool, watcher: &mut dyn Watcher) -> Result<()> {
        let every = self.config.checkpoint_every;
        let by_epochs = every > 0 && self.state.epoch.is_multiple_of(every);
        let is_latest = self.is_over() || by_epochs || self.is_time();
        if is_best || is_latest {
            if self.is_over() {
                self.try_save([is_best, is_latest])?;
            } else {
                self.save([is_best, is_latest], watcher);
            }
        }
        self.clock.enter(Stage::Report);
        let is_due = self.shown.is_none_or(|shown| shown.elapsed().as_secs_f64() >= REPORT_SECONDS);
        if is_due && !self.is_over() {
            self.shown = Some(Instant::now());
            let pages = self.pages(false);
            survive(watcher, "no summary", self.folder.write_summary(pages.summary()));
            survive(watcher, "no report", self.folder.write_report(&pages.html()));
        }
        Ok(())
    }

    /// Whether a checkpoint is due by time.
    fn is_time(&self) -> bool {
        let minutes = self.config.checkpoint_minutes;
        minutes > 0.0 && self.written_at.elapsed().as_secs_f64() >= 60.0 * minutes
    }

    fn try_save(&mut self, kinds: [bool; 2]) -> Result<()> {
        self.clock.enter(Stage::Checkpoint);
        // Lines that are still missing were warned about.
        let _ = self.journal.flush();
        self.note_seconds();
        self.written_at = Instant::now();
        self.saved.save(&mut self.state, kinds, &mut self.entities, &self.relations)
    }

    /// Writes a checkpoint, or warns: training continues, and earlier checkpoints stay.
    fn save(&mut self, kinds: [bool; 2], watcher: &mut dyn Watcher) {
        if let Err(error) = self.try_save(kinds) {
            watcher.warn(&format!("no checkpoint: {error}; training continues, and older files are unchanged"));
        }
    }

    /// Writes a checkpoint of a run that was asked to stop, and returns the error that says so.
    fn stopped(&mut self, watcher: &mut dyn Watcher) -> Error {
        let epoch = self.state.epoch + 1;
        let place = match self.state.partial {
            Some(partial) => format!("after step {} of epoch {epoch}", partial.steps),
            None => format!("before the first step of epoch {epoch}"),
        };
        watcher.progress().stage("writing a checkpoint", None);
        let kept = match self.try_save([false, true]) {
            Ok(()) => "a checkpoint has its state".into(),
            Err(error) => format!("its state could not be saved ({error}); earlier checkpoints are intact"),
        };
        Error::Stopped { place, kept }
    }

    fn facts(&self) -> grappa_report::RunFacts {
        facts(&self.triples, &self.model, &self.config, self.entities.shape().parts, &self.process)
    }

    fn pages(&mut self, is_finished: bool) -> Report {
        let seconds = self.before + self.clock.seconds();
        let mut summary = Summary::new(self.journal.records(), &self.state, &self.config, seconds);
        summary.memory = Some(self.ledger.clone());
        let path = self.triples.graph().path();
        Report {
            name: path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            records: self.journal.records().to_vec(),
            summary,
            scores: self.state.scores.clone(),
            classes: Vec::new(),
            facts: self.facts(),
            is_finished,
        }
    }
}

/// Turns a failed write into a warning: training continues, and the old file stays.
fn survive<T>(watcher: &mut dyn Watcher, lack: &str, written: grappa_run::Result<T>) {
    if let Err(error) = written {
        watcher.warn(&not_written(lack, &error));
    }
}
