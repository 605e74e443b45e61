//! A run: epochs with evaluations, records, reports and checkpoints, from its first epoch or its last checkpoint to its summary.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use grappa_formats::{aggregates::AggregateKind, container::FileKind};
use grappa_io::{container::ContainerFile, machine::peak_rss_bytes, progress::Progress};
use grappa_run::{
    checkpoint::{Best, Checkpoint, Checkpoints, Latest, RunState},
    class_names,
    config::{Evaluate, FirstHop, TrainConfig},
    folder::{RunFolder, class_names_of},
    journal::{EpochRecord, StageSeconds},
    report::Report,
    scores::ScoreReport,
    summary::Summary,
};
use grappa_storage::Store;
use tch::Device;

use super::{EpochStats, Evaluation, Trainer, first_hop, state};
use crate::{Error, Result, runtime};

/// A checkpoint is written before an evaluation that is expected to take longer than this.
const LONG_EVALUATION_SECONDS: f64 = 5.0;
/// The first evaluation is expected to take that long if the graph has at least as many nodes and edges.
const LARGE_GRAPH: u64 = 1 << 24;

/// Observes a run.
pub trait Watcher {
    /// Receives the progress of stages. If it says to stop, training ends early; see [`train`].
    fn progress(&self) -> &dyn Progress;

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
    runtime::catch_out_of_memory(
        "try a smaller --batch or --hidden, smaller --fanouts, or --precision bf16; the last checkpoint is intact",
        || train_on(store, config, folder, resume, device, watcher),
    )
}

