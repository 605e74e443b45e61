//! The historical embeddings of halo nodes: rows that exact inference leaves for the steps of a super-epoch.
//!
//! For each layer between the first and the last, exact inference saves the aggregate of the in-neighbors' states of halo nodes.
//! The first layer's aggregates are pre-aggregated or sampled, and the last layer's are of seeds, which are not halo nodes.
//! Only halo nodes that steps can reach have rows ([`HistoricalNodes`]).
//!
//! With [`Keep::Neighbors`] it also samples one in-neighbor per node. It saves the difference between the aggregate and the
//! contribution of this neighbor, and the inputs for recomputing the contribution ([`Neighbor`]). With L layers the rows are
//!
//! ```text
//! inputs       features, aggregates, degree: of the neighbor, of its neighbor, ...    L - 2 times
//! layer 1      difference: of the node, of its neighbor, of that one's neighbor, ...  L - 2 times
//! layer 2      the same                                                                 L - 3 times
//! ..
//! layer L - 2  difference of the node                                                   once
//! ```
//!
//! Each has one row of bf16 per node. It is in memory if training leaves room there, and else in an unnamed file. Differences are
//! taken to the contribution of the *rounded* inputs, so the rounding of inputs costs nothing; the rounding of a difference is at most 1/256
//! of it.

use std::sync::Arc;

use grappa_engine::aggregate::{DrawnNeighbors, NodeRows, StateRows, read_each};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::Progress;
use grappa_sampling::{
    NodeSet,
    sample::{self, Fanouts},
};
use grappa_storage::MappedChunks;
use tch::{Device, Kind, Tensor};

use super::needed::{Needed, NeededGraph, NeededOptions};
use crate::train::data::degrees::Degrees;
use crate::{
    Result,
    nn::{HistoricalEmbeddings, Neighbor},
    runtime::send,
    shim,
};

/// The type of the saved values.
pub(in crate::train) const KEPT_AS: FeatureDtype = FeatureDtype::Bf16;

/// The results that an exact inference saves for the following steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The aggregates of the layers between the first and the last.
    Aggregates,
    /// The differences to the contribution of one in-neighbor per node, and the inputs of this neighbor.
    Neighbors {
        /// Seed of the sampled neighbors.
        seed: u64,
    },
}

/// The nodes that have historical embeddings.
///
/// A halo node that is reached in h hops takes part in the layers up to L - 1 - h, counted from 0. So with growing layers fewer halo
/// nodes have rows. A row of a node's neighbor, of that one's neighbor, and so on, is stored at the node.
#[derive(Debug)]
pub struct HistoricalNodes {
    /// At index m: the nodes with inputs of their m + 1st neighbor, and with the differences of their tth neighbor at layer
    /// m + 1 - t, for each t.
    sets: Vec<Arc<NodeSet>>,
    /// The neighbors of the nodes of each set; empty if none are kept.
    drawn: Vec<DrawnNeighbors>,
}

impl HistoricalNodes {
    /// `reached` has the nodes that are reached in at most one hop, in at most two, and so on: one set less than there are layers
    /// before the last.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub fn new(
        chunks: &MappedChunks,
        reached: Vec<NodeSet>,
        keep: Keep,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        // Rows of neighbors are gathered from the rows of the set before, which therefore has the neighbors, too.
        let (mut sets, mut drawn) = (Vec::<Arc<NodeSet>>::new(), Vec::<DrawnNeighbors>::new());
        for set in reached {
            let set = match drawn.last() {
                None => set,
                Some(drawn) => set.union(&NodeSet::from_members(chunks.map().nodes(), drawn.nodes())),
            };
            if let Keep::Neighbors { seed } = keep {
                drawn.push(DrawnNeighbors::draw(chunks, &set, seed, threads, progress)?);
            }
            sets.push(Arc::new(set));
        }
        sets.reverse();
        drawn.reverse();
        Ok(Self { sets, drawn })
    }

    /// All nodes of a store, for a model with `layers` layers.
    ///
    /// # Errors
    /// As [`HistoricalNodes::new`].
    pub fn all(
        chunks: &MappedChunks,
        layers: usize,
        keep: Keep,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let reached = vec![NodeSet::all(chunks.map().nodes()); layers.saturating_sub(2)];
        Self::new(chunks, reached, keep, threads, progress)
    }

    /// Finds the nodes that the aggregates of these nodes depend on. None if that is more work than `work_max`.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub fn needed(
        &self,
        chunks: &MappedChunks,
        knows_first_hop: bool,
        work_max: f64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Option<Needed>> {
        let wanted = match self.sets.last() {
            Some(last) => NodeSet::clone(last),
            None => NodeSet::from_members(chunks.map().nodes(), []),
        };
        let options = NeededOptions {
            // The last layer of the model saves nothing.
            layers: self.sets.len() + 1,
            samples: &[],
            knows_first_hop,
            also: &self.sets,
            work_max,
            threads,
        };
        let graph = NeededGraph::untyped(chunks, chunks.map().nodes(), options.layers);
        Needed::compute(&graph, vec![wanted], &options, progress)
    }

    /// The sets of nodes, from the one of the first layer to the one of the last.
    pub fn sets(&self) -> &[Arc<NodeSet>] {
        &self.sets
    }

    /// The neighbors of the nodes of each set; empty if none are kept.
    pub(in crate::train) fn drawn(&self) -> &[DrawnNeighbors] {
        &self.drawn
    }
}

