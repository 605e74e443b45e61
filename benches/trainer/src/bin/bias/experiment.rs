//! Gradients of the same seeds at the same parameters, exact and in partitions.

use std::{fmt, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use grappa_engine::aggregate::{Budget, Mean, NodeRows, StateRows, StoreFeatures, WholeGraph};
use grappa_formats::{NodeId, PartitionId, manifest::FeatureDtype};
use grappa_io::{map::Access, progress::Silent, read::Choice};
use grappa_run::{
    config::{Auto, TrainConfig},
    model::Task,
};
use grappa_sampling::{
    partition::{Owned, Schedule, assignment, chunk_sizes},
    sample::{BatchKey, Fanouts, Minibatch, Sampler, Scratch},
    view::{Halo, PartitionView, ViewOptions},
};
use grappa_storage::{MappedChunks, Store};
use grappa_trainer::{
    nn::{Block, HistoricalEmbeddings, Input, Pass, losses},
    runtime,
    train::{
        Trainer,
        correction::coverage,
        historical::{HistoricalNodes, HistoricalRows, Keep},
        inference::{Degrees, Inference},
    },
};
use tch::{Device, Kind, Tensor, no_grad};
use tempfile::TempDir;

use crate::forms::{Form, Sums};

/// Memory for views and for inference. The graphs of this experiment are small.
const MEMORY_BYTES: u64 = 4 << 30;
/// Seeds per gradient computation, where the result does not depend on it.
const SEEDS_AT_ONCE: usize = 512;

/// Settings of the experiment.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub layers: usize,
    pub hidden: usize,
    pub partitions: u32,
    pub schedule: Schedule,
    pub seeds: usize,
    pub epochs: u64,
    pub repartitions: u64,
    pub threads: usize,
}

/// The information that a partition has about halo nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    pub halo: Halo,
    /// From the exact inference one epoch before. The seed of the neighbors is that of the repartitioning.
    pub historical: Keep,
    pub preaggregated: bool,
    /// Its name in grappa-train.
    pub name: &'static str,
}

/// The result of a form.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub bias: f64,
    pub variance: f64,
    pub cosine: f64,
    pub coverage: f64,
}

/// A graph and a model at fixed parameters.
pub struct Experiment {
    store: Arc<Store>,
    setup: Setup,
    trainer: Trainer,
    /// Features `[nodes, values]`, and their means over all in-neighbors.
    features: Tensor,
    neighbors: Tensor,
    labels: Tensor,
    seeds: Vec<NodeId>,
    train_nodes: u64,
    degrees: Degrees,
    aggregates: HistoricalRows,
    /// One per repartitioning.
    neighbors_kept: Vec<HistoricalRows>,
    exact: Tensor,
    _scratch: TempDir,
}