fn train_on(
    store: Arc<Store>,
    config: TrainConfig,
    folder: &RunFolder,
    resume: bool,
    device: Device,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    let begin = Instant::now();
    let digest = store_digest(&store)?;
    let checkpoints = folder.checkpoints(config.keep)?;
    let latest = match resume {
        true => checkpoints.latest()?,
        false => Latest::default(),
    };
    latest.warnings.iter().for_each(|warning| watcher.warn(warning));
    let aggregates = first_hop(&store, &config, latest.found.as_ref(), watcher)?;
    let is_large = store.manifest().nodes + store.manifest().edges >= LARGE_GRAPH;
    let mut trainer = Trainer::new(store, config.clone(), aggregates, device, folder.path().to_owned())?;
    trainer.take_warnings().iter().for_each(|warning| watcher.warn(warning));
    let mut state = RunState {
        config_digest: config.digest(),
        store_digest: digest,
        inputs: trainer.model().options().inputs as u64,
        outputs: trainer.model().options().outputs as u64,
        generation: trainer.generation(),
        ..RunState::default()
    };
    if let Some((path, checkpoint)) = latest.found {
        state = resumed(&mut trainer, &checkpoints, &path, &checkpoint, state, watcher)?;
    }
    let mut journal = folder.journal(state.epoch, state.step)?;
    let classes = class_names(folder, &config, state.outputs)?;
    let name = trainer.store_name();
    // Scores of the best epoch, or of the best epoch since the run was resumed.
    let mut best_scores: Option<(ScoreReport, &str)> = None;
    let seconds_before = state.seconds;
    let mut saved = Instant::now();
    let mut evaluation_seconds: Option<f64> = None;
    while state.epoch < config.epochs && !state.early_stopping.is_over(config.early_stopping) {
        watcher.begin(state.epoch + 1, config.epochs);
        // The state of a checkpoint that is written now, possibly in the middle of an epoch.
        let now = |state: &RunState, trainer: &Trainer| RunState {
            step: trainer.steps(),
            generation: trainer.generation(),
            super_epoch: state.epoch / config.repartition_every,
            seconds: seconds_before + begin.elapsed().as_secs_f64(),
            ..state.clone()
        };
        let rate = |step, steps| state.learning_rate.at(&config, state.epoch, step, steps);
        let trained = trainer.epoch(state.epoch, &rate, watcher.progress());
        trainer.take_warnings().iter().for_each(|warning| watcher.warn(warning));
        let stats = match trained {
            Err(error) if error.is_stopped() => return Err(stopped(&checkpoints, &trainer, &now(&state, &trainer))),
            trained => trained?,
        };
        let last_rate = rate(stats.steps.saturating_sub(1), stats.steps.max(1));

        let is_last = state.epoch + 1 == config.epochs;
        let evaluation = match is_last || (state.epoch + 1).is_multiple_of(config.eval_every) {
            true => {
                if evaluation_seconds.map_or(is_large, |seconds| seconds > LONG_EVALUATION_SECONDS) {
                    let written = checkpoints.save(&trainer.checkpoint(&now(&state, &trainer), true));
                    survive(watcher, "no checkpoint", written);
                    saved = Instant::now();
                }
                let improves = |score| state.early_stopping.improves(score);
                let epoch_edges = journal
                    .records()
                    .first()
                    .map_or(stats.sampled_edges, |first| first.sampled_edges);
                let evaluated = trainer.evaluate(true, epoch_edges, &improves, watcher.progress());
                if let Err(error) = &evaluated
                    && error.is_stopped()
                {
                    return Err(stopped(&checkpoints, &trainer, &now(&state, &trainer)));
                }
                survive_full_disk(watcher, "no evaluation", evaluated)?
            }
            false => None,
        };
        evaluation_seconds = evaluation
            .as_ref()
            .map(|evaluation| evaluation.seconds)
            .or(evaluation_seconds);
        state = now(&state, &trainer);
        state.epoch += 1;
        trainer.end_epoch();
        let mut is_best = false;
        if let Some(score) = evaluation.as_ref().and_then(Evaluation::score) {
            is_best = state.early_stopping.observe(score);
            state.learning_rate.observe(&config, score);
            if is_best {
                state.best = Some(Best {
                    epoch: state.epoch,
                    step: state.step,
                    val: score,
                    test: evaluation.as_ref().and_then(Evaluation::test_accuracy),
                });
            }
        }
        let record = record(&state, &stats, evaluation.as_ref(), last_rate);
        watcher.epoch(&record, config.epochs);
        survive(watcher, "no line in metrics.jsonl", journal.append(record));
        let ends = is_last || state.early_stopping.is_over(config.early_stopping);
        if evaluation.is_some() && (is_best || state.best.is_none()) {
            best_scores = evaluation.as_ref().map(scored);
        }
        let summary = Summary::new(journal.records(), state.best.as_ref(), &config, state.seconds);
        survive(watcher, "no summary", folder.write_summary(&summary));
        if evaluation.is_some() {
            let report = Report {
                name: &name,
                records: journal.records(),
                summary: &summary,
                scores: best_scores.as_ref().map(|(scores, _)| scores),
                scored: best_scores.as_ref().map_or("test", |(_, split)| split),
                classes: &classes,
                is_finished: ends,
            };
            survive(watcher, "no report", folder.write_report(&report.html()));
        }

        let by_epochs = config.checkpoint_every > 0 && state.epoch.is_multiple_of(config.checkpoint_every);
        let by_time =
            config.checkpoint_minutes > 0.0 && saved.elapsed().as_secs_f64() >= 60.0 * config.checkpoint_minutes;
        if is_best {
            let saved = checkpoints.save_best(&trainer.checkpoint(&state, false));
            survive(watcher, "no checkpoint", saved);
        }
        if ends || by_epochs || by_time {
            let written = checkpoints.save(&trainer.checkpoint(&state, true));
            survive(watcher, "no checkpoint", written);
            saved = Instant::now();
        }
    }
    let mut summary = Summary::new(journal.records(), state.best.as_ref(), &config, state.seconds);
    let was_sampled = |record: &EpochRecord| record.evaluated == Some(Evaluate::Sampled);
    if config.evaluate == Evaluate::Auto && journal.records().iter().any(was_sampled) {
        if let Some(exact) = final_scores(&mut trainer, &checkpoints, state.best.as_ref(), watcher)? {
            summary.val_accuracy = exact.val.accuracy;
            summary.test_accuracy = exact.test_accuracy();
            summary.evaluated = Some(Evaluate::Exact);
            best_scores = Some(scored(&exact));
        }
        summary.seconds_total = seconds_before + begin.elapsed().as_secs_f64();
        let report = Report {
            name: &name,
            records: journal.records(),
            summary: &summary,
            scores: best_scores.as_ref().map(|(scores, _)| scores),
            scored: best_scores.as_ref().map_or("test", |(_, split)| split),
            classes: &classes,
            is_finished: true,
        };
        survive(watcher, "no report", folder.write_report(&report.html()));
    }
    survive(watcher, "no summary", folder.write_summary(&summary));
    Ok(summary)
}

/// The exact scores of the best model of a run whose evaluations sampled neighbours. The trainer then has that model. Without a best
/// model, the scores are those of the last one.
fn final_scores(
    trainer: &mut Trainer,
    checkpoints: &Checkpoints,
    best: Option<&Best>,
    watcher: &mut dyn Watcher,
) -> Result<Option<Evaluation>> {
    if let Some(best) = best.filter(|best| best.step != trainer.steps()) {
        match checkpoints.best(u64::MAX)? {
            Some((path, checkpoint)) if checkpoint.state.step == best.step => {
                trainer.load_parameters(&path, &checkpoint)?;
            }
            _ => {
                watcher.warn("the best model was not saved, so its scores are those of sampled neighbours");
                return Ok(None);
            }
        }
    }
    match trainer.evaluate_exactly(true, watcher.progress()) {
        Err(error) if error.is_stopped() => Err(Error::Stopped {
            place: "before the exact evaluation of the best model".into(),
            kept: "all epochs are finished, and the last checkpoint has their result".into(),
        }),
        // The epochs of the run are worth more than this evaluation.
        Err(error) if error.is_disk_full() || error.is_budget() => {
            watcher.warn(&format!(
                "no exact evaluation of the best model: {error}; its scores are those of sampled neighbours"
            ));
            Ok(None)
        }
        evaluated => evaluated.map(Some),
    }
}

