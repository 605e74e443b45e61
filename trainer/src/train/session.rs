//! A run: epochs with evaluations, records, reports and checkpoints, from its first epoch or its last checkpoint to its summary.

mod end;
mod files;
mod logits;
mod resume;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use grappa_formats::{aggregates::AggregateKind, schema::Schema};
use grappa_io::{
    machine::memory_limit,
    progress::Progress,
    size::{ByteSize, duration},
};
use grappa_run::{
    background::{BackgroundWriter, Unwritten},
    checkpoint::{Checkpoint, Checkpoints, Latest, RunState},
    class_names,
    config::{Auto, FirstHop, TrainConfig},
    folder::{RunFolder, class_names_of},
    journal::{EpochRecord, Journal},
    model::Task,
    scores::ModelScores,
    stages::{Stage, StageClock, StageSeconds},
    summary::Summary,
};
use grappa_storage::{Store, aggregates::Aggregates};
use tch::Device;

use self::files::survive;
use super::{
    Evaluation, OUT_OF_MEMORY, Trainer, advice, first_hop,
    hosts::Ranks,
    initial::Initial,
    numbers::{self, Numbers},
    ranks, state,
    trainer::Inputs,
};
use crate::{Error, Result, distributed::ProcessGroup, runtime};

/// A checkpoint is written before an evaluation that is expected to take longer than this.
const LONG_EVALUATION_SECONDS: f64 = 5.0;
/// If nothing else is known, an evaluation is expected to take that long if the graph has at least as many nodes and edges.
const LARGE_GRAPH: u64 = 1 << 24;

/// Observes a run.
pub trait Watcher {
    /// Receives the progress of stages. If it says to stop, training ends early; see [`train`].
    fn progress(&self) -> &dyn Progress;

    /// The time since the start of the program when training begins. It counts as wall time of the run.
    fn started(&self) -> Duration {
        Duration::ZERO
    }

    /// The command line of the process, for the report.
    fn command(&self) -> String {
        String::new()
    }

    /// Receives the kind of predictions, before the first epoch.
    fn task(&mut self, _task: Task) {}

    /// Receives what a run will do, before its first epoch.
    fn tell(&mut self, _what: &str) {}

    /// An epoch begins. The first one has the number 1.
    fn begin(&mut self, _epoch: u64, _epochs: u64) {}

    /// An epoch is finished.
    fn epoch(&mut self, record: &EpochRecord, epochs: u64);

    /// Receives a problem that the run survives.
    fn warn(&mut self, what: &str);
}

/// Trains a model on `store` in `folder`. With `resume`, continues the run in the folder from its last checkpoint.
///
/// # Errors
/// If options do not fit the store or the earlier run, files cannot be read or written, or a loss is not finite. Checkpoints stay,
/// and the run can be resumed. A full disk is not an error: training warns and continues without the files that do not fit.
///
/// If progress says to stop ([`Progress::is_stopped`]), the step in progress is finished and a checkpoint is written. An evaluation,
/// an exact inference or a pre-aggregation is aborted. The error is then [`Error::Stopped`]. A resumed run computes the same as
/// one without the stop.
pub fn train(
    store: Arc<Store>,
    config: TrainConfig,
    folder: &RunFolder,
    resume: bool,
    device: Device,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    runtime::catch_out_of_memory(OUT_OF_MEMORY, || {
        train_on(store, config, folder, resume, device, None, watcher)
    })
}

/// [`train`] as rank 0 of `group`. The other ranks call [`follow`](super::follow).
///
/// # Errors
/// As [`train`], and if another rank has left or cannot be reached.
pub fn train_first(
    store: Arc<Store>,
    config: TrainConfig,
    folder: &RunFolder,
    resume: bool,
    device: Device,
    group: Arc<ProcessGroup>,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    runtime::catch_out_of_memory(OUT_OF_MEMORY, || {
        train_on(store, config, folder, resume, device, Some(group), watcher)
    })
}