impl Experiment {
    /// Trains the model and computes the exact gradient.
    pub fn new(path: &Path, setup: Setup) -> Result<Self> {
        let store = Arc::new(Store::open(path)?);
        runtime::set_threads(setup.threads);
        let train = store.split("train")?.context("the store has no nodes to train on")?;
        let seeds: Vec<NodeId> = train.iter().take(setup.seeds).map(NodeId).collect();
        let budget = Budget {
            memory: MEMORY_BYTES,
            threads: setup.threads,
        };
        let features = StoreFeatures::open(&store)?;
        let (nodes, dim) = (store.manifest().nodes, features.width());
        let mut rows = vec![0.0; nodes as usize * dim];
        features.read(0..nodes, &mut rows)?;
        let scratch = tempfile::tempdir()?;
        let mut mean_rows = StateRows::new(nodes, dim)?;
        let mut means = Vec::with_capacity(rows.len());
        let reduce = Mean { width: dim };
        let graph = WholeGraph {
            store: &store,
            rows: &features,
            budget,
            scratch: None,
        };
        graph.run(&reduce, 0, &Silent, &mut |nodes, values| {
            means.extend_from_slice(values);
            mean_rows.write(nodes.start, values)
        })?;
        let shape = [nodes as i64, dim as i64];
        let labels = labels(&store)?;

        let config = TrainConfig {
            layers: setup.layers,
            hidden: setup.hidden,
            dropout: 0.0,
            epochs: setup.epochs,
            threads: Auto::Value(setup.threads.try_into()?),
            ..TrainConfig::default()
        };
        let mut trainer = Trainer::new(
            store.clone(),
            config.clone(),
            None,
            Device::Cpu,
            scratch.path().to_owned(),
        )?;
        let chunks = Arc::new(MappedChunks::open(&store)?);
        let (mut known, mut neighbors_kept) = (None, Vec::new());
        for epoch in 0..setup.epochs {
            if epoch + 1 == setup.epochs {
                // The historical embeddings of a refresh now.
                let inference = Inference {
                    store: &store,
                    chunks: &chunks,
                    features: &features,
                    first_hop: Some(&mean_rows),
                    first_inputs: None,
                    budget,
                    kept_memory: 0,
                    scratch: scratch.path(),
                    rounded_states: FeatureDtype::F32,
                    device: Device::Cpu,
                };
                let infer = |keep| -> Result<HistoricalRows> {
                    let nodes = HistoricalNodes::all(&chunks, setup.layers, keep, setup.threads, &Silent)?;
                    let needed = nodes.needed(&chunks, true, f64::INFINITY, setup.threads, &Silent)?;
                    let needed = needed.expect("there is no limit");
                    Ok(inference.historical(trainer.model(), &nodes, &needed, None, &Silent)?)
                };
                known = Some(infer(Keep::Aggregates)?);
                for seed in 0..setup.repartitions {
                    neighbors_kept.push(infer(Keep::Neighbors { seed })?);
                }
            }
            trainer.epoch(epoch, &|_, _| config.lr, &Silent)?;
        }
        let mut experiment = Self {
            features: Tensor::from_slice(&rows).view(shape),
            neighbors: Tensor::from_slice(&means).view(shape),
            labels,
            train_nodes: train.len(),
            degrees: Degrees::new(chunks),
            aggregates: known.expect("there is an epoch"),
            neighbors_kept,
            exact: Tensor::new(),
            setup,
            trainer,
            seeds,
            _scratch: scratch,
            store,
        };
        experiment.exact = experiment.exact()?;
        Ok(experiment)
    }

    pub fn seeds(&self) -> usize {
        self.seeds.len()
    }

    pub fn train_nodes(&self) -> u64 {
        self.train_nodes
    }

    /// The gradient of the mean loss, every seed with all of its neighbors.
    fn exact(&self) -> Result<Tensor> {
        let mode = Mode {
            halo: Halo::Stop,
            historical: Keep::Nothing,
            preaggregated: false,
            name: "whole",
        };
        let view = self.view(Owned::whole(&self.store), mode)?;
        let mut sum = self.trainer.model().parameters().flat_values().zeros_like();
        for seeds in self.seeds.chunks(SEEDS_AT_ONCE) {
            let minibatch = self.minibatch(&view, seeds, mode)?;
            let ones = vec![1.0; seeds.len()];
            let [gradient] = self.gradients(&minibatch, mode, None, &[ones])?;
            sum += gradient;
        }
        Ok(sum / self.seeds.len() as f64)
    }

    /// The result of each of [`Form::ALL`] over all repartitionings.
    pub fn run(&self, mode: Mode) -> Result<Vec<Seen>> {
        let repartitions = self.setup.repartitions;
        let mut gradients: Vec<Vec<Tensor>> = Form::ALL.iter().map(|_| Vec::new()).collect();
        let mut covered = 0.0;
        for number in 0..repartitions {
            let (sums, coverage) = self.repartition(mode, number)?;
            covered += coverage / repartitions as f64;
            for (form, gradients) in Form::ALL.iter().zip(&mut gradients) {
                gradients.push(form.gradient(&sums));
            }
        }
        Ok(gradients
            .iter()
            .map(|gradients| Seen {
                coverage: covered,
                ..compare(gradients, &self.exact)
            })
            .collect())
    }

