//! Training on rank 0, or on the only process.

use std::{
    thread,
    time::{Instant, SystemTime},
};

use grappa_run::{
    background::{BackgroundWriter, Unwritten},
    checkpoint::Latest,
    folder::RunFolder,
    resume,
    stages::StageClock,
    summary::Summary,
};
use grappa_storage::Graph;
use tch::Device;

use super::{
    files::RunOutput,
    run::RunInProgress,
    start::{NewRun, OUT_OF_MEMORY, RunWriter},
    watcher::Watcher,
};
use crate::{Result, runtime::catch_out_of_memory, train::step::full_graph::TrainSetup};

/// Trains a model on a graph in `folder`. With `resume`, continues the run in the folder from its last checkpoint. In a group, this is
/// rank 0; the other ranks call [`follow`](super::follow()).
///
/// # Errors
/// If options do not fit the store or the earlier run, files cannot be read or written, a loss is not finite, or another rank cannot be
/// reached. Checkpoints stay, and the run can be resumed. A full disk is not an error: training warns and continues without the files that do not fit.
///
/// If progress says to stop ([`Progress::is_stopped`](grappa_io::progress::Progress::is_stopped)), the step in progress is finished and a
/// checkpoint is written. An evaluation, an exact inference or a pre-aggregation is aborted. The error is then
/// [`Error::Stopped`](crate::Error::Stopped). A resumed run computes the same as one without the stop.
pub fn train(
    graph: impl Into<Graph>,
    setup: impl Into<TrainSetup>,
    folder: &RunFolder,
    resume: bool,
    device: Device,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    let process = (watcher.command(), SystemTime::now() - watcher.started());
    let run = NewRun {
        graph: graph.into(),
        setup: setup.into(),
        device,
        folder: folder.path().to_owned(),
        clock: StageClock::started(watcher.started()),
    };
    catch_out_of_memory(OUT_OF_MEMORY, || run.train_in(folder, resume, process, watcher))
}

impl NewRun {
    fn train_in(
        self,
        folder: &RunFolder,
        resume: bool,
        process: (String, SystemTime),
        watcher: &mut dyn Watcher,
    ) -> Result<Summary> {
        let checkpoints = folder.checkpoints(self.setup.config.keep)?;
        let latest = match resume {
            true => checkpoints.latest()?,
            false => Latest::default(),
        };
        latest.warnings.iter().for_each(|warning| watcher.warn(warning));
        let writer = RunWriter { folder, checkpoints: &checkpoints };
        let started = self.start(latest.found, Some(writer), watcher)?;
        let (state, config) = (started.state, started.trainer.config.clone());
        match &started.resumed {
            Some(path) => resume::tell(&state, [config.epochs, config.early_stopping], path, watcher),
            None if resume => watcher.tell("there is no checkpoint to continue from: training starts with epoch 1"),
            None => {}
        }
        let journal = folder.journal(state.epoch, state.step)?;
        if started.resumed.is_some()
            && let Some(last) = journal.records().last()
            && let Some(rise) = resume::rise_of_rate(&state, &config.rate_options(), last.learning_rate)
        {
            watcher.warn(&rise);
        }
        thread::scope(|scope| {
            let run = RunInProgress {
                output: RunOutput {
                    writer: BackgroundWriter::new(scope, folder, &checkpoints),
                    before: resume::seconds_before(&state, journal.records()),
                    recorded: resume::recorded(&state, journal.records()),
                    checkpoints: &checkpoints,
                    folder,
                    state,
                    journal,
                    saved: Instant::now(),
                    unwritten: Unwritten::default(),
                    save_problems: Vec::new(),
                    shown: None,
                },
                trainer: started.trainer,
                process,
                classes: started.classes,
                evaluation_seconds: None,
                warned_of_nan: false,
                told_baseline: false,
            };
            run.train(watcher)
        })
    }
}
