//! One step: the gradient of its batch is computed, exchanged, and applied to the parameters.
//!
//! The minibatches of all partitions of a step are one block-diagonal batch
//! ([`Minibatch::join`](grappa_sampling::sample::Minibatch::join)), so there is one forward and one backward pass. Its gradient
//! is the sum of the gradients of the partitions, which is all that an exchange needs. A node that several partitions reach is in
//! the input once. Its features, and with pre-aggregated features its first layer, are the same in all of them.
//!
//! Only a batch norm tells the difference: its statistics are of all rows of the step.

use grappa_run::{
    model::Task,
    stages::{Stage, StageClock},
};
use tch::{Kind, Tensor};

use super::learner::{Learner, Objective, StepOptions};
use crate::train::random_key::key;
use crate::train::{
    data::training_data::TrainingData,
    embeddings::Owners,
    exchange::{LossWeights, Summed},
    partitions::loaded_batch::{Loaded, TruthTensors},
};
use crate::{
    Error, Result,
    nn::{Pass, Scaling},
    shim::cuda::Arriving,
};

/// A step whose results a GPU may still compute.
pub(crate) struct BegunStep {
    /// The loss, and the seeds whose class was predicted right. If steps overlap, they arrive after the gradient is computed.
    arriving: Arriving,
    coverage: f64,
    /// The loss weights of its seeds.
    pub weights: LossWeights,
    epoch: u64,
    /// Optimizer steps before this one.
    steps_before: u64,
    pub batch: Loaded,
}

/// Sums over the seeds of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSums {
    pub(crate) loss: f64,
    pub(crate) coverage: f64,
    /// Seeds whose class was predicted right.
    pub(crate) right: i64,
}

impl BegunStep {
    /// The results of a step. Waits until a GPU has computed them. `data` has the names of nodes for errors.
    pub fn results(&self, data: &TrainingData) -> Result<BatchSums> {
        let [loss, right] = self.arriving.values();
        match loss.is_finite() {
            true => Ok(BatchSums { loss, coverage: self.coverage, right: right as i64 }),
            false => Err(self.not_finite(data)),
        }
    }

    /// The error for a loss that is not finite. It names the first node of the batch whose features are not finite; if there
    /// is none, training has diverged.
    fn not_finite(&self, data: &TrainingData) -> Error {
        let batch = &self.batch;
        let rows = &batch.tensors.model.rows;
        let destinations = data.shape.relations.iter().map(|relation| relation.destination);
        let matrices = rows.own.iter().enumerate().chain(destinations.zip(&rows.aggregates));
        let node = matrices.into_iter().find_map(|(node_type, rows)| {
            let wrong = rows.isfinite().all_dim(1, false).logical_not().nonzero();
            let index = (wrong.size()[0] > 0).then(|| wrong.int64_value(&[0, 0]) as usize)?;
            let node = batch.batch.minibatches()[node_type].nodes[index];
            Some(data.graph.node_types()[node_type].ids().name(node))
        });
        let remedy = match node {
            Some(node) => format!(
                "the features of {node}, or their aggregate over its in-neighbors, are not finite; ingest without --allow-nan \
                 to get a list of all such nodes"
            ),
            None => "try a smaller --lr, or --clip 1".to_owned(),
        };
        Error::Diverged(format!(
            "the loss is not finite in step {} of epoch {}, after {} steps in all: {remedy}; checkpoints, if there are any, are intact",
            batch.first().step + 1,
            self.epoch + 1,
            self.steps_before
        ))
    }
}

impl Learner {
    /// Adds the gradient of a batch to the gradients of the parameters. A GPU does so while the caller goes on;
    /// [`BegunStep::results`] waits for it. With `overlaps`, the loss need not be known before the gradient is computed.
    pub fn add_gradient(
        &mut self,
        epoch: u64,
        mut batch: Loaded,
        (data, owners): (&TrainingData, &[u32]),
        overlaps: bool,
        clock: &mut StageClock,
    ) -> Result<BegunStep> {
        clock.enter(Stage::Forward);
        batch.arrive();
        if let Some(tables) = &self.embeddings {
            let owners = Owners { of_chunks: owners, parts: &batch.parts };
            let device = batch.tensors.factors.device();
            let gathered = tables.gather(&data.graph, batch.batch.minibatches(), Some(owners), device);
            gathered.append_to(&mut batch.tensors.model.rows.own);
            self.gathered = Some(gathered);
        }
        let (first, tensors) = (batch.first(), &batch.tensors);
        // One pass per step, so the first partition of its group names it, in every process.
        let StepOptions { seed, concurrent, .. } = self.options;
        let group = first.partition.0 / concurrent * concurrent;
        let pass = Pass {
            training: Some(key([seed, epoch, group.into(), first.batch])),
            names: batch.names.clone(),
            scaling: Scaling::HorvitzThompson,
        };
        let logits = self.model.forward(&tensors.model.blocks, tensors.model.input(), &tensors.historical, pass);
        let losses = match (&self.objective, &tensors.truth) {
            (Objective::Nodes(loss), TruthTensors::Labels(labels)) => loss.losses(&logits, labels),
            (Objective::Links(loss), TruthTensors::Pairs(pairs)) => {
                let decoder = self.model.decoder().expect("a model of links has a decoder");
                loss.losses(decoder, &logits, pairs)
            }
            _ => unreachable!("batches are of the run's task"),
        };
        let loss = losses.detach().sum(Kind::Double);
        let right = match (&tensors.truth, data.task()) {
            (TruthTensors::Labels(labels), Task::MultiClass) => {
                logits.argmax(1, false).eq_tensor(labels).sum(Kind::Double)
            }
            _ => loss.zeros_like(),
        };
        let results = Tensor::stack(&[loss, right], 0);
        let weighted = (losses * &tensors.factors).sum(Kind::Float);
        let [coverage, factors] =
            [&batch.coverage, &batch.factors].map(|values| values.iter().copied().map(f64::from).sum::<f64>());
        if overlaps {
            clock.enter(Stage::Backward);
            weighted.backward();
        }
        let begun = BegunStep {
            arriving: Arriving::send(&results),
            coverage,
            weights: LossWeights { factors, seeds: batch.factors.len() as f64 },
            epoch,
            steps_before: self.step,
            batch,
        };
        if !overlaps {
            begun.results(data)?;
            clock.enter(Stage::Backward);
            weighted.backward();
        }
        Ok(begun)
    }

    /// Ends a step: exchanges its gradient, divides and clips it, and updates the parameters. `weights` are the loss weights of
    /// the step's seeds; `seeds` is the mean number of seeds of a step of this epoch; `done` is the part of the run before this step.
    /// Returns what the exchange says, and what the gradient was divided by: embeddings of nodes are updated apart.
    pub fn update(&mut self, weights: LossWeights, seeds: f64, rate: f64, done: f64) -> Result<(Summed, f64)> {
        let parameters = self.model.parameters();
        let summed = self.gradients.sum(&parameters.flat_gradient_with_room(), weights, done)?;
        let StepOptions { correction, clip, .. } = self.options;
        let denominator = self.denominator.of_step(correction, summed.weights, seeds);
        parameters.scale_gradient(1.0 / denominator);
        if clip > 0.0 {
            parameters.clip_gradient(clip);
        }
        self.optimizer.step(&parameters.flat_values(), &parameters.flat_gradient(), rate);
        parameters.zero_gradient();
        self.step += 1;
        Ok((summed, denominator))
    }
}
