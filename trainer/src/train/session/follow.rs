//! Training on the ranks other than 0.
//!
//! Every rank has the whole store, or a slice of it ([`Processes`]), and opens the partitions that it serves
//! ([`Share`](grappa_sampling::partition::Share)). In each step, it computes the gradient of its partitions, and all ranks apply the same
//! sum. So all have the same parameters. A rank computes the historical embeddings of the halo nodes that its own partitions reach, and
//! scores its part of the validation and test nodes.
//! Only rank 0 adds up the scores and writes files. The learning rate and early stopping depend on the score of an evaluation, which it
//! sends to the others.
//!
//! ```text
//! rank 0                                   the others
//! choose a checkpoint, tell                read it
//! pre-aggregate features                   afterwards, one after the other
//! open its partitions                      open theirs
//! decide on refreshes and evaluations      tell what their partitions reach, and take the decisions
//! train its partitions of each step        train theirs
//! collect the metrics of the epoch         send them
//! score its nodes, add up, tell the score  score theirs, send the counts
//! collect the residuals of gradients       send them, if there are any and a checkpoint is due
//! write the files of the epoch
//! ```
//!
//! [`Processes`]: crate::train::ranks::Processes

use std::{path::Path, sync::Arc, time::Duration};

use grappa_run::{checkpoint::RunState, stages::StageClock};
use grappa_storage::Graph;
use tch::Device;

use super::agreement::score_of_first;
use super::{
    start::{NewRun, OUT_OF_MEMORY, tell_warnings},
    watcher::Watcher,
};
use crate::{
    Error, Result,
    distributed::ProcessGroup,
    runtime::catch_out_of_memory,
    train::{evaluate::evaluations::evaluate_exactly, step::full_graph::TrainSetup, trainer::Trainer},
};

/// Takes part in the training of rank 0, which calls [`train`](super::train()), as another rank of `group`. `folder` is the
/// folder of the run, which rank 0 has created.
///
/// # Errors
/// As [`train`](super::train()), and if another rank has left or cannot be reached.
pub fn follow(
    graph: impl Into<Graph>,
    setup: TrainSetup,
    folder: &Path,
    device: Device,
    group: Arc<ProcessGroup>,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    catch_out_of_memory(OUT_OF_MEMORY, || {
        let run = NewRun {
            graph: graph.into(),
            setup: TrainSetup { group: Some(group.clone()), ..setup },
            device,
            folder: folder.to_owned(),
            clock: StageClock::started(Duration::ZERO),
        };
        let mut started = run.start(None, None, watcher)?;
        let (trainer, state) = (&mut started.trainer, &mut started.state);
        match epochs(trainer, state, &group, watcher) {
            Err(error) if error.is_stopped() => {
                group.announce(true, "was asked to stop");
                trainer.leave_behind(&group);
                Err(Error::Stopped { place: trainer.place(state.epoch), kept: "rank 0 writes the checkpoint".into() })
            }
            result => result,
        }
    })
}

/// The epochs of a rank other than 0, and its part of the evaluation at the end.
fn epochs(trainer: &mut Trainer, state: &mut RunState, group: &ProcessGroup, watcher: &mut dyn Watcher) -> Result<()> {
    let config = trainer.config.clone();
    if !state.is_over(config.epochs, config.early_stopping) {
        let prepared = trainer.prepare(state.epoch, None, watcher.progress());
        tell_warnings(trainer, watcher);
        prepared?;
    }
    while !state.is_over(config.epochs, config.early_stopping) {
        watcher.begin(state.epoch + 1, config.epochs);
        let (learning_rate, epoch) = (state.learning_rate, state.epoch);
        let rate = &|step, steps| learning_rate.at(&config.rate_options(), epoch, step, steps);
        let trained = trainer.epoch(epoch, rate, watcher.progress());
        tell_warnings(trainer, watcher);
        trained?;
        let score = match config.is_evaluated(epoch) {
            true => {
                trainer.collect_residuals(false)?;
                survived(trainer.evaluate(epoch, &|_| unreachable!("rank 0 asks"), watcher.progress()))?;
                score_of_first(group, || unreachable!("rank 0 knows it"))?
            }
            false => None,
        };
        trainer.end_epoch();
        state.epoch += 1;
        state.step = trainer.steps();
        if let Some(score) = score {
            state.observe(&config.rate_options(), score, None);
        }
        trainer.collect_residuals(false)?;
    }
    if trainer.has_final_evaluation(false, watcher.progress())? {
        let (mut on, history, evaluations) = trainer.on_graph(watcher.progress());
        let scored = evaluations.scored_exactly(&on, history);
        survived(evaluate_exactly(&mut on, scored))?;
    }
    Ok(())
}

/// The end of an evaluation on a rank other than 0. If it lacked memory or disk space, all ranks know
/// ([`Processes::agree`](crate::train::ranks::Processes::agree)), and rank 0 decides: it warns and continues, or ends the run with the
/// error.
fn survived<T>(evaluated: Result<T>) -> Result<()> {
    match evaluated {
        Err(error) if error.is_disk_full() || error.is_budget() => Ok(()),
        evaluated => evaluated.map(|_| ()),
    }
}
