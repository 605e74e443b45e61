//! One step: the gradients of its batches are added up, exchanged, and applied to the parameters.

use std::time::Instant;

use grappa_run::{checkpoint::PartialEpoch, model::Task};
use tch::Kind;

use super::{Trainer, exchange::LossWeights, key, load::Loaded};
use crate::{
    Error, Result,
    nn::{Input, Pass, Scaling, losses},
};

/// The gradient of the step in progress. Its values are in the model's parameters, to which backward passes add.
#[derive(Debug, Default)]
pub(super) struct StepGradient {
    /// The number of the step in its epoch; none before the first batch.
    pub(super) number: Option<u64>,
    /// The loss weights of the seeds so far.
    pub(super) weights: LossWeights,
    /// Mean number of seeds of a step of this epoch.
    pub(super) seeds: f64,
}

/// Metrics of a batch, summed over its seeds.
pub(super) struct BatchSums {
    pub(super) loss: f64,
    pub(super) coverage: f64,
    /// Seeds whose class was predicted right.
    pub(super) right: i64,
}

impl Trainer {
    /// Adds the gradient of a batch to that of its step.
    ///
    /// # Errors
    /// If the loss is not finite.
    pub(super) fn contribute(
        &self,
        epoch: u64,
        mut batch: Loaded,
        step: &mut StepGradient,
        partial: &mut PartialEpoch,
    ) -> Result<BatchSums> {
        let begin = Instant::now();
        batch.arrive();
        let (place, tensors) = (batch.place, &batch.tensors);
        let input = match &tensors.rows[..] {
            [own, neighbours] => Input::Aggregated {
                own,
                neighbours,
                degrees: tensors.degrees.as_ref(),
            },
            rows => Input::Features(&rows[0]),
        };
        let pass = Pass {
            training: Some(key([self.config.seed, epoch, place.partition.0.into(), place.batch])),
            scaling: Scaling::HorvitzThompson,
        };
        let logits = self.model.forward(&tensors.blocks, input, &tensors.historical, pass);
        let labels = &tensors.labels;
        let losses = losses(self.labels.task(), &logits, labels);
        let loss = losses.sum(Kind::Double).double_value(&[]);
        if !loss.is_finite() {
            return Err(self.not_finite(epoch, &batch));
        }
        partial.seconds_by_stage.forward += begin.elapsed().as_secs_f64();

        let begin = Instant::now();
        let weighted = losses * &tensors.factors;
        weighted.sum(Kind::Float).backward();
        partial.seconds_by_stage.backward += begin.elapsed().as_secs_f64();

        step.weights.factors += batch.factors.iter().map(|&factor| f64::from(factor)).sum::<f64>();
        step.weights.seeds += batch.factors.len() as f64;
        partial.bytes_sent += 4 * self.model.parameters().count() as u64 + LossWeights::BYTES;
        let right = match self.labels.task() {
            Task::MultiClass => logits
                .argmax(1, false)
                .eq_tensor(labels)
                .sum(Kind::Int64)
                .int64_value(&[]),
            Task::MultiLabel => 0,
        };
        Ok(BatchSums {
            loss,
            coverage: batch.coverage.iter().map(|&c| f64::from(c)).sum(),
            right,
        })
    }

    /// The error for a loss that is not finite. It names the first node of the batch whose features are not finite; if there
    /// is none, training has diverged.
    fn not_finite(&self, epoch: u64, batch: &Loaded) -> Error {
        let node = batch.tensors.rows.iter().find_map(|rows| {
            let wrong = rows.isfinite().all_dim(1, false).logical_not().nonzero();
            let index = (wrong.size()[0] > 0).then(|| wrong.int64_value(&[0, 0]) as usize)?;
            Some(self.store.ids().name(batch.batch.minibatch().nodes[index]))
        });
        let remedy = match node {
            Some(node) => format!(
                "the features of {node}, or their aggregate over its in-neighbours, are not finite; ingest without --allow-nan \
                 to get a list of all such nodes"
            ),
            None => "try a smaller --lr, or --clip 1".to_owned(),
        };
        Error::Options(format!(
            "the loss is not finite in step {} of epoch {}, after {} steps in all: {remedy}; the last checkpoint is intact",
            batch.place.step + 1,
            epoch + 1,
            self.step
        ))
    }

    /// Ends a step: exchanges its gradient, divides and clips it, and updates the parameters.
    pub(super) fn finish(&mut self, step: &mut StepGradient, rate: f64, partial: &mut PartialEpoch) -> Result<()> {
        let begin = Instant::now();
        let parameters = self.model.parameters();
        let mut gradient = parameters.flat_gradient();
        let weights = self.exchange.sum(&mut gradient, step.weights)?;
        gradient *= 1.0 / self.denominator.of_step(self.config.correction, weights, step.seeds);
        if self.config.clip > 0.0 {
            let norm = gradient.norm().double_value(&[]);
            if norm > self.config.clip {
                gradient *= self.config.clip / norm;
            }
        }
        self.optimizer.step(&parameters.flat_values(), &gradient, rate);
        parameters.zero_gradient();
        *step = StepGradient::default();
        self.step += 1;
        partial.seconds_by_stage.exchange += begin.elapsed().as_secs_f64();
        Ok(())
    }
}