fn train_on(
    store: Arc<Store>,
    config: TrainConfig,
    folder: &RunFolder,
    resume: bool,
    device: Device,
    group: Option<Arc<ProcessGroup>>,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    let mut clock = StageClock::started(watcher.started());
    let process = (watcher.command(), SystemTime::now() - watcher.started());
    let checkpoints = folder.checkpoints(config.keep)?;
    let latest = match resume {
        true => checkpoints.latest()?,
        false => Latest::default(),
    };
    latest.warnings.iter().for_each(|warning| watcher.warn(warning));
    let from = latest.found.as_ref();
    if let Some(group) = &group {
        ranks::agree_on_checkpoint(group, from.map(|(path, _)| path.as_path()))?;
    }
    let ranks = Ranks::meet(&store, group)?;
    let digest = ranks.digest(&store)?;
    if let Some((_, checkpoint)) = from {
        resume::check_store(folder.path(), &checkpoint.state, &store, digest)?;
    }
    // Before features are pre-aggregated, which may take hours.
    let inputs = Inputs::check(&store, &config, &ranks)?;
    let schema = store.schema()?;
    folder.write_schema(&schema)?;
    let had_names = from.is_some_and(|(_, checkpoint)| checkpoint.state.has_class_names());
    let given_classes = class_names(folder, &config, inputs.classes(), had_names)?;
    let initial = match from {
        None => initial(&config, &inputs, &schema, watcher)?,
        Some(_) => None,
    };
    ranks.describe().iter().for_each(|hosts| watcher.tell(hosts));
    clock.enter(Stage::Preaggregate);
    let aggregates = match &ranks.group {
        None => first_hop(&store, &config, from, watcher)?,
        Some(group) => ranks::first_hop_in_turn(group, &store, &config, from, watcher)?,
    };
    clock.enter(Stage::Open);
    let numbers = Numbers::of_run(&store, &config, aggregates.is_some(), from, &ranks)?;
    numbers.reason.iter().for_each(|reason| watcher.tell(reason));
    let beyond = numbers::limit_warning(config.memory, ranks.processes_of_host(), memory_limit());
    beyond.iter().for_each(|warning| watcher.warn(warning));
    if ranks.group.is_none() && from.is_none() {
        let advice = numbers::memory_advice(&store, aggregates, &config)?;
        advice.iter().for_each(|advice| watcher.tell(advice));
    }
    if from.is_none() {
        advice::of_data(&store, &config)?
            .iter()
            .for_each(|warning| watcher.warn(warning));
    }
    let (wanted, at) = (numbers.applied(&config), folder.path().to_owned());
    let mut trainer = Trainer::of_ranks(store, wanted, aggregates, device, at, ranks, inputs)?;
    trainer.chosen_numbers = [config.partitions, config.concurrent].map(|number| number == Auto::Auto);
    trainer.clock = clock;
    if trainer.group.is_none() {
        trainer.warn_about_compression(1);
    }
    if trainer.is_first() && trainer.store.manifest().weighted {
        watcher.warn(
            "training does not use the edge weights of the store; only `grappa-store sample --by-weight` draws by them",
        );
    }
    tell_warnings(&mut trainer, watcher);
    let mut resumes = false;
    let mut state = RunState {
        config_digest: config.digest(),
        store_digest: digest,
        inputs: trainer.model().options().inputs as u64,
        outputs: trainer.model().options().outputs as u64,
        generation: trainer.generation(),
        ..RunState::default()
    };
    state.note_task(trainer.labels.task());
    watcher.task(trainer.labels.task());
    match latest.found {
        Some((path, checkpoint)) => {
            state = resumed(&mut trainer, &checkpoints, &path, &checkpoint, state, watcher)?;
            resume::tell(&state, &config, &path, watcher);
            resumes = true;
        }
        None => {
            if resume {
                watcher.tell("there is no checkpoint to continue from: training starts with epoch 1");
            }
            trainer.measure_features(watcher.progress())?;
            initial.map_or(Ok(()), |initial| initial.load(&trainer))?;
        }
    }
    state.note_edges(trainer.store.manifest().edge_options);
    state.note_class_names(!given_classes.is_empty());
    state.note_schema(&schema);
    let journal = folder.journal(state.epoch, state.step)?;
    if resumes
        && let Some(last) = journal.records().last()
        && let Some(rise) = resume::rise_of_rate(&state, &config, last.learning_rate)
    {
        watcher.warn(&rise);
    }
    thread::scope(|scope| {
        let run = Run {
            writer: BackgroundWriter::new(scope, folder, &checkpoints),
            name: trainer.store_name(),
            process,
            before: resume::seconds_before(&state, journal.records()),
            recorded: resume::recorded(&state, journal.records()),
            config,
            checkpoints: &checkpoints,
            folder,
            trainer,
            state,
            journal,
            classes: if given_classes.is_empty() {
                schema.classes
            } else {
                given_classes
            },
            evaluation_seconds: None,
            saved: Instant::now(),
            unwritten: Unwritten::default(),
            save_problems: Vec::new(),
            shown: None,
            warned_of_nan: false,
            told_baseline: false,
        };
        run.train(watcher)
    })
}

