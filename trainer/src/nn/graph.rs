//! The edges of one hop, on the device of the model.

use std::{cell::OnceCell, sync::Arc};

use grappa_kernels::csr::Csr;
use grappa_run::model::TimeEncoding;
use grappa_sampling::{GraphShape, sample};
use tch::{Device, Tensor};

use super::aggregate_kind::{Aggregate, Scaling};
use crate::runtime::{send, send_together};

/// The edges of one hop: a [`sample::Block`] on the device that a model runs on.
///
/// On the processor, layers work on the CSR itself. For other devices and for libtorch's operators, it is converted to tensors on first
/// use.
#[derive(Debug)]
pub struct Block {
    device: Device,
    pub(crate) csr: Arc<Csr>,
    /// The features of edges, row by row; empty without.
    edge_features: Vec<f32>,
    /// The places of destinations among the sources, if they are not the first. In a joined minibatch, a node may be a destination several
    /// times. Its row is the row of one source. Nodes that are destinations are the first sources.
    pub(super) own: Option<Arc<Csr>>,
    /// In-degree of each destination in the whole graph; 0 for halo nodes without a list.
    global: Vec<f32>,
    /// In-degree of each source in the whole graph, or the sum of the weights of its in-edges.
    source_degrees: Option<Vec<f32>>,
    /// Whether its halo destinations get historical embeddings.
    has_historical: bool,
    sent: Sent,
    with_own: OnceCell<Box<Block>>,
    /// The edges alone: each is a source with one edge.
    alone: OnceCell<Box<Block>>,
    /// The places of the source and the destination of each edge.
    ends: OnceCell<[Arc<Csr>; 2]>,
}

/// The features of the edges of a block, each followed by the values of its age: from its time to the time of its part.
fn with_ages(block: &sample::Block, minibatch: &sample::Minibatch, encoding: TimeEncoding) -> Vec<f32> {
    let edges = block.indices.len();
    assert_eq!(block.edge_times.len(), edges, "times of the edges of a block");
    let stored = block.edge_features.len().checked_div(edges).unwrap_or(0);
    let mut rows = Vec::with_capacity(edges * (stored + encoding.values));
    for destination in 0..block.destinations {
        // Without parts, all nodes are of one.
        let part = minibatch.parts.get(destination).map_or(0, |&part| part as usize);
        for edge in block.edges_of(destination) {
            rows.extend_from_slice(&block.edge_features[edge * stored..(edge + 1) * stored]);
            encoding.append(minibatch.part_times[part].saturating_sub(block.edge_times[edge]), &mut rows);
        }
    }
    rows
}

/// Copies on the device, as far as layers asked for them.
#[derive(Debug, Default)]
struct Sent {
    edges: OnceCell<Edges>,
    features: OnceCell<Tensor>,
    /// The factors of edges in an aggregation, of `[edges]`; none if all are 1.
    weights: OnceCell<(Aggregate, Scaling, Option<Tensor>)>,
    destination_degrees: OnceCell<Tensor>,
}

impl Sent {
    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let edges = self
            .edges
            .get()
            .into_iter()
            .flat_map(|edges| [&edges.offsets, &edges.indices, &edges.destinations].into_iter().chain(&edges.own));
        let weights = self.weights.get().and_then(|(.., weights)| weights.as_ref());
        let others = [weights, self.features.get(), self.destination_degrees.get()];
        edges.chain(others.into_iter().flatten())
    }
}

/// Edges as tensors on the device: of int32, or of int64 if there are too many for that.
#[derive(Debug)]
pub(crate) struct Edges {
    /// Offset of each destination's edges, and the number of edges at the end; `[destinations + 1]`.
    pub(crate) offsets: Tensor,
    /// Source of each edge; `[edges]`.
    pub(crate) indices: Tensor,
    /// Destination of each edge; `[edges]`.
    pub(crate) destinations: Tensor,
    /// Place of each destination among the sources, if they are not the first; `[destinations]`.
    pub(crate) own: Option<Tensor>,
}