/// Writes a checkpoint of a run that was asked to stop, and returns the error that says so.
fn stopped(checkpoints: &Checkpoints, trainer: &Trainer, state: &RunState) -> Error {
    let place = match trainer.steps_of_epoch() {
        None | Some(0) => format!("before epoch {}", state.epoch + 1),
        Some(steps) => format!("after step {steps} of epoch {}", state.epoch + 1),
    };
    match checkpoints.save(&trainer.checkpoint(state, true)) {
        Ok(_) => Error::Stopped {
            place,
            kept: "a checkpoint has its state".into(),
        },
        Err(error) => Error::Stopped {
            place,
            kept: format!("its state could not be saved ({error}); earlier checkpoints are intact"),
        },
    }
}

/// The scores for the report: those of the test nodes, or of the validation nodes if there are no test nodes.
fn scored(evaluation: &Evaluation) -> (ScoreReport, &'static str) {
    match &evaluation.test {
        Some(test) if test.nodes > 0 => (test.clone(), "test"),
        _ => (evaluation.val.clone(), "val"),
    }
}

/// The names of the classes: from the user's file, or else from the run's folder.
fn class_names(folder: &RunFolder, config: &TrainConfig, classes: u64) -> grappa_run::Result<Vec<String>> {
    let Some(path) = &config.class_names else {
        return class_names_of(folder.path(), classes);
    };
    let names = class_names::read(path, classes)?;
    folder.write_class_names(&names)?;
    Ok(names)
}

/// Turns a failed write into a warning: training continues, and the old file stays.
fn survive<T>(watcher: &mut dyn Watcher, lack: &str, written: grappa_run::Result<T>) {
    if let Err(error) = written {
        watcher.warn(&format!(
            "{lack}: {error}; training continues, and older files are unchanged"
        ));
    }
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
fn first_hop(
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
    let chosen = first_hop::choose(store, &config, watcher.progress(), warn);
    warnings.iter().for_each(|warning| watcher.warn(warning));
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
    state.check_store(new.inputs, new.outputs)?;
    if state.store_digest != new.store_digest {
        return Err(Error::Options(
            "the store is not the one that the run was trained on; use that one, or start a new run".into(),
        ));
    }
    if state.config_digest != new.config_digest {
        let what = "the checkpoint was made with other options than those of the run; start a new run";
        return Err(Error::run_file(path, what));
    }
    checkpoints.forget_after(state.step)?;
    trainer.restore(path, checkpoint)?;
    trainer.restore_historical(path, checkpoint, watcher.progress())?;
    Ok(state)
}

/// The record of a finished epoch.
fn record(state: &RunState, stats: &EpochStats, evaluation: Option<&Evaluation>, rate: f64) -> EpochRecord {
    let val = evaluation.map(|evaluation| &evaluation.val);
    let evaluate = evaluation.map_or(0.0, |evaluation| evaluation.seconds);
    EpochRecord {
        epoch: state.epoch,
        step: state.step,
        loss: stats.loss,
        train_accuracy: stats.train_accuracy,
        evaluated: evaluation.map(|evaluation| evaluation.method),
        val_accuracy: val.and_then(|report| report.accuracy),
        test_accuracy: evaluation.and_then(Evaluation::test_accuracy),
        val_macro_f1: val.and_then(|report| report.macro_f1),
        val_micro_f1: val.and_then(|report| report.micro_f1),
        val_roc_auc: val.and_then(|report| report.roc_auc),
        seconds: stats.seconds + evaluate,
        seconds_by_stage: StageSeconds {
            evaluate,
            ..stats.seconds_by_stage
        },
        sampled_edges: stats.sampled_edges,
        sampled_edges_per_second: stats.sampled_edges as f64 / stats.seconds.max(1e-9),
        bytes_read: stats.bytes_read,
        bytes_sent: stats.bytes_sent,
        coverage_mean: Some(stats.coverage),
        learning_rate: rate,
        generation: state.generation,
        peak_rss_bytes: peak_rss_bytes(),
    }
}

/// The digest of a store: that of its manifest, which names all other files with theirs.
fn store_digest(store: &Store) -> Result<u64> {
    Ok(ContainerFile::open(&store.path().join("manifest"), FileKind::MANIFEST)?.digest())
}