/// A run in progress.
struct Run<'scope, 'env> {
    config: TrainConfig,
    folder: &'env RunFolder,
    checkpoints: &'env Checkpoints,
    writer: BackgroundWriter<'scope, 'env>,
    trainer: Trainer,
    /// The state after the last finished epoch.
    state: RunState,
    journal: Journal,
    /// The name of the store.
    name: String,
    /// The command line of this process, and the time when it started.
    process: (String, SystemTime),
    /// Names of the classes.
    classes: Vec<String>,
    /// Wall time of the processes that worked on the run before this one.
    before: StageSeconds,
    /// The wall time that the records have.
    recorded: StageSeconds,
    /// Wall time of the last evaluation.
    evaluation_seconds: Option<f64>,
    /// The time of the last checkpoint to resume from.
    saved: Instant,
    /// What could not be written the last time.
    unwritten: Unwritten,
    /// Warnings about checkpoints within the epoch.
    save_problems: Vec<String>,
    /// The time of the last report.
    shown: Option<Instant>,
    /// Whether nodes with NaN logits were warned about.
    warned_of_nan: bool,
    /// Whether the baseline was told.
    told_baseline: bool,
}

impl Run<'_, '_> {
    fn train(mut self, watcher: &mut dyn Watcher) -> Result<Summary> {
        self.prepare(watcher)?;
        let chosen = self.trainer.facts(&self.process.0, self.process.1).chosen;
        let started = self.journal.start(&self.config, &chosen);
        survive(watcher, "no options in the event file", started);
        while !self.is_over() {
            self.epoch(watcher)?;
        }
        if self.state.ended_early(&self.config) {
            watcher.tell(&format!(
                "early stopping ended the run after epoch {} of {}: {} evaluation(s) without a better one",
                self.state.epoch,
                self.config.epochs,
                self.state.early_stopping.waited()
            ));
        }
        self.finish(watcher)
    }

    /// Decides how to evaluate the model, unless all epochs are finished.
    fn prepare(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let before = self.journal.records().iter().rev().find_map(|record| record.evaluated);
        let prepared = self.trainer.prepare(self.state.epoch, before, watcher.progress());
        tell_warnings(&mut self.trainer, watcher);
        match prepared {
            Err(error) if error.is_stopped() => Err(self.stopped(watcher)),
            prepared => {
                watcher.tell(&prepared?);
                Ok(())
            }
        }
    }

    fn is_over(&self) -> bool {
        self.state.is_over(self.config.epochs, self.config.early_stopping)
    }

