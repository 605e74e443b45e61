//! Epochs of a method whose steps take the whole graph: each is one step.

use grappa_io::progress::{Progress, check_stopped};
use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor, PartialEpoch},
    stages::Stage,
};
use tch::Tensor;

use super::{
    exchange::{LossWeights, exchanged_bytes},
    full_graph::open,
    methods::FullTraining,
    named_tensors::to_named,
    random_key::key,
    trainer::Trainer,
};
use crate::{
    Error, Result,
    nn::{Pass, Scaling},
};

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
        let full = self.full.as_mut().expect("it was opened");
        let pass = Pass {
            training: Some(key([self.config.seed, epoch, 0, 0])),
            names: self.config.has_dropout().then(|| full.step.graph.names.clone()),
            scaling: match full.step.graph.paths {
                // The degrees are those in the path.
                Some(_) => Scaling::None,
                None => Scaling::HorvitzThompson,
            },
        };
        let learner = &mut self.learner;
        let what = (&learner.model, learner.node_loss(), self.data.task());
        let all = self.data.splits.of_all()[0];
        // The training nodes of this process.
        let own = match full.step.exchange {
            Some(_) => full.step.graph.seed_nodes.len() as u64,
            None => all,
        };
        let (sums, drawn) = full.add_gradient(what, epoch, (rate, self.config.clip), &pass)?;
        if !sums.loss.is_finite() {
            return Err(Error::Diverged(format!(
                "the loss is not finite in epoch {}: try a smaller --lr, or --clip 1; checkpoints, if there are any, are intact",
                epoch + 1
            )));
        }
        self.clock.enter(Stage::Exchange);
        let seeds = drawn.unwrap_or(all as f64);
        let of_process = drawn.unwrap_or(own as f64);
        let weights = LossWeights { factors: of_process, seeds: of_process };
        let done = epoch as f64 / self.config.epochs as f64;
        let summed = learner.update(weights, seeds, rate, done)?;
        partial.steps = 1;
        partial.seeds += own;
        partial.loss += sums.loss;
        partial.coverage += own as f64;
        partial.right += sums.right.round() as i64;
        partial.sampled_edges += sums.edges;
        let whole = exchanged_bytes(learner.model.parameters().count());
        partial.gradient_bytes += summed.encoded_bytes.unwrap_or(whole);
        partial.bytes_sent += summed.sent_bytes;
        partial.feature_bytes += sums.bytes.features;
        partial.activation_bytes += sums.bytes.activations;
        partial.message_errors = sums.error.map(|error| [error.errors, error.squares]);
        progress.advance(1, sums.edges);
        Ok(())
    }

    /// What the exchange between partitions keeps from epoch to epoch, for a checkpoint.
    pub(super) fn kept_messages(&self) -> Vec<NamedTensor> {
        let kept = self.full.as_ref().map_or_else(Vec::new, FullTraining::kept);
        kept.iter().map(|(name, tensor)| to_named(&format!("{MESSAGES}{name}"), tensor)).collect()
    }

    /// Restores what the exchange kept in a checkpoint.
    pub(super) fn restore_messages(&mut self, checkpoint: &Checkpoint, progress: &dyn Progress) -> Result<()> {
        self.open_full_graph(progress)?;
        let Some(full) = &mut self.full else { return Ok(()) };
        let kept = checkpoint.historical.iter().filter_map(|tensor| {
            let shape: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
            let values = Tensor::from_slice(&tensor.to_f32()?).view(&*shape);
            Some((tensor.name.strip_prefix(MESSAGES)?.to_owned(), values.to_device(self.config.device)))
        });
        full.restore(kept.collect(), self.learner.step);
        Ok(())
    }

    /// Opens the graph, unless it is open. Returns a sentence about it the first time.
    pub(super) fn open_full_graph(&mut self, progress: &dyn Progress) -> Result<Option<String>> {
        if self.full.is_some() {
            return Ok(None);
        }
        let full = open(&self.config, &self.data, &self.processes, &self.learner, &mut self.warnings, progress)?;
        let mut counts = full.step.counts();
        self.processes.sum(&mut counts, progress)?;
        let told = full.step.describe(self.config.method, self.config.partitions(), counts);
        self.full = Some(full);
        Ok(Some(told))
    }
}
