//! The historical embeddings of halo nodes: rows that exact inference leaves for the following steps.
//!
//! For each node and each layer between the first and the last, exact inference saves the aggregate of its in-neighbours' states.
//! The first layer's aggregates are pre-aggregated or sampled, and the last layer's are those of seeds, which are not halo nodes.
//!
//! With [`Keep::Neighbours`] it also samples one in-neighbour per node. It saves the difference between the aggregate and the
//! contribution of this neighbour, and the inputs for recomputing the contribution ([`Neighbour`]). With L layers the rows are
//!
//! ```text
//! inputs       features, aggregates, degree: of the neighbour, of its neighbour, ...    L - 2 times
//! layer 1      difference: of the node, of its neighbour, of that one's neighbour, ...  L - 2 times
//! layer 2      the same                                                                 L - 3 times
//! ..
//! layer L - 2  difference of the node                                                   once
//! ```
//!
//! Each has one row of bf16 per node. It is in memory if training leaves room there, and else in an unnamed file. Differences are
//! taken to the contribution of the *rounded* inputs, so the rounding of inputs costs nothing; that of a difference is at most 1/256
//! of it.

use grappa_engine::aggregate::{NodeRows, StateRows};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_run::config::HaloMode;
use grappa_sampling::sample;
use tch::{Device, Kind, Tensor};

use super::{Trainer, inference::Degrees, key};
use crate::{
    Result,
    nn::{HistoricalEmbeddings, Neighbour},
    runtime::send,
};

/// The type of the saved values.
pub(super) const KEPT_AS: FeatureDtype = FeatureDtype::Bf16;

/// What an exact inference saves for the following steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The aggregates of the layers between the first and the last.
    Aggregates,
    /// The differences to the contribution of one in-neighbour per node, and the inputs of this neighbour.
    Neighbours {
        /// Seed of the sampled neighbours.
        seed: u64,
    },
}

/// Historical embeddings, and what they were made of.
#[derive(Debug, Default)]
pub struct HistoricalRows {
    /// For layer 1, 2, ...: aggregates or differences of each node, of its neighbour, ...
    pub(super) layers: Vec<Vec<StateRows>>,
    /// Inputs of each node's neighbour, of that one's neighbour, ...; empty without neighbours.
    pub(super) inputs: Vec<StateRows>,
}

impl HistoricalRows {
    /// The historical embeddings of `nodes` at a layer between the first and the last. `destinations` are the places of the nodes
    /// among the destinations of a block.
    ///
    /// # Errors
    /// If files cannot be read.
    pub fn of(
        &self,
        layer: usize,
        nodes: &[NodeId],
        destinations: &[i64],
        degrees: &Degrees,
        device: Device,
    ) -> Result<HistoricalEmbeddings> {
        let degrees = nodes.iter().map(|&node| Ok(degrees.of(node)? as f32));
        let degrees = degrees.collect::<Result<Vec<f32>>>()?;
        let read = |rows: &StateRows| Ok(send(rows_of(rows, nodes)?, device));
        Ok(HistoricalEmbeddings {
            destinations: send(Tensor::from_slice(destinations), device),
            rows: read(&self.layers[layer - 1][0])?,
            neighbour: match self.inputs.is_empty() {
                true => None,
                false => Some(self.neighbour(layer, send(as_kept(&degrees), device), read)?),
            },
        })
    }

    fn read_ahead(&self, layer: usize, nodes: &[NodeId]) {
        let below = self.layers[..layer - 1].iter().enumerate();
        let differences = below.flat_map(|(below, of)| of.get(1..layer - below).into_iter().flatten());
        let inputs = self.inputs.iter().take(layer);
        let all = inputs.chain(differences).chain(&self.layers[layer - 1][..1]);
        all.for_each(|rows| rows.read_ahead(nodes.iter().map(|node| node.0)));
    }

    /// The inputs of neighbours at a layer, read with `read`. `degrees` are the in-degrees of the nodes, rounded by [`as_kept`].
    pub(super) fn neighbour(
        &self,
        layer: usize,
        degrees: Tensor,
        read: impl Fn(&StateRows) -> Result<Tensor>,
    ) -> Result<Neighbour> {
        let below = self.layers[..layer - 1].iter().enumerate();
        let differences = below.map(|(below, of)| of[1..layer - below].iter().map(&read).collect());
        Ok(Neighbour {
            degrees,
            inputs: self.inputs[..layer].iter().map(&read).collect::<Result<_>>()?,
            differences: differences.collect::<Result<_>>()?,
            spread: None,
        })
    }
}