    /// Trains an epoch, evaluates it, and starts to write its files.
    fn epoch(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        // Partitions of the epoch may be written to the folder.
        self.folder.check()?;
        watcher.begin(self.state.epoch + 1, self.config.epochs);
        let (learning_rate, epoch) = (self.state.learning_rate, self.state.epoch);
        let config = self.config.clone();
        let rate = |step, steps| learning_rate.at(&config, epoch, step, steps);
        let (trainer, mut saver) = self.saver();
        let trained = trainer.saved_epoch(epoch, &rate, &mut saver, watcher.progress());
        std::mem::take(&mut self.save_problems)
            .iter()
            .for_each(|problem| watcher.warn(problem));
        tell_warnings(&mut self.trainer, watcher);
        let stats = match trained {
            Err(error) if error.is_stopped() => return Err(self.stopped(watcher)),
            trained => trained?,
        };
        let last_rate = rate(stats.steps.saturating_sub(1), stats.steps.max(1));
        let evaluation = match ranks::is_evaluated(&self.config, epoch) {
            true => self.evaluate(watcher)?,
            false => None,
        };
        // The files of the epoch before were written while this one trained.
        self.wait_for_files(watcher)?;
        self.trainer.end_epoch();
        self.state.epoch += 1;
        self.update_state();
        let is_best = evaluation.as_ref().is_some_and(|evaluation| self.observe(evaluation));
        let record = self.record(&stats, evaluation.as_ref(), last_rate);
        watcher.epoch(&record, self.config.epochs);
        self.trainer.clock.enter(Stage::Report);
        let written = self.journal.append(record);
        survive(watcher, "no line in metrics.jsonl yet", written);
        self.start_files(is_best, watcher)
    }

