//! What an exact inference leaves for the halo nodes of the steps to come.
//!
//! Of each node and each layer between the first and the last, the aggregate of its in-neighbours' states. With neighbours
//! ([`Neighbour`]), that less what one in-neighbour stands for, which is drawn anew for each inference, and all that it takes to
//! compute the same with other parameters: with L layers
//!
//! ```text
//! inputs       features, aggregates, degree of the neighbour, of its own, ..    L - 2 times
//! layer 1      difference of the node, of its neighbour, of that one's, ..      L - 2 times
//! layer 2      the same                                                         L - 3 times
//! ..
//! layer L - 2  difference of the node
//! ```
//!
//! in files of a row of bf16 for each node, that are gone when they are closed. A difference is to what kept inputs give, so
//! rounding those costs nothing, and rounding differences a two hundred and fiftieth of them.

use grappa_engine::aggregate::{NodeRows, ScratchRows};
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

/// With which numbers.
pub(super) const KEPT_AS: FeatureDtype = FeatureDtype::Bf16;

/// What is to be kept of an exact inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The aggregates of the layers between the first and the last.
    Aggregates,
    /// What they are beyond what one in-neighbour stands for, and that neighbour.
    Neighbours {
        /// Which neighbours.
        seed: u64,
    },
}

/// What was kept.
#[derive(Debug, Default)]
pub struct HistoricalFiles {
    /// Of layer 1, 2, ...: aggregates or differences of each node, of its neighbour, ...
    pub(super) layers: Vec<Vec<ScratchRows>>,
    /// Of each node's neighbour, of that one's neighbour, ...; empty without neighbours.
    pub(super) inputs: Vec<ScratchRows>,
}

impl HistoricalFiles {
    /// What is known of some nodes at a layer that is neither the first nor the last, which are these destinations of a block.
    ///
    /// # Errors
    /// If it can't be read.
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
        let read = |rows: &ScratchRows| Ok(send(rows_of(rows, nodes)?, device));
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
        all.for_each(|rows| rows.read_ahead(nodes));
    }

    /// What it takes to compute what neighbours stand for at a layer, read by `read`, for nodes of these in-degrees, [`as_kept`].
    pub(super) fn neighbour(
        &self,
        layer: usize,
        degrees: Tensor,
        read: impl Fn(&ScratchRows) -> Result<Tensor>,
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

/// In-degrees, rounded as those of neighbours are.
pub(super) fn as_kept(degrees: &[f32]) -> Tensor {
    Tensor::from_slice(degrees).to_kind(Kind::BFloat16).to_kind(Kind::Float)
}

fn nodes_of(minibatch: &sample::Minibatch, places: &[i64]) -> Vec<NodeId> {
    places.iter().map(|&at| minibatch.nodes[at as usize]).collect()
}

fn rows_of(rows: &ScratchRows, nodes: &[NodeId]) -> Result<Tensor> {
    let width = rows.width();
    let mut values = vec![0.0; nodes.len() * width];
    rows.read_each(nodes, &mut values)?;
    Ok(Tensor::from_slice(&values).view([nodes.len() as i64, width as i64]))
}

impl Trainer {
    /// What the steps to come need of the next exact inference.
    pub(super) fn keep(&self) -> Keep {
        // The first layer's aggregates are sampled or known, and the last layer's are those of seeds, which are no halo.
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

    /// Has the system begin to read what [`Trainer::historical_of`] will.
    pub(super) fn read_historical_ahead(&self, minibatch: &sample::Minibatch) {
        let Some(kept) = &self.historical else { return };
        let layers = self.model.options().layers;
        for (hop, block) in minibatch.blocks.iter().enumerate().filter(|(hop, _)| hop + 1 < layers) {
            // Of damaged degrees, `historical_of` tells.
            let Ok(halo) = self.halo_of(minibatch, block) else {
                return;
            };
            let nodes = nodes_of(minibatch, &halo);
            if !nodes.is_empty() {
                kept.read_ahead(layers - 1 - hop, &nodes);
            }
        }
    }

    /// The halo nodes among the destinations of a block of which there is something to know: those with in-neighbours.
    fn halo_of(&self, minibatch: &sample::Minibatch, block: &sample::Block) -> Result<Vec<i64>> {
        let mut halo = Vec::new();
        for at in (0..block.destinations).filter(|&at| block.halo[at]) {
            if self.degrees.of(minibatch.nodes[at])? > 0 {
                halo.push(at as i64);
            }
        }
        Ok(halo)
    }

    /// What is known of the halo nodes among the destinations of each block.
    pub(super) fn historical_of(
        &self,
        kept: &HistoricalFiles,
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