impl Block {
    /// Copies the edges of a hop for layers on `device`.
    ///
    /// # Panics
    /// If the block breaks a rule of the sampler: offsets ascend to the number of edges, indices are below the number of sources,
    /// and each destination is a source.
    pub fn new(block: &sample::Block, device: Device) -> Self {
        Self::between_types(block, block.sources, device)
    }

    /// As [`Block::new`], for a relation whose destinations are the nodes of another type. `nodes` is the number of nodes of that type at the
    /// input of the layer.
    ///
    /// # Panics
    /// As [`Block::new`], and if a destination is not among these nodes.
    pub fn between_types(block: &sample::Block, nodes: usize, device: Device) -> Self {
        let edges = block.indices.len();
        assert_eq!(block.offsets.len(), block.destinations + 1, "offsets of a block");
        assert!(
            block.offsets[0] == 0 && block.offsets[block.destinations] as usize == edges && block.offsets.is_sorted(),
            "offsets of a block"
        );
        assert!(
            match &block.own[..] {
                [] => nodes >= block.destinations,
                own => own.len() == block.destinations && own.iter().all(|&place| (place as usize) < nodes),
            },
            "destinations are nodes of their type"
        );
        assert!(block.indices.iter().all(|&index| (index as usize) < block.sources), "sources of a block");
        assert!(block.edge_weights.is_empty() || block.edge_weights.len() == edges, "weights of a block");
        assert!(
            edges > 0 && block.edge_features.len().is_multiple_of(edges) || block.edge_features.is_empty(),
            "features of edges of a block"
        );
        let mut csr = Csr::new(block.offsets.clone(), block.indices.clone(), block.sources);
        csr.weights.clone_from(&block.edge_weights);
        Self {
            edge_features: block.edge_features.clone(),
            own: (!block.own.is_empty()).then(|| Arc::new(Csr::of_places(&block.own))),
            global: block.global.iter().map(|&degree| degree as f32).collect(),
            ..Self::of_csr(csr, device)
        }
    }

    fn of_csr(csr: Csr, device: Device) -> Self {
        Self {
            device,
            csr: Arc::new(csr),
            edge_features: Vec::new(),
            own: None,
            global: Vec::new(),
            source_degrees: None,
            has_historical: false,
            sent: Sent::default(),
            with_own: OnceCell::new(),
            alone: OnceCell::new(),
            ends: OnceCell::new(),
        }
    }

    /// The blocks of a minibatch, seeds first: for each hop, one of each relation. `minibatches` are of each node type. `degrees` are the
    /// in-degrees of the nodes of a graph without types, or the sums of the weights of their in-edges if blocks have weights; only GCN
    /// needs them. `ages` encodes the ages of the edges of each relation; none of relations beyond.
    pub fn of_minibatches(
        shape: &GraphShape,
        minibatches: &[sample::Minibatch],
        degrees: Option<&[f32]>,
        ages: &[Option<TimeEncoding>],
        device: Device,
    ) -> Vec<Vec<Self>> {
        let hops = shape.hops(minibatches);
        let hop = |hop: usize| {
            let relations = shape.relations.iter().enumerate().map(|(number, relation)| {
                let block = shape.block(minibatches, number, hop);
                let nodes = match hop + 1 == hops {
                    true => minibatches[relation.destination].nodes.len(),
                    false => shape.block(minibatches, number, hop + 1).destinations,
                };
                let mut block_on_device = Self::between_types(block, nodes, device);
                if let Some(&Some(encoding)) = ages.get(number) {
                    block_on_device.edge_features = with_ages(block, &minibatches[relation.destination], encoding);
                }
                block_on_device
            });
            relations.collect()
        };
        let mut blocks: Vec<Vec<Self>> = (0..hops).map(hop).collect();
        let (Some(degrees), Some((last, others))) = (degrees, blocks.split_last_mut()) else {
            return blocks;
        };
        let [last] = &mut last[..] else { panic!("degrees are of a graph without types") };
        last.set_source_degrees(degrees.iter().copied());
        for block in others.iter_mut().flatten() {
            let sources = 0..block.sources();
            block.set_source_degrees(sources.map(|at| degrees[last.own(at)]));
        }
        blocks
    }

