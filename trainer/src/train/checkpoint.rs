//! The trainer's part of a checkpoint.

use std::path::Path;

use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::{Checkpoint, RunState},
    stages::Stage,
};

use super::{first_hop, refresh::HistoricalOrigin, trainer::Trainer};
use crate::Result;

/// Optimizer steps at which the historical embeddings were made.
const HISTORY_STEP: &str = "history_step";

impl Trainer {
    /// A checkpoint of the current state. With `whole` it has all that a resumed run needs, otherwise the model only.
    pub fn checkpoint(&self, state: &RunState, whole: bool) -> Checkpoint {
        let mut state = state.clone();
        state.note_partitions(&self.config);
        state.note_task(self.data.task());
        first_hop::note(&mut state, self.config.knows_first_hop());
        state.partial = self.partial;
        // Steps that follow use embeddings of earlier parameters, unless they are refreshed first.
        let (step, is_refreshed) = (self.learner.step, self.is_refreshed_next(state.epoch));
        let origin = self.history.origin.as_ref();
        let origin = origin.filter(|from| whole && from.step != step && !is_refreshed);
        match origin {
            Some(from) => state.counters.insert(HISTORY_STEP.into(), from.step),
            None => state.counters.remove(HISTORY_STEP),
        };
        Checkpoint {
            historical: match origin {
                Some(from) => from.tensors.clone(),
                None if whole => self.kept_messages(),
                None => Vec::new(),
            },
            residuals: match whole {
                true => self.learner.gradients.residuals(&self.processes, step),
                false => Vec::new(),
            },
            ..self.learner.checkpoint(state, whole)
        }
    }

    /// Whether the epoch after a checkpoint begins with a refresh of the historical embeddings.
    fn is_refreshed_next(&self, finished_epochs: u64) -> bool {
        let next = match self.partial {
            Some(partial) if !partial.is_trained => return false,
            Some(_) => finished_epochs + 1,
            None => finished_epochs,
        };
        let every = self.config.repartition_every;
        self.partitions.super_epoch != Some(next / every) || self.history.is_due(next, every).unwrap_or(true)
    }

    /// Restores the state of a checkpoint, which was read from `path`, and its historical embeddings.
    pub(super) fn restore(&mut self, path: &Path, checkpoint: &Checkpoint, progress: &dyn Progress) -> Result<()> {
        self.learner.restore(path, checkpoint, &self.processes)?;
        self.partitions.generation = checkpoint.state.generation;
        // The metrics of a process count once.
        self.partial = checkpoint.state.partial.map(|partial| match self.processes.is_first() {
            true => partial,
            false => partial.without_sums(),
        });
        match checkpoint.state.counters.get(HISTORY_STEP) {
            Some(&step) => self.restore_historical(step, path, checkpoint, progress),
            None if self.config.trains_full_graph() => self.restore_messages(checkpoint, progress),
            None => Ok(()),
        }
    }

    /// Makes the historical embeddings again as they were after `step` optimizer steps.
    fn restore_historical(
        &mut self,
        step: u64,
        path: &Path,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let stage = self.clock.enter(Stage::Load);
        self.open_partitions(checkpoint.state.epoch, progress)?;
        self.clock.enter(Stage::History);
        let now = std::mem::replace(&mut self.learner.step, step);
        HistoricalOrigin::load(&self.learner, path, checkpoint)?;
        self.refresh(progress)?;
        self.clock.enter(stage);
        self.learner.step = now;
        self.learner.load_parameters(path, checkpoint)
    }
}