    /// The sums of each partition, and the mean coverage of seeds.
    fn repartition(&self, mode: Mode, number: u64) -> Result<(Vec<Sums>, f64)> {
        let sizes = chunk_sizes(self.store.manifest());
        // Each repartitioning has its own seed, because a sweep has few different partitions.
        let made = assignment(self.setup.schedule, &sizes, self.setup.partitions, number, number, 1)?;
        let mut parts = Vec::new();
        for partition in 0..self.setup.partitions {
            let owned = Owned::of(&made, &self.store, PartitionId(partition));
            let seeds: Vec<NodeId> = self
                .seeds
                .iter()
                .copied()
                .filter(|&seed| is_base(&owned, &self.store, seed))
                .collect();
            if !seeds.is_empty() {
                let minibatch = self.minibatch(&self.view(owned, mode)?, &seeds, mode)?;
                parts.push((coverage(&minibatch), minibatch));
            }
        }
        let mut strata = Strata::new();
        for (coverage, minibatch) in &parts {
            strata.add(coverage, minibatch);
        }
        let kept = match mode.historical {
            Keep::Nothing => None,
            Keep::Aggregates => Some(&self.aggregates),
            Keep::Neighbors { .. } => Some(&self.neighbors_kept[number as usize]),
        };
        let sums = parts
            .iter()
            .map(|(coverage, minibatch)| {
                let weights = Sums::weights(coverage, &strata.of(minibatch));
                Ok(Sums {
                    gradients: self.gradients(minibatch, mode, kept, &weights)?,
                    weights: weights.map(|weights| weights.iter().map(|&weight| f64::from(weight)).sum()),
                })
            })
            .collect::<Result<_>>()?;
        let covered: f64 = parts
            .iter()
            .flat_map(|(coverage, _)| coverage)
            .map(|&c| f64::from(c))
            .sum();
        Ok((sums, covered / self.seeds.len() as f64))
    }

    fn view(&self, owned: Owned, mode: Mode) -> Result<PartitionView> {
        let options = ViewOptions {
            halo: mode.halo,
            halo_lists: None,
            edge_weights: false,
            mapped_bytes_max: None,
            threads: self.setup.threads,
            engine: Choice::Auto,
        };
        Ok(PartitionView::open(&self.store, owned, &options)?)
    }

    /// All neighbors of all seeds that the view has.
    fn minibatch(&self, view: &PartitionView, seeds: &[NodeId], mode: Mode) -> Result<Minibatch> {
        let hops = self.setup.layers - usize::from(mode.preaggregated);
        let sampler = Sampler::uniform(Fanouts::new(&vec![-1; hops])?, false);
        let key = BatchKey {
            seed: 0,
            epoch: 0,
            partition: PartitionId(0),
            batch: 0,
        };
        let mut minibatch = Minibatch::default();
        sampler.sample(view, seeds, key, &mut Scratch::default(), &mut minibatch)?;
        Ok(minibatch)
    }

    /// The gradients of the sum of losses, for several loss weights.
    fn gradients<const N: usize>(
        &self,
        minibatch: &Minibatch,
        mode: Mode,
        kept: Option<&HistoricalRows>,
        weights: &[Vec<f32>; N],
    ) -> Result<[Tensor; N]> {
        let model = self.trainer.model();
        let ids: Vec<i64> = minibatch.nodes.iter().map(|node| node.0 as i64).collect();
        let ids = Tensor::from_slice(&ids);
        let own = self.features.index_select(0, &ids);
        let neighbors = mode.preaggregated.then(|| self.neighbors.index_select(0, &ids));
        let input = match &neighbors {
            None => Input::Features(&own),
            Some(neighbors) => Input::Aggregated {
                own: &own,
                neighbors,
                degrees: None,
            },
        };
        let blocks = Block::of_minibatch(minibatch, None, Device::Cpu);
        let historical = match kept {
            Some(kept) => self.historical(kept, minibatch)?,
            None => Vec::new(),
        };
        let logits = model.forward(&blocks, input, &historical, Pass::default());
        let wanted = self.labels.index_select(0, &ids.narrow(0, 0, minibatch.seeds as i64));
        let losses = losses(Task::MultiClass, &logits, &wanted, 0.0);
        let parameters: Vec<&Tensor> = model.parameters().named().iter().map(|(_, tensor)| tensor).collect();
        let gradients = weights.each_ref().map(|weights| {
            let loss = (&losses * Tensor::from_slice(weights)).sum(Kind::Float);
            let gradients = Tensor::run_backward(&[loss], &parameters, true, false);
            Tensor::cat(&gradients.iter().map(Tensor::flatten_all).collect::<Vec<_>>(), 0)
        });
        Ok(gradients)
    }

    /// The historical embeddings of the halo nodes of each block.
    fn historical(&self, kept: &HistoricalRows, minibatch: &Minibatch) -> Result<Vec<Option<HistoricalEmbeddings>>> {
        let known = |(hop, block): (usize, &grappa_sampling::sample::Block)| {
            let layer = self.setup.layers - 1 - hop;
            let mut halo = Vec::new();
            for at in (0..block.destinations).filter(|&at| block.halo[at]) {
                if self.degrees.of(minibatch.destination(at))? > 0 {
                    halo.push(at as i64);
                }
            }
            if layer == 0 || halo.is_empty() {
                return Ok(None);
            }
            let nodes: Vec<NodeId> = halo.iter().map(|&at| minibatch.destination(at as usize)).collect();
            Ok(Some(kept.of(layer, &nodes, &halo, &self.degrees, Device::Cpu)?))
        };
        minibatch.blocks.iter().enumerate().map(known).collect()
    }
}