/// In-degrees, rounded like those that are kept.
pub(super) fn as_kept(degrees: &[f32]) -> Tensor {
    Tensor::from_slice(degrees).to_kind(Kind::BFloat16).to_kind(Kind::Float)
}

fn nodes_of(minibatch: &sample::Minibatch, places: &[i64]) -> Vec<NodeId> {
    places.iter().map(|&at| minibatch.nodes[at as usize]).collect()
}

fn rows_of(rows: &StateRows, nodes: &[NodeId]) -> Result<Tensor> {
    let width = rows.width();
    let mut values = vec![0.0; nodes.len() * width];
    rows.read_any(nodes.iter().map(|node| node.0), &mut values)?;
    Ok(Tensor::from_slice(&values).view([nodes.len() as i64, width as i64]))
}

impl Trainer {
    /// What the following steps need from the next exact inference.
    pub(super) fn keep(&self) -> Keep {
        // Only layers between the first and the last have historical embeddings, and only several partitions have halo nodes.
        let has_use = self.config.partitions > 1 && self.config.layers > 2;
        match self.config.halo {
            HaloMode::History if has_use && self.aggregates.is_some() && self.model.has_neighbours() => {
                Keep::Neighbours {
                    seed: key([self.config.seed, self.step]),
                }
            }
            HaloMode::History | HaloMode::Aggregates if has_use => Keep::Aggregates,
            _ => Keep::Nothing,
        }
    }

    /// Asks the system to read ahead what [`Trainer::historical_of`] will need.
    pub(super) fn read_historical_ahead(&self, minibatch: &sample::Minibatch) {
        let Some(kept) = &self.historical else { return };
        let layers = self.model.options().layers;
        for (hop, block) in minibatch.blocks.iter().enumerate().filter(|(hop, _)| hop + 1 < layers) {
            // `historical_of` reports damaged degrees.
            let Ok(halo) = self.halo_of(minibatch, block) else {
                return;
            };
            let nodes = nodes_of(minibatch, &halo);
            if !nodes.is_empty() {
                kept.read_ahead(layers - 1 - hop, &nodes);
            }
        }
    }

    /// The places of the halo nodes with in-neighbours among the destinations of a block.
    fn halo_of(&self, minibatch: &sample::Minibatch, block: &sample::Block) -> Result<Vec<i64>> {
        let mut halo = Vec::new();
        for at in (0..block.destinations).filter(|&at| block.halo[at]) {
            if self.degrees.of(minibatch.nodes[at])? > 0 {
                halo.push(at as i64);
            }
        }
        Ok(halo)
    }

    /// The historical embeddings of the halo nodes among the destinations of each block.
    pub(super) fn historical_of(
        &self,
        kept: &HistoricalRows,
        minibatch: &sample::Minibatch,
    ) -> Result<Vec<Option<HistoricalEmbeddings>>> {
        let layers = self.model.options().layers;
        let fanouts = self.config.fanouts();
        let known = |(hop, block): (usize, &sample::Block)| {
            let layer = layers - 1 - hop;
            let halo = self.halo_of(minibatch, block)?;
            if layer == 0 || halo.is_empty() {
                return Ok(None);
            }
            let nodes = nodes_of(minibatch, &halo);
            let mut historical = kept.of(layer, &nodes, &halo, &self.degrees, self.device)?;
            if let Some(neighbour) = &mut historical.neighbour {
                let fanout = fanouts.at(hop).map_or(u64::MAX, u64::from);
                let spread = |node: &NodeId| Ok((self.degrees.of(*node)?.min(fanout) as f32).sqrt().recip());
                let spread = nodes.iter().map(spread).collect::<Result<Vec<f32>>>()?;
                neighbour.spread = Some(send(Tensor::from_slice(&spread).unsqueeze(1), self.device));
            }
            Ok(Some(historical))
        };
        minibatch.blocks.iter().enumerate().map(known).collect()
    }
}
