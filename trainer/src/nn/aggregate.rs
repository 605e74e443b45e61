//! Aggregation: reduces the messages of a destination's in-neighbors to one row.
//!
//! A layer has three parts. The *message* is a function of a source's state. The *aggregation* reduces messages. The *update* is a
//! function of a destination's own state and its aggregate. This module is the aggregation over the [`Block`] of one hop:
//!
//! - [`Aggregate::Mean`], [`Aggregate::Sum`], [`Aggregate::Gcn`] and [`Aggregate::WeightedMean`] are one operator with
//!   different factors, `results[d] * sum of edges[e] * sources[s] * x[s]`, which is linear in `x`;
//! - [`Aggregate::Max`] is the maximum, value by value;
//! - attention has factors that depend on states: see [`attention`](super::attention).
//!
//! A destination without edges gets zeros, as in PyTorch Geometric.
//!
//! **Edge weights.** If a block has any, they are factors of the messages, and a mean divides by their sum.
//!
//! **Sampled sums.** GCN and GIN add up neighbors, so a sample of them gives too small a sum. With uniform draws, with or without
//! replacement, each draw has the mean of all neighbors as its expectation. So the sampled sum times (in-degree / number of draws)
//! has the full sum as its expectation (Horvitz-Thompson). [`Scaling::HorvitzThompson`] multiplies by that. A mean needs no
//! scaling, and a maximum cannot be scaled.
//!
//! **Cost.** Processors use [`crate::kernels::gather`], other devices libtorch's `embedding_bag`. With two threads, 117 K edges,
//! 128 values per row and sources that exceed the cache, `embedding_bag` is as fast forward, and 40 times slower backward, because
//! it adds gradients into rows with one thread.

use std::sync::Arc;

use half::bf16;
use tch::{Device, Kind, Tensor};

use super::{
    aggregate_kind::{Aggregate, Scaling},
    backend::Backend,
    graph::{Block, Csr, Own},
    historical::HistoricalEmbeddings,
};
use crate::{
    kernels::{
        Instructions,
        gather::{GatherPlan, gather},
        max,
        transpose::Transposed,
    },
    runtime::{Array, send, send_together},
    shim::{self, Element},
};

/// The factors of a linear aggregation. None means 1.
#[derive(Debug, Clone, Default)]
struct Factors {
    results: Option<Arc<Vec<f32>>>,
    sources: Option<Arc<Vec<f32>>>,
    /// Whether edge weights are factors, too.
    edges: bool,
}

/// Aggregates the messages of a block's sources, `[sources, width]`, to `[destinations, width]`.
///
/// # Panics
/// If `kind` is [`Aggregate::Attention`]; if shapes disagree; if the block lacks degrees of sources and the
/// kind needs them.
pub fn aggregate(
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    messages: &Tensor,
    historical: Option<&HistoricalEmbeddings>,
) -> Tensor {
    own_and_aggregate(Backend::Fastest, block, kind, scaling, messages, historical).1
}

/// The states of the destinations, from the states of all sources, `[sources, width]`.
pub(crate) fn own_states(backend: Backend, block: &Block, rows: &Tensor) -> Tensor {
    let Some(own) = block.own_places() else {
        return rows.narrow(0, 0, block.destinations() as i64);
    };
    if !backend.has_kernels_for(rows) {
        let places = block.tensors().own.as_ref().expect("tensors have what the block has");
        return rows.index_select(0, places);
    }
    match rows.kind() {
        Kind::BFloat16 => copies_with_kernel::<bf16>(backend.instructions(), own, rows),
        _ => copies_with_kernel::<f32>(backend.instructions(), own, rows),
    }
}

fn copies_with_kernel<T: Element>(instructions: Instructions, own: &Arc<Own>, rows: &Tensor) -> Tensor {
    let rows = rows.contiguous();
    let result = copies::<T>(instructions, own, &rows);
    shim::with_gradient(result, &[&rows], || {
        let (own, sources) = (Arc::clone(own), rows.size()[0]);
        Box::new(move |gradient, _| {
            let gradient = gradient.contiguous();
            let result = Tensor::zeros([sources, gradient.size()[1]], (T::KIND, Device::Cpu));
            let first = &mut result.narrow(0, 0, own.nodes as i64);
            sum_copies::<T>(instructions, &own, &gradient, first);
            vec![Some(result)]
        })
    })
}