trait FlattenAll {
    /// All values as one vector.
    fn flatten_all(&self) -> Tensor;
}

impl FlattenAll for Tensor {
    fn flatten_all(&self) -> Tensor {
        self.reshape([-1])
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first_hop = if self.preaggregated { "preaggregated" } else { "sampled" };
        write!(f, "{}, {first_hop}", self.name)
    }
}

/// Mean coverage by range of degrees: 0, 1, 2 to 3, 4 to 7, ...
struct Strata {
    sums: [f64; Self::COUNT],
    counts: [f64; Self::COUNT],
}

impl Strata {
    const COUNT: usize = u64::BITS as usize + 1;

    fn new() -> Self {
        Self {
            sums: [0.0; Self::COUNT],
            counts: [0.0; Self::COUNT],
        }
    }

    fn add(&mut self, coverage: &[f32], minibatch: &Minibatch) {
        for (seed, &c) in coverage.iter().enumerate() {
            let stratum = Self::stratum(minibatch, seed);
            self.sums[stratum] += f64::from(c);
            self.counts[stratum] += 1.0;
        }
    }

    /// The mean in the stratum of each seed.
    fn of(&self, minibatch: &Minibatch) -> Vec<f64> {
        (0..minibatch.seeds)
            .map(|seed| {
                let stratum = Self::stratum(minibatch, seed);
                self.sums[stratum] / self.counts[stratum]
            })
            .collect()
    }

    fn stratum(minibatch: &Minibatch, seed: usize) -> usize {
        (u64::BITS - minibatch.blocks[0].global[seed].leading_zeros()) as usize
    }
}

/// Whether a seed is in the base of a partition, so that no other partition has it as a seed.
fn is_base(owned: &Owned, store: &Store, seed: NodeId) -> bool {
    owned.base().contains(&store.chunks().chunk_of(seed))
}

/// Bias, variance and cosine of gradients.
fn compare(gradients: &[Tensor], exact: &Tensor) -> Seen {
    no_grad(|| {
        let square = |tensor: &Tensor| tensor.square().sum(Kind::Double).double_value(&[]);
        let count = gradients.len() as f64;
        let mean = Tensor::stack(gradients, 0).mean_dim(0, false, Kind::Float);
        let scale = square(exact);
        let spread: f64 = gradients.iter().map(|gradient| square(&(gradient - &mean))).sum();
        let variance = spread / (count - 1.0) / scale;
        let off = square(&(&mean - exact)) / scale;
        let dot = (&mean * exact).sum(Kind::Double).double_value(&[]);
        Seen {
            bias: (off - variance / count).max(0.0).sqrt(),
            variance,
            cosine: dot / (square(&mean) * scale).sqrt(),
            coverage: 0.0,
        }
    })
}

/// The class of each node, -1 for none.
fn labels(store: &Store) -> Result<Tensor> {
    let mut all = Vec::new();
    for id in store.present_chunks() {
        let mapped = store
            .labels(id, Access::Sequential)?
            .context("the store has no labels")?;
        let labels = mapped.labels();
        let range = store.chunks().range(id);
        for row in 0..range.end - range.start {
            all.push(labels.single(row)?.map_or(-1, i64::from));
        }
    }
    ensure!(
        all.len() as u64 == store.manifest().nodes,
        "the store is a slice of its graph"
    );
    Ok(Tensor::from_slice(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_is_of_the_mean_and_chance_is_taken_away() {
        let exact = Tensor::from_slice(&[1.0f32, 0.0]);
        let seen = compare(
            &[Tensor::from_slice(&[1.0f32, 1.0]), Tensor::from_slice(&[1.0f32, -1.0])],
            &exact,
        );
        assert_eq!((seen.bias, seen.variance, seen.cosine), (0.0, 2.0, 1.0));
        let seen = compare(
            &[Tensor::from_slice(&[2.0f32, 0.0]), Tensor::from_slice(&[2.0f32, 0.0])],
            &exact,
        );
        assert_eq!((seen.bias, seen.variance, seen.cosine), (1.0, 0.0, 1.0));
    }
}
