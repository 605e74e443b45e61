//! LLCG (Ramezani, Cong, Mahdavi, Kandemir, Sivasubramaniam: "Learn Locally, Correct Globally: A Distributed Algorithm for Training Graph
//! Neural Networks", ICLR 2022, arXiv 2111.08202), with local steps on whole partitions.
//!
//! Each partition trains its own copy of the model for some steps, without the edges to other partitions, and keeps its optimizer. The mean
//! of the copies is the model. It is biased by the missing edges, so a server that has the whole graph corrects it with a step on a random
//! part of the training nodes, all of their neighbors included.
//!
//! ```text
//! epoch: each partition      copy = model;  `local-steps` steps on the nodes and edges of the partition
//!        server              model = mean of the copies;  a step on 1/K of the training nodes and the whole graph
//! ```
//!
//! Copies go to the server and the model comes back: the bytes of one all-reduce. The server needs all features, once.

use grappa_formats::permutation::Feistel;
use grappa_trainer::{
    Result,
    nn::Pass,
    train::{FullGraphInputs, FullGraphStep, FullGraphSums, Optimizer, key},
};
use tch::{Tensor, no_grad};

use super::{exchange::ExchangeState, step::FullStep};

/// The partitions while they train apart from each other.
pub(crate) struct LocalParts {
    parts: Vec<TrainedPart>,
    steps: u64,
    seed: u64,
    /// The largest norm of a gradient; 0 if there is none.
    clip: f64,
}

/// A partition with training nodes.
struct TrainedPart {
    step: FullStep,
    optimizer: Optimizer,
}

impl LocalParts {
    /// `parts` are the partitions, each with its own nodes and edges.
    pub(crate) fn new(inputs: &FullGraphInputs<'_>, parts: Vec<FullStep>, steps: u64) -> Self {
        let with_seeds = parts.into_iter().filter(|part| !part.graph.seed_nodes.is_empty());
        let config = inputs.config;
        let decay = (&config.weight_decay, config.layers);
        Self {
            parts: with_seeds
                .map(|step| TrainedPart {
                    step,
                    optimizer: Optimizer::new(config.optimizer, config.momentum, decay, inputs.model.parameters()),
                })
                .collect(),
            steps,
            seed: config.seed,
            clip: config.clip,
        }
    }

    /// Trains a copy of the model in each partition, and makes the model their mean. Returns the results of their last steps.
    pub(crate) fn round(&mut self, whole: &FullGraphStep<'_>, pass: &Pass) -> Result<FullGraphSums> {
        let parameters = whole.model.parameters();
        let values = parameters.flat_values();
        let start = values.copy();
        let mut mean = values.zeros_like();
        let mut sums = FullGraphSums::default();
        let share = 1.0 / self.parts.len().max(1) as f64;
        for (number, part) in (0..).zip(&mut self.parts) {
            no_grad(|| values.shallow_clone().copy_(&start));
            let seeds = part.step.graph.seed_nodes.len() as f64;
            for step in 1..=self.steps {
                let pass = Pass {
                    training: Some(key([self.seed, whole.epoch, number, step])),
                    names: pass.names.is_some().then(|| part.step.graph.names.clone()),
                    ..pass.clone()
                };
                let step_sums = part.step.add_gradient(whole, &pass)?;
                parameters.scale_gradient(1.0 / seeds);
                if self.clip > 0.0 {
                    parameters.clip_gradient(self.clip);
                }
                part.optimizer.step(&values, &parameters.flat_gradient(), whole.rate);
                parameters.zero_gradient();
                sums.edges += step_sums.edges;
                if step == self.steps {
                    sums.loss += step_sums.loss;
                    sums.right += step_sums.right;
                }
            }
            no_grad(|| mean += &values * share);
        }
        no_grad(|| values.shallow_clone().copy_(&mean));
        Ok(sums)
    }

    /// Makes the seeds of a step on the whole graph a random part of them, as large as a partition has on average. Returns their number.
    pub(crate) fn draw_seeds(&self, whole: &mut FullStep, epoch: u64) -> u64 {
        let seeds = whole.graph.seed_nodes.len() as u64;
        let mut drawn: Vec<u64> = (0..seeds.div_ceil(self.parts.len().max(1) as u64)).collect();
        Feistel::new(seeds, key([self.seed, 0x6c_6c_63_67, epoch])).forward_all(&mut drawn);
        let mut factors = vec![0f32; seeds as usize];
        drawn.iter().for_each(|&seed| factors[seed as usize] = 1.0);
        whole.factors = Tensor::from_slice(&factors).to_device(whole.factors.device());
        drawn.len() as u64
    }

    /// Bytes of the features that the server needs in an epoch.
    pub(crate) fn feature_bytes(whole: &FullStep, epoch: u64) -> u64 {
        if epoch == 0 { super::exchange::bytes_of(&whole.features) } else { 0 }
    }

    /// The optimizers, for a checkpoint.
    pub(crate) fn state(&self) -> ExchangeState {
        let parts = (0..).zip(&self.parts);
        parts.flat_map(|(number, part)| named_moments(number, &part.optimizer)).collect()
    }

    /// Continues after `rounds` rounds.
    pub(crate) fn restore(&mut self, state: &ExchangeState, rounds: u64) {
        for (number, part) in (0..).zip(&mut self.parts) {
            for (name, moment) in named_moments(number, &part.optimizer) {
                if let Some((_, value)) = state.iter().find(|(found, _)| *found == name) {
                    no_grad(|| moment.shallow_clone().copy_(value));
                }
            }
            part.optimizer.set_steps(rounds * self.steps);
        }
    }
}

/// The moments of a partition's optimizer: the tensors themselves.
fn named_moments(number: u32, optimizer: &Optimizer) -> ExchangeState {
    let moments = optimizer.moments();
    moments.into_iter().map(|(name, moment)| (format!("optimizer.{number}.{name}"), moment.shallow_clone())).collect()
}