/// The rows of destinations, `[destinations, width]`.
fn copies<T: Element>(instructions: Instructions, own: &Own, rows: &Tensor) -> Tensor {
    let (destinations, width) = (own.places.len() as i64, rows.size()[1]);
    let mut result = Tensor::empty([destinations, width], (T::KIND, Device::Cpu));
    gather::<T>(
        instructions,
        shim::values(&rows.detach()),
        width as usize,
        GatherPlan::of(&own.offsets, &own.places),
        shim::values_mut(&mut result),
    );
    result
}

/// For each node, the sum of the rows of its destinations.
fn sum_copies<T: Element>(instructions: Instructions, own: &Own, rows: &Tensor, result: &mut Tensor) {
    let transposed = own.transposed();
    gather::<T>(
        instructions,
        shim::values(rows),
        rows.size()[1] as usize,
        GatherPlan::of(&transposed.offsets, &transposed.indices),
        shim::values_mut(result),
    );
}

/// The row of each edge's source, `[edges, width]`, from the rows of sources.
pub(crate) fn rows_of_edges(backend: Backend, block: &Block, rows: &Tensor) -> Tensor {
    if !backend.has_kernels_for(rows) {
        return rows.index_select(0, &block.tensors().indices);
    }
    let [sources, _] = block.ends();
    match rows.kind() {
        Kind::BFloat16 => copies_with_kernel::<bf16>(backend.instructions(), sources, rows),
        _ => copies_with_kernel::<f32>(backend.instructions(), sources, rows),
    }
}

/// The sum of the rows of each destination's edges, `[destinations, width]`, from `[edges, width]`.
pub(crate) fn sum_of_edges(backend: Backend, block: &Block, scaling: Scaling, rows: &Tensor) -> Tensor {
    let sums = match (backend.has_kernels_for(rows), rows.kind()) {
        (false, kind) => {
            let zeros = Tensor::zeros([block.destinations() as i64, rows.size()[1]], (kind, block.device()));
            zeros.index_add(0, &block.tensors().destinations, rows)
        }
        (true, Kind::BFloat16) => sums_with_kernel::<bf16>(backend.instructions(), block, rows),
        (true, _) => sums_with_kernel::<f32>(backend.instructions(), block, rows),
    };
    match factors(block, Aggregate::Sum, scaling).results {
        Some(factors) => sums * send(Tensor::from_slice(&factors), block.device()).unsqueeze(1).to_kind(rows.kind()),
        None => sums,
    }
}

fn sums_with_kernel<T: Element>(instructions: Instructions, block: &Block, rows: &Tensor) -> Tensor {
    let rows = rows.contiguous();
    let [_, destinations] = block.ends();
    let result = Tensor::zeros([block.destinations() as i64, rows.size()[1]], (T::KIND, Device::Cpu));
    let first = &mut result.narrow(0, 0, destinations.nodes as i64);
    sum_copies::<T>(instructions, destinations, &rows.detach(), first);
    shim::with_gradient(result, &[&rows], || {
        let destinations = Arc::clone(destinations);
        Box::new(move |gradient, _| vec![Some(copies::<T>(instructions, &destinations, &gradient.contiguous()))])
    })
}

/// The states of the destinations, as [`own_states`], and the aggregates of all sources. Both are one function,
/// because their gradients flow back into the same rows. Two functions would need three more passes over these.
pub(crate) fn own_and_aggregate(
    backend: Backend,
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    rows: &Tensor,
    historical: Option<&HistoricalEmbeddings>,
) -> (Tensor, Tensor) {
    let size = rows.size();
    assert!(
        size.len() == 2 && size[0] as usize == block.sources(),
        "rows of shape {size:?} for a block of {} sources",
        block.sources()
    );
    let own = || own_states(backend, block, rows);
    let (own, aggregated) = match (kind, backend.has_kernels_for(rows), rows.kind()) {
        (Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::ReluSum, ..) => {
            panic!("{kind:?} has an operator of its own")
        }
        (Aggregate::Max, false, _) => (own(), largest_with_operators(block, rows)),
        (Aggregate::Max, true, Kind::BFloat16) => (own(), largest_with_kernel::<bf16>(block, rows)),
        (Aggregate::Max, true, _) => (own(), largest_with_kernel::<f32>(block, rows)),
        (linear, false, _) => (own(), sum_with_operators(block, linear, scaling, rows)),
        (linear, true, Kind::BFloat16) => {
            sum_with_kernel::<bf16>(backend.instructions(), block, &factors(block, linear, scaling), rows)
        }
        (linear, true, _) => {
            sum_with_kernel::<f32>(backend.instructions(), block, &factors(block, linear, scaling), rows)
        }
    };
    (own, with_historical(aggregated, historical))
}