    /// As [`Block::of_minibatches`], of a graph without types.
    pub fn of_minibatch(minibatch: &sample::Minibatch, degrees: Option<&[f32]>, device: Device) -> Vec<Vec<Self>> {
        let shape = GraphShape::untyped(minibatch.nodes.len() as u64);
        Self::of_minibatches(&shape, std::slice::from_ref(minibatch), degrees, &[], device)
    }

    /// The edges of several relations into one type, one destination after another: its edges of the first relation come first. The sources
    /// of the second relation come after the sources of the first. `sources` lists the number of sources of each relation.
    ///
    /// # Panics
    /// If the relations have different destinations.
    pub(crate) fn merged(relations: &[&Self]) -> Self {
        let destinations = relations[0].destinations();
        assert!(relations.iter().all(|block| block.destinations() == destinations), "relations into one type");
        let edges = relations.iter().map(|block| block.edges()).sum();
        let (mut offsets, mut indices) = (Vec::with_capacity(destinations + 1), Vec::with_capacity(edges));
        offsets.push(0);
        for destination in 0..destinations {
            let mut first = 0;
            for block in relations {
                let bounds = [0, 1].map(|end| block.csr.offsets[destination + end] as usize);
                let sources = &block.csr.indices[bounds[0]..bounds[1]];
                indices.extend(sources.iter().map(|source| first + source));
                first += u32::try_from(block.sources()).expect("samplers count sources with 32 bits");
            }
            offsets.push(indices.len() as u32);
        }
        let sources = relations.iter().map(|block| block.sources()).sum();
        Self::of_csr(Csr::new(offsets, indices, sources), relations[0].device)
    }

    /// Adds the in-degree of each source in the whole graph. The store has the in-degrees of halo nodes, too.
    ///
    /// # Panics
    /// If there is not one for each source.
    pub fn with_source_degrees(mut self, degrees: &[u64]) -> Self {
        self.set_source_degrees(degrees.iter().map(|&degree| degree as f32));
        self
    }

    /// Makes these the degrees of nodes, which are sums of edge weights, where all sources are destinations.
    ///
    /// # Panics
    /// If there is not one for each node.
    pub fn with_weighted_degrees(mut self, degrees: Vec<f32>) -> Self {
        assert!(degrees.len() == self.sources() && self.sources() == self.destinations(), "degrees of nodes");
        self.global = degrees.clone();
        self.source_degrees = Some(degrees);
        self
    }

    fn set_source_degrees(&mut self, degrees: impl Iterator<Item = f32>) {
        let degrees: Vec<f32> = degrees.collect();
        assert_eq!(degrees.len(), self.sources(), "degrees of sources");
        self.source_degrees = Some(degrees);
    }

    /// Number of destinations.
    pub fn destinations(&self) -> usize {
        self.csr.destinations()
    }

