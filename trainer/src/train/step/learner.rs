//! The model while it learns: its parameters, and what updates them.

use std::path::Path;

use grappa_run::{
    checkpoint::{Checkpoint, RunState},
    config::Correction,
    model::ModelOptions,
};
use grappa_sampling::links::Negatives;
use tch::{Device, Tensor, no_grad};

use super::optimizer::Optimizer;
use crate::train::partitions::correction::Denominator;
use crate::train::{
    data::{
        class_weights::{class_weights, digest},
        monitor::check_monitor,
        training_data::TrainingData,
    },
    embeddings::{BatchEmbeddings, NodeTables},
    exchange::gradient_exchange::GradientExchange,
    links::LinkLoss,
    options::resolved_config::ResolvedConfig,
    ranks::Processes,
    tensors::{load, to_named},
};
use crate::{
    Error, Result,
    distributed::ProcessGroup,
    nn::{Loss, Model},
};

const OPTIMIZER_STEPS: &str = "optimizer_steps";
const DENOMINATOR_MEAN: &str = "denominator_mean";
const DENOMINATOR_WEIGHT: &str = "denominator_weight";

/// What training minimizes.
pub(crate) enum Objective {
    /// The loss of a seed.
    Nodes(Loss),
    /// The loss of an edge.
    Links(LinkLoss),
}

/// Options of a step.
pub(crate) struct StepOptions {
    pub seed: u64,
    /// Partitions of a step.
    pub concurrent: u32,
    pub correction: Correction,
    /// The largest norm of a gradient; 0 if there is none.
    pub clip: f64,
}

/// A model, its optimizer, and the exchange of its gradients.
pub(crate) struct Learner {
    pub model: Model,
    pub objective: Objective,
    /// The digest of the weights of classes, if there are any.
    pub class_weights: Option<u64>,
    pub optimizer: Optimizer,
    pub denominator: Denominator,
    pub gradients: GradientExchange,
    /// The learnable embeddings of nodes, if there are any.
    pub embeddings: Option<NodeTables>,
    /// Those of the batch whose gradient is computed.
    pub gathered: Option<BatchEmbeddings>,
    pub options: StepOptions,
    /// Optimizer steps that are finished.
    pub step: u64,
}

impl Learner {
    /// A new model with random parameters, and its optimizer.
    pub fn new(
        model: ModelOptions,
        config: &ResolvedConfig,
        data: &TrainingData,
        processes: &Processes,
    ) -> Result<Self> {
        check_monitor(config.monitor, data, processes)?;
        let model = Model::new(model, config.seed, config.device)?;
        let weights = match data.links() {
            Some(_) => None,
            None => class_weights(&config.class_weights, data, processes)?,
        };
        let on_device = weights.as_deref().map(|weights| Tensor::from_slice(weights).to_device(config.device));
        let (group, parameters) = (processes.group.as_ref(), model.parameters().count());
        let decay = (&config.weight_decay, config.layers);
        Ok(Self {
            optimizer: Optimizer::new(config.optimizer, config.momentum, decay, model.parameters()),
            denominator: Denominator::default(),
            gradients: GradientExchange::new(group, config.compression(), parameters),
            objective: match data.links() {
                Some(links) => {
                    let is_shared = matches!(links.task.negatives, Negatives::Shared(_));
                    let loss = LinkLoss::new(config.loss, config.temperature(), config.negatives(), is_shared);
                    Objective::Links(loss)
                }
                None => {
                    let loss = Loss::of_classes(data.task(), config.label_smoothing);
                    let loss = loss.with_weights(config.focal_gamma(), on_device);
                    Objective::Nodes(loss.with_targets(config.target_loss(), &model))
                }
            },
            class_weights: weights.as_deref().map(digest),
            embeddings: NodeTables::new(&data.graph, config, config.embeddings, &config.folder)?,
            gathered: None,
            model,
            options: StepOptions {
                seed: config.seed,
                concurrent: config.concurrent(),
                correction: config.correction,
                clip: config.clip,
            },
            step: 0,
        })
    }

    /// The loss of a seed.
    ///
    /// # Panics
    /// If the task is link prediction.
    pub fn node_loss(&self) -> &Loss {
        match &self.objective {
            Objective::Nodes(loss) => loss,
            Objective::Links(_) => panic!("links have no loss of nodes"),
        }
    }

    /// Fails if parameters are not finite, before a checkpoint has them. The loss says so one step later.
    pub fn check_parameters(&self, epoch: u64) -> Result<()> {
        let is_finite = self.model.parameters().flat_values().isfinite().all();
        match is_finite.int64_value(&[]) {
            0 => Err(Error::Diverged(format!(
                "parameters are not finite in epoch {}: try a smaller --lr, or --clip 1; checkpoints, if there are any, are intact",
                epoch + 1
            ))),
            _ => Ok(()),
        }
    }