    /// Evaluates the model. None if the disk is too full.
    fn evaluate(&mut self, watcher: &mut dyn Watcher) -> Result<Option<Evaluation>> {
        let is_long = match self.evaluation_seconds {
            Some(seconds) => seconds > LONG_EVALUATION_SECONDS,
            None => {
                let seconds = self.trainer.seconds_of_evaluation();
                tell_if_long("an evaluation", seconds, watcher);
                let is_large = self.trainer.graph_size() >= LARGE_GRAPH;
                seconds.map_or(is_large, |seconds| seconds > LONG_EVALUATION_SECONDS)
            }
        };
        self.collect_residuals(is_long, watcher)?;
        if is_long {
            self.wait_for_files(watcher)?;
            self.start_checkpoint();
        }
        self.trainer.clock.enter(Stage::Evaluate);
        let begin = Instant::now();
        let improves = |score| self.state.early_stopping.improves(score);
        let evaluated = self
            .trainer
            .evaluate(true, self.state.epoch, &improves, watcher.progress());
        if let Err(error) = &evaluated
            && error.is_stopped()
        {
            return Err(self.stopped(watcher));
        }
        let evaluated = survive_full_disk(watcher, "no evaluation", evaluated)?.flatten();
        if evaluated.is_some() {
            self.evaluation_seconds = Some(begin.elapsed().as_secs_f64());
        }
        if let Some(group) = &self.trainer.group {
            ranks::score_of_first(group, || evaluated.as_ref()?.score(self.config.monitor))?;
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
        if let Some(score) = evaluation.score(self.config.monitor) {
            is_best = ranks::observe(&mut self.state, &self.config, score, evaluation.test_accuracy());
        }
        if is_best || self.state.best.is_none() {
            self.state.scores = Some(scored(evaluation));
        }
        is_best
    }

    /// Sets the parts of the state that the trainer and the clock know.
    fn update_state(&mut self) {
        let (trainer, mut saver) = self.saver();
        saver.update_state(trainer);
    }

    /// Prepares a checkpoint, if one is due.
    fn collect_residuals(&mut self, is_due: bool, watcher: &mut dyn Watcher) -> Result<()> {
        match self.trainer.collect_residuals(is_due) {
            Err(error) if error.is_stopped() => Err(self.stopped(watcher)),
            collected => collected,
        }
    }
}

/// Tells how long an evaluation takes, if that is known and long.
fn tell_if_long(what: &str, seconds: Option<f64>, watcher: &mut dyn Watcher) {
    if let Some(seconds) = seconds.filter(|&seconds| seconds > LONG_EVALUATION_SECONDS) {
        let about = duration(Duration::from_secs_f64(seconds.round()));
        watcher.tell(&format!("{what} takes roughly {about}, by the time of the steps"));
    }
}

pub(super) fn tell_warnings(trainer: &mut Trainer, watcher: &mut dyn Watcher) {
    trainer.take_warnings().iter().for_each(|warning| watcher.warn(warning));
}

/// The scores for the summary and the report. The report has those of the test nodes, or of the validation nodes if there are no
/// test nodes.
fn scored(evaluation: &Evaluation) -> ModelScores {
    let val = &evaluation.val;
    let (split, report) = match &evaluation.test {
        Some(test) if test.nodes > 0 => ("test", test),
        _ => ("val", val),
    };
    ModelScores {
        evaluated: evaluation.method,
        val_accuracy: val.accuracy,
        val_micro_f1: val.micro_f1,
        val_loss: val.loss,
        test_accuracy: evaluation.test_accuracy(),
        split: split.to_owned(),
        report: report.clone(),
    }
}

/// The parameters that a new run starts with, if they are not random.
pub(super) fn initial(
    config: &TrainConfig,
    inputs: &Inputs,
    schema: &Schema,
    watcher: &mut dyn Watcher,
) -> Result<Option<Initial>> {
    let mut warnings = Vec::new();
    let initial = Initial::read(config, inputs.model(), schema, &mut warnings)?;
    warnings.iter().for_each(|warning| watcher.warn(warning));
    Ok(initial)
}

/// The names of the classes that the user gave: from the file, or else from the run's folder.
fn class_names(
    folder: &RunFolder,
    config: &TrainConfig,
    classes: u64,
    are_there: bool,
) -> grappa_run::Result<Vec<String>> {
    let Some(path) = &config.class_names else {
        return class_names_of(folder.path(), classes, are_there);
    };
    let names = class_names::read(path, classes)?;
    folder.write_class_names(&names)?;
    Ok(names)
}

/// Turns a full disk into a warning and no result.
fn survive_full_disk<T>(watcher: &mut dyn Watcher, lack: &str, done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_disk_full() => {
            watcher.warn(&format!("{lack}: {error}; training continues without it"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The kind of pre-aggregated features that the first layer takes. A resumed run keeps the choice of its checkpoint.
pub(super) fn first_hop(
    store: &Store,
    config: &TrainConfig,
    from: Option<&(PathBuf, Checkpoint)>,
    watcher: &mut dyn Watcher,
) -> Result<Option<AggregateKind>> {
    let mut config = config.clone();
    if let Some((_, checkpoint)) = from {
        config.first_hop = match checkpoint.state.counters.get(state::PREAGGREGATED) {
            Some(1) => FirstHop::Preaggregated,
            _ => FirstHop::Sampled,
        };
    }
    let mut warnings = Vec::new();
    let warn = &mut |what: &str| warnings.push(what.to_owned());
    let before = first_hop::known(store, config.model)?.is_some();
    let chosen = first_hop::choose(store, &config, watcher.progress(), warn);
    warnings.iter().for_each(|warning| watcher.warn(warning));
    if let Ok(Some(kind)) = chosen
        && let Some(aggregates) = Aggregates::open(store, kind)?
    {
        if !before {
            watcher.tell(&format!(
                "pre-aggregated features ({kind}, {}) are in the store now; other runs use them too",
                ByteSize(aggregates.bytes())
            ));
        } else if first_hop::lacks_features(store, &aggregates, &config)? {
            watcher.tell(&format!(
                "features and pre-aggregated features exceed --memory and are in different files: epochs read half as much after \
                 `grappa-store preaggregate {} --kind {kind} --with-features --replace`",
                store.path().display()
            ));
        }
    }
    chosen
}

/// Restores a checkpoint into the trainer and returns its state.
fn resumed(
    trainer: &mut Trainer,
    checkpoints: &Checkpoints,
    path: &Path,
    checkpoint: &Checkpoint,
    new: RunState,
    watcher: &mut dyn Watcher,
) -> Result<RunState> {
    let state = checkpoint.state.clone();
    if state.config_digest != new.config_digest {
        let what = "the checkpoint was made with other options than those of the run; start a new run";
        return Err(Error::run_file(path, what));
    }
    checkpoints.forget_after(state.step)?;
    resume::check_best(checkpoints, checkpoint, watcher)?;
    trainer.restore(path, checkpoint)?;
    trainer.restore_historical(path, checkpoint, watcher.progress())?;
    Ok(state)
}