/// Rows of some nodes.
#[derive(Debug)]
pub(in crate::train) struct SetRows {
    pub(in crate::train) nodes: Arc<NodeSet>,
    pub(in crate::train) rows: StateRows,
}

impl SetRows {
    /// The rows of some nodes of the set, in any order.
    fn read(&self, nodes: &[NodeId]) -> Result<Tensor> {
        let mut values = self.empty(nodes.len());
        self.rows.read_any(self.positions(nodes), shim::values_mut(&mut values))?;
        Ok(values)
    }

    /// The rows of ascending nodes of the set.
    pub(in crate::train) fn of_sorted(&self, nodes: &[NodeId], threads: usize) -> Result<Tensor> {
        let mut values = self.empty(nodes.len());
        let positions: Vec<u64> = self.positions(nodes).collect();
        read_each(&self.rows, &positions, shim::values_mut(&mut values), threads)?;
        Ok(values)
    }

    fn read_ahead(&self, nodes: &[NodeId]) {
        self.positions(nodes).for_each(|position| self.rows.read_ahead(position..position + 1));
    }

    fn positions(&self, nodes: &[NodeId]) -> impl Iterator<Item = u64> {
        nodes.iter().map(|&node| {
            assert!(self.nodes.contains(node), "node {} has no historical embeddings", node.0);
            self.nodes.position(node)
        })
    }

    /// A tensor with room for the rows of some nodes.
    fn empty(&self, nodes: usize) -> Tensor {
        Tensor::empty([nodes as i64, self.rows.width() as i64], (Kind::Float, Device::Cpu))
    }
}

/// Historical embeddings, and what they were made of.
#[derive(Debug, Default)]
pub struct HistoricalRows {
    /// For layer 1, 2, ...: aggregates or differences of each node, of its neighbor, ...
    pub(in crate::train) layers: Vec<Vec<SetRows>>,
    /// Inputs of each node's neighbor, of that one's neighbor, ...; empty without neighbors.
    pub(in crate::train) inputs: Vec<SetRows>,
}

impl HistoricalRows {
    /// The historical embeddings of `nodes` at a layer between the first and the last. `destinations` are the places of the nodes
    /// among the destinations of a block.
    ///
    /// # Errors
    /// If files cannot be read.
    ///
    /// # Panics
    /// If a node has none at this layer.
    pub fn embeddings(
        &self,
        layer: usize,
        nodes: &[NodeId],
        destinations: &[i64],
        degrees: &Degrees,
        device: Device,
    ) -> Result<HistoricalEmbeddings> {
        let degrees = nodes.iter().map(|&node| Ok(degrees.degree(node)? as f32));
        let degrees = degrees.collect::<Result<Vec<f32>>>()?;
        Ok(HistoricalEmbeddings {
            destinations: send(Tensor::from_slice(destinations), device),
            rows: send(self.layers[layer - 1][0].read(nodes)?, device),
            neighbor: match self.inputs.is_empty() {
                true => None,
                false => {
                    let degrees = send(as_kept(&degrees), device);
                    Some(self.neighbor(layer, degrees, |rows| Ok(send(rows.read(nodes)?, device)))?)
                }
            },
        })
    }

    /// Bytes of the rows that partitions get: a partition gets the rows of its own halo nodes in reach. `partition_nodes` has the
    /// numbers of these nodes, summed over the partitions, for one hop, two, ...
    pub(in crate::train) fn bytes_of_partitions(&self, nodes: &HistoricalNodes, partition_nodes: &[u64]) -> u64 {
        let all = self.layers.iter().flatten().chain(&self.inputs);
        let bytes = all.map(|rows| {
            let own = nodes.sets().iter().rev().zip(partition_nodes);
            let own = own.filter(|(set, _)| Arc::ptr_eq(set, &rows.nodes));
            own.map(|(_, nodes)| nodes).sum::<u64>() * u64::from(KEPT_AS.row_bytes(rows.rows.width() as u32))
        });
        bytes.sum()
    }