    /// A checkpoint of the model in the given state, with the state of the optimizer if it is to be `whole`.
    ///
    /// # Errors
    /// If the disk has no room for a snapshot of embeddings that memory does not hold.
    pub fn checkpoint(&self, mut state: RunState, whole: bool) -> Result<Checkpoint> {
        let [mean, weight] = self.denominator.parts();
        let is_within_epoch = state.partial.is_some_and(|partial| partial.steps > 0 && !partial.is_trained);
        state.counters.insert(OPTIMIZER_STEPS.into(), self.optimizer.steps());
        state.averages.insert(DENOMINATOR_MEAN.into(), mean);
        state.averages.insert(DENOMINATOR_WEIGHT.into(), weight);
        let parameters = self.model.parameters();
        let [parameters, buffers] = [parameters.named(), parameters.buffers()]
            .map(|tensors| tensors.iter().map(|(name, tensor)| to_named(name, tensor)).collect());
        let moments = self.optimizer.moments().into_iter().filter(|_| whole);
        Ok(Checkpoint {
            state,
            parameters,
            buffers,
            optimizer: moments.map(|(name, tensor)| to_named(name, tensor)).collect(),
            historical: Vec::new(),
            residuals: Vec::new(),
            embeddings: match &self.embeddings {
                Some(tables) => tables.named(whole, is_within_epoch)?,
                None => Vec::new(),
            },
        })
    }

    /// Gives the model the parameters of a checkpoint, which was read from `path`, and the embeddings of nodes.
    pub fn load_model(&mut self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        self.load_parameters(path, checkpoint)?;
        self.embeddings.as_mut().map_or(Ok(()), |tables| tables.load(path, &checkpoint.embeddings))
    }

    /// Gives the model the parameters of a checkpoint, which was read from `path`.
    pub fn load_parameters(&self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        load(path, self.model.parameters().named(), &checkpoint.parameters)?;
        load(path, self.model.parameters().buffers(), &checkpoint.buffers)
    }

    /// Restores the state of a checkpoint, which was read from `path`.
    pub fn restore(&mut self, path: &Path, checkpoint: &Checkpoint, processes: &Processes) -> Result<()> {
        self.load_parameters(path, checkpoint)?;
        let moments = self.optimizer.moments();
        let moments = moments.map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()));
        load(path, &moments, &checkpoint.optimizer)?;
        let parameters = self.model.parameters().count();
        self.gradients.restore(processes, path, checkpoint, parameters)?;
        if let Some(tables) = &mut self.embeddings {
            tables.restore(path, &checkpoint.embeddings)?;
        }
        let state = &checkpoint.state;
        self.optimizer.set_steps(state.counters.get(OPTIMIZER_STEPS).copied().unwrap_or_default());
        let averages = [DENOMINATOR_MEAN, DENOMINATOR_WEIGHT];
        let averages = averages.map(|name| state.averages.get(name).copied().unwrap_or_default());
        self.denominator = Denominator::of_parts(averages);
        self.step = state.step;
        Ok(())
    }

    /// Gives all ranks the parameters of rank 0.
    pub fn share_parameters(&self, group: &ProcessGroup) -> Result<()> {
        let parameters = self.model.parameters();
        for tensors in [parameters.named(), parameters.buffers()] {
            change_flat(tensors, |flat| {
                if !group.is_first() {
                    // The sum over all ranks is then the value of rank 0.
                    let _ = flat.zero_();
                }
                group.all_reduce(flat)
            })?;
        }
        Ok(())
    }

    /// Makes the running statistics of batch norms, which each rank has of its own partitions, the mean over all ranks.
    pub fn average_buffers(&self, processes: &Processes) -> Result<()> {
        let Some(group) = &processes.group else { return Ok(()) };
        change_flat(self.model.parameters().buffers(), |flat| {
            group.all_reduce(flat)?;
            *flat /= f64::from(group.place().ranks);
            Ok(())
        })
    }
}

/// Changes the values of tensors, which `change` gets one after another in the processor's memory.
fn change_flat(tensors: &[(String, Tensor)], change: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    no_grad(|| {
        let flat: Vec<Tensor> = tensors.iter().map(|(_, tensor)| tensor.reshape([-1])).collect();
        let mut flat = Tensor::cat(&flat, 0).to_device(Device::Cpu).contiguous();
        change(&mut flat)?;
        let mut start = 0;
        for (_, tensor) in tensors {
            let count = tensor.numel() as i64;
            let part = flat.narrow(0, start, count).view(&*tensor.size());
            tensor.shallow_clone().copy_(&part);
            start += count;
        }
        Ok(())
    })
}
