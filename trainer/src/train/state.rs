//! The trainer's part of a checkpoint.

use std::path::Path;

use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor, RunState},
    stages::Stage,
};
use tch::{Kind, Tensor, no_grad};

use super::{Trainer, correction::Denominator, inference::values};
use crate::{Error, Result};

const OPTIMIZER_STEPS: &str = "optimizer_steps";
/// 1 if the first layer takes pre-aggregated features.
pub(super) const PREAGGREGATED: &str = "preaggregated";
/// Optimizer steps at which the historical embeddings were made.
const HISTORY_STEP: &str = "history_step";
const DENOMINATOR_MEAN: &str = "denominator_mean";
const DENOMINATOR_WEIGHT: &str = "denominator_weight";

/// The parameters that the historical embeddings were made with.
pub(super) struct HistoricalOrigin {
    /// Finished optimizer steps at that time.
    pub(super) step: u64,
    /// The parameters and buffers of the model, as [`Checkpoint::historical`] names them.
    tensors: Vec<NamedTensor>,
}

impl Trainer {
    /// A checkpoint of the current state. With `whole` it has all that a resumed run needs, otherwise the model only.
    pub fn checkpoint(&self, state: &RunState, whole: bool) -> Checkpoint {
        let mut state = state.clone();
        state.note_partitions(&self.config);
        state.note_task(self.labels.task());
        state.counters.insert(OPTIMIZER_STEPS.into(), self.optimizer.steps());
        state
            .counters
            .insert(PREAGGREGATED.into(), self.aggregates.is_some().into());
        let [mean, weight] = self.denominator.parts();
        state.partial = self.partial;
        // Steps that follow use embeddings of earlier parameters, unless they are refreshed first.
        let is_used = |from: &&HistoricalOrigin| from.step != self.step && !self.is_refreshed_next(state.epoch);
        let historical = self.historical_origin.as_ref().filter(|from| whole && is_used(from));
        match historical {
            Some(from) => state.counters.insert(HISTORY_STEP.into(), from.step),
            None => state.counters.remove(HISTORY_STEP),
        };
        state.averages.insert(DENOMINATOR_MEAN.into(), mean);
        state.averages.insert(DENOMINATOR_WEIGHT.into(), weight);
        let named = |list: &[(String, Tensor)]| list.iter().map(|(name, tensor)| to_named(name, tensor)).collect();
        let moments = self.optimizer.moments();
        Checkpoint {
            state,
            parameters: named(self.model.parameters().named()),
            buffers: named(self.model.parameters().buffers()),
            optimizer: match whole {
                true => moments.iter().map(|(name, tensor)| to_named(name, tensor)).collect(),
                false => Vec::new(),
            },
            historical: historical.map_or_else(Vec::new, |from| from.tensors.clone()),
            residuals: match whole {
                true => self.residuals(),
                false => Vec::new(),
            },
        }
    }

    /// Notes that the historical embeddings were made with the current parameters.
    pub(super) fn historical_is_of_now(&mut self) {
        let named = |kind: &str, list: &[(String, Tensor)]| -> Vec<NamedTensor> {
            let prefixed = |(name, tensor): &(String, Tensor)| to_named(&format!("{kind}.{name}"), tensor);
            list.iter().map(prefixed).collect()
        };
        let mut tensors = named("parameters", self.model.parameters().named());
        tensors.extend(named("buffers", self.model.parameters().buffers()));
        self.historical_origin = Some(HistoricalOrigin {
            step: self.step,
            tensors,
        });
    }

    /// Makes the historical embeddings again as they were at a checkpoint, which was read from `path`.
    pub(super) fn restore_historical(
        &mut self,
        path: &Path,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let Some(&step) = checkpoint.state.counters.get(HISTORY_STEP) else {
            return Ok(());
        };
        let stage = self.clock.enter(Stage::Load);
        self.open_partitions(checkpoint.state.epoch / self.config.repartition_every, progress)?;
        self.clock.enter(Stage::History);
        let of_then = |kind: &str| -> Vec<NamedTensor> {
            let stripped = |tensor: &NamedTensor| {
                let name = tensor.name.strip_prefix(kind)?.strip_prefix('.')?.to_owned();
                Some(NamedTensor { name, ..tensor.clone() })
            };
            checkpoint.historical.iter().filter_map(stripped).collect()
        };
        let now = self.step;
        self.step = step;
        load(path, self.model.parameters().named(), &of_then("parameters"))?;
        load(path, self.model.parameters().buffers(), &of_then("buffers"))?;
        self.refresh(None, progress)?;
        self.clock.enter(stage);
        self.step = now;
        load(path, self.model.parameters().named(), &checkpoint.parameters)?;
        load(path, self.model.parameters().buffers(), &checkpoint.buffers)
    }

    /// Gives the model the parameters of a checkpoint.
    ///
    /// # Errors
    /// If they are those of another model.
    pub(super) fn load_parameters(&self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        load(path, self.model.parameters().named(), &checkpoint.parameters)?;
        load(path, self.model.parameters().buffers(), &checkpoint.buffers)
    }

    /// Restores the state of a checkpoint, which was read from `path`.
    pub(super) fn restore(&mut self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        self.load_parameters(path, checkpoint)?;
        let counter = |name| checkpoint.state.counters.get(name).copied().unwrap_or_default();
        let average = |name| checkpoint.state.averages.get(name).copied().unwrap_or_default();
        let moments = self
            .optimizer
            .moments()
            .map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()));
        load(path, &moments, &checkpoint.optimizer)?;
        self.restore_residual(path, checkpoint)?;
        self.optimizer.set_steps(counter(OPTIMIZER_STEPS));
        self.denominator = Denominator::of_parts([average(DENOMINATOR_MEAN), average(DENOMINATOR_WEIGHT)]);
        self.step = checkpoint.state.step;
        self.generation = checkpoint.state.generation;
        // The metrics of a process count once.
        self.partial = checkpoint.state.partial.map(|partial| match self.is_first() {
            true => partial,
            false => partial.without_sums(),
        });
        Ok(())
    }
}

fn to_named(name: &str, tensor: &Tensor) -> NamedTensor {
    let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
    NamedTensor::from_f32(name, &shape, &values(tensor))
}

/// Copies the tensors of a checkpoint into those with the same names.
pub(super) fn load(path: &Path, tensors: &[(String, Tensor)], from: &[NamedTensor]) -> Result<()> {
    let wrong = |what: String| Error::run_file(path, format!("{what}: the checkpoint belongs to another model"));
    if tensors.len() != from.len() {
        return Err(wrong(format!("{} tensors instead of {}", from.len(), tensors.len())));
    }
    for (name, tensor) in tensors {
        let Some(found) = from.iter().find(|found| found.name == *name) else {
            return Err(wrong(format!("there is no tensor {name}")));
        };
        let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
        let Some(found_values) = found.to_f32().filter(|_| found.shape == shape) else {
            return Err(wrong(format!(
                "tensor {name} has the shape {:?} instead of {:?}",
                found.shape, shape
            )));
        };
        let size = tensor.size();
        no_grad(|| {
            let loaded = Tensor::from_slice(&found_values).view(&*size).to_kind(Kind::Float);
            tensor.shallow_clone().copy_(&loaded.to_device(tensor.device()));
        });
    }
    Ok(())
}