    /// Bytes of memory that the rows take.
    pub(in crate::train) fn memory(&self) -> u64 {
        let all = self.layers.iter().flatten().chain(&self.inputs);
        all.map(|rows| rows.rows.memory()).sum()
    }

    fn read_ahead(&self, layer: usize, nodes: &[NodeId]) {
        let below = self.layers[..layer - 1].iter().enumerate();
        let differences =
            below.flat_map(|(below, differences_below)| differences_below.get(1..layer - below).into_iter().flatten());
        let inputs = self.inputs.iter().take(layer);
        let all = inputs.chain(differences).chain(&self.layers[layer - 1][..1]);
        all.for_each(|rows| rows.read_ahead(nodes));
    }

    /// The inputs of neighbors at a layer, read with `read`. `degrees` are the in-degrees of the nodes, rounded by [`as_kept`].
    pub(in crate::train) fn neighbor(
        &self,
        layer: usize,
        degrees: Tensor,
        read: impl Fn(&SetRows) -> Result<Tensor>,
    ) -> Result<Neighbor> {
        let below = self.layers[..layer - 1].iter().enumerate();
        let differences =
            below.map(|(below, differences_below)| differences_below[1..layer - below].iter().map(&read).collect());
        Ok(Neighbor {
            degrees,
            inputs: self.inputs[..layer].iter().map(&read).collect::<Result<_>>()?,
            differences: differences.collect::<Result<_>>()?,
            spread: None,
        })
    }
}

/// In-degrees, rounded like kept values.
pub(in crate::train) fn as_kept(degrees: &[f32]) -> Tensor {
    Tensor::from_slice(degrees).to_kind(Kind::BFloat16).to_kind(Kind::Float)
}

fn nodes_of(minibatch: &sample::Minibatch, places: &[i64]) -> Vec<NodeId> {
    places.iter().map(|&at| minibatch.destination(at as usize)).collect()
}

/// The places of the halo nodes with in-neighbors among the destinations of a block.
fn halo_of(minibatch: &sample::Minibatch, block: &sample::Block, degrees: &Degrees) -> Result<Vec<i64>> {
    let mut halo = Vec::new();
    for at in (0..block.destinations).filter(|&at| block.halo[at]) {
        if degrees.degree(minibatch.destination(at))? > 0 {
            halo.push(at as i64);
        }
    }
    Ok(halo)
}

impl HistoricalRows {
    /// Asks the system to read ahead what [`HistoricalRows::of_batch`] will need.
    pub(in crate::train) fn read_ahead_of_batch(
        &self,
        minibatch: &sample::Minibatch,
        degrees: &Degrees,
        layers: usize,
    ) {
        for (hop, block) in minibatch.blocks.iter().enumerate().filter(|(hop, _)| hop + 1 < layers) {
            // `of_batch` reports damaged degrees.
            let Ok(halo) = halo_of(minibatch, block, degrees) else {
                return;
            };
            let nodes = nodes_of(minibatch, &halo);
            if !nodes.is_empty() {
                self.read_ahead(layers - 1 - hop, &nodes);
            }
        }
    }

    /// The historical embeddings of the halo nodes among the destinations of each block, for a model with a layer for each
    /// of `fanouts`.
    pub(in crate::train) fn of_batch(
        &self,
        minibatch: &sample::Minibatch,
        degrees: &Degrees,
        fanouts: &Fanouts,
        device: Device,
    ) -> Result<Vec<Option<HistoricalEmbeddings>>> {
        let known = minibatch.blocks.iter().enumerate().map(|(hop, block)| {
            let layer = fanouts.hops() - 1 - hop;
            let halo = halo_of(minibatch, block, degrees)?;
            if layer == 0 || halo.is_empty() {
                return Ok(None);
            }
            let nodes = nodes_of(minibatch, &halo);
            let mut historical = self.embeddings(layer, &nodes, &halo, degrees, device)?;
            if let Some(neighbor) = &mut historical.neighbor {
                let fanout = fanouts.at(hop).map_or(u64::MAX, u64::from);
                let spread = nodes.iter().map(|&node| {
                    let drawn = degrees.degree(node)?.min(fanout) as f32;
                    Ok(drawn.sqrt().recip())
                });
                let spread = spread.collect::<Result<Vec<f32>>>()?;
                neighbor.spread = Some(send(Tensor::from_slice(&spread).unsqueeze(1), device));
            }
            Ok(Some(historical))
        });
        known.collect()
    }
}