/// Replaces the aggregates of halo nodes by their historical embeddings.
pub(crate) fn with_historical(aggregated: Tensor, historical: Option<&HistoricalEmbeddings>) -> Tensor {
    match historical {
        None => aggregated,
        Some(historical) => {
            let known = historical.rows.to_kind(aggregated.kind());
            aggregated.index_copy(0, &historical.destinations, &known)
        }
    }
}

impl Block {
    /// Copies to the device what a layer with this aggregation, which takes this many features of an edge, takes of the block, now and not
    /// on first use. The processor does not wait for the copies.
    pub(crate) fn send(&self, kind: Aggregate, scaling: Scaling, features: usize) {
        match kind {
            Aggregate::Attention => {
                let looped = self.with_own(features);
                looped.tensors();
                if features > 0 {
                    looped.features(features);
                }
                if self.own_places().is_some() {
                    self.tensors();
                }
            }
            Aggregate::Max => _ = self.tensors(),
            Aggregate::AttentionToOthers | Aggregate::ReluSum => {
                self.tensors();
                if features > 0 {
                    self.features(features);
                }
            }
            _ => {
                self.tensors();
                operator_weights(self, kind, scaling);
            }
        }
        if kind == Aggregate::Gcn {
            self.destination_degrees();
        }
    }
}

fn factors(block: &Block, kind: Aggregate, scaling: Scaling) -> Factors {
    let drawn = || block.drawn().map(|drawn| drawn.max(1) as f32);
    let scale = |scaling| match scaling {
        Scaling::None => None,
        Scaling::HorvitzThompson => Some(block.global().iter().zip(drawn()).map(|(degree, drawn)| degree / drawn)),
    };
    let weighted = !block.csr().weights.is_empty();
    match kind {
        Aggregate::Mean if weighted => Factors {
            results: Some(Arc::new(block.weight_sums().map(|sum| if sum > 0.0 { sum.recip() } else { 1.0 }).collect())),
            edges: true,
            ..Factors::default()
        },
        Aggregate::Mean => Factors { results: Some(Arc::new(drawn().map(f32::recip).collect())), ..Factors::default() },
        Aggregate::Sum => Factors {
            results: scale(scaling).map(|scales| Arc::new(scales.collect())),
            edges: weighted,
            ..Factors::default()
        },
        Aggregate::Gcn => {
            let sources: Vec<f32> = block.source_degrees().iter().map(|degree| (degree + 1.0).sqrt().recip()).collect();
            let mut results = block.of_destinations(&sources);
            if let Some(scales) = scale(scaling) {
                results.iter_mut().zip(scales).for_each(|(factor, scale)| *factor *= scale);
            }
            Factors { results: Some(Arc::new(results)), sources: Some(Arc::new(sources)), edges: weighted }
        }
        Aggregate::WeightedMean => Factors {
            results: Some(Arc::new(block.weight_sums().map(|sum| sum.max(1.0).recip()).collect())),
            sources: None,
            edges: weighted,
        },
        Aggregate::Max | Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::ReluSum => {
            unreachable!("not linear")
        }
    }
}

fn sum_with_kernel<T: Element>(
    instructions: Instructions,
    block: &Block,
    factors: &Factors,
    rows: &Tensor,
) -> (Tensor, Tensor) {
    let rows = rows.contiguous();
    let width = rows.size()[1];
    let csr = block.csr();
    let mut aggregated = Tensor::empty([block.destinations() as i64, width], (T::KIND, block.device()));
    gather::<T>(
        instructions,
        shim::values(&rows.detach()),
        width as usize,
        GatherPlan {
            offsets: &csr.offsets,
            indices: &csr.indices,
            edges: factors.edges.then_some(&csr.weights),
            inputs: factors.sources.as_deref().map(Vec::as_slice),
            results: factors.results.as_deref().map(Vec::as_slice),
            added: &[],
        },
        shim::values_mut(&mut aggregated),
    );
    let own_places = block.own_places().map(Arc::clone);
    let own = match &own_places {
        None => rows.detach().narrow(0, 0, block.destinations() as i64).detach(),
        Some(own) => copies::<T>(instructions, own, &rows),
    };
    shim::with_gradients(&[&own, &aggregated], &[&rows], || {
        let (csr, transposed, factors) = (Arc::clone(csr), Arc::clone(block.transposed()), factors.clone());
        let destinations = block.destinations() as i64;
        Box::new(move |gradients, _| {
            let [of_own, of_aggregated] = gradients else { unreachable!("two outputs") };
            let of_own = of_own.as_ref().map(Tensor::contiguous).map(|of_own| match &own_places {
                None => of_own,
                Some(own) => {
                    let mut of_nodes = Tensor::empty([own.nodes as i64, width], (T::KIND, Device::Cpu));
                    sum_copies::<T>(instructions, own, &of_own, &mut of_nodes);
                    of_nodes
                }
            });
            let of_aggregated = match of_aggregated {
                Some(gradient) => gradient.contiguous(),
                None => Tensor::zeros([destinations, width], (T::KIND, Device::Cpu)),
            };
            let mut result = Tensor::empty([transposed.offsets.len() as i64 - 1, width], (T::KIND, Device::Cpu));
            let weights = factors.edges.then(|| weights_of(&csr, &transposed));
            gather::<T>(
                instructions,
                shim::values(&of_aggregated),
                width as usize,
                GatherPlan {
                    offsets: &transposed.offsets,
                    indices: &transposed.indices,
                    edges: weights.as_deref(),
                    inputs: factors.results.as_deref().map(Vec::as_slice),
                    results: factors.sources.as_deref().map(Vec::as_slice),
                    added: of_own.as_ref().map_or(&[], shim::values),
                },
                shim::values_mut(&mut result),
            );
            vec![Some(result)]
        })
    });
    (own, aggregated)
}