    /// Number of nodes that are destinations. They are the first sources.
    pub(crate) fn destination_nodes(&self) -> usize {
        self.own.as_ref().map_or(self.destinations(), |own| own.sources)
    }

    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.csr.sources
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
        self.csr.transposed();
    }

    /// The place of a destination among the sources.
    fn own(&self, destination: usize) -> usize {
        self.own.as_ref().map_or(destination, |own| own.indices[destination] as usize)
    }

    /// The tensors that were copied to the device so far.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &Tensor> {
        let with_own = self.with_own.get().into_iter();
        self.sent.tensors().chain(with_own.flat_map(|block| block.sent.tensors()))
    }

    /// The features of edges on the device, f32 of `[edges, features]`. `count` is the number of features, which a block without edges does
    /// not know.
    pub(crate) fn features(&self, count: usize) -> &Tensor {
        self.sent.features.get_or_init(|| {
            let rows = Tensor::from_slice(&self.edge_features).view([self.edges() as i64, count as i64]);
            send(rows, self.device)
        })
    }

    /// The factors of edges in an aggregation, of `[edges]` on the device: the kept ones, or else the result of `make`.
    pub(crate) fn edge_weights(
        &self,
        kind: Aggregate,
        scaling: Scaling,
        make: impl Fn() -> Option<Tensor>,
    ) -> Option<Tensor> {
        match self.sent.weights.get_or_init(|| (kind, scaling, make())) {
            (of_kind, of_scaling, kept) if (*of_kind, *of_scaling) == (kind, scaling) => {
                kept.as_ref().map(Tensor::shallow_clone)
            }
            _ => make(),
        }
    }

    pub(crate) fn tensors(&self) -> &Edges {
        self.sent.edges.get_or_init(|| {
            let (csr, destinations) = (&self.csr, self.destinations_of_edges());
            let own = self.own.as_ref().map(|own| &*own.indices);
            let arrays: Vec<&[u32]> = [&*csr.offsets, &csr.indices, &destinations].into_iter().chain(own).collect();
            let is_wide = i32::try_from(self.edges().max(self.sources())).is_err();
            let mut tensors = send_indices(&arrays, is_wide, self.device).into_iter();
            let [offsets, indices, destinations] = [(); 3].map(|()| tensors.next().expect("a tensor for each array"));
            Edges { offsets, indices, destinations, own: tensors.next() }
        })
    }

    /// The same edges, and, first for each destination, one from itself. As in PyTorch Geometric, the features of that are the means of the
    /// features of the others, or zeros if there are none. `features` is the number of features of an edge.
    pub(crate) fn with_own(&self, features: usize) -> &Self {
        self.with_own.get_or_init(|| {
            let edges = self.edges() + self.destinations();
            let (mut offsets, mut indices) = (vec![0], Vec::with_capacity(edges));
            let mut all = Vec::with_capacity(edges * features);
            for (destination, bounds) in self.csr.offsets.windows(2).enumerate() {
                let range = bounds[0] as usize..bounds[1] as usize;
                indices.push(self.own(destination) as u32);
                indices.extend_from_slice(&self.csr.indices[range.clone()]);
                let rows = &self.edge_features[range.start * features..range.end * features];
                let own = all.len();
                all.resize(own + features, 0.0);
                let factor = 1.0 / range.len().max(1) as f32;
                for row in rows.chunks_exact(features.max(1)) {
                    all[own..].iter_mut().zip(row).for_each(|(mean, value)| *mean += factor * value);
                }
                all.extend_from_slice(rows);
                offsets
                    .push(u32::try_from(indices.len()).expect("samplers leave room for an edge to each destination"));
            }
            let block = Self::of_csr(Csr::new(offsets, indices, self.sources()), self.device);
            Box::new(Self { edge_features: all, own: self.own.clone(), ..block })
        })
    }

    /// The same destinations, with their edges as sources: for sums of rows of edges.
    pub(crate) fn alone(&self) -> &Self {
        self.alone.get_or_init(|| {
            let indices = (0..self.edges() as u32).collect();
            Box::new(Self::of_csr(Csr::new(self.csr.offsets.clone(), indices, self.edges()), self.device))
        })
    }

    /// The places of the sources of edges, and of their destinations.
    pub(crate) fn ends(&self) -> &[Arc<Csr>; 2] {
        self.ends.get_or_init(|| {
            let destinations = self.destinations_of_edges();
            [&self.csr.indices, &destinations].map(|places| Arc::new(Csr::of_places(places)))
        })
    }

    fn destinations_of_edges(&self) -> Vec<u32> {
        let edges = self.drawn().zip(0..).map(|(edges, destination)| std::iter::repeat_n(destination, edges as usize));
        edges.flatten().collect()
    }

    /// Number of sampled edges of each destination.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = u32> {
        self.csr.offsets.windows(2).map(|bounds| bounds[1] - bounds[0])
    }

    /// The sum of the edge weights of each destination. Without weights, all are 1.
    pub(crate) fn weight_sums(&self) -> impl Iterator<Item = f32> {
        let csr = &self.csr;
        csr.offsets.windows(2).map(|bounds| match csr.weights.is_empty() {
            true => (bounds[1] - bounds[0]) as f32,
            false => csr.weights[bounds[0] as usize..bounds[1] as usize].iter().sum(),
        })
    }

    /// In-degree of each destination in the whole graph; 0 for halo nodes without a list.
    pub(crate) fn global(&self) -> &[f32] {
        &self.global
    }

    /// The values of destinations, from the values of sources.
    pub(crate) fn of_destinations(&self, values: &[f32]) -> Vec<f32> {
        (0..self.destinations()).map(|destination| values[self.own(destination)]).collect()
    }

    /// In-degree of each source in the whole graph, or the sum of the weights of its in-edges.
    ///
    /// # Panics
    /// If the degrees were not given.
    pub(crate) fn source_degrees(&self) -> &[f32] {
        let degrees = self.source_degrees.as_deref();
        degrees.expect("GCN needs the in-degree of each source: give it with Block::with_source_degrees")
    }

    /// Says that its halo destinations get historical embeddings: GCN then divides by their in-degrees. To be called before layers use
    /// the block.
    pub fn set_historical(&mut self) {
        self.has_historical = true;
    }

    /// In-degree of each destination in the whole graph, or the sum of the weights of its in-edges, f32 of `[destinations]` on the device.
    ///
    /// 0 for halo nodes without a list and without historical embeddings. So GCN gives their own state the whole weight, as for a node
    /// without in-neighbors, and not a small share of a sum that is not known.
    pub(crate) fn destination_degrees(&self) -> &Tensor {
        self.sent.destination_degrees.get_or_init(|| {
            let mut degrees = self.of_destinations(self.source_degrees());
            if !self.has_historical {
                let without_lists = degrees.iter_mut().zip(&self.global).filter(|(_, count)| **count == 0.0);
                without_lists.for_each(|(degree, _)| *degree = 0.0);
            }
            send(Tensor::from_slice(&degrees), self.device)
        })
    }
}

/// Copies arrays of indices to a device, as tensors of int32, or of int64 if they are wide.
fn send_indices(arrays: &[&[u32]], is_wide: bool, device: Device) -> Vec<Tensor> {
    if is_wide {
        let wide = arrays.iter().map(|array| array.iter().copied().map(i64::from).collect());
        return send_together(&wide.collect::<Vec<Vec<i64>>>(), device);
    }
    let narrow = arrays.iter().map(|array| bytemuck::cast_slice(array));
    send_together(&narrow.collect::<Vec<&[i32]>>(), device)
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn wide_indices_are_what_narrow_ones_are() {
        let arrays: [&[u32]; 3] = [&[0, 2, 3], &[], &[5, 7, i32::MAX as u32]];
        let narrow = send_indices(&arrays, false, Device::Cpu);
        let wide = send_indices(&arrays, true, Device::Cpu);
        assert_eq!(narrow[0].kind(), Kind::Int);
        assert!(narrow.iter().zip(&wide).all(|(narrow, wide)| narrow.to_kind(Kind::Int64).equal(wide)));
        let largest = send_indices(&[&[u32::MAX]], true, Device::Cpu);
        assert_eq!(largest[0].int64_value(&[0]), i64::from(u32::MAX));
    }
}
