//! Epochs of a method whose steps take the whole graph: each is one step.

use grappa_io::progress::{Progress, check_stopped};
use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor, PartialEpoch},
    stages::Stage,
};
use tch::Tensor;

use super::{
    exchange::{LossWeights, exchanged_bytes},
    partitions::open_partitions::assign,
    step::full_graph::{FullGraphInputs, FullGraphStep},
    tensors::to_named,
    trainer::Trainer,
};
use crate::{Error, Result};

/// Prefix of the names of [`Checkpoint::historical`].
const MESSAGES: &str = "messages.";

impl Trainer {
    /// Takes the one step of an epoch.
    pub(super) fn full_graph_step(
        &mut self,
        epoch: u64,
        partial: &mut PartialEpoch,
        rate: f64,
        progress: &dyn Progress,
    ) -> Result<()> {
        check_stopped(progress)?;
        self.open_full_graph(progress)?;
        progress.steps("training", 1);
        self.clock.enter(Stage::Forward);
        let (method, learner) = (self.method.as_mut().expect("it was opened"), &mut self.learner);
        let (model, loss, task) = (&learner.model, learner.node_loss(), self.data.task());
        let sums = method.add_gradient(&FullGraphStep { epoch, rate, model, loss, task })?;
        if !sums.loss.is_finite() {
            return Err(Error::Diverged(format!(
                "the loss is not finite in epoch {}: try a smaller --lr, or --clip 1; checkpoints, if there are any, are intact",
                epoch + 1
            )));
        }
        self.clock.enter(Stage::Exchange);
        let seeds = sums.drawn.unwrap_or(self.data.splits.of_all()[0]) as f64;
        let own_nodes = sums.drawn.unwrap_or(sums.nodes) as f64;
        let weights = LossWeights { factors: own_nodes, seeds: own_nodes };
        let done = epoch as f64 / self.config.epochs as f64;
        let (summed, _) = learner.update(weights, seeds, rate, done)?;
        partial.steps = 1;
        partial.seeds += sums.nodes;
        partial.loss += sums.loss;
        partial.coverage += sums.nodes as f64;
        partial.right += sums.right.round() as i64;
        partial.sampled_edges += sums.edges;
        let whole = exchanged_bytes(learner.model.parameters().count());
        partial.gradient_bytes += summed.encoded_bytes.unwrap_or(whole);
        partial.bytes_sent += summed.sent_bytes;
        partial.feature_bytes += sums.feature_bytes;
        partial.activation_bytes += sums.activation_bytes;
        partial.message_errors = sums.message_errors;
        progress.advance(1, sums.edges);
        Ok(())
    }

    /// What the exchange between partitions keeps from epoch to epoch, for a checkpoint.
    pub(super) fn kept_messages(&self) -> Vec<NamedTensor> {
        let state = self.method.as_ref().map_or_else(Vec::new, |method| method.state());
        state.iter().map(|(name, tensor)| to_named(&format!("{MESSAGES}{name}"), tensor)).collect()
    }

    /// Restores what the exchange kept in a checkpoint.
    pub(super) fn restore_messages(&mut self, checkpoint: &Checkpoint, progress: &dyn Progress) -> Result<()> {
        self.open_full_graph(progress)?;
        let Some(method) = &mut self.method else { return Ok(()) };
        let state = checkpoint.historical.iter().filter_map(|tensor| {
            let shape: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
            let values = Tensor::from_slice(&tensor.to_f32()?).view(&*shape);
            Some((tensor.name.strip_prefix(MESSAGES)?.to_owned(), values.to_device(self.config.device)))
        });
        method.restore(state.collect(), self.learner.step);
        Ok(())
    }

    /// Divides the graph, unless it is divided. Returns a sentence about it the first time.
    pub(super) fn open_full_graph(&mut self, progress: &dyn Progress) -> Result<Option<String>> {
        let Some(method) = self.method.as_mut().filter(|method| !method.is_open()) else { return Ok(None) };
        let (config, data, processes) = (&self.config, &self.data, &self.processes);
        let assignment = assign(config, &data.graph, processes, 0, &mut self.warnings)?;
        let inputs = FullGraphInputs {
            config,
            store: &data.store,
            chunks: data.chunks(),
            train: data.splits.train(),
            assignment: &assignment,
            ranks: processes.of_partitions(config.partitions()),
            group: processes.group.as_ref(),
            device: config.device,
            model: &self.learner.model,
            data,
        };
        method.open(&inputs, progress).map(Some)
    }
}