/// The edge weights in the order of the transposed CSR.
fn weights_of(csr: &Csr, transposed: &Transposed) -> Vec<f32> {
    transposed.edges.iter().map(|&edge| csr.weights[edge as usize]).collect()
}

fn sum_with_operators(block: &Block, kind: Aggregate, scaling: Scaling, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let weight = operator_weights(block, kind, scaling).map(|weight| weight.to_kind(messages.kind()));
    let sum = 0;
    Tensor::embedding_bag(messages, &edges.indices, &edges.offsets, false, sum, false, weight, true).0
}

/// The factors of a linear aggregation as factors of its edges, f32 of `[edges]` on the block's device. The block keeps them.
fn operator_weights(block: &Block, kind: Aggregate, scaling: Scaling) -> Option<Tensor> {
    block.edge_weights(kind, scaling, || {
        let factors = factors(block, kind, scaling);
        if factors.results.is_none() && factors.sources.is_none() && !factors.edges {
            return None;
        }
        let csr = block.csr();
        let mut weights = match factors.edges {
            true => csr.weights.clone(),
            false => vec![1.0; block.edges()],
        };
        if let Some(results) = &factors.results {
            for (factor, bounds) in results.iter().zip(csr.offsets.windows(2)) {
                let of_result = &mut weights[bounds[0] as usize..bounds[1] as usize];
                of_result.iter_mut().for_each(|weight| *weight *= factor);
            }
        }
        if let Some(sources) = &factors.sources {
            let of_sources = csr.indices.iter().map(|&source| sources[source as usize]);
            weights.iter_mut().zip(of_sources).for_each(|(weight, factor)| *weight *= factor);
        }
        send_together(&[Array::F32(&weights)], block.device()).pop()
    })
}

fn largest_with_kernel<T: Element>(block: &Block, messages: &Tensor) -> Tensor {
    let messages = messages.contiguous();
    let width = messages.size()[1];
    let csr = block.csr();
    let mut result = Tensor::empty([block.destinations() as i64, width], (T::KIND, block.device()));
    let winners = max::max::<T>(
        shim::values(&messages.detach()),
        width as usize,
        &csr.offsets,
        &csr.indices,
        shim::values_mut(&mut result),
    );
    shim::with_gradient(result, &[&messages], || {
        let transposed = Arc::clone(block.transposed());
        Box::new(move |gradient, _| {
            let gradient = gradient.contiguous();
            let mut result = Tensor::empty([transposed.offsets.len() as i64 - 1, width], (T::KIND, gradient.device()));
            max::max_backward::<T>(
                shim::values(&gradient),
                width as usize,
                &winners,
                &transposed,
                shim::values_mut(&mut result),
            );
            vec![Some(result)]
        })
    })
}

fn largest_with_operators(block: &Block, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let width = messages.size()[1];
    let rows = messages.index_select(0, &edges.indices);
    let index = edges.destinations.to_kind(Kind::Int64).unsqueeze(1).expand([-1, width], false);
    Tensor::zeros([block.destinations() as i64, width], (messages.kind(), block.device()))
        .internal_scatter_reduce(0, &index, &rows, "amax", false)
}
