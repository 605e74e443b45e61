//! The edges of one hop, on the device of the model.

use std::{
    cell::OnceCell,
    sync::{Arc, OnceLock},
};

use grappa_sampling::sample;
use tch::{Device, Tensor};

use crate::{kernels::transpose::Transposed, runtime::send};

/// The edges of one hop: a [`sample::Block`] on the device that a model runs on.
///
/// On the processor, layers work on the CSR itself. For other devices and for libtorch's operators, it is converted to tensors on first use.
#[derive(Debug)]
pub struct Block {
    destinations: usize,
    sources: usize,
    device: Device,
    csr: Arc<Csr>,
    /// Where the destinations are among the sources, if they are not the first.
    own: Option<Arc<Own>>,
    /// In-degree of each destination in the whole graph.
    global: Vec<f32>,
    source_degrees: Option<Arc<Vec<f32>>>,
    transposed: OnceLock<Arc<Transposed>>,
    tensors: OnceCell<Edges>,
    with_own: OnceCell<Box<Block>>,
}

/// Edges in memory.
#[derive(Debug)]
pub(crate) struct Csr {
    pub(crate) offsets: Vec<u32>,
    pub(crate) indices: Vec<u32>,
    /// Edge weights; empty if all are 1.
    pub(crate) weights: Vec<f32>,
}

/// The places of destinations among the sources, as the CSR of a graph in which each destination has one edge: from itself.
///
/// In a joined minibatch, a node may be a destination several times. Its row is that of one source.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) offsets: Vec<u32>,
    pub(crate) places: Vec<u32>,
    /// Number of nodes that are destinations. They are the first sources.
    pub(crate) nodes: usize,
    transposed: OnceLock<Transposed>,
}

impl Own {
    fn new(places: &[u32]) -> Self {
        Self {
            offsets: (0..=places.len() as u32).collect(),
            places: places.to_vec(),
            nodes: places.iter().max().map_or(0, |&last| last as usize + 1),
            transposed: OnceLock::new(),
        }
    }

    /// The destinations of each node.
    pub(crate) fn transposed(&self) -> &Transposed {
        self.transposed
            .get_or_init(|| Transposed::new(&self.offsets, &self.places, self.nodes))
    }
}

/// Edges as tensors on the device.
#[derive(Debug)]
pub(crate) struct Edges {
    /// Offset of each destination's edges, and the number of edges at the end; int64 of `[destinations + 1]`.
    pub(crate) offsets: Tensor,
    /// Source of each edge; int64 of `[edges]`.
    pub(crate) indices: Tensor,
    /// Destination of each edge; int64 of `[edges]`.
    pub(crate) destinations: Tensor,
    /// Place of each destination among the sources, if they are not the first; int64 of `[destinations]`.
    pub(crate) own: Option<Tensor>,
}

impl Block {
    /// Copies the edges of a hop for layers on `device`.
    ///
    /// # Panics
    /// If the block breaks a rule of the sampler: offsets ascend to the number of edges, indices are below the number of sources,
    /// and each destination is a source.
    pub fn new(block: &sample::Block, device: Device) -> Self {
        let edges = block.indices.len();
        assert_eq!(block.offsets.len(), block.destinations + 1, "offsets of a block");
        assert!(
            block.offsets[0] == 0 && block.offsets[block.destinations] as usize == edges && block.offsets.is_sorted(),
            "offsets of a block"
        );
        assert!(
            match &block.own[..] {
                [] => block.sources >= block.destinations,
                own => own.len() == block.destinations && own.iter().all(|&place| (place as usize) < block.sources),
            },
            "destinations are sources"
        );
        assert!(
            block.indices.iter().all(|&index| (index as usize) < block.sources),
            "sources of a block"
        );
        assert!(
            block.edge_weights.is_empty() || block.edge_weights.len() == edges,
            "weights of a block"
        );
        Self {
            destinations: block.destinations,
            sources: block.sources,
            device,
            csr: Arc::new(Csr {
                offsets: block.offsets.clone(),
                indices: block.indices.clone(),
                weights: block.edge_weights.clone(),
            }),
            own: (!block.own.is_empty()).then(|| Arc::new(Own::new(&block.own))),
            global: block.global.iter().map(|&degree| degree as f32).collect(),
            source_degrees: None,
            transposed: OnceLock::new(),
            tensors: OnceCell::new(),
            with_own: OnceCell::new(),
        }
    }

    /// The blocks of a minibatch, seeds first. `degrees` are the in-degrees of [`sample::Minibatch::nodes`] in the whole graph; only
    /// GCN needs them.
    pub fn of_minibatch(minibatch: &sample::Minibatch, degrees: Option<&[u64]>, device: Device) -> Vec<Self> {
        let mut blocks: Vec<Self> = minibatch.blocks.iter().map(|block| Self::new(block, device)).collect();
        let (Some(degrees), Some((last, others))) = (degrees, blocks.split_last_mut()) else {
            return blocks;
        };
        last.set_source_degrees(degrees.iter().copied());
        for block in others {
            let sources = 0..block.sources;
            block.set_source_degrees(sources.map(|at| degrees[last.own(at)]));
        }
        blocks
    }

