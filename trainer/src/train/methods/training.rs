//! Training on the whole graph: its step, and what some methods do before it.

use grappa_run::model::Task;

use super::{
    exchange::Kept,
    llcg::LocalParts,
    step::{FullStep, StepSums},
};
use crate::{
    Result,
    nn::{Loss, Model, Pass},
};

/// What full-graph training keeps from epoch to epoch.
pub(crate) struct FullTraining {
    pub(crate) step: FullStep,
    /// Partitions that train apart from each other before the step.
    pub(crate) local: Option<LocalParts>,
}

impl FullTraining {
    /// Adds the gradient of an epoch's step to the gradients of the parameters, after local steps if there are some. `update` is the
    /// learning rate and the largest norm of a gradient of local steps. Returns the number of the step's seeds if they
    /// are not all training nodes.
    ///
    /// # Errors
    /// If another process has left or cannot be reached.
    pub(crate) fn add_gradient(
        &mut self,
        what: (&Model, &Loss, Task),
        epoch: u64,
        update: (f64, f64),
        pass: &Pass,
    ) -> Result<(StepSums, Option<f64>)> {
        let Some(local) = &mut self.local else {
            return Ok((self.step.add_gradient(what, epoch, pass)?, None));
        };
        let mut sums = local.round(what, epoch, update, pass)?;
        let seeds = local.draw_seeds(&mut self.step, epoch);
        sums.edges += self.step.add_gradient(what, epoch, pass)?.edges;
        sums.bytes = LocalParts::transferred(&self.step, epoch);
        Ok((sums, Some(seeds)))
    }

    /// What later epochs depend on, for a checkpoint.
    pub(crate) fn kept(&self) -> Kept {
        let exchange = self.step.exchange.iter().flat_map(|exchange| exchange.kept());
        exchange.chain(self.local.iter().flat_map(LocalParts::kept)).collect()
    }

    /// Continues after some epochs from what they [kept](Self::kept).
    pub(crate) fn restore(&mut self, kept: Kept, epochs: u64) {
        if let Some(local) = &mut self.local {
            local.restore(&kept, epochs);
        }
        if let Some(exchange) = &mut self.step.exchange {
            exchange.restore(kept);
        }
    }
}