    /// Adds the in-degree of each source in the whole graph. The store has those of halo nodes, too.
    ///
    /// # Panics
    /// If their number is not that of the sources.
    pub fn with_source_degrees(mut self, degrees: &[u64]) -> Self {
        self.set_source_degrees(degrees.iter().copied());
        self
    }

    fn set_source_degrees(&mut self, degrees: impl Iterator<Item = u64>) {
        let degrees: Vec<f32> = degrees.map(|degree| degree as f32).collect();
        assert_eq!(degrees.len(), self.sources, "degrees of sources");
        self.source_degrees = Some(Arc::new(degrees));
    }

    /// Number of destinations.
    pub fn destinations(&self) -> usize {
        self.destinations
    }

    /// Number of nodes that are destinations. They are the first sources.
    pub(crate) fn destination_nodes(&self) -> usize {
        self.own.as_ref().map_or(self.destinations, |own| own.nodes)
    }

    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.csr.indices.len()
    }

    /// The device of the layers that work on it.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Computes the transposed edges for backward passes now, for example on a loading thread instead of the training one.
    pub fn prepare_backward(&self) {
        self.transposed();
    }

    pub(crate) fn csr(&self) -> &Arc<Csr> {
        &self.csr
    }

    /// The places of destinations among the sources, if they are not the first.
    pub(crate) fn own_places(&self) -> Option<&Arc<Own>> {
        self.own.as_ref()
    }

    /// The place of a destination among the sources.
    pub(crate) fn own(&self, destination: usize) -> usize {
        self.own
            .as_ref()
            .map_or(destination, |own| own.places[destination] as usize)
    }

    pub(crate) fn transposed(&self) -> &Arc<Transposed> {
        self.transposed
            .get_or_init(|| Arc::new(Transposed::new(&self.csr.offsets, &self.csr.indices, self.sources)))
    }

    /// Starts to copy the edges to the device now, not on first use.
    pub(crate) fn send(&self) {
        self.tensors();
    }

    /// The tensors that were copied to the device so far.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &Tensor> {
        let edges = self.tensors.get().into_iter();
        edges.flat_map(|edges| {
            [&edges.offsets, &edges.indices, &edges.destinations]
                .into_iter()
                .chain(&edges.own)
        })
    }

    pub(crate) fn tensors(&self) -> &Edges {
        self.tensors.get_or_init(|| {
            let int64 = |values: &[u32]| {
                let values: Vec<i64> = values.iter().map(|&value| i64::from(value)).collect();
                send(Tensor::from_slice(&values), self.device)
            };
            let mut destinations = vec![0; self.edges()];
            for (destination, bounds) in self.csr.offsets.windows(2).enumerate() {
                destinations[bounds[0] as usize..bounds[1] as usize].fill(destination as u32);
            }
            Edges {
                offsets: int64(&self.csr.offsets),
                indices: int64(&self.csr.indices),
                destinations: int64(&destinations),
                own: self.own.as_ref().map(|own| int64(&own.places)),
            }
        })
    }

    /// The same edges, and before those of each destination one from itself.
    pub(crate) fn with_own(&self) -> &Self {
        self.with_own.get_or_init(|| {
            let mut csr = Csr {
                offsets: vec![0],
                indices: Vec::with_capacity(self.edges() + self.destinations),
                weights: Vec::new(),
            };
            for (destination, bounds) in self.csr.offsets.windows(2).enumerate() {
                csr.indices.push(self.own(destination) as u32);
                csr.indices
                    .extend_from_slice(&self.csr.indices[bounds[0] as usize..bounds[1] as usize]);
                let end =
                    u32::try_from(csr.indices.len()).expect("samplers leave room for an edge to each destination");
                csr.offsets.push(end);
            }
            Box::new(Self {
                destinations: self.destinations,
                sources: self.sources,
                device: self.device,
                csr: Arc::new(csr),
                own: self.own.clone(),
                global: Vec::new(),
                source_degrees: None,
                transposed: OnceLock::new(),
                tensors: OnceCell::new(),
                with_own: OnceCell::new(),
            })
        })
    }

    /// Number of sampled edges of each destination.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = u32> {
        self.csr.offsets.windows(2).map(|bounds| bounds[1] - bounds[0])
    }

    /// In-degree of each destination in the whole graph.
    pub(crate) fn global(&self) -> &[f32] {
        &self.global
    }

    /// The values of destinations, from those of sources.
    pub(crate) fn of_destinations(&self, values: &[f32]) -> Vec<f32> {
        (0..self.destinations)
            .map(|destination| values[self.own(destination)])
            .collect()
    }

    /// In-degree of each source in the whole graph.
    ///
    /// # Panics
    /// If the degrees were not given.
    pub(crate) fn source_degrees(&self) -> &Arc<Vec<f32>> {
        let degrees = self.source_degrees.as_ref();
        degrees.expect("GCN needs the in-degree of each source: give it with Block::with_source_degrees")
    }

    /// In-degree of each destination in the whole graph, f32 of `[destinations]` on the device.
    pub(crate) fn destination_degrees(&self) -> Tensor {
        Tensor::from_slice(&self.of_destinations(self.source_degrees())).to_device(self.device)
    }
}
